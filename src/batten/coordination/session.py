"""A session: the state that accepted messages and changes of its life fold into."""

from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from batten.coordination.commitment import check_commitment
from batten.coordination.envelope import Message
from batten.coordination.modes.mode import Descriptor, ModeState, Panel, Step, take
from batten.coordination.payloads import SESSION_START, Commitment, SessionStart, read
from batten.coordination.policy.policy import Policy, PolicyDescriptor, bind, may_commit
from batten.coordination.registry import AnyMode
from batten.coordination.rejection import Rejection, invalid
from batten.protocols.macp.descriptor import is_session_id

State = Literal["OPEN", "SUSPENDED", "RESOLVED", "EXPIRED", "CANCELLED"]
TERMINAL: frozenset[State] = frozenset({"RESOLVED", "EXPIRED", "CANCELLED"})
MAX_TTL_MS = 86_400_000
MAX_PARTICIPANTS = 1000
DEFAULT_MAX_SUSPEND_MS = 7 * 86_400_000
LATEST_MS = 2**63 - 1
"""The last time that the protocol can tell."""


class Activity(Struct, frozen=True):
    """How often a participant was heard, and when last."""

    last_message_at_unix_ms: int
    message_count: int


class Session(Struct, frozen=True, kw_only=True):
    """A session after its last accepted message."""

    session_id: str
    mode: AnyMode
    panel: Panel
    mode_version: str
    configuration_version: str
    intent: str
    context_id: str
    extension_keys: tuple[str, ...]
    started_at_ms: int
    ttl_ms: int
    deadline_ms: int
    max_suspend_ms: int
    state: State = "OPEN"
    mode_state: ModeState
    ordinal: int = 1
    """The number of accepted messages; SessionStart is the first."""
    activity: dict[str, Activity] = {}
    suspended_at_ms: int | None = None
    suspended_ms: int = 0
    """The time spent suspended, before the current suspension."""
    resolution: bytes | None = None

    @property
    def descriptor(self) -> Descriptor:
        return self.mode.descriptor

    @property
    def policy(self) -> Policy:
        return self.panel.policy

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    @property
    def last_frame(self) -> int:
        """The place of a stream's last frame: SessionCancel has the one after the messages."""
        return self.ordinal + (self.state == "CANCELLED")


def check_session_id(session_id: str) -> None:
    """Raise `INVALID_SESSION_ID` unless it is a UUID (v4, v7) or 22 base64url characters."""
    if not is_session_id(session_id):
        raise Rejection(
            "INVALID_SESSION_ID",
            "session_id must be a lower-case UUID v4 or v7, or 22 to 128 base64url characters",
        )


def read_start(message: Message, mode: AnyMode) -> SessionStart:
    """The checked payload of a SessionStart. Raises `Rejection`."""
    if not message.payload:
        raise invalid("SessionStart needs a payload")
    start = read(SESSION_START, message.payload)
    assert isinstance(start, SessionStart)
    version = mode.descriptor.mode_version
    if mode.strict:
        _check_strictly(start, mode)
    elif start.ttl_ms < 0 or start.ttl_ms > MAX_TTL_MS:
        raise invalid(f"ttl_ms must be from 1 to {MAX_TTL_MS}")
    if start.mode_version != version and (mode.strict or start.mode_version.strip()):
        raise invalid(f"mode_version is {start.mode_version!r}: the registered one is {version!r}")
    return start


def _check_strictly(start: SessionStart, mode: AnyMode) -> None:
    if not 1 <= start.ttl_ms <= MAX_TTL_MS:
        raise invalid(f"ttl_ms must be from 1 to {MAX_TTL_MS}")
    if not start.mode_version.strip() or not start.configuration_version.strip():
        raise invalid("mode_version and configuration_version must not be blank")
    names = [name.strip() for name in start.participants]
    if not names and not mode.takes_anyone:
        raise invalid("participants must not be empty")
    if len(names) > MAX_PARTICIPANTS:
        raise invalid(f"at most {MAX_PARTICIPANTS} participants take part")
    if "" in names or len(set(names)) != len(names):
        raise invalid("participants must be unique and not blank")
    if start.max_suspend_ms < 0:
        raise invalid("max_suspend_ms must not be negative")


def check_policy_mode(policy: PolicyDescriptor, mode: str) -> None:
    if policy.mode not in ("*", mode):
        raise Rejection(
            "INVALID_POLICY_DEFINITION", f"policy {policy.policy_id} is for {policy.mode}"
        )


