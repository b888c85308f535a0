"""Questions of a run put to the client, each under the rules of its class.

The question is a fact before the client hears of it, and so is its answer. What the client said
it does not serve is decided by policy at once.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from batten.agent.deps import Answer, Question, RunDeps
from batten.contract.errors import Conflict, NotFound
from batten.journal.recorder import Recorder
from batten.protocols.maestro import asking
from batten.protocols.maestro.asking import Pending
from batten.protocols.maestro.incoming import (
    ClientToolResult,
    Content,
    ServerRequestResponse,
    ToolResponse,
)
from batten.protocols.maestro.vocabulary import ApprovalMode, RequestType
from batten.serve.maestro.client_sink import ClientSink
from batten.serve.maestro.limits import Limits
from batten.serve.maestro.renderer import MaestroRenderer
from batten.session.requests import JournalRequests, cancelled, known_request, resolve

RESOLVERS = ("client", "policy", "operator")
"""Who answers: the client, policy in its place, and whoever runs `batten answer`."""
_LONGEST_TEXT = 100_000
"""Characters of an answer that the journal keeps; whoever waits here is given all of it."""
_NOBODY: dict[RequestType, str] = {
    "client_tool": "The client does not run tools here",
    "mcp_elicitation": "Nobody is there to answer the server",
    "user_input": "User interaction not available in headless mode",
    "tool_retry": "Retry skipped by policy",
}

AnswerMessage = ServerRequestResponse | ToolResponse | ClientToolResult


class MaestroRequests:
    """Asks the client, and takes its answers."""

    def __init__(
        self,
        sink: ClientSink,
        renderer: MaestroRenderer,
        limits: Limits,
        group: asyncio.TaskGroup,
        mode: Callable[[], ApprovalMode],
    ) -> None:
        self._sink = sink
        self._renderer = renderer
        self._group = group
        self._mode = mode
        self._asking = {
            kind: JournalRequests(RESOLVERS, limits.patience_s(kind), self._opened)
            for kind in ("approval", *_NOBODY)
        }
        self._content: dict[str, tuple[Content, ...]] = {}
        self._gone = ""
        """Why nobody can answer any more."""

    def attach(self, deps: RunDeps) -> None:
        """Where questions are kept, also those that a process before this one asked."""
        self._deps = deps

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        decided = self._policy(question)
        if decided is not None:
            return decided
        return await self._asking[question.request_class].ask(recorder, question)

    def taken(self, call_id: str, answer: Answer) -> tuple[Content, ...]:
        """The content that a call was answered with, once; nothing if somebody else answered."""
        content = self._content.pop(call_id, ())
        return content if answer.by == "client" else ()

    def find(self, message: AnswerMessage) -> Pending | None:
        """The request that this answers, if it waits."""
        waiting = self._renderer.frames.pending.values()
        return next((one for one in waiting if _is_for(message, one)), None)

    async def answer(self, message: AnswerMessage) -> None:
        """Store an answer; `NotFound` if nothing waits for it."""
        pending = self.find(message)
        if pending is None:
            raise NotFound(_not_pending(message))
        said = asking.meaning(message)
        first = pending.request_type == "client_tool" and pending.call_id not in self._content
        if first:  # before it is durable: whoever waits for it may be quicker than we are
            self._content[pending.call_id] = said.content
        try:
            await resolve(
                self._deps.journal,
                self._deps.redactor,
                pending.request_id,
                granted=said.granted,
                by="client",
                text=said.text[:_LONGEST_TEXT],
                halt=said.halt,
            )
        except Conflict as error:
            if first:
                self._content.pop(pending.call_id, None)
            raise NotFound(_not_pending(message)) from error

    async def hang_up(self, reason: str) -> None:
        """The client answers no more: what waits for it ends, and policy decides from now on."""
        self._gone = reason
        for request_id in tuple(self._renderer.frames.pending):
            await self._cancel(request_id)

    def _policy(self, question: Question) -> Answer | None:
        kind = question.request_class
        if kind == "approval" and self._mode() == "fail":
            return Answer(False, "policy", "Denied by approval policy")
        if self._gone:
            return Answer(False, "policy", _NOBODY.get(kind, self._gone))
        if kind != "approval" and kind not in self._sink.serves:
            return Answer(False, "policy", _NOBODY[kind])
        return None

    def _opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        """The client left while the question was being written down, or before it was shown."""
        if self._gone:
            self._group.create_task(self._cancel(request_id))

    async def _cancel(self, request_id: str) -> None:
        row = await known_request(self._deps.journal, request_id)
        fact = cancelled(request_id, row.request_class, by="runtime", reason=self._gone)
        with suppress(Conflict):  # somebody was first
            await self._deps.journal.append(row.run_id, [fact], fence=None)


def _is_for(message: AnswerMessage, pending: Pending) -> bool:
    match message:
        case ServerRequestResponse():
            same = message.request_type == pending.request_type
            return same and message.request_id == pending.request_id
        case ToolResponse():
            return pending.request_type == "approval" and message.call_id == pending.call_id
        case ClientToolResult():
            lent = pending.request_type not in ("approval", "tool_retry")
            return lent and message.call_id == pending.call_id


def _not_pending(message: AnswerMessage) -> str:
    match message:
        case ServerRequestResponse():
            return asking.not_pending(message.request_type, "request_id", message.request_id)
        case ToolResponse():
            return asking.not_pending("approval", "call_id", message.call_id)
        case ClientToolResult():
            return asking.not_pending("client_tool", "call_id", message.call_id)
