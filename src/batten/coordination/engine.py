"""One session at work: what happens to it becomes events, and events fold into its state.

The engine decides and applies at once; the caller makes the events durable before it tells anybody.
Folding the events of a session again gives the same session, byte for byte: the clock of each
event and the policy are stored with it.
"""

from collections.abc import Iterable

from msgspec import Struct

from batten.coordination import session as life
from batten.coordination.envelope import Message
from batten.coordination.payloads import SessionStart
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import AnyMode, ModeRegistry, PolicyRegistry
from batten.coordination.rejection import Rejection, forbidden
from batten.coordination.session import Session, State

SEMANTICS = 4
"""The revision of the rules that sessions of this version are bound to."""


class Accepted(Struct, frozen=True, kw_only=True):
    """A message that the session took."""

    message: Message
    at_ms: int
    ordinal: int
    state: State
    """The session's state after it."""
    by_runtime: bool = False


class Changed(Struct, frozen=True, kw_only=True):
    """A change of the session's life that is no message: it takes no ordinal."""

    state: State
    at_ms: int
    by: str = ""
    reason: str = ""
    banked_ms: int = 0
    """The time that a resumed session gets back."""


Event = Accepted | Changed


class Engine:
    """A session, the messages it has accepted, and its rules."""

    def __init__(self, session: Session, message: Message) -> None:
        """`message` is the SessionStart that opened the session."""
        self.session = session
        self.ids = {(message.sender, message.message_id)}
        """The senders and ids of accepted messages."""
        self._start = (message.sender, message.message_id)

    def advance(self, now_ms: int) -> list[Event]:
        """What time alone has brought about: an implicit acceptance, the session's expiry."""
        events: list[Event] = []
        session = self.session
        if session.state == "OPEN":
            due_at = session.mode.due_at_ms(session.mode_state, session.panel)
            if due_at is not None and due_at <= min(now_ms, session.deadline_ms):
                events.append(self._accept_due(due_at))
        if life.is_overdue(self.session, now_ms):
            self.session = life.expired(self.session)
            events.append(Changed(state="EXPIRED", at_ms=now_ms, reason=self._overdue_reason()))
        return events

    def next_deadline_ms(self) -> int | None:
        """When `advance` will next have something to do; None for a session that has ended."""
        session = self.session
        if session.state == "OPEN":
            due_at = session.mode.due_at_ms(session.mode_state, session.panel)
            overdue = session.deadline_ms + 1
            return overdue if due_at is None else min(due_at, overdue)
        if session.state == "SUSPENDED" and session.suspended_at_ms is not None:
            left = session.max_suspend_ms - session.suspended_ms
            return session.suspended_at_ms + left + 1
        return None

    def is_duplicate(self, message: Message) -> bool:
        """Whether the session has accepted a message with this id by this sender.

        Ids of different senders do not collide: nobody can use up another's, or be told that a
        message was accepted that was not.
        """
        return (message.sender, message.message_id) in self.ids

    def is_start(self, message: Message) -> bool:
        """Whether this is the SessionStart that opened the session, sent again."""
        return (message.sender, message.message_id) == self._start

    def receive(self, message: Message, now_ms: int) -> Accepted:
        """Take a message that is no duplicate, after `advance`. Raises `Rejection`."""
        if message.message_type == "SessionStart":
            raise already_exists(self.session.session_id)
        return self._take(message, now_ms, by_runtime=False)

    def cancel(self, by: str, reason: str, now_ms: int) -> Changed | None:
        """End the session; None if it has ended already. Raises `FORBIDDEN`."""
        self._check_manager(by)
        return self.cancel_anyway(by, reason, now_ms)

    def cancel_anyway(self, by: str, reason: str, now_ms: int) -> Changed | None:
        """Like `cancel`, for the operator of the runtime, who needs no right in the session."""
        if self.session.is_terminal:
            return None
        self.session = life.cancelled(self.session)
        return Changed(state="CANCELLED", at_ms=now_ms, by=by, reason=reason)

    def suspend(self, by: str, reason: str, now_ms: int) -> Changed:
        """Raises `FORBIDDEN`, and `SESSION_NOT_OPEN` unless the session is open."""
        self._check_manager(by)
        return self.suspend_anyway(by, reason, now_ms)

    def suspend_anyway(self, by: str, reason: str, now_ms: int) -> Changed:
        """Like `suspend`, for the operator of the runtime."""
        self.session = life.suspended(self.session, now_ms)
        return Changed(state="SUSPENDED", at_ms=now_ms, by=by, reason=reason)

    def resume(self, by: str, reason: str, now_ms: int) -> Changed:
        """Raises `FORBIDDEN`, and `SESSION_NOT_OPEN` unless the session is suspended."""
        self._check_manager(by)
        return self.resume_anyway(by, reason, now_ms)

    def resume_anyway(self, by: str, reason: str, now_ms: int) -> Changed:
        """Like `resume`, for the operator of the runtime."""
        self.session, banked = life.resumed(self.session, now_ms)
        return Changed(state="OPEN", at_ms=now_ms, by=by, reason=reason, banked_ms=banked)

    def replay(self, event: Event) -> None:
        """Fold a stored event. Raises `Rejection` if it does not follow from those before it."""
        match event:
            case Accepted(message=message, at_ms=at_ms, by_runtime=by_runtime):
                self._take(message, at_ms, by_runtime=by_runtime)
            case Changed(state="EXPIRED"):
                self.session = life.expired(self.session)
            case Changed(state="CANCELLED"):
                self.session = life.cancelled(self.session)
            case Changed(state="SUSPENDED", at_ms=at_ms):
                self.session = life.suspended(self.session, at_ms)
            case Changed(at_ms=at_ms):
                self.session, _ = life.resumed(self.session, at_ms)

    def _take(self, message: Message, now_ms: int, *, by_runtime: bool) -> Accepted:
        self.session = life.accept(self.session, message, now_ms, by_runtime=by_runtime)
        self.ids.add((message.sender, message.message_id))
        return Accepted(
            message=message,
            at_ms=now_ms,
            ordinal=self.session.ordinal,
            state=self.session.state,
            by_runtime=by_runtime,
        )

    def _accept_due(self, at_ms: int) -> Accepted:
        session = self.session
        due = session.mode.due(session.mode_state, session.panel)
        message = Message(
            mode=session.descriptor.mode,
            message_type=due.message_type,
            message_id=due.message_id,
            session_id=session.session_id,
            sender=due.sender,
            timestamp_unix_ms=at_ms,
            payload=due.payload,
        )
        return self._take(message, at_ms, by_runtime=True)

    def _overdue_reason(self) -> str:
        if self.session.suspended_at_ms is not None:
            return "it was suspended for longer than max_suspend_ms"
        return f"its lifetime of {self.session.ttl_ms} ms has passed"

    def _check_manager(self, by: str) -> None:
        if not life.may_manage(self.session, by):
            raise forbidden(f"{by} is neither the initiator nor whom the policy lets commit")


