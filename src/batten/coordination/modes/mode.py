"""A mode as a table: in which phase which message is taken, from whom, and what phase follows."""

from collections.abc import Mapping
from typing import Any, Generic, Literal, TypeVar

from msgspec import Struct

from batten.coordination.payloads import COMMITMENT, WireType, read
from batten.coordination.policy.policy import Policy, may_commit
from batten.coordination.rejection import Rejection, forbidden, invalid

Who = Literal["participant", "initiator", "authority", "assignee", "author", "offerer", "target"]
"""`authority` is whom the policy lets commit; the last four are roles that messages give."""


class Row(Struct, frozen=True):
    """In `phase`, `who` may send `message`; one of the phases in `next` follows."""

    phase: str
    message: str
    who: Who
    next: tuple[str, ...]


class Descriptor(Struct, frozen=True, kw_only=True):
    """A mode as the registry lists it."""

    mode: str
    mode_version: str
    title: str = ""
    description: str = ""
    determinism_class: str = ""
    participant_model: str = ""
    message_types: tuple[str, ...] = ()
    terminal_message_types: tuple[str, ...] = ("Commitment",)
    schema_uris: dict[str, str] = {}


def published_schema(name: str) -> dict[str, str]:
    """Where the payloads of a built-in mode are described: a file of the published package."""
    return {"protobuf": f"macp/modes/{name}/v1/{name}.proto"}


class Panel(Struct, frozen=True, kw_only=True):
    """What a mode knows of its session."""

    initiator: str
    participants: tuple[str, ...]
    policy: Policy
    is_open: bool = False
    """No participants are declared: everybody with an identity is one."""

    def has(self, sender: str) -> bool:
        return self.is_open or sender in self.participants


class Step(Struct, frozen=True, kw_only=True):
    """A message on its way into a mode's state."""

    sender: str
    message_type: str
    payload: Any
    at_ms: int
    by_runtime: bool = False
    """The runtime made it itself: an implicit acceptance."""


class Due(Struct, frozen=True, kw_only=True):
    """A message that the runtime sends in a participant's name when time has passed."""

    message_type: str
    message_id: str
    sender: str
    payload: bytes


class ModeState(Struct, frozen=True, kw_only=True):
    """What the accepted messages of a session amount to."""

    phase: str


S = TypeVar("S", bound=ModeState)


class Mode(Generic[S]):
    """A mode's table and its checks. Holds no state of a session."""

    descriptor: Descriptor
    rows: tuple[Row, ...]
    payloads: Mapping[str, WireType]
    first: S
    """The state of a session that has just started."""
    strict = True
    """Whether SessionStart must name versions, participants and a lifetime."""
    closed = False
    """Whether an unknown message is forbidden rather than invalid."""
    takes_anyone = False
    """Whether a strict SessionStart may leave the participants open."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "rows" in cls.__dict__:
            cls.by_place = {(row.phase, row.message): row for row in cls.rows}
            cls.senders = {row.message: row.who for row in cls.rows}

    by_place: Mapping[tuple[str, str], Row]
    senders: Mapping[str, Who]

    def check_start(self, panel: Panel) -> None:
        """Raise `INVALID_ENVELOPE` if a session cannot start with these participants."""

    def read_payload(self, message_type: str, payload: bytes) -> Struct:
        """The typed payload. Raises `INVALID_ENVELOPE`."""
        wire = COMMITMENT if message_type == "Commitment" else self.payloads[message_type]
        return read(wire, payload)

    def check_sender(self, panel: Panel, message_type: str, sender: str) -> None:
        """Raise unless somebody with this identity could ever send such a message."""
        who = self.senders.get(message_type)
        if who is None:
            if self.closed or not panel.has(sender):
                raise forbidden(f"{sender} may not send {message_type} in {self.descriptor.mode}")
            raise invalid(f"{self.descriptor.mode} has no message {message_type}")
        if who == "authority":
            if not may_commit(panel.policy, panel.initiator, panel.participants, sender):
                raise forbidden(f"{sender} may not commit: {panel.policy.authority_text}")
        elif who == "initiator":
            if sender != panel.initiator:
                raise forbidden(f"only {panel.initiator}, who started the session, may send it")
        elif not panel.has(sender):
            raise forbidden(f"{sender} is no participant of the session")

    def check_role(self, state: S, step: Step) -> None:
        """Raise unless the sender has the role that earlier messages give."""

    def check_phase(self, state: S, message_type: str) -> Row:
        row = self.by_place.get((state.phase, message_type))
        if row is None:
            phases = ", ".join(row.phase for row in self.rows if row.message == message_type)
            raise invalid(f"{message_type} is taken in phase {phases}, not in {state.phase}")
        return row

    def apply(self, state: S, panel: Panel, step: Step) -> S:
        """The state after a message that passed the table. Raises `Rejection`."""
        raise NotImplementedError

    def committed(self, state: S, panel: Panel, step: Step, payload: bytes) -> tuple[S, bytes]:
        """The state after an accepted commitment, and the resolution's bytes."""
        raise NotImplementedError

    def judge(self, state: S, panel: Panel, positive: bool) -> Rejection | None:
        """Why the policy denies a commitment now; None if it allows it."""
        return None

    def resumed(self, state: S, banked_ms: int) -> S:
        """The state after a suspension: what waits for a time waits that much longer."""
        return state

    def due_at_ms(self, state: S, panel: Panel) -> int | None:
        """When the runtime has to send a message itself; None if it need not."""
        return None

    def due(self, state: S, panel: Panel) -> "Due":
        """The message that the runtime sends at `due_at_ms`."""
        raise NotImplementedError


def take(mode: Mode[S], state: S, panel: Panel, step: Step) -> S:
    """The state after a message, checked against the table before and after."""
    mode.check_role(state, step)
    row = mode.check_phase(state, step.message_type)
    after = mode.apply(state, panel, step)
    assert after.phase in row.next, f"{mode.descriptor.mode}: {row} led to {after.phase}"
    return after


def nonblank(payload: Struct, *fields: str) -> None:
    for field in fields:
        if not getattr(payload, field).strip():
            raise invalid(f"{field} must not be blank")
