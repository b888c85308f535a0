"""The session of a hosted runner in a process of its own.

A session that hangs, leaks or dies takes nothing else along: the runner goes on to answer, and
`kill -9` of the session's process is the worst that can happen to it.
"""

import asyncio
import logging
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from batten.contract.errors import BattenError, NotReady
from batten.contract.facts.session import DONE
from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.protocols.maestro.incoming import Incoming, read, utility_id_of
from batten.protocols.maestro.outgoing import Error
from batten.runner.evidence import FlushStatus
from batten.runner.flush import SessionFile
from batten.runner.session_file import Keep
from batten.runner.synthetic import STATUS
from batten.serve.maestro.client_hub import ClientHub
from batten.serve.maestro.session_wire import (
    Audience,
    Done,
    End,
    Fault,
    Leave,
    Open,
    Opened,
    Order,
    Over,
    Prompted,
    Report,
    Said,
    Take,
    error_of,
    fault_of,
    line,
    message_of,
    report,
)
from batten.serve.maestro.shielded_tasks import ENDED

_log = logging.getLogger("batten.runner")
_LONGEST_LINE = 16 * 1024 * 1024
"""Bytes; the process writes shorter lines."""
_MOST_UNREAD = 8 * 1024 * 1024
"""Bytes of orders that a process which hangs has not read; further messages are refused."""
_LEAVE_S = 5.0
"""How long the process may take to leave after its last line."""
_END_S = 25.0
"""How long the process may take to end its work: less than requests and drains have."""
_PART_S = 2.0
"""How long a connection that is closed waits for the end of its utilities; a process that hangs
ends them later."""
_LINES_A_TURN = 32
"""Fewer than a mailbox holds, so that a prompt reader misses nothing."""


class _Pending:
    """An order that is not carried out yet."""

    def __init__(self, done: Callable[[], object], ended: Callable[[], object]) -> None:
        self.answer: asyncio.Future[Fault | None] = asyncio.get_running_loop().create_future()
        self._done = done
        self._ended = ended

    def settle(self, fault: Fault | None) -> None:
        try:
            if fault is None:
                self._done()
        finally:
            if not self.answer.done():
                self.answer.set_result(fault)
            self._ended()