def start_session(
    message: Message, start: SessionStart, mode: AnyMode, policy: PolicyDescriptor, now_ms: int
) -> Session:
    """The session that an accepted SessionStart opens. Raises `Rejection`."""
    participants = tuple(name.strip() for name in start.participants)
    panel = Panel(
        initiator=message.sender,
        participants=participants,
        policy=bind(policy, mode.descriptor.mode),
        is_open=not participants,
    )
    mode.check_start(panel)
    ttl_ms = start.ttl_ms or MAX_TTL_MS
    return Session(
        session_id=message.session_id,
        mode=mode,
        panel=panel,
        mode_version=start.mode_version.strip() or mode.descriptor.mode_version,
        configuration_version=start.configuration_version,
        intent=start.intent,
        context_id=start.context_id,
        extension_keys=tuple(sorted(start.extensions)),
        started_at_ms=now_ms,
        ttl_ms=ttl_ms,
        deadline_ms=min((message.timestamp_unix_ms or now_ms) + ttl_ms, LATEST_MS),
        max_suspend_ms=start.max_suspend_ms or DEFAULT_MAX_SUSPEND_MS,
        mode_state=mode.first,
    )


def is_overdue(session: Session, now_ms: int) -> bool:
    """Whether the session has to expire: its lifetime, or its longest suspension, has passed."""
    if session.state == "OPEN":
        return now_ms > session.deadline_ms
    if session.state == "SUSPENDED" and session.suspended_at_ms is not None:
        pause = now_ms - session.suspended_at_ms
        return session.suspended_ms + pause > session.max_suspend_ms
    return False


def accept(session: Session, message: Message, now_ms: int, *, by_runtime: bool = False) -> Session:
    """The session after a message. Raises `Rejection`, and nothing has changed then.

    The caller has recognised duplicates and expired an overdue session before.
    """
    if message.mode.strip() != session.descriptor.mode:
        raise invalid(f"the session is in mode {session.descriptor.mode}")
    if session.state != "OPEN":
        raise not_open(session)
    mode, panel = session.mode, session.panel
    mode.check_sender(panel, message.message_type, message.sender)
    payload = mode.read_payload(message.message_type, message.payload)
    step = Step(
        sender=message.sender,
        message_type=message.message_type,
        payload=payload,
        at_ms=now_ms,
        by_runtime=by_runtime,
    )
    changes: dict[str, Any]
    if message.message_type == "Commitment":
        assert isinstance(payload, Commitment)
        state, resolution = _commit(session, step, payload, message.payload)
        changes = {"mode_state": state, "state": "RESOLVED", "resolution": resolution}
    else:
        changes = {"mode_state": take(mode, session.mode_state, panel, step)}
    return replace(
        session, ordinal=session.ordinal + 1, activity=_heard(session, message, now_ms), **changes
    )


def _commit(
    session: Session, step: Step, commitment: Commitment, payload: bytes
) -> tuple[ModeState, bytes]:
    mode, panel = session.mode, session.panel
    check_commitment(
        commitment,
        mode_version=session.mode_version,
        configuration_version=session.configuration_version,
        policy_version=session.policy.descriptor.policy_id,
    )
    row = mode.check_phase(session.mode_state, step.message_type)
    rejection = mode.judge(session.mode_state, panel, commitment.outcome_positive)
    if rejection is not None:
        raise rejection
    state, resolution = mode.committed(session.mode_state, panel, step, payload)
    assert state.phase in row.next
    return state, resolution


def _heard(session: Session, message: Message, now_ms: int) -> dict[str, Activity]:
    known = session.activity.get(message.sender)
    count = known.message_count if known is not None else 0
    return {**session.activity, message.sender: Activity(now_ms, count + 1)}


def not_open(session: Session) -> Rejection:
    return Rejection("SESSION_NOT_OPEN", f"session {session.session_id} is {session.state.lower()}")


def may_manage(session: Session, sender: str) -> bool:
    """Whether this sender may cancel, suspend and resume the session."""
    panel = session.panel
    return sender == panel.initiator or may_commit(
        panel.policy, panel.initiator, panel.participants, sender
    )


def expired(session: Session) -> Session:
    return replace(session, state="EXPIRED")


def cancelled(session: Session) -> Session:
    return replace(session, state="CANCELLED")


def suspended(session: Session, now_ms: int) -> Session:
    """Raises `SESSION_NOT_OPEN` unless the session is open."""
    if session.state != "OPEN":
        raise not_open(session)
    return replace(session, state="SUSPENDED", suspended_at_ms=now_ms)


def resumed(session: Session, now_ms: int) -> tuple[Session, int]:
    """The open session and the time it was suspended, which its deadline gains.

    Raises `SESSION_NOT_OPEN` unless the session is suspended.
    """
    if session.state != "SUSPENDED" or session.suspended_at_ms is None:
        raise not_open(session)
    banked = max(0, now_ms - session.suspended_at_ms)
    return (
        replace(
            session,
            state="OPEN",
            suspended_at_ms=None,
            suspended_ms=session.suspended_ms + banked,
            deadline_ms=min(session.deadline_ms + banked, LATEST_MS),
            mode_state=session.mode.resumed(session.mode_state, banked),
        ),
        banked,
    )
