"""The session of a runtime, in an embedder's process: opens it, passes messages, stops it once."""

import asyncio
import os
import traceback
from collections.abc import Callable

from batten.contract.errors import BattenError, CallerError, NotReady
from batten.contract.facts.session import DONE
from batten.contract.ids import new_session_id
from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.protocols.maestro.incoming import Incoming, Init, utility_id_of
from batten.protocols.maestro.outgoing import Error
from batten.runner.evidence import FlushStatus
from batten.runner.flush import SessionFile
from batten.runner.restore import Restored
from batten.runner.session_file import Keep, journal_id
from batten.runner.synthetic import STATUS
from batten.serve.maestro.client_hub import ClientHub
from batten.serve.maestro.greeting import checked_model, ready, session_info
from batten.serve.maestro.in_process import InProcess
from batten.serve.maestro.limits import limits_of
from batten.serve.maestro.session import MaestroSession
from batten.serve.maestro.shielded_tasks import ENDED, ShieldedTasks
from batten.serve.output import say
from batten.serve.words import redacting
from batten.wiring.opener import SessionOpener

_NOT_IN_TIME = "Headless runtime was given up: a run did not end in time"


class Served:
    """Serves a session to the clients of a hub, in a task of its own."""

    def __init__(
        self,
        opener: SessionOpener,
        hub: ClientHub,
        resume: str | None = None,
        keep: Keep | None = None,
        restored: Restored | None = None,
    ) -> None:
        """`resume` is the session to resume, if any; `keep` writes it to a file for a drain. One of
        a `restored` runtime keeps its name, and if it is new gets the manifest's settings.
        """
        self._opener = opener
        self._hub = hub
        self._resume = resume
        self._keep = keep
        self._restored = restored
        self.reason = DONE
        self._session: MaestroSession | None = None
        self._shielded: ShieldedTasks | None = None
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turn = asyncio.Lock()
        self._asked = asyncio.Event()
        """Set when the session should end."""
        self._over = asyncio.Event()
        self._failed: BaseException | None = None
        self._is_given_up = False

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def check(self) -> MaestroSession:
        """The open session; raises `NotReady` with the reason if there is none."""
        if self._session is None or self._asked.is_set() or self.is_over:
            raise NotReady(str(self._failed or ENDED))
        return self._session

    async def opened(self) -> None:
        """Wait until the session is open; raises the error that prevented it."""
        await asyncio.shield(self._opened)

    def audience_changed(self) -> None:
        """The session asks the hub itself."""

    def snapshot(self) -> RuntimeSnapshot:
        return self._hub.left()

    async def take(
        self,
        message: Incoming,
        sender: str,
        begin: Callable[[], object],
        done: Callable[[], object],
    ) -> None:
        """Carry out one message. All but utilities run one at a time, shielded from the caller's
        cancellation: `begin`, which may raise, runs before the message, and `done` after it.
        """
        if utility_id_of(message) is not None:
            await self.check().finish(message, sender)
            return
        await self._turn.acquire()
        try:
            begin()
            self.check()
            assert self._shielded is not None
            carrying = self._shielded.begin(self._carry_out(message, sender, done))
        except BaseException:
            self._turn.release()
            raise
        carrying.on_end(self._turn.release)
        await carrying.result()

    async def _carry_out(self, message: Incoming, sender: str, done: Callable[[], object]) -> None:
        await self.check().finish(message, sender)
        done()

    async def end(self) -> None:
        """End the run and pending requests, close the session, and wait until all is stored.

        The session ends even if the caller is cancelled; one that is still opening ends after that.
        """
        self._asked.set()
        await self._over.wait()
        if self._failed is not None:
            raise self._failed

    async def stop(self) -> None:
        """The same for a drain: publishes the final state before it returns."""
        flushed: FlushStatus = "failed"
        try:
            await self.end()
            flushed = "completed"
        finally:
            self._hub.end(STATUS[flushed])

    async def keep(self) -> SessionFile | None:
        if self._keep is None or self._session is None:
            return None
        return await asyncio.to_thread(self._keep, self._session.session.session_id)

    async def leave(self, connection_id: str) -> None:
        """A connection was closed: end the utilities that it started."""
        if self._session is None or self.is_over:
            return
        try:
            await self._session.leave(connection_id)
        except BattenError as error:  # the connection is closed nevertheless
            say(f"batten: what {connection_id} started cannot be ended: {error}")

    async def run(self) -> None:
        """Serve until the session ends. An error is published and ends only this session."""
        self._task = asyncio.current_task()
        place: InProcess | None = None
        try:
            async with asyncio.TaskGroup() as group:
                self._shielded = ShieldedTasks(group)
                place = InProcess(group, self._give_up)
                session = await self._open(place)
                self._opened.set_result(None)
                ending = group.create_task(self._end_when_asked(session))
                await session.serve()
                ending.cancel()
                await session.check_ended()
        except BaseExceptionGroup as failed:
            self._fail(failed.exceptions[0])
        except asyncio.CancelledError:
            if not self._is_given_up:
                raise
            self._fail(NotReady(_NOT_IN_TIME))
        finally:
            if self._is_given_up and self._task is not None:
                self._task.uncancel()
            if place is not None:
                place.close()
            self._over.set()

    async def _end_when_asked(self, session: MaestroSession) -> None:
        await self._asked.wait()
        async with self._turn:
            await session.shut_down(self.reason)

    async def _open(self, place: InProcess) -> MaestroSession:
        base, hub = self._opener.base, self._hub
        if base.model:
            checked_model(base)
        if base.workspace and not os.path.isdir(os.path.join(base.cwd, base.workspace)):
            raise CallerError(f"{base.workspace} is not a directory", code="usage")
        session = MaestroSession(place, hub, limits_of(base.environ), hub.heed)
        restored = self._restored
        new_id = str(new_session_id()) if restored is None else journal_id(restored.drained_id)
        await session.open(self._opener, new_id, self._resume)
        if restored is not None and self._resume is None:
            await session.prepare(restored.snapshot.last_init or Init())
        self._session = session
        hub.session_id = session.session.session_id if restored is None else restored.session_id
        hub.introduce(
            ready(session.model, hub.session_id),
            session_info(hub.session_id, session.workspace),
        )
        await session.go_on()
        return session

    def _give_up(self, code: int) -> None:
        """On the guard's thread: a run did not end in time."""
        assert self._task is not None
        self._is_given_up = True
        self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    def _fail(self, error: BaseException) -> None:
        self._failed = error
        if not self._opened.done():
            self._opened.set_exception(error)
            return
        if isinstance(error, BattenError):
            message = str(error)
        else:  # a bug
            say("".join(traceback.format_exception(error)))
            message = f"{type(error).__name__}: {error}"
        if self._session is not None:
            message = self._session.renderer.redact(message)
        else:
            message = redacting(self._opener.base.environ)(message)
        self._hub.send(Error(message=message, fatal=True, error_type="fatal"))
        self._hub.end(message)
