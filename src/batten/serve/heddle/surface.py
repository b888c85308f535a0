"""Serves a Heddle client: one session and one send at a time, with heartbeats during a send.

Immediate responses are written before the next line is read. One task opens and closes the
sessions. A send is a prompt to the session of the last `init`; a shutdown waits for it.
"""

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.commands import Interrupt, Prompt, ShutDown
from batten.contract.errors import BattenError, CallerError, FenceLost
from batten.contract.outcomes import exit_code
from batten.protocols.heddle import requests, runtime, variables
from batten.protocols.heddle.frames import SendFrames
from batten.protocols.heddle.messages import (
    ErrorEnvelope,
    InitOk,
    PermissionOk,
    Response,
    ShutdownOk,
    refusal,
)
from batten.protocols.heddle.versions import Mismatch, negotiate, parse
from batten.protocols.json_line import Malformed, encode
from batten.serve.heddle.debugging import Debugging
from batten.serve.heddle.home import Home
from batten.serve.heddle.opening import Opening
from batten.serve.output import say
from batten.serve.stdio import Stdio
from batten.wiring.opener import SessionOpener

if TYPE_CHECKING:
    from batten.agent.deps import RunDeps
    from batten.agent.settings import RunSettings
    from batten.contract.outcomes import Outcome
    from batten.serve.heddle.hooks import ClientHooks
    from batten.serve.heddle.permissions import ClientPermissions
    from batten.serve.heddle.renderer import HeddleRenderer
    from batten.serve.heddle.transcript import TranscriptFile
    from batten.session.live import LiveSession
    from batten.wiring.opening import OpenedSession

_LONGEST_LINE = 16 * 1024 * 1024
_MOST_WAITING = 16
"""Sessions waiting to be opened; with more, no line is read until there is room."""
_NOT_INITIALIZED = "Not initialized. Send 'init' first."
_IN_PROGRESS = "A send is already in progress."


class _Sending(Struct):
    """An accepted send without a result yet."""

    frames: SendFrames
    text: str
    began_at: float
    beat_at: float
    """When its next heartbeat is due."""
    cancelled: bool = False