def already_exists(session_id: str) -> Rejection:
    return Rejection("SESSION_ALREADY_EXISTS", f"session {session_id} exists already")


class Opening(Struct, frozen=True):
    """A SessionStart that could open a session, if there is none with its id."""

    message: Message
    mode: AnyMode
    payload: SessionStart


def read_opening(message: Message, modes: ModeRegistry) -> Opening:
    """A SessionStart, checked as far as it can be without the sessions. Raises `Rejection`."""
    life.check_session_id(message.session_id)
    name = message.mode.strip()
    mode = modes.find(name)
    if mode is None:
        known = ", ".join(modes.names)
        raise Rejection("MODE_NOT_SUPPORTED", f"there is no mode {name!r}: this one has {known}")
    return Opening(message, mode, life.read_start(message, mode))


def start(opening: Opening, policies: PolicyRegistry, now_ms: int) -> tuple[Engine, Accepted]:
    """Open the session under the policy that it names. Raises `Rejection`."""
    version = opening.payload.policy_version
    policy = policies.find(version)
    if policy is None:
        raise Rejection("UNKNOWN_POLICY_VERSION", f"no policy {version!r} is registered")
    life.check_policy_mode(policy, opening.mode.descriptor.mode)
    return _open(opening, policy, now_ms)


def _open(opening: Opening, policy: PolicyDescriptor, now_ms: int) -> tuple[Engine, Accepted]:
    message = opening.message
    session = life.start_session(message, opening.payload, opening.mode, policy, now_ms)
    accepted = Accepted(message=message, at_ms=now_ms, ordinal=1, state="OPEN")
    return Engine(session, message), accepted


def rebuild(
    first: Accepted, mode: AnyMode, policy: PolicyDescriptor, events: Iterable[Event]
) -> Engine:
    """The engine of a stored session. Raises `Rejection` for a history that is not one."""
    opening = Opening(first.message, mode, life.read_start(first.message, mode))
    engine, _ = _open(opening, policy, first.at_ms)
    for event in events:
        engine.replay(event)
    return engine
