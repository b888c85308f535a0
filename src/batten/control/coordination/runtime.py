"""The coordination runtime: takes messages, makes them durable, answers.

A message is applied in memory and queued for the journal at once, so that messages of one session
and of many share a commit; nobody hears of it before it is durable. If the journal fails, the
session is forgotten here and folded again from its facts.
"""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial

from batten.agent.cancel_request import cancel_request
from batten.contract.errors import BattenError, CallerError, Conflict, JournalError, StoreDamaged
from batten.contract.facts import Fact
from batten.contract.ids import new_run_id
from batten.control.coordination import store
from batten.control.coordination.answers import Answer, Heard, Lifecycle
from batten.control.coordination.broadcast import Broadcast
from batten.control.coordination.clock import now_ms
from batten.control.coordination.commits import Append, Commits
from batten.control.coordination.held import HeldSession, NotOpened, check_open, renew_leases
from batten.control.coordination.opening import claim_run, create_run
from batten.control.coordination.operators import Asked, OperatorRequests, heed
from batten.control.coordination.records import (
    Keeping,
    Written,
    denied,
    write_ambient,
    write_events,
)
from batten.control.coordination.registries import Registries
from batten.control.coordination.run_facts import LEASE_S, ending_facts, taken_over
from batten.control.coordination.taken import Taken, refusal
from batten.control.coordination.waiting import waiting_run
from batten.coordination import engine as rules
from batten.coordination.engine import Accepted, Event
from batten.coordination.envelope import AMBIENT, Message, check_ambient, session_of
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import PolicyRegistry
from batten.coordination.rejection import Rejection, not_found
from batten.coordination.session import Session, is_overdue
from batten.journal.contract import Journal, Lease, RunRow
from batten.journal.workers import this_worker

_log = logging.getLogger("batten.coordination")
KEPT_ENDED = 256
"""Ended sessions that stay in memory."""
_SWEEP_S = 1.0
_TRIES = 3
_OUTSIDE = AMBIENT | {"SessionStart"}
"""Messages that an open session does not take."""