class SessionProcess:
    """The `ServedSession` of a hub, in a child process."""

    def __init__(
        self,
        hub: ClientHub,
        command: Sequence[str],
        environ: Mapping[str, str],
        directory: str,
        opening: Open,
        keep: Keep | None = None,
    ) -> None:
        """`command` starts the process in `directory`; `keep` writes the session for a drain."""
        self._hub = hub
        self._command = tuple(command)
        self._environ = dict(environ)
        self._directory = directory
        self._opening = opening
        self._keep = keep
        self.reason = DONE
        self._process: Process | None = None
        self._opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pending: dict[int, _Pending] = {}
        self._number = 0
        self._turn = asyncio.Lock()
        self._audience = Audience()
        self._asked = False
        self._ended = asyncio.Event()
        self._failed: BattenError | None = None

    @property
    def is_over(self) -> bool:
        return self._ended.is_set()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def check(self) -> None:
        is_open = self._opened.done() and self._opened.exception() is None
        if not is_open or self._asked or self._ended.is_set():
            raise NotReady(str(self._failed or ENDED))

    def _check_reading(self) -> None:
        """Raise unless there is a session that takes messages."""
        self.check()
        process = self._process
        if process is None or process.stdin is None:
            return
        unread = process.stdin.transport.get_write_buffer_size()
        if unread > _MOST_UNREAD:
            raise NotReady(f"Headless runtime hangs: {unread} bytes wait for it already")

    async def opened(self) -> None:
        await asyncio.shield(self._opened)

    def snapshot(self) -> RuntimeSnapshot:
        return self._hub.left()

    async def run(self) -> None:
        """Serve until the process has ended. Its failure is published and ends only the session."""
        try:
            await self._serve()
        finally:  # whoever waits is told, also if it was cancelled before there was a process
            if not self._ended.is_set():
                self._over(Fault(error="NotReady", code="runtime_failed", message=ENDED))

    async def _serve(self) -> None:
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                env=self._environ,
                cwd=self._directory,
                limit=_LONGEST_LINE,
                start_new_session=True,
            )
        except OSError as error:
            self._over(Fault(error="NotReady", code="runtime_failed", message=str(error)))
            return
        try:
            self._send(self._opening)
            self.audience_changed()
            if self._asked:  # while it was being started
                self._send(End(reason=self.reason))
            last = await self._listen(process)
            if last is None:
                await self._left(process)
            else:
                self._over(last.fault)
                await self._leave_alone(process)
        except Exception as error:  # a line that is none: the session ends, the runner stays
            _log.exception("the process of the session is given up")
            self._over(fault_of(error))
        finally:
            if process.returncode is None:
                process.kill()

    def audience_changed(self) -> None:
        hub = self._hub
        audience = Audience(
            serves=tuple(sorted(hub.serves)),
            wants_raw=hub.wants_raw,
            wants_endings=hub.wants_endings,
        )
        if audience != self._audience and self._process is not None:
            self._audience = audience
            self._send(audience)

    async def take(
        self,
        message: Incoming,
        sender: str,
        begin: Callable[[], object],
        done: Callable[[], object],
    ) -> None:
        """All but utilities are carried out one at a time, also if the caller is cancelled."""
        if utility_id_of(message) is not None:
            self._check_reading()
            pending = self._expect()
        else:
            await self._turn.acquire()
            try:
                begin()
                self._check_reading()
                pending = self._expect(done, self._turn.release)
            except BaseException:
                self._turn.release()
                raise
        self._send(Take(number=self._number, sender=sender, message=message))
        await _answered(pending)

    async def leave(self, connection_id: str) -> None:
        if self.is_over or not self._opened.done():
            return
        pending = self._expect()
        self._send(Leave(number=self._number, connection_id=connection_id))
        if not self._hub.is_owner(connection_id):
            return
        with suppress(BattenError, TimeoutError):  # the connection is closed nevertheless
            async with asyncio.timeout(_PART_S):
                await _answered(pending)

    async def end(self) -> None:
        """A process that hangs is killed."""
        if not self._asked:
            self._asked = True
            self._send(End(reason=self.reason))
        try:
            async with asyncio.timeout(_END_S):
                await self._ended.wait()
        except TimeoutError:
            self.kill()
            await self._ended.wait()
            raise NotReady(f"Runtime did not stop within {_END_S:g} s and was killed") from None
        if self._failed is not None:
            raise self._failed

    async def stop(self) -> None:
        """End within the caller's time, or kill the process."""
        flushed: FlushStatus = "failed"
        try:
            await self.end()
            flushed = "completed"
        except BaseException:
            self.kill()
            raise
        finally:
            self._hub.end(STATUS[flushed])

    async def keep(self) -> SessionFile | None:
        if self._keep is None or not self._opened.done():
            return None
        return await asyncio.to_thread(self._keep, self._opening.session_id)

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _listen(self, process: Process) -> Over | None:
        """Publish what the process says; returns its last line, None if it left without one."""
        assert process.stdout is not None
        count = 0
        while text := await process.stdout.readline():
            if not text.endswith(b"\n"):
                return None
            found = report(text)
            if isinstance(found, Over):
                return found
            self._heard(found)
            count += 1
            if count % _LINES_A_TURN == 0:
                await asyncio.sleep(0)
        return None

    def _heard(self, found: Report) -> None:
        match found:
            case Said():
                self._hub.send(message_of(found))
            case Prompted():
                self._hub.heed(read(found.message))
            case Opened():
                self._hub.session_id = self._opening.name
                self._hub.introduce(found.ready, found.session_info)
                self._opened.set_result(None)
            case Done():
                pending = self._pending.pop(found.number, None)
                if pending is not None:
                    pending.settle(found.fault)
            case Over():
                pass  # handled by the caller

    async def _left(self, process: Process) -> None:
        """The process ended without a last line."""
        code = await process.wait()
        message = f"The process of the session ended with {code}"
        self._over(Fault(error="NotReady", code="runtime_failed", message=message))

    async def _leave_alone(self, process: Process) -> None:
        """Let the process end by itself."""
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LEAVE_S):
                while await process.stdout.read(65536):
                    pass
                await process.wait()

    def _over(self, fault: Fault | None) -> None:
        """Nothing more will be said."""
        self._failed = None if fault is None else error_of(fault)
        self._ended.set()
        pending, self._pending = self._pending, {}
        gone = Fault(error="NotReady", code="runtime_not_ready", message=str(self._failed or ENDED))
        for one in pending.values():
            one.settle(gone)
        if not self._opened.done():
            self._opened.set_exception(self._failed or NotReady(ENDED))
            self._opened.exception()  # the creator may have left
        elif self._failed is not None:
            message = str(self._failed)
            self._hub.send(Error(message=message, fatal=True, error_type="fatal"))
            self._hub.end(message)

    def _expect(
        self,
        done: Callable[[], object] = lambda: None,
        ended: Callable[[], object] = lambda: None,
    ) -> _Pending:
        self._number += 1
        pending = self._pending[self._number] = _Pending(done, ended)
        return pending

    def _send(self, order: Order) -> None:
        """The process may be gone: what it says, or its end, decides."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(line(order))


async def _answered(pending: _Pending) -> None:
    fault = await asyncio.shield(pending.answer)
    if fault is not None:
        raise error_of(fault)
