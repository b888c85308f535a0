"""One hosted runner: its session, if one is bound, and the duties beside it."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress

from msgspec import Struct

from batten.contract.errors import CallerError, NotFound
from batten.contract.ids import new_session_id
from batten.journal.contract import Journal
from batten.protocols.maestro.hosted import CreateAsk
from batten.protocols.maestro.incoming import Init
from batten.runner.drain import Drained
from batten.runner.request import DrainRequest
from batten.runner.runner import Runner
from batten.runner.session_file import journal_id
from batten.serve.http.errors import HttpError
from batten.serve.http.runner.errors import owned_elsewhere
from batten.serve.maestro.runtime import Runtime
from batten.serve.maestro.session_wire import Open

_log = logging.getLogger("batten.runner")
_CLOSE_S = 15.0
"""How long a session may take to end before its process is killed."""
_SWEEP_S = 60.0

Make = Callable[[Open], Runtime]
"""A runtime for a session that is not open yet."""


class _Hosted(Struct, frozen=True):
    runtime: Runtime
    running: "asyncio.Task[None]"

    async def close(self) -> None:
        """End the session, its process and every stream."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_S):
                    await self.runtime.close()
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
        self.bound = runner.identity.maestro_session_id
        """The session that this runner serves; None until it is known."""

    async def create(self, ask: CreateAsk) -> tuple[Runtime, bool]:
        """The session that is asked for, and whether it was opened for that."""
        self.runner.check_ready()
        self._check_owned(ask)
        self._check_asked(ask)
        async with self._opening:
            self.runner.check_ready()
            self._check_owned(ask)
            if self._hosted is not None and self._hosted.runtime.is_live:
                return self._hosted.runtime, False
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

    async def restore(self, runtime: Runtime) -> None:
        """Serve a runtime that was made from a manifest."""
        assert self.runner.restored is not None
        self.bound = self.runner.restored.session_id
        await self._host(runtime)

    async def drain(self, request: DrainRequest) -> Drained:
        self.runner.draining = True
        hosted = self._hosted
        if hosted is not None:
            return await hosted.runtime.drain(request)
        return await self.runner.drain(request, None, self.bound)

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
                    _log.info("session %s was idle and is closed", self.bound)
                    self._hosted, idle_since = None, None
                    await hosted.close()

    async def close(self) -> None:
        if self._hosted is not None:
            await self._hosted.close()

    def _check_owned(self, ask: CreateAsk) -> None:
        if self.bound is None or ask.session_id == self.bound:
            return
        # A session that was only configured is opened by whoever comes first.
        if ask.session_id is not None or self._hosted is not None:
            raise owned_elsewhere(ask.session_id)

    def _check_asked(self, ask: CreateAsk) -> None:
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
        session_id = journal_id(name) if name else str(new_session_id())
        exists = bool(name) and await self._journal().session(session_id) is not None
        if not exists and name is not None and self.bound is None:
            raise NotFound(f"Session not found: {name}", code="stale_session")
        return Open(
            session_id=session_id,
            name=name or session_id,
            exists=exists,
            model=ask.model or "",
            init=Init(thinking_level=ask.thinking_level, approval_mode=ask.approval_mode),
        )

    async def _open(self, opening: Open) -> Runtime:
        if self._hosted is not None:  # its session has failed or was shut down
            hosted, self._hosted = self._hosted, None
            await hosted.close()
        runtime = self._make(opening)
        await self._host(runtime)
        self.bound = opening.name
        return runtime

    async def _host(self, runtime: Runtime) -> None:
        hosted = _Hosted(runtime, self._group.create_task(runtime.run()))
        try:
            await runtime.opened()
        except BaseException as error:
            await asyncio.shield(hosted.close())
            if isinstance(error, CallerError):  # such as a model that is not known
                raise HttpError("invalid_config", str(error), status=400) from error
            raise
        self._hosted = hosted
