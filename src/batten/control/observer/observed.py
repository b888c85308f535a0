"""One observed run: waits for its session, follows it, and ends when the session has ended.

Each message is durable before the next is read, and a stream is asked for what comes after the
stored ones: whoever goes on with the run after a crash loses and repeats nothing.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import Any, Literal

from batten.agent.cancel_request import cancel_request
from batten.contract import facts
from batten.contract.facts import Fact
from batten.contract.outcomes import Outcome
from batten.control.coordination.records import Keeping, Written
from batten.control.described.runtimes import unsupported_mode
from batten.control.observer.breaker import BreakerOpen
from batten.control.observer.contract import (
    NOT_FOUND,
    Frame,
    RuntimeFault,
    Said,
    SessionSnapshot,
    StreamError,
)
from batten.control.observer.frames import (
    cancel_of,
    snapshot_fact,
    status_fact,
    write_error,
    write_said,
)
from batten.control.observer.link import RuntimeLink
from batten.control.observer.progress import Progress
from batten.journal.contract import Lease
from batten.protocols.macp import judgements
from batten.settings.control_plane import ControlPlaneSettings

_log = logging.getLogger("batten.observer")
_PATIENCE_S = 300.0
"""A runtime that cannot be reached may come back so long after the session's time has passed."""
_STEADY_S = 5.0
"""A stream that held for so long counts as one that works."""
_BREAKER_S = 0.5
"""Between two looks at an open breaker, which cost the runtime nothing."""
_WAITING_SIGNALS = 64
_LOST_TRANSCRIPT = frozenset({3, 5, 7, 9, 11, 12})
"""Statuses by which a runtime says that it will never tell an ended session's messages."""

_CANCEL = "SessionCancel"
"""It is told by how the run ends."""
_OWN = judgements.TYPES | {_CANCEL}
"""The runtime's own words, which have no place among the messages of agents."""

_Stopped = Literal["hint", "quiet", "end"]
_Unreachable = (RuntimeFault, BreakerOpen)


