"""Carries out a client's messages on a session: prompts, answers, settings and utilities."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec.structs import replace

from batten.agent.deps import RunDeps
from batten.agent.rules.verdict import may_read
from batten.agent.settings import RunSettings
from batten.contract.commands import Configure, GoOn, Interrupt, Prompt, ShutDown
from batten.contract.conversation import File, Image
from batten.contract.errors import CallerError, HandoverFailed, Refused
from batten.contract.facts.session import DONE
from batten.contract.outcomes import exit_code
from batten.protocols.maestro import faults, incoming
from batten.protocols.maestro.asking import not_answered
from batten.protocols.maestro.outgoing import Status
from batten.protocols.maestro.vocabulary import ApprovalMode
from batten.serve.maestro.attachments import load
from batten.serve.maestro.client_sink import ClientSink, ServeContext
from batten.serve.maestro.client_tools import lent_tools
from batten.serve.maestro.limits import Limits
from batten.serve.maestro.renderer import MaestroRenderer
from batten.serve.maestro.requests import RESOLVERS, AnswerMessage, MaestroRequests
from batten.serve.maestro.settings import applied, approval_mode_of, changes_of
from batten.serve.maestro.utilities import Utilities
from batten.serve.showing import Showing
from batten.session.live import LiveSession
from batten.session.session import Session
from batten.tools.schema import validator_for
from batten.wiring.opener import SessionOpener
from batten.wiring.opening import OpenedSession

ALREADY_WORKING = "Headless runtime is already processing a prompt"
_LONGEST_PROMPT = 16 * 1024 * 1024
"""Far more than any model accepts; scanning a prompt blocks the loop."""
_SETTLE_S = 5.0
"""How long to wait for pending requests to close before utilities are ended."""


class MaestroSession:
    """A Maestro session, for one client or many."""

    def __init__(
        self,
        place: ServeContext,
        sink: ClientSink,
        limits: Limits,
        prompted: Callable[[incoming.Prompt], object] | None = None,
    ) -> None:
        """`prompted` receives each accepted prompt before any message about it is sent."""
        self._context = place
        self._sink = sink
        self._limits = limits
        self._prompted = prompted
        self._mode: ApprovalMode = "prompt"
        self.renderer = MaestroRenderer(sink)
        self._requests = MaestroRequests(
            sink,
            self.renderer,
            limits,
            place.group,
            mode=lambda: self._mode,
        )
        self._interrupting = False
        """The current run was interrupted: the next prompt waits for its end."""
        self._rules_checked = False
        """The rules name no tool but ours and the client's."""
        self._reason = DONE
        """Why the session is closed."""

    async def open(
        self,
        opener: SessionOpener,
        session_id: str,
        resume: str | None = None,
        *,
        goes_on: bool = True,
    ) -> None:
        """Open a new session with this id, or resume the one in `resume` or the opener's spec.

        `goes_on`: a run of it without an ending is to be finished, under its own limits.
        """
        self._opened: OpenedSession = await opener.open(
            replace(
                opener.base,
                surface="maestro",
                session_id=session_id,
                resume=resume or opener.base.resume,
                goes_on=goes_on,
                resolvers=RESOLVERS,
                elicits=True,
                lends_tools=True,
                equip=self._equip,
            )
        )
        self.session: Session = self._opened.session
        self._mode = approval_mode_of(self.session.settings)
        self._guard = self._context.guard(self.renderer)
        self._live = LiveSession(self.session)
        self._requests.take = self._live.take
        self._showing = Showing(self._live, self.renderer, self._context.output, self._guard)
        self._opened.show_notes(self._showing.note)
        self._utilities = Utilities(
            self.session,
            self._opened.keeper,
            self._sink,
            self._context.group,
            self._limits.read_bytes,
        )

    def _equip(self, deps: RunDeps, settings: RunSettings) -> RunDeps:
        self._requests.attach(deps.journal)
        self.renderer.redact = deps.redactor.text
        return replace(
            deps,
            requests=self._requests,
            asks_retry=lambda: "tool_retry" in self._sink.serves,
        )

    async def prepare(self, init: incoming.Init, more: dict[str, object] | None = None) -> None:
        """Apply the settings of `init` and `more`, without a message about it."""
        changes = changes_of(init, self.session.settings) | (more or {})
        if changes:
            await self._live.take(Configure(changes=changes))
        if init.approval_mode is not None:
            self._mode = init.approval_mode

    async def go_on(self) -> None:
        """Take over the run that an earlier process left unfinished."""
        if await self.session.unfinished() is not None:
            self.renderer.idle.clear()
            await self._live.take(GoOn())

    @property
    def model(self) -> str:
        return self.session.settings.models[0]

    @property
    def workspace(self) -> str:
        return self.session.deps.workspace_path

    async def serve(self) -> int:
        """Work through the prompts until there are no more; the exit code.

        Messages report how runs ended; the exit code reports only a signal or a closed output.
        """
        try:
            await self._showing.run()
        finally:
            await self._close()
        return exit_code("cancelled") if self._guard.asked.is_set() else 0

    async def check_ended(self) -> None:
        """After `serve`: raise `HandoverFailed` if the journal did not take the last run's end."""
        left = await self.session.unfinished()
        if left is not None:
            raise HandoverFailed(f"The journal could not take the end of {left.run_id}")

    async def _close(self) -> None:
        """Each step runs even if the one before fails."""
        try:
            await self._utilities.close("Headless runtime shutdown")
        finally:
            try:
                await self._showing.close(self._reason)
            finally:
                await self._opened.close()

    async def take(self, message: incoming.Incoming, sender: str) -> None:
        """Carry out one message of an entitled connection. Utilities continue in the background."""
        if not await self._taken(message):
            await self._utilities.take(message, sender)

    async def finish(self, message: incoming.Incoming, sender: str) -> None:
        """The same; returns after the immediate effects of the message were sent.

        Whatever the session does not do is `Refused`.
        """
        try:
            await self._finish(message, sender)
        except CallerError as error:
            text = str(error)
            if isinstance(message, incoming.ServerRequestResponse):
                pending = self.renderer.frames.pending.get(message.request_id)
                text = not_answered(message, None if pending is None else pending.request_type)
            raise Refused(text, code=error.code) from error

    async def _finish(self, message: incoming.Incoming, sender: str) -> None:
        pending = self._requests.find(message) if isinstance(message, AnswerMessage) else None
        if not await self._taken(message):
            await self._utilities.finish(message, sender)
        elif pending is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_SETTLE_S):
                    await self.renderer.until_resolved(pending.request_id)

    async def leave(self, connection_id: str) -> None:
        """One of several connections was closed: end the utilities that it started."""
        await self._utilities.end_all("Owning connection closed", connection_id)

    async def _taken(self, message: incoming.Incoming) -> bool:
        """Carry out a message; False if it is about a utility."""
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
        """Whether approvals are automatic and no request waits for this message."""
        return self._mode != "prompt" and self._requests.find(message) is None

    async def shut_down(self, reason: str = DONE) -> None:
        """End the run and the utilities, and accept nothing more; `reason` is recorded."""
        self._reason = reason
        with self.renderer.end_held():
            await self._stop("Shutdown")
            await self._utilities.close("Headless runtime shutdown")
        await self._live.take(ShutDown())

    async def hang_up(self) -> None:
        """The client disconnected: finish its prompts, and ask nothing more. If the process is to
        end, the run is cancelled first: it must not go on with what its requests come to.
        """
        if self._guard.asked.is_set():
            await self._live.take(ShutDown(reason=self._guard.reason, at_once=True))
        await self._requests.hang_up("Client closed its side before request completed")
        await self._utilities.close("Owning connection closed")
        await self._live.take(ShutDown())

    async def _prompt(self, message: incoming.Prompt) -> None:
        if not self.renderer.idle.is_set():
            if not self._interrupting:
                raise CallerError(ALREADY_WORKING)
            await self.renderer.idle.wait()
        if len(message.content) > _LONGEST_PROMPT:
            raise CallerError(
                f"The prompt has {len(message.content)} characters; {_LONGEST_PROMPT} are the most"
            )
        if not self._rules_checked:
            self._check_rules(())
        if message.output_schema != self.session.settings.output_schema:
            await self._demand(message.output_schema)
        self._interrupting = False
        self.renderer.idle.clear()
        if self._prompted is not None:
            self._prompted(message)
        text: str = message.content
        images: tuple[Image, ...] = ()
        files: tuple[File, ...] = ()
        if message.attachments:
            cwd = self.session.deps.workspace_path
            rules = self.session.settings.rules
            readable = partial(may_read, rules, workspace=cwd)
            loaded = await asyncio.to_thread(load, message.attachments, cwd, self._limits, readable)
            text, images, files = text + loaded.text, loaded.images, loaded.files
            for problem in loaded.problems:
                self._sink.send(faults.of_tool(problem))
            if loaded.count:
                self._sink.send(Status(message=f"Loaded {loaded.count} attachment(s)"))
        await self._live.take(Prompt(text=text, images=images, files=files))

    async def _demand(self, schema: dict[str, Any] | None) -> None:
        """Require answers that fit this schema, or none, from the next run on."""
        try:
            if schema is not None:
                validator_for(schema)
            await self._live.take(Configure(changes={"output_schema": schema}))
        except (CallerError, ValueError) as error:
            raise CallerError(f"output_schema cannot be used: {error}") from error

    def _check_rules(self, lent: tuple[incoming.ClientTool, ...]) -> None:
        held = (tool.spec.name for tool in self.session.lent_tools)
        self._opened.check_rules([*held, *(tool.name for tool in lent)])
        self._rules_checked = True

    async def _initialize(self, message: incoming.Init) -> None:
        self._check_rules(message.client_tools or ())
        lent = {} if message.client_tools is None else self._lend(message.client_tools)
        await self.prepare(message, lent)
        self._sink.send(Status(message=applied(message)))

    def _lend(self, tools: tuple[incoming.ClientTool, ...]) -> dict[str, object]:
        """Add client tools. The client can refuse a call itself, so they need no approval."""
        if "client_tool" not in self._sink.serves:
            raise CallerError("client_tools requires client_tool capability")
        session = self.session
        ours = session.deps.toolbox(session.deps, session.settings, 0).names()
        held = [tool.spec.name for tool in session.lent_tools]
        lent = lent_tools(tools, self._requests, [name for name in ours if name not in held])
        self._live.lend(tools=lent)
        allowed = [
            {"action": "allow", "pattern": tool.spec.name, "source": "client"} for tool in lent
        ]
        return {"add_rules": allowed} if allowed else {}

    async def _interrupt(self, word: str) -> None:
        """End the run and the client's utilities; the client may send on meanwhile."""
        self._interrupting = True
        with self.renderer.end_held():
            await self._stop(word)
            await self._utilities.end_all(word)

    async def _stop(self, word: str) -> None:
        """Interrupt the run, and wait until none of its requests is pending."""
        reason = f"{word} by the client"
        await self._live.take(Interrupt(reason=reason))
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                await self.renderer.settled.wait()
