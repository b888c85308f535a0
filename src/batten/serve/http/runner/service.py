"""One hosted runner: its session, if one is bound, and the duties beside it."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from batten.contract.errors import BattenError, CallerError, Conflict, NotFound
from batten.contract.facts.session import DONE, IDLE_TIMEOUT
from batten.contract.ids import new_session_id
from batten.journal.contract import Journal
from batten.protocols.maestro.connection import problem
from batten.protocols.maestro.hosted import CreateAsk
from batten.protocols.maestro.incoming import Init
from batten.protocols.maestro.registry import REFUSED_ON_ENTRY
from batten.protocols.maestro.roster import NO_CONNECTION
from batten.runner.drain import Drained
from batten.runner.request import DrainRequest
from batten.runner.runner import Runner
from batten.runner.session_file import journal_id
from batten.serve.http.errors import HttpError
from batten.serve.http.runner.errors import OWNED_ELSEWHERE, owned_elsewhere
from batten.serve.maestro.runtime import Runtime
from batten.serve.maestro.session_wire import Open

_log = logging.getLogger("batten.runner")
_CLOSE_S = 15.0
"""How long a session may take to end before its process is killed."""
_SWEEP_S = 60.0
_WAKE_S = 20.0
"""How long a drain waits for a session that is being opened."""

Make = Callable[[Open, int, Init | None], Runtime]
"""A runtime for a session that is not open yet, with messages from a cursor on, and the last `init`
of its clients."""


class _Hosted(Struct, frozen=True):
    runtime: Runtime
    running: "asyncio.Task[None]"

    async def close(self, reason: str = DONE) -> None:
        """End the session, its process and every stream."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self.runtime.close(reason)
                    await asyncio.wait([self.running])
        finally:
            self.running.cancel()
            await asyncio.wait([self.running])