class ObservedRun:
    """One run under a lease of this process."""

    def __init__(
        self,
        lease: Lease,
        progress: Progress,
        link: RuntimeLink,
        keeping: Keeping,
        settings: ControlPlaneSettings,
    ) -> None:
        self.lease = lease
        self.progress = progress
        self.is_streaming = False
        self.is_lost = False
        """Its stream was lost and is not there again."""
        self.has_ended = False
        self._link = link
        self._keeping = keeping
        self._settings = settings
        self._hinted = asyncio.Event()
        self._reading: asyncio.Timeout | None = None
        self._cancelled = False
        self._attempts = 0
        """To reach the runtime again, in a row."""
        self._missing = 0
        """Answers in a row that there is no such session."""
        self._silences = 0
        """Streams of an ended session in a row that fell silent instead of ending."""
        self._signals: deque[Said] = deque(maxlen=_WAITING_SIGNALS)
        """Heard before the run was bound to its session."""
        self._told: StreamError | None = None
        self._canceller = ("runtime", "the session was cancelled")
        """Who cancelled the session, and why, as far as the runtime tells."""

    @property
    def session_id(self) -> str:
        return self.progress.session_id

    @property
    def run_id(self) -> str:
        return self.lease.run_id

    def hint(self) -> None:
        """The session may have changed: look at it now."""
        self._hinted.set()
        if self._reading is not None and not self._reading.expired():
            self._reading.reschedule(asyncio.get_running_loop().time())

    def cancel(self) -> None:
        """Somebody asked to end the run."""
        self._cancelled = True
        self.hint()

    async def observe(self) -> None:
        """From where the facts left off to the run's ending. Raises what the journal raises."""
        if self.progress.state is None:
            await self._bind()
        else:
            self._hinted.set()  # it may have ended while nobody looked
        while not self.has_ended:
            await self._follow()

    async def hear(self, signal: Said) -> None:
        """Store a signal of the session, once. Anybody can name the session: strangers' are left
        out.
        """
        progress, named = self.progress, (signal.sender, signal.message_id)
        if progress.state is None:
            self._signals.append(signal)
        elif self.has_ended or not progress.includes(signal.sender):
            return
        elif named not in progress.heard:
            progress.heard.append(named)
            await self._append(self._written(signal, 0))

    # Waiting for the session

    async def _bind(self) -> None:
        snapshot = await self._opened()
        if snapshot is None:
            return
        # A run is bound to its session from the beginning on: it was open then, and its ending
        # is told after its messages.
        first: list[Fact] = [snapshot_fact(snapshot, state="OPEN")]
        if snapshot.state == "SUSPENDED":
            first.append(snapshot_fact(snapshot))
        await self._append(Written(first, []))
        self.progress.state = "SUSPENDED" if snapshot.state == "SUSPENDED" else "OPEN"
        self.progress.admit(snapshot.initiator, snapshot.participants)
        self.progress.expires_at_unix_ms = snapshot.expires_at_unix_ms
        while self._signals:
            await self.hear(self._signals.popleft())
        if snapshot.has_ended:
            self._hinted.set()

    async def _opened(self) -> SessionSnapshot | None:
        """The session, once the runtime has it; None if the run was ended instead."""
        settings, loop = self._settings, asyncio.get_running_loop()
        deadline = loop.time() + self._time_left_s()
        is_known, attempts = False, 0
        while True:
            if self._cancelled:
                await self._end_cancelled()
                return None
            self._hinted.clear()
            is_last = loop.time() >= deadline
            try:
                if not is_known and not await self._supports_mode():
                    return None
                is_known = True
                return await self._ask()
            except _Unreachable as fault:
                said = fault.message
            if is_last:
                timeout_s = settings.session_poll_timeout_ms / 1000
                await self._fail(
                    "RUNTIME_TIMEOUT",
                    f"session {self.session_id} did not open within {timeout_s:g} s; the runtime"
                    f" last said: {said}",
                    "timeout",
                )
                return None
            pause_ms = min(settings.session_poll_base_ms << attempts, settings.session_poll_max_ms)
            attempts = min(attempts + 1, 16)
            await self._pause(min(pause_ms / 1000, deadline - loop.time()))

    def _time_left_s(self) -> float:
        """Until the session must have opened; another observer may have waited before."""
        waited_s = time.time() - _seconds(self.progress.started_at)
        whole_s = self._settings.session_poll_timeout_ms / 1000
        return min(max(whole_s - waited_s, 0.0), whole_s)

    async def _supports_mode(self) -> bool:
        trace, mode = self.progress.trace, self.progress.mode
        hello = await self._link.call("Initialize", lambda client: client.initialize(trace))
        if not hello.modes or not mode or mode in hello.modes:
            return True
        await self._fail("MODE_NOT_SUPPORTED", unsupported_mode(mode, hello.modes), "config")
        return False

    async def _pause(self, seconds: float) -> None:
        """Wait, or until a hint."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._hinted.wait()

    # Following it

    async def _follow(self) -> None:
        """Read the session's stream until something must be looked at, and look at it."""
        fault: RuntimeFault | BreakerOpen | None = None
        stopped: _Stopped = "hint"
        if not self._hinted.is_set():
            began = time.monotonic()
            try:
                quiet_s = self._settings.stream_idle_timeout_ms / 1000
                stopped = await self._read(live=True, quiet_s=quiet_s)
            except RuntimeFault as error:
                fault = error
            if time.monotonic() - began > _STEADY_S:
                self._attempts = 0
        self._hinted.clear()
        if fault is not None or stopped == "end":
            await self._lose("the runtime ended the stream" if fault is None else fault.message)
        try:
            snapshot = await self._ask()
        except _Unreachable as error:
            if self._cancelled:
                await self._end_cancelled()
            else:
                await self._wait_for_runtime(error)
            return
        self._missing = 0
        if snapshot.has_ended:
            await self._finish(snapshot)
        elif self._cancelled:
            await self._end_cancelled()
        else:
            await self._go_on(snapshot)

    async def _go_on(self, snapshot: SessionSnapshot) -> None:
        """The session is alive: tell what changed, and read on."""
        was_lost = await self._recover()
        if snapshot.state != self.progress.state:
            await self._append(Written([snapshot_fact(snapshot)], []))
        self.progress.state = snapshot.state
        self.progress.admit(snapshot.initiator, snapshot.participants)
        self.progress.expires_at_unix_ms = snapshot.expires_at_unix_ms
        if was_lost:  # a stream that ends again and again is asked for less and less often
            await self._pause(self._backoff_s())

    async def _read(self, *, live: bool, quiet_s: float) -> _Stopped:
        """Store what the stream tells, until silence or its end, or a hint if it is live.

        Raises `RuntimeFault`.
        """
        after, trace = self.progress.ordinal, self.progress.trace
        opened = self._link.stream(
            lambda client: client.transcript(self.session_id, after, live=live, trace=trace)
        )
        self.is_streaming = live
        try:
            async with aclosing(opened) as frames:
                while True:
                    try:
                        async with asyncio.timeout(quiet_s) as scope:
                            self._reading = scope if live else None
                            frame = await anext(frames)
                    except StopAsyncIteration:
                        return "end"
                    except TimeoutError:
                        return "hint" if live and self._hinted.is_set() else "quiet"
                    finally:
                        self._reading = None
                    self._attempts = 0
                    await self._store(frame)
                    if live and (self._hinted.is_set() or _may_end(frame)):
                        return "hint"
        finally:
            self.is_streaming = False

    async def _store(self, frame: Frame) -> None:
        if isinstance(frame, StreamError):
            if frame != self._told:
                self._told = frame
                await self._append(write_error(frame, self.session_id, self._keeping))
            return
        is_own = frame.message_type in _OWN and frame.sender not in self.progress.members
        if is_own and frame.message_type == _CANCEL:
            told = cancel_of(frame, self._keeping)
            self._canceller = (told[0] or self._canceller[0], told[1] or self._canceller[1])
            return
        progress = self.progress
        named = (frame.sender, frame.message_id)
        if named in progress.recent:
            return
        ordinal = 0 if is_own else progress.ordinal + 1
        await self._append(self._written(frame, ordinal))
        progress.ordinal = ordinal or progress.ordinal
        progress.recent.append(named)

    # When the runtime cannot be reached

    async def _lose(self, why: str) -> None:
        self._attempts += 1
        if not self.is_lost:
            self.is_lost = True
            detail = self._keeping.redactor.text(why)
            await self._append(Written([status_fact(self.session_id, "reconnecting", detail)], []))

    async def _recover(self) -> bool:
        """The runtime answers; returns whether it did not before."""
        if not self.is_lost:
            return False
        self.is_lost = False
        await self._append(Written([status_fact(self.session_id, "recovered")], []))
        return True

    async def _wait_for_runtime(self, fault: RuntimeFault | BreakerOpen) -> None:
        """Before the runtime is asked again, unless there is no hope."""
        self._silences = 0
        if isinstance(fault, BreakerOpen):
            await self._pause(_BREAKER_S)
            self._hinted.set()
            return
        await self._lose(fault.message)
        retries = self._settings.stream_max_retries
        if fault.grpc_code == NOT_FOUND:
            self._missing += 1
            if self._missing > retries:
                text = f"the runtime no longer knows session {self.session_id}"
                await self._fail("STREAM_EXHAUSTED", text, "timeout")
                return
        overdue_s = time.time() - self.progress.expires_at_unix_ms / 1000
        is_overdue = self.progress.state != "SUSPENDED" and overdue_s > _PATIENCE_S
        if self._attempts > retries and is_overdue:
            text = f"the session's time has passed and the runtime does not answer: {fault.message}"
            await self._fail("STREAM_EXHAUSTED", text, "timeout")
            return
        await self._pause(self._backoff_s())
        self._hinted.set()  # ask for the session before its stream

    def _backoff_s(self) -> float:
        settings = self._settings
        plain_ms = min(
            settings.stream_backoff_base_ms << min(self._attempts, 16),
            settings.stream_backoff_max_ms,
        )
        return plain_ms / 1000 * (1 + 0.2 * random.random())

    # The ending

    async def _finish(self, snapshot: SessionSnapshot) -> None:
        """Read the rest of an ended session's messages, and end the run as it ended."""
        if not await self._has_all():
            return
        last = snapshot_fact(snapshot)
        match snapshot.state:
            case "RESOLVED":
                ending: Fact = facts.RunFinished(final_status="completed", **self._lasted())
            case "CANCELLED":
                ending = await self._cancelled_fact()
            case _:
                ending = self._failed_fact("SESSION_EXPIRED", "runtime session expired", "timeout")
        await self._end([last, ending])

    async def _has_all(self) -> bool:
        """Read an ended session's messages to the last; False if that must be tried again."""
        await self._recover()
        try:
            quiet_s = self._settings.runtime_request_timeout_ms / 1000
            stopped = await self._read(live=False, quiet_s=quiet_s)
        except RuntimeFault as fault:
            if fault.grpc_code not in _LOST_TRANSCRIPT:
                await self._wait_for_runtime(fault)
                return False
            told = StreamError(code=fault.code, message=fault.message)
            await self._append(write_error(told, self.session_id, self._keeping))
            return True
        # A runtime that hangs is silent too. One that answers, and is silent again, has told all.
        self._silences = self._silences + 1 if stopped == "quiet" else 0
        if self._silences == 1:
            self._hinted.set()
        return self._silences != 1

    async def _end_cancelled(self) -> None:
        await self._end([await self._cancelled_fact()])

    async def _cancelled_fact(self) -> facts.RunCancelled:
        by, reason = self._canceller
        if self._cancelled:
            asked = await cancel_request(self._keeping.journal, self.run_id)
            by, reason = asked.by, asked.reason
        return facts.RunCancelled(by=by, reason=reason, outcome="cancelled", **self._lasted())

    async def _fail(self, code: str, message: str, outcome: Outcome) -> None:
        await self._end([self._failed_fact(code, message, outcome)])

    def _failed_fact(self, code: str, message: str, outcome: Outcome) -> facts.RunFailed:
        text = self._keeping.redactor.text(message)
        return facts.RunFailed(
            code=code, message=text, retriable=False, outcome=outcome, **self._lasted()
        )

    def _lasted(self) -> dict[str, Any]:
        lasted_s = time.time() - _seconds(self.progress.started_at)
        return {"turns": 0, "cost_micros_usd": 0, "duration_ms": max(0, round(lasted_s * 1000))}

    async def _end(self, last: Sequence[Fact]) -> None:
        await self._append(Written(list(last), []))
        self.has_ended = True

    # Asking and writing

    async def _ask(self) -> SessionSnapshot:
        trace = self.progress.trace
        return await self._link.call(
            "GetSession", lambda client: client.get_session(self.session_id, trace)
        )

    def _written(self, said: Said, ordinal: int) -> Written:
        hidden = self.progress.hidden
        return write_said(said, self.run_id, self.session_id, ordinal, hidden, self._keeping)

    async def _append(self, written: Written) -> None:
        await self._keeping.journal.append(
            self.run_id, written.facts, fence=self.lease.fence, bodies=written.bodies
        )


def _may_end(frame: Frame) -> bool:
    """Whether a session may have ended with this message."""
    return isinstance(frame, Said) and frame.message_type in ("Commitment", _CANCEL)


def _seconds(timestamp: str) -> float:
    """The Unix time of an envelope's timestamp; now if it has none yet."""
    if not timestamp:
        return time.time()
    return datetime.fromisoformat(timestamp).astimezone(UTC).timestamp()
