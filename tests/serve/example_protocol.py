"""A protocol in one file, on the public parts of `serve/`: what a new one takes.

    > {"prompt": "…"}   {"answer": id, "allow": true}   {"stop": true}
    < {"text": "…"}   {"approve": id, "tool": "…"}   {"end": outcome, "message": "…"}
    < {"error": "…"}

`python -m tests.serve.example_protocol` serves it with the flags of `batten headless`.
"""

import asyncio
import sys
from typing import Any

from msgspec.structs import replace

from batten.agent.deps import Answer, Question, RunDeps
from batten.agent.execution import Ended
from batten.agent.settings import RunSettings
from batten.contract.commands import Command, Interrupt, Prompt, ShutDown
from batten.contract.envelope import Envelope
from batten.contract.errors import BattenError, CallerError
from batten.contract.facts import (
    ApprovalRequested,
    AssistantTextDelta,
    Fact,
    RunCancelled,
    RunFailed,
    RunFinished,
)
from batten.contract.outcomes import Outcome, ending_of
from batten.journal.contract import Stored
from batten.protocols.json_line import Malformed, encode
from batten.serve.asking import Reply, RequestsByMessage
from batten.serve.renderer import Renderer
from batten.serve.showing import Showing
from batten.serve.stdio import Stdio
from batten.session.live import LiveSession
from batten.wiring.opener import SessionOpener

Frame = dict[str, Any]
RESOLVERS = ("client", "policy")


def frames_of(fact: Fact) -> list[Frame]:
    """The codec's one half: a fact becomes frames."""
    match fact:
        case AssistantTextDelta():
            return [{"text": fact.delta}]
        case ApprovalRequested():
            return [{"approve": fact.approval_id, "tool": fact.kind}]
        case RunFinished() | RunFailed() | RunCancelled():
            end = ending_of(fact)
            return [{"end": end.outcome, "message": end.message}]
        case _:
            return []


class ExampleRenderer(Renderer):
    follows = completes = True

    def __init__(self, stdio: Stdio) -> None:
        self._stdio = stdio

    def show(self, stored: Stored, envelope: Envelope) -> None:
        for frame in frames_of(envelope.data):
            self._stdio.send(encode(frame))

    def ended(self, ended: Ended) -> None:
        if not ended.durable:
            self.fail(ended.outcome, ended.message)

    def fail(self, outcome: Outcome, message: str) -> None:
        self._stdio.send(encode({"end": outcome, "message": message}))

    def last_words(self, outcome: Outcome, message: str, durable: bool) -> None:
        if not durable:
            self.fail(outcome, message)


class ExampleRequests(RequestsByMessage):
    """Only approvals are asked, as long as there is a client."""

    def policy(self, question: Question) -> Answer | None:
        if question.request_class == "approval" and not self._gone:
            return None
        return Answer(False, "policy", "the client is not asked")


class ExampleSurface:
    """One client and one session; prompts are worked through in order."""

    def __init__(self, stdio: Stdio, opener: SessionOpener) -> None:
        self._stdio = stdio
        self._opener = opener
        self._opened = asyncio.Event()
        self._live: LiveSession | None = None
        self._requests: ExampleRequests | None = None

    async def run(self) -> int:
        self._requests = ExampleRequests(self._stdio.group, RESOLVERS, lambda _: 60.0, "policy")
        spec = replace(self._opener.base, surface="example", resolvers=RESOLVERS, equip=self._equip)
        opened = await self._opener.open(spec)
        renderer = ExampleRenderer(self._stdio)
        renderer.redact = opened.redact
        guard = self._stdio.guard(renderer)
        self._live = LiveSession(opened.session)
        self._requests.take = self._live.take
        showing = Showing(self._live, renderer, self._stdio.output, guard)
        self._opened.set()
        try:
            await showing.run()
        finally:
            await showing.close()
            guard.leave()
            await opened.close()
        return 0

    def _equip(self, deps: RunDeps, settings: RunSettings) -> RunDeps:
        assert self._requests is not None
        self._requests.attach(deps.journal)
        return replace(deps, requests=self._requests)

    async def _command(self, command: Command) -> None:
        await self._opened.wait()
        assert self._live is not None
        await self._live.take(command)

    async def take(self, message: Frame) -> None:
        """The codec's other half: a frame becomes a command."""
        try:
            match message:
                case {"prompt": str(text)}:
                    await self._command(Prompt(text=text))
                case {"stop": True}:
                    await self._command(Interrupt())
                case {"answer": str(request_id), "allow": bool(allow)} if self._requests:
                    await self._requests.store(request_id, Reply(allow), "it has an answer")
                case _:
                    raise CallerError("a line is a prompt, an answer or a stop")
        except BattenError as error:
            self._stdio.send(encode({"error": str(error)}))

    async def refuse(self, malformed: Malformed) -> None:
        self._stdio.send(encode({"error": malformed.problem}))

    async def hang_up(self) -> None:
        if self._requests is not None:
            await self._requests.hang_up("the client is gone")
        await self._command(ShutDown())

    def fail(self, outcome: Outcome, message: str) -> None:
        self._stdio.send(encode({"end": outcome, "message": message}))


if __name__ == "__main__":
    from batten.cli import headless

    headless.SURFACES["maestro"] = "tests.serve.example_protocol:ExampleSurface"
    sys.exit(headless.run_headless(["--protocol", "maestro", *sys.argv[1:]]))
