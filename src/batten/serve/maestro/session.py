"""A session while a client speaks to it: prompts, answers, settings and utilities carried out."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial

from msgspec.structs import replace

from batten.agent.deps import RunDeps
from batten.agent.rules.verdict import may_read
from batten.agent.settings import RunSettings
from batten.contract.commands import Command, GoOn, Interrupt, Prompt
from batten.contract.conversation import Image
from batten.contract.errors import CallerError
from batten.contract.outcomes import exit_code
from batten.protocols.maestro import faults, incoming
from batten.protocols.maestro.outgoing import Status
from batten.protocols.maestro.vocabulary import ApprovalMode
from batten.serve.dialogue import Dialogue
from batten.serve.hosting import Host, Hosted, Wanted
from batten.serve.maestro.attachments import load
from batten.serve.maestro.client_sink import ClientSink, ServeContext
from batten.serve.maestro.client_tools import ClientTools
from batten.serve.maestro.limits import Limits
from batten.serve.maestro.renderer import MaestroRenderer
from batten.serve.maestro.requests import RESOLVERS, AnswerMessage, MaestroRequests
from batten.serve.maestro.settings import applied, approval_mode_of, changes_of
from batten.serve.maestro.utilities import Utilities
from batten.session.session import Session

ALREADY_WORKING = "Headless runtime is already processing a prompt"
_LONGEST_PROMPT = 16 * 1024 * 1024
"""Far more than any model takes; what is looked through holds everything else up meanwhile."""
_SETTLE_S = 5.0
"""How long what waits for the client may take to end, before utilities are ended all the same."""


class MaestroSession:
    """A session, whoever is connected to it."""

    def __init__(
        self,
        place: ServeContext,
        sink: ClientSink,
        limits: Limits,
        prompted: Callable[[incoming.Prompt], object] | None = None,
    ) -> None:
        """`prompted` hears of each prompt that is taken, before anything is said of it."""
        self._context = place
        self._sink = sink
        self._limits = limits
        self._prompted = prompted
        self._mode: ApprovalMode = "prompt"
        self._prompts: asyncio.Queue[Command | None] = asyncio.Queue()
        self.renderer = MaestroRenderer(sink, place.group)
        self._requests = MaestroRequests(
            sink,
            self.renderer,
            limits,
            place.group,
            mode=lambda: self._mode,
        )
        self._tools = ClientTools(self._requests)
        self._interrupting = False
        """The run that works was asked to end: who prompts again waits for that."""

    async def open(self, host: Host, session_id: str, resume: str | None = None) -> None:
        """A new session of this id, or an earlier one: that named here or by the command line."""
        self._hosted: Hosted = await host.open(
            Wanted(
                surface="maestro",
                session_id=session_id,
                resume=resume,
                settings={"resolvers": RESOLVERS},
                elicits=True,
                equip=self._equip,
            )
        )
        self.session: Session = self._hosted.session
        self._mode = approval_mode_of(self.session.settings)
        self._guard = self._context.guard(self.renderer)
        self._dialogue = Dialogue(self.session, self.renderer, self._context.output, self._guard)
        self._hosted.show_notes(self._dialogue.note)
        self._utilities = Utilities(
            self.session,
            self._hosted.keeper,
            self._sink,
            self._context.group,
            self._limits.read_bytes,
        )

    def _equip(self, deps: RunDeps, settings: RunSettings) -> RunDeps:
        self._requests.attach(deps)
        asked = replace(
            deps,
            requests=self._requests,
            asks_retry=lambda: "tool_retry" in self._sink.serves,
        )
        return self._tools.equip(asked)

    async def go_on(self) -> None:
        """Take over the run that a process before this one left unfinished."""
        if self.session.unfinished() is not None:
            self.renderer.idle.clear()
            await self._prompts.put(GoOn())

    @property
    def model(self) -> str:
        return self.session.settings.models[0]

    @property
    def workspace(self) -> str:
        return self.session.deps.workspace_path

    async def serve(self) -> int:
        """Work through the prompts until there are no more; the exit code.

        How runs ended is said in their messages. Only who ends us from outside is told otherwise.
        """
        try:
            await self._dialogue.run(self._commands(), on_the_way=lambda: not self._prompts.empty())
        finally:
            await self._close()
        ended = self._guard.asked.is_set() and self._dialogue.outcome is not None
        return exit_code("cancelled") if ended else 0

    async def _close(self) -> None:
        """Each of these, whatever becomes of the one before."""
        try:
            await self._utilities.close("Headless runtime shutdown")
        finally:
            try:
                await self._dialogue.close()
            finally:
                await self._hosted.close()

    async def take(self, message: incoming.Incoming, sender: str) -> None:
        """Carry out one message of a connection that may send it. Utilities run on beside it."""
        if not await self._taken(message):
            await self._utilities.take(message, sender)

    async def finish(self, message: incoming.Incoming, sender: str) -> None:
        """The same, up to where what it leads to at once was said."""
        pending = self._requests.find(message) if isinstance(message, AnswerMessage) else None
        if not await self._taken(message):
            await self._utilities.finish(message, sender)
        elif pending is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_S):
                    await self.renderer.until_resolved(pending.request_id)

    async def leave(self, connection_id: str) -> None:
        """A connection is gone among others: with it, the utilities that it started."""
        await self._utilities.end_all("Owning connection closed", connection_id)

    async def _taken(self, message: incoming.Incoming) -> bool:
        """Carry out a message, unless it is about a utility."""
        match message:
            case incoming.Init():
                await self._initialize(message)
            case incoming.Prompt():
                await self._prompt(message)
            case incoming.Interrupt():
                await self._interrupt("Interrupted")
            case incoming.Cancel():
                await self._interrupt("Cancelled")
            case incoming.ToolResponse() if self._is_nothing(message):
                self._sink.send(Status(message="Tool response ignored (auto-approval mode)"))
            case (
                incoming.ToolResponse()
                | incoming.ClientToolResult()
                | incoming.ServerRequestResponse()
            ):
                await self._requests.answer(message)
            case _:
                return False
        return True

    def _is_nothing(self, message: incoming.ToolResponse) -> bool:
        """Whether nobody is asked for approval, and nobody was."""
        return self._mode != "prompt" and self._requests.find(message) is None

    async def shut_down(self) -> None:
        """End what works, and take nothing more."""
        await self._stop("Shutdown")
        await self._utilities.close("Headless runtime shutdown")
        await self._prompts.put(None)

    async def hang_up(self) -> None:
        """The client is gone: what it asked for is finished, and nobody is asked any more."""
        await self._requests.hang_up("Client closed its side before request completed")
        await self._utilities.close("Owning connection closed")
        await self._prompts.put(None)

    async def _commands(self) -> AsyncIterator[Command]:
        while (command := await self._prompts.get()) is not None:
            yield command

    async def _prompt(self, message: incoming.Prompt) -> None:
        if not self.renderer.idle.is_set():
            if not self._interrupting:
                raise CallerError(ALREADY_WORKING)
            await self.renderer.idle.wait()
        if len(message.content) > _LONGEST_PROMPT:
            raise CallerError(
                f"The prompt has {len(message.content)} characters; {_LONGEST_PROMPT} are the most"
            )
        self._interrupting = False
        self.renderer.idle.clear()
        if self._prompted is not None:
            self._prompted(message)
        text: str = message.content
        images: tuple[Image, ...] = ()
        if message.attachments:
            cwd = self.session.deps.workspace_path
            rules = self.session.settings.rules
            readable = partial(may_read, rules, workspace=cwd)
            loaded = await asyncio.to_thread(load, message.attachments, cwd, self._limits, readable)
            text, images = text + loaded.text, loaded.images
            for problem in loaded.problems:
                self._sink.send(faults.of_tool(problem))
            if loaded.count:
                self._sink.send(Status(message=f"Loaded {loaded.count} attachment(s)"))
        await self._prompts.put(Prompt(text=text, images=images))

    async def _initialize(self, message: incoming.Init) -> None:
        changes = changes_of(message, self.session.settings)
        if message.client_tools is not None:
            changes |= self._lend(message.client_tools)
        if changes:
            await self.session.configure(changes)
        if message.approval_mode is not None:
            self._mode = message.approval_mode
        self._sink.send(Status(message=applied(message)))

    def _lend(self, tools: tuple[incoming.ClientTool, ...]) -> dict[str, object]:
        """A tool that runs at the client is its to refuse: it needs no other approval."""
        if "client_tool" not in self._sink.serves:
            raise CallerError("client_tools requires client_tool capability")
        session = self.session
        ours = session.deps.toolbox(session.deps, session.settings, 0).names()
        lent = self._tools.names
        names = self._tools.lend(tools, [name for name in ours if name not in lent])
        allowed = [{"action": "allow", "pattern": name, "source": "client"} for name in names]
        return {"add_rules": allowed} if allowed else {}

    async def _interrupt(self, word: str) -> None:
        """End the run, and what the client started beside it; it may speak on meanwhile."""
        self._interrupting = True
        await self._stop(word)
        await self._utilities.end_all(word)

    async def _stop(self, word: str) -> None:
        """Ask the run to end, and wait until nothing of it waits for the client any more."""
        reason = f"{word} by the client"
        await self._dialogue.interrupt(Interrupt(scope="session", reason=reason))
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                await self.renderer.settled.wait()