class RunnerService:
    """Binds a runner to one session. Raises `HttpError` and the errors of `Runtime`."""

    def __init__(
        self,
        runner: Runner,
        make: Make,
        journal: Callable[[], Journal],
        group: asyncio.TaskGroup,
        idle_s: float,
    ) -> None:
        self.runner = runner
        self._make = make
        self._journal = journal
        self._group = group
        self._idle_s = idle_s
        self._hosted: _Hosted | None = None
        self._opening = asyncio.Lock()
        self._cursor = 0
        """Of the last message of runtimes before."""
        self._last_init: Init | None = None
        """Of the clients of runtimes before."""
        self._is_asleep = False
        """The session was closed because it was idle."""
        self._stored_id = ""
        """Its id in the journal, once it was open."""
        self.opens = 0
        """How often a session was opened."""
        self.drains = dict.fromkeys(("drained", "interrupted", "failed"), 0)
        """Drains, by how they ended; one that is refused is none."""

    @property
    def bound(self) -> str | None:
        return self.runner.bound

    @property
    def is_open(self) -> bool:
        return self._hosted is not None and self._hosted.runtime.is_live

    @property
    def is_working(self) -> bool:
        return self._hosted is not None and self._hosted.runtime.is_working

    @property
    def connection_count(self) -> int:
        return 0 if self._hosted is None else self._hosted.runtime.connection_count

    @property
    def subscriber_count(self) -> int:
        return 0 if self._hosted is None else self._hosted.runtime.subscriber_count

    @property
    def pending_count(self) -> int:
        return 0 if self._hosted is None else self._hosted.runtime.pending_count

    @property
    def cursor(self) -> int:
        """Of the last message, of whatever runtime."""
        return self._cursor if self._hosted is None else self._hosted.runtime.cursor

    async def create(self, ask: CreateAsk) -> tuple[Runtime, bool]:
        """The session that is asked for, and whether it was opened for that."""
        self.runner.check_attachable()
        self._check_owned(ask)
        self._check_asked(ask)
        async with self._opening:
            self.runner.check_ready()
            self._check_owned(ask)
            if self._hosted is not None and self._hosted.runtime.is_live:
                return self._hosted.runtime, False
            if ask.connection_id is not None:  # it has none yet, and must not be bound to nobody
                raise NotFound(NO_CONNECTION, code="stale_connection")
            return await self._open(await self._choice(ask)), True

    def runtime(self, session_id: str) -> Runtime:
        """The session in a path, to read it."""
        if self.bound not in (None, session_id):
            raise owned_elsewhere(session_id)
        if self._hosted is None or self._hosted.runtime.is_shut:
            raise NotFound("Headless session not found", code="stale_session")
        return self._hosted.runtime

    def open_runtime(self, session_id: str) -> Runtime:
        """The session in a path, to change something; a drain is told before all else."""
        self.runner.check_ready()
        return self.runtime(session_id)

    async def restore(self, opening: Open) -> None:
        """Serve the session of a manifest; one that was not stopped cleanly can only be read."""
        await self._open(opening)

    async def drain(self, request: DrainRequest) -> Drained:
        """Raises `CallerError` for a wrong request, and what kept the manifest from being written.

        What became of it is in the log.
        """
        try:
            drained = await self._drain(request)
        except CallerError:
            raise
        except BattenError as error:
            self.drains["failed"] += 1
            self._tell(f"the drain failed: {error}", logging.ERROR)
            raise
        self.drains[drained.status] += 1
        level = logging.INFO if drained.status == "drained" else logging.ERROR
        about = {"status": drained.status, "manifest_path": drained.manifest_path}
        self._tell("the runner was drained", level, **about)
        return drained

    async def _drain(self, request: DrainRequest) -> Drained:
        with self.runner.turning_away():
            hosted = await self._drainable()
            if hosted is not None:
                return await hosted.runtime.drain(request)
            return await self.runner.drain(request, None, self.bound)

    async def _drainable(self) -> _Hosted | None:
        """The session, after waiting for one that is being opened; an idle one is woken."""
        with suppress(TimeoutError, BattenError):
            async with asyncio.timeout(_WAKE_S), self._opening:
                if self._is_asleep:
                    await self._open(await self._choice(CreateAsk()))
        return self._hosted

    async def watch(self) -> None:
        """Dispose of an idle session, until cancelled. It can be created again."""
        idle_since: float | None = None
        while True:
            await asyncio.sleep(min(_SWEEP_S, self._idle_s / 2))
            async with self._opening:
                hosted = self._hosted
                if hosted is None or self.runner.draining or not hosted.runtime.is_idle:
                    idle_since = None
                    continue
                now = time.monotonic()
                idle_since = now if idle_since is None else idle_since
                if now - idle_since >= self._idle_s:
                    idle_since = None
                    await self._close(IDLE_TIMEOUT)
                    self._is_asleep = True
                    self._tell("the session was idle and is closed")

    async def close(self) -> None:
        """End whatever is open; the runner leaves."""
        await self._close()

    async def _close(self, reason: str = DONE) -> None:
        hosted, self._hosted = self._hosted, None
        if hosted is not None:
            self._cursor = hosted.runtime.cursor
            self._last_init = hosted.runtime.last_init
            await hosted.close(reason)

    def _check_owned(self, ask: CreateAsk) -> None:
        if self.bound is None or ask.session_id == self.bound:
            return
        # A session that was only configured is opened by whoever comes first.
        if ask.session_id is not None or self._hosted is not None:
            raise owned_elsewhere(ask.session_id)

    def _check_asked(self, ask: CreateAsk) -> None:
        wrong = problem(None, ask.hello(), REFUSED_ON_ENTRY)
        if wrong is not None:
            raise CallerError(wrong)
        if ask.workspace_root is not None:
            if not os.path.isdir(ask.workspace_root):
                raise CallerError(f"workspaceRoot {ask.workspace_root} does not exist")
            if os.path.realpath(ask.workspace_root) != self.runner.identity.workspace_root:
                raise HttpError(
                    "conflict",
                    f"workspaceRoot {ask.workspace_root} is not this runner's; leave it out",
                )
        if ask.enable_client_tools:
            requests = () if ask.capabilities is None else ask.capabilities.server_requests or ()
            if ask.role == "viewer" or "client_tool" not in requests:
                raise CallerError(
                    "enableClientTools needs a controller with client_tool among"
                    " capabilities.serverRequests"
                )

    async def _choice(self, ask: CreateAsk) -> Open:
        name = self.bound or ask.session_id
        known = self._stored_id or (name and journal_id(name))
        session_id = known or str(new_session_id())
        exists = bool(name) and await self._journal().session(session_id) is not None
        if not exists and name is not None and self.bound is None:
            raise NotFound(f"Session not found: {name}", code="stale_session")
        return Open(
            session_id=session_id,
            name=name or session_id,
            exists=exists,
            again=exists and session_id == self._stored_id,
            model=ask.model or "",
            init=Init(thinking_level=ask.thinking_level, approval_mode=ask.approval_mode),
        )

    async def _open(self, opening: Open) -> Runtime:
        await self._close()  # a session that failed or was shut down
        cursor = self._cursor or (_beyond_any_cursor() if opening.exists else 0)
        runtime = self._make(opening, cursor, self._last_init)
        await self._host(runtime)
        self.runner.bound, self._stored_id = opening.name, opening.session_id
        self._is_asleep = False
        self.opens += 1
        self._tell("the session was opened")
        return runtime

    def _tell(self, message: str, level: int = logging.INFO, **fields: str) -> None:
        """Log a line that names the session."""
        named = {} if self.bound is None else {"session_id": self.bound}
        _log.log(level, message, extra={"fields": {**named, **fields}})

    async def _host(self, runtime: Runtime) -> None:
        hosted = _Hosted(runtime, self._group.create_task(runtime.run()))
        try:
            await runtime.opened()
        except BaseException as error:
            await asyncio.shield(hosted.close())
            if isinstance(error, Conflict):  # another process has the session
                raise HttpError(OWNED_ELSEWHERE, str(error)) from error
            if isinstance(error, CallerError):  # such as a model that is not known
                raise HttpError("invalid_config", str(error)) from error
            raise
        self._hosted = hosted


def _beyond_any_cursor() -> int:
    """Where the cursors of a session go on that another process served.

    Which it had used is not known. The milliseconds of the clock are more than that: nobody says a
    thousand messages a second for all of a session's life.
    """
    return int(time.time() * 1000)