class Runtime:
    """All coordination sessions of a journal. Used from one event loop."""

    def __init__(
        self,
        keeping: Keeping,
        registries: Registries | None = None,
        *,
        clock: Callable[[], int] = now_ms,
        adopts: Callable[[Session], bool] = lambda session: True,
        commits_here: bool = False,
    ) -> None:
        """`adopts`: whether to go on with an open session whose runtime is gone. `commits_here`:
        whether the event loop may wait for a fast disk.
        """
        self.keeping = keeping
        self._adopts = adopts
        self.registries = registries or Registries()
        self.clock = clock
        self.lifecycle: Broadcast[Lifecycle] = Broadcast(64)
        self.signals: Broadcast[Heard] = Broadcast(256)
        self.on_change: Callable[[Lifecycle], object] = lambda change: None
        self.replay_mismatches = 0
        self._sessions: OrderedDict[str, HeldSession] = OrderedDict()
        self._loading: dict[str, asyncio.Future[HeldSession | None]] = {}
        self.commits = Commits(here=commits_here)
        self._worker_id = this_worker()
        self._operators = OperatorRequests(keeping.journal)

    @property
    def journal(self) -> Journal:
        return self.keeping.journal

    async def recover(self) -> int:
        """Take over the unfinished sessions whose runtime is gone; returns how many."""
        await self._operators.begin()
        taken, after = 0, None
        while page := await self.journal.runs(
            kind="coordination", status="running", after=after, limit=200
        ):
            after = page[-1].run_id
            for row in page:
                taken += await self._recover(row)
        return taken

    async def _recover(self, row: RunRow) -> bool:
        try:
            stored = await store.load(self.keeping, row.run_id)
            if stored is None:  # an observer's run
                return False
            held = await self._claimed(stored, row)
        except (BattenError, AssertionError) as error:
            self.replay_mismatches += 1
            _log.error("session of run %s cannot be taken over: %s", row.run_id, error)
            return False
        if held.lease is None:
            return False
        session_id = stored.engine.session.session_id
        self._sessions[session_id] = held
        await self._advance(held)
        if row.cancel_requested:
            await self._heed(held, await cancel_request(self.journal, row.run_id))
        return self.holds(session_id)

    async def run(self) -> None:
        """Expire sessions whose time has passed and renew leases, until cancelled."""
        renewed = time.monotonic()
        await self._operators.begin()
        while True:
            await asyncio.sleep(_SWEEP_S)
            try:
                await self.sweep()
                self.registries.refresh()
                await self.heed()
                if time.monotonic() - renewed > LEASE_S / 3:
                    renewed = time.monotonic()
                    await self.renew()
            except JournalError as error:
                _log.error("sessions cannot be looked after: %s", error)

    async def sweep(self) -> None:
        """Apply what time has brought about, and forget ended sessions beyond those kept."""
        now = self.clock()
        overdue = [
            held
            for held in self._sessions.values()
            if held.lease is not None and (held.engine.next_deadline_ms() or now + 1) <= now
        ]
        await asyncio.gather(*(self._advance(held) for held in overdue))
        ended = [id_ for id_, one in self._sessions.items() if one.engine.session.is_terminal]
        for session_id in ended[: max(0, len(ended) - KEPT_ENDED)]:
            del self._sessions[session_id]

    async def heed(self) -> None:
        """Cancel, suspend and resume the sessions of which operators asked it, in any process."""
        async with aclosing(self._operators.new()) as requests:
            async for run_id, asked in requests:
                for held in self._sessions.values():
                    if held.run_id == run_id:
                        await self._heed(held, asked)
                        break

    async def _heed(self, held: HeldSession, asked: Asked) -> None:
        if not await held.is_stored(self.journal) or held.lease is None:
            return
        with suppress(Rejection):  # it has that state, or has ended
            event, kind = heed(held.engine, asked, self.clock())
            await self._changed(held, event, kind)

    async def renew(self) -> None:
        """Renew all leases together: they share a commit."""
        for lost in await renew_leases(self.journal, list(self._sessions.values()), LEASE_S):
            self._forget(lost)

    async def send(
        self,
        message: Message,
        *,
        is_authenticated: bool = True,
        max_open: int | None = None,
        policy: PolicyDescriptor | None = None,
    ) -> Answer:
        """Take a message whose shape and sender were checked. Raises `Rejection`.

        `policy` is that of a session to start, registered or not.
        """
        if (taken := self.take(message)) is not None:
            return await taken.answer()
        if message.message_type in AMBIENT:
            check_ambient(message)
        try:
            if message.message_type in AMBIENT:
                await self._note(message)
                self.signals.publish(Heard(message, is_authenticated))
                return Answer("OPEN", self.clock())
            if message.message_type == "SessionStart":
                return await self._start(message, max_open, policy)
            return await self._receive(message)
        except (JournalError, CallerError) as error:
            refused = refusal(error)
            if refused is None:
                raise
            _log.error("message %s is not stored: %s", message.message_id, error)
            raise refused from error

    def take(self, message: Message) -> Taken | None:
        """Like `send`, if the session is in memory and accepts the message at once; else None.

        It becomes durable whether the caller waits for that or not.
        """
        held = self._sessions.get(message.session_id)
        if held is None or held.lease is None or message.message_type in _OUTSIDE:
            return None
        now, engine = self.clock(), held.engine
        due_at_ms = engine.next_deadline_ms()
        if due_at_ms is None or due_at_ms <= now or engine.is_duplicate(message):
            return None
        try:
            accepted = engine.receive(message, now)
        except Rejection:
            return None  # `send` records it
        return Taken(accepted, self._append(held, [accepted]))

    async def find(self, session_id: str) -> Session | None:
        """A session as it is now, its overdue changes applied; None if there is none."""
        held = await self._find(session_id)
        if held is None:
            return None
        await self._advance(held)
        await held.settled()
        return held.engine.session

    async def run_of(self, session_id: str) -> str | None:
        """The run of a session; None if there is none."""
        if (held := self._sessions.get(session_id)) is not None:
            await held.settled()
            return held.run_id
        row = await store.find_run(self.journal, session_id)
        return None if row is None else row.run_id

    def peek(self, session_id: str) -> Session | None:
        """A session in memory, as it was left; None if it is not there."""
        held = self._sessions.get(session_id)
        return None if held is None or held.is_opening else held.engine.session

    def holds(self, session_id: str) -> bool:
        """Whether this runtime works on the session, and it has not ended."""
        return (held := self._sessions.get(session_id)) is not None and held.lease is not None

    async def leave(self, session_id: str) -> None:
        """Give up a session that goes on: another runtime may adopt it."""
        held = self._sessions.pop(session_id, None)
        if held is not None and held.lease is not None:
            await held.settled()
            await self.journal.release(held.lease)

    def known(self) -> list[Session]:
        """The stored sessions in memory: all live ones, and those that ended lately."""
        return [one.engine.session for one in self._sessions.values() if not one.is_opening]

    async def cancel(self, session_id: str, by: str, reason: str) -> Answer:
        """Raises `Rejection`: `SESSION_NOT_FOUND`, `FORBIDDEN`."""
        held, now = await self._managed(session_id)
        return await self._changed(held, held.engine.cancel(by, reason, now), "CANCELLED")

    async def suspend(self, session_id: str, by: str, reason: str) -> Answer:
        """Raises `Rejection`: as `cancel`, and `SESSION_NOT_OPEN`."""
        held, now = await self._managed(session_id)
        return await self._changed(held, held.engine.suspend(by, reason, now), "SUSPENDED")

    async def resume(self, session_id: str, by: str, reason: str) -> Answer:
        """Raises `Rejection`: as `cancel`, and `SESSION_NOT_OPEN`."""
        held, now = await self._managed(session_id)
        return await self._changed(held, held.engine.resume(by, reason, now), "RESUMED")

    async def _managed(self, session_id: str) -> tuple[HeldSession, int]:
        held = await self._find(session_id)
        if held is None:
            raise not_found(session_id)
        await self._advance(held)
        await held.settled()
        return held, self.clock()

    async def _changed(self, held: HeldSession, event: Event | None, kind: str) -> Answer:
        if event is not None:
            await self._append(held, [event])
            self._tell(kind, held)
        return Answer(held.engine.session.state, self.clock())

    async def _start(
        self, message: Message, max_open: int | None, policy: PolicyDescriptor | None
    ) -> Answer:
        opening = rules.read_opening(message, self.registries.modes)
        for _ in range(_TRIES):
            with suppress(NotOpened):  # there is a run now that was not there: look again
                return await self._open(opening, max_open, policy)
        raise rules.already_exists(message.session_id)

    async def _open(
        self, opening: rules.Opening, max_open: int | None, policy: PolicyDescriptor | None
    ) -> Answer:
        message = opening.message
        known = await self._find(message.session_id)
        waiting = await waiting_run(self.keeping, message.session_id) if known is None else None
        # Another start may have been faster while we looked.
        known = self._sessions.get(message.session_id) or known
        if known is not None:
            return await self._started_before(known, message)
        policies = self.registries.policies
        if policy is not None:
            policies = PolicyRegistry({policy.policy_id: policy})
        now = self.clock()
        engine, accepted = rules.start(opening, policies, now)
        if max_open is not None:
            check_open(self._sessions.values(), message.sender, max_open, now)
        held = HeldSession(engine, new_run_id() if waiting is None else waiting.run_id, None)
        self._sessions[message.session_id] = held
        created = asyncio.get_running_loop().create_future()
        held.tail = created
        try:
            given = (self.keeping, self._worker_id, held.run_id, engine.session, accepted)
            held.lease = await (
                create_run(*given, self.commits) if waiting is None else claim_run(*given)
            )
        except BaseException as error:
            self._forget(held)
            created.set_exception(NotOpened(message.session_id))
            created.exception()  # it may have no waiter
            if isinstance(error, Conflict):
                raise NotOpened(message.session_id) from error
            raise
        held.tail = None
        created.set_result(None)
        self._tell("CREATED", held)
        return Answer("OPEN", accepted.at_ms, ordinal=1)

    async def _started_before(self, held: HeldSession, message: Message) -> Answer:
        await held.settled()
        if not held.engine.is_start(message):
            raise rules.already_exists(message.session_id)
        return Answer(held.engine.session.state, self.clock(), duplicate=True)

    async def _receive(self, message: Message) -> Answer:
        held = await self._find(message.session_id)
        if held is None:
            raise not_found(message.session_id)
        if held.engine.is_duplicate(message):
            await held.settled()
            return Answer(held.engine.session.state, self.clock(), duplicate=True)
        # From here to the append nothing is awaited: the order of messages is that of the journal.
        now = self.clock()
        events: list[Event] = list(held.engine.advance(now)) if held.lease is not None else []
        try:
            if held.lease is None and not held.engine.session.is_terminal:
                raise Rejection("INTERNAL_ERROR", "another process works on the session")
            accepted = held.engine.receive(message, now)
        except Rejection as rejection:
            await self._reject(held, events, message, rejection)
            raise
        await self._append(held, [*events, accepted])
        return Answer(accepted.state, accepted.at_ms, ordinal=accepted.ordinal)

    async def _note(self, message: Message) -> None:
        """Record a Signal or Progress once with its session, if that is live and the sender's."""
        held = self._sessions.get(session_of(message))
        if held is not None and held.lease is not None and await held.is_news(message):
            written = write_ambient(message, held.engine.session, held.run_id, self.keeping)
            if written.facts:
                await self._store(held, written)

    async def _reject(
        self, held: HeldSession, events: list[Event], message: Message, rejection: Rejection
    ) -> None:
        """Record what was decided; a rejection too rests on facts that are durable."""
        extra: list[Fact] = []
        if rejection.macp_code == "POLICY_DENIED" and message.message_type == "Commitment":
            session = held.engine.session
            extra = [denied(message, session, rejection, self.keeping.redactor)]
        if events or extra:
            await self._append(held, events, extra)
        else:
            await held.settled()

    async def _advance(self, held: HeldSession) -> None:
        if held.lease is None:
            return
        events = held.engine.advance(self.clock())
        if events:
            await self._append(held, events)

    def _append(
        self, held: HeldSession, events: Sequence[Event], extra: Sequence[Fact] = ()
    ) -> Append:
        """Queue the facts of events; watchers hear of those that end the session."""
        session = held.engine.session
        written = write_events(events, session, held.run_id, self.keeping)
        ending = ending_facts(session, events, self.keeping.redactor)
        written.facts.extend([*extra, *ending])
        last = events[-1] if events else None
        sender = last.message.sender if isinstance(last, Accepted) else ""
        return self._store(held, written, events, sender=sender, is_last=bool(ending))

    def _store(
        self,
        held: HeldSession,
        written: Written,
        events: Sequence[Event] = (),
        *,
        sender: str = "",
        is_last: bool = False,
    ) -> Append:
        lease = held.lease
        if lease is None:
            raise StoreDamaged(f"run {held.run_id} is not held by this process")

        def settled(error: BaseException | None) -> None:
            if error is not None:
                self._forget(held)
                return
            for event in events:
                if event.state in ("RESOLVED", "EXPIRED"):
                    self._tell(event.state, held)

        submit = partial(
            self.journal.append,
            held.run_id,
            written.facts,
            fence=lease.fence,
            bodies=written.bodies,
        )
        held.tail = append = Append(submit, settled)
        if is_last:
            held.lease = None
        return self.commits.add(append, held.run_id + sender if sender else "")

    def _forget(self, held: HeldSession) -> None:
        """Drop a session whose memory may be ahead of the journal; it is folded again when used."""
        session_id = held.engine.session.session_id
        if self._sessions.get(session_id) is held:
            del self._sessions[session_id]

    async def _find(self, session_id: str) -> HeldSession | None:
        held = self._sessions.get(session_id)
        if held is not None:
            if await held.is_stored(self.journal):
                return held
            self._forget(held)
        loading = self._loading.get(session_id)
        if loading is None:
            loading = self._loading[session_id] = asyncio.get_running_loop().create_future()
            try:
                loading.set_result(await self._load(session_id))
            except BaseException as error:
                loading.set_exception(
                    JournalError("the session could not be read")
                    if isinstance(error, asyncio.CancelledError)
                    else error
                )
                loading.exception()  # it may have no waiter
                raise
            finally:
                del self._loading[session_id]
            return loading.result()
        return await asyncio.shield(loading)

    async def _load(self, session_id: str) -> HeldSession | None:
        row = await store.find_run(self.journal, session_id)
        if row is None or row.base_sequence:  # of a pruned one nobody knows the beginning
            return None
        stored = await store.load(self.keeping, row.run_id)
        if stored is None:
            return None
        held = await self._claimed(stored, row)
        if held.lease is not None or held.engine.session.is_terminal:
            self._sessions[session_id] = held
        return held

    async def _claimed(self, stored: store.StoredSession, row: RunRow) -> HeldSession:
        """The session with its run claimed, unless it has ended or another process works on it."""
        session = stored.engine.session
        held = HeldSession(stored.engine, stored.run_id, None, stored.noted)
        if session.is_terminal:
            return held
        if row.worker_id == self._worker_id:  # forgotten after a fault, never given up
            held.lease = Lease(row.run_id, row.fence, row.worker_id, row.lease_until)
            return held
        if not self._adopts(session) and not is_overdue(session, self.clock()):
            return held
        try:
            lease = held.lease = await self.journal.claim(row.run_id, self._worker_id, LEASE_S)
        except Conflict:
            return held
        await self.journal.append(row.run_id, taken_over(row, self._worker_id), fence=lease.fence)
        return held

    def _tell(self, kind: str, held: HeldSession) -> None:
        change = Lifecycle(kind, held.engine.session, self.clock())
        self.on_change(change)
        self.lifecycle.publish(change)