class HeddleSurface:
    """Serves one client."""

    def __init__(self, stdio: Stdio, opener: SessionOpener) -> None:
        environ = opener.base.environ
        self._stdio = stdio
        stdio.longest_line = _LONGEST_LINE
        self._opener = opener
        self._home = Home(environ.get("HEDDLE_HOME", ""))
        self._variables = variables.read(environ, self._home.config())
        self._environ = dict(environ)
        if self._variables.api_key:
            self._environ["OPENROUTER_API_KEY"] = self._variables.api_key
        self._debugging = Debugging(self._variables.debug, self._variables.debug_file)
        self._openings: asyncio.Queue[Opening | None] = asyncio.Queue(_MOST_WAITING)
        """Sessions to open, one after the other; None ends the surface."""
        self._opening: Opening | None = None
        """The session that requests refer to: that of the last accepted `init`."""
        self._sending: _Sending | None = None
        self._is_sending = asyncio.Event()
        """Set while there is a send."""
        self._interval_s = self._variables.heartbeat_ms / 1000
        self._served: Opening | None = None
        """The session that is open, or whose opening failed."""
        self._problem = ""
        """Why it could not be opened, or was lost."""
        self._live: LiveSession | None = None
        self._renderer: HeddleRenderer | None = None
        self._permissions: ClientPermissions | None = None
        self._leaving: str | None = None
        """The id of the shutdown request, answered after all earlier requests."""
        self._over = False
        """Whether further requests are ignored."""
        self._code = 0

    async def run(self) -> int:
        beating = self._stdio.group.create_task(self._beat())
        try:
            while (opening := await self._openings.get()) is not None:
                await self._serve(opening)
                if self._code == exit_code("cancelled"):
                    break
        finally:
            beating.cancel()
            self._debugging.close()
        if self._leaving is not None and self._code == 0:
            self._say(ShutdownOk(id=self._leaving))
        return self._code

    async def take(self, message: dict[str, Any]) -> None:
        asked = requests.read(message)
        # After a shutdown only a cancel of the current send is accepted.
        if self._over and not isinstance(asked, requests.Cancel):
            return
        self._debugging.tell("protocol", f"read {type(asked).__name__} {asked.id}")
        match asked:
            case requests.Misasked():
                self._refuse(asked.id, asked.problem)
            case requests.Init():
                await self._init(asked)
            case requests.Send():
                await self._send(asked)
            case requests.Status():
                self._status(asked)
            case requests.Cancel():
                await self._cancel(asked)
            case requests.Permission():
                await self._permit(asked)
            case requests.Shutdown():
                self._leaving = asked.id
                await self._end()

    async def refuse(self, malformed: Malformed) -> None:
        if not self._over:
            asked = requests.unreadable(malformed)
            self._refuse(asked.id, asked.problem)

    async def hang_up(self) -> None:
        if not self._over:
            await self._end()

    def fail(self, outcome: "Outcome", message: str) -> None:
        self._say(refusal(requests.UNKNOWN_ID, message))

    async def _end(self) -> None:
        self._over = True
        if self._permissions is not None:
            await self._permissions.leave()
        await self._leave_for(None)

    async def _leave_for(self, opening: Opening | None) -> None:
        """Finish the open session, then open this one, or end."""
        await self._openings.put(opening)
        if self._live is not None:
            await self._live.take(ShutDown())

    async def _permit(self, asked: requests.Permission) -> None:
        if self._opening is None:
            self._refuse(asked.id, _NOT_INITIALIZED)
        elif not self._opening.answers:
            self._refuse(asked.id, requests.unknown(asked.id, "permission").problem)
        elif self._permissions is None:
            missing = f"No permission request {asked.request_id} waits for an answer"
            self._refuse(asked.id, missing)
        else:
            try:
                await self._permissions.answer(asked)
            except BattenError as error:
                self._refuse(asked.id, str(error))
            else:
                self._say(PermissionOk(id=asked.id, request_id=asked.request_id))

    def _refuse(self, request_id: str, problem: str) -> None:
        """Refuse a request. The id of the current send is left to the result of that send."""
        sending = self._sending
        is_taken = sending is not None and sending.frames.send_id == request_id
        self._say(refusal(requests.UNKNOWN_ID if is_taken else request_id, problem))

    def _say(self, response: Response) -> None:
        frame = encode(response)
        self._debugging.tell("protocol", f"wrote {type(response).__name__}, {len(frame)} bytes")
        self._stdio.send(frame)

    async def _init(self, asked: requests.Init) -> None:
        spoken = negotiate(asked.protocol_version, self._variables.protocol_version)
        if isinstance(spoken, Mismatch):
            await self._refuse_version(asked, spoken)
            return
        if self._sending is not None:
            self._refuse(asked.id, _IN_PROGRESS)
            return
        try:
            opening = Opening.read(
                asked.config, spoken, self._variables, self._environ, self._opener.base
            )
        except CallerError as error:
            self._refuse(asked.id, str(error))
            return
        self._opening = opening
        named = asked.protocol_version
        if named is not None and parse(named)[:2] != spoken.number[:2]:
            versions = f"client={named}, spoken={spoken.text}"
            self._debugging.tell("version", versions)
        self._say(opening.init_ok(asked.id))
        await self._leave_for(opening)

    async def _refuse_version(self, asked: requests.Init, mismatch: Mismatch) -> None:
        """Report the mismatch and end."""
        error = ErrorEnvelope(
            code="protocol_version_mismatch", message=mismatch.message, retryable=False
        )
        self._say(InitOk(id=asked.id, session_id="", protocol_version=mismatch.server, error=error))
        self._code = 1
        await self._end()

    async def _send(self, asked: requests.Send) -> None:
        if self._opening is None:
            self._refuse(asked.id, _NOT_INITIALIZED)
        elif self._sending is not None:
            self._refuse(asked.id, _IN_PROGRESS)
        else:
            now, frames = time.monotonic(), self._opening.send(asked.id)
            self._sending = _Sending(frames, asked.message, now, now + self._interval_s)
            self._is_sending.set()
            for event in self._sending.frames.queued():
                self._say(event)
            await self._prompt()

    async def _prompt(self) -> None:
        """Pass the accepted send to its session; called again once the session is open."""
        sending = self._sending
        if sending is None or self._served is not self._opening:
            return
        if self._live is None:
            self._sending = None
            self._say(refusal(sending.frames.send_id, self._problem))
            return
        assert self._renderer is not None
        self._renderer.attend(sending.frames)
        if sending.cancelled:
            self._renderer.fail("cancelled", "cancelled before it began")
        else:
            await self._live.take(Prompt(text=sending.text, prompt_id=sending.frames.send_id))

    def _status(self, asked: requests.Status) -> None:
        if self._opening is None:
            self._refuse(asked.id, _NOT_INITIALIZED)
            return
        frames = None if self._sending is None else self._sending.frames
        self._say(self._opening.status_ok(asked.id, frames))

    async def _cancel(self, asked: requests.Cancel) -> None:
        """A cancel of anything but the current send gets no response."""
        sending = self._sending
        if sending is None or sending.frames.send_id != asked.target_id or sending.cancelled:
            return
        sending.cancelled = True
        for event in sending.frames.cancel():
            self._say(event)
        if self._live is None:
            return
        try:
            await self._live.take(Interrupt(reason="cancelled by the client"))
        except BattenError as error:
            say(f"batten: {asked.target_id} cannot be cancelled: {error}")

    async def _serve(self, opening: Opening) -> None:
        """Serve one session until the client requests another one or ends."""
        self._served, self._problem = None, ""
        instructions = [] if opening.is_isolated else self._home.instructions()
        try:
            opened = await self._opener.open(
                opening.spec(self._opener.base, instructions, partial(self._equip, opening))
            )
        except BattenError as error:
            await self._lose(opening, error)
            return
        transcript: TranscriptFile | None = None
        hooks: ClientHooks | None = None
        try:
            hooks = _hooks(opening, opened, self._stdio.group)
            transcript = _transcript(opening, opened, self._home)
            await self._converse(opening, opened, transcript)
        except FenceLost:  # another process has taken over the session
            raise
        except BattenError as error:
            await self._lose(opening, error)
        finally:
            self._live = self._renderer = self._permissions = None
            if transcript is not None:
                transcript.close()
            try:
                await opened.session.close()
            finally:
                if hooks is not None:
                    hooks.close()
                await opened.close()

    def _equip(self, opening: Opening, deps: "RunDeps", settings: "RunSettings") -> "RunDeps":
        """Route approval requests to the client."""
        from batten.serve.heddle.permissions import ClientPermissions

        given = opening.later.approvals
        patience_ms = None if given is None else given.timeout_ms
        patience_s = settings.request_seconds if patience_ms is None else patience_ms / 1000
        self._permissions = ClientPermissions(self._stdio.group, patience_s, deps)
        return replace(deps, requests=self._permissions)

    async def _converse(
        self, opening: Opening, opened: "OpenedSession", transcript: "TranscriptFile | None"
    ) -> None:
        from batten.serve.heddle.renderer import HeddleRenderer
        from batten.serve.showing import Showing
        from batten.session.live import LiveSession

        renderer = HeddleRenderer(self._stdio.output, self._send_over, transcript)
        renderer.redact = opened.redact
        guard = self._stdio.guard(renderer)
        live = LiveSession(opened.session)
        showing = Showing(live, renderer, self._stdio.output, guard)
        if self._permissions is not None:
            self._permissions.take = live.take
            if self._over:
                await self._permissions.leave()
        self._served, self._live, self._renderer = opening, live, renderer
        await self._prompt()
        if not self._openings.empty():  # a later opening was requested while this one was opened
            await live.take(ShutDown())
        try:
            await showing.run()
        except BattenError as error:
            renderer.fail("store" if isinstance(error, FenceLost) else "internal", str(error))
            raise
        finally:
            guard.leave()
        if guard.asked.is_set():
            self._code = exit_code("cancelled")

    async def _lose(self, opening: Opening, error: BattenError) -> None:
        """The session failed: refuse each send with the error until the next `init`."""
        self._served, self._problem = opening, str(error)
        self._live = None
        await self._prompt()

    def _send_over(self, frames: SendFrames) -> dict[str, Any]:
        self._sending = None
        assert self._opening is not None
        self._opening.over(frames)
        return self._opening.echoed()

    async def _beat(self) -> None:
        """Send a heartbeat for the current send, once per interval."""
        while True:
            await self._is_sending.wait()
            sending = self._sending
            if sending is None:
                self._is_sending.clear()
                continue
            await asyncio.sleep(sending.beat_at - time.monotonic())
            if sending is not self._sending:
                continue
            now = time.monotonic()
            sending.beat_at += self._interval_s
            if sending.beat_at <= now:  # the loop was busy: what was missed is not made up for
                sending.beat_at = now + self._interval_s
            # Heartbeats are optional: skipped while the client reads too slowly.
            if self._stdio.output.has_room:
                for event in sending.frames.heartbeat(round((now - sending.began_at) * 1000)):
                    self._say(event)


def _hooks(
    opening: Opening, opened: "OpenedSession", group: asyncio.TaskGroup
) -> "ClientHooks | None":
    """Register the client's hooks; None if it has none."""
    if not opening.later.hooks:
        return None
    from batten.serve.heddle.hooks import ClientHooks

    return ClientHooks(opening, opened, group)


def _transcript(opening: Opening, opened: "OpenedSession", home: Home) -> "TranscriptFile | None":
    """Start the transcript that the client requested, or the one in Heddle's directory."""
    given, session_id = opening.later.runtime, opening.correlation.session_id
    requested = None if given is None else runtime.transcript_path(given, session_id)
    path = requested
    if path is None and not opening.is_isolated:
        path = home.transcript_path(opened.session.deps.workspace_path, session_id)
    if path is None:
        return None
    from batten.contract.envelope import timestamp
    from batten.protocols.heddle.transcript import opening as first_lines
    from batten.serve.heddle.transcript import TranscriptFile

    deps = opened.session.deps
    lines = first_lines(
        session_id=session_id,
        cwd=deps.workspace_path,
        model=opening.shown_model,
        version=opening.spoken.text,
        at=timestamp(),
        system=deps.redactor.text(opening.config.system_prompt),
    )
    try:
        return TranscriptFile(path, lines)
    except CallerError as error:
        if requested is not None:
            raise
        say(f"batten: {error}")  # the directory may hold a config alone, and be read-only
        return None
