"""Extension modes: convergence over rounds, and modes that are registered while running."""

from typing import Any

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from batten.coordination.modes.mode import (
    Descriptor,
    Mode,
    ModeState,
    Panel,
    Row,
    Step,
    published_schema,
)
from batten.coordination.payloads import COMMITMENT, Commitment, read, wire_types
from batten.coordination.rejection import forbidden, invalid

MULTI_ROUND = "ext.multi_round.v1"


class ContributePayload(Struct, frozen=True):
    value: str = ""


class MultiRoundState(ModeState, frozen=True, kw_only=True):
    phase: str = "Contributing"
    round: int = 0
    contributions: dict[str, str] = field(default_factory=dict[str, str])
    """The value that each participant holds now."""


class MultiRound(Mode[MultiRoundState]):
    descriptor = Descriptor(
        mode=MULTI_ROUND,
        mode_version="1.0.0",
        title="Multi-round",
        description="Participants contribute values until all hold the same one.",
        determinism_class="semantic-deterministic",
        participant_model="peer",
        message_types=("SessionStart", "Contribute", "Commitment"),
        schema_uris=published_schema("multi_round"),
    )
    rows = (
        Row("Contributing", "Contribute", "participant", ("Contributing", "Converged")),
        Row("Converged", "Contribute", "participant", ("Contributing", "Converged")),
        Row("Converged", "Commitment", "initiator", ("Committed",)),
    )
    payloads = wire_types("macp.modes.multi_round.v1.multi_round_pb2", Contribute=ContributePayload)
    first = MultiRoundState()

    def read_payload(self, message_type: str, payload: bytes) -> Struct:
        """JSON with a `value`, or protobuf."""
        if message_type != "Contribute":
            return super().read_payload(message_type, payload)
        if not payload:
            raise invalid("a contribution must not be empty")
        try:
            found = msgspec.json.decode(payload, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return super().read_payload(message_type, payload)
        if "value" in found:
            value = found["value"]
            return ContributePayload(value if isinstance(value, str) else _canonical(value))
        return super().read_payload(message_type, payload)

    def apply(self, state: MultiRoundState, panel: Panel, step: Step) -> MultiRoundState:
        payload = step.payload
        assert isinstance(payload, ContributePayload)
        known = state.contributions.get(step.sender)
        if state.phase == "Converged" and known is not None:
            raise invalid("the contributions have converged: only a commitment can follow")
        contributions = {**state.contributions, step.sender: payload.value}
        # An initiator that only moderates does not hold the others up.
        values = {
            contributions.get(who)
            for who in panel.participants
            if who != panel.initiator or who in contributions
        }
        converged = len(values) == 1 and None not in values
        return replace(
            state,
            phase="Converged" if converged else "Contributing",
            round=state.round + (known != payload.value),
            contributions=contributions,
        )

    def committed(
        self, state: MultiRoundState, panel: Panel, step: Step, payload: bytes
    ) -> tuple[MultiRoundState, bytes]:
        value = next(iter(state.contributions.values()))
        resolution = {"converged_value": value, "round": state.round, "final": True}
        return replace(state, phase="Committed"), msgspec.json.encode(resolution)


class ExtensionState(ModeState, frozen=True, kw_only=True):
    phase: str = "Open"
    messages: int = 0


class Extension(Mode[ExtensionState]):
    """A mode that is only a list of messages: participants send them, the initiator commits."""

    first = ExtensionState()
    payloads = wire_types("")
    strict = False
    rows: tuple[Row, ...] = ()

    def __init__(self, descriptor: Descriptor, *, strict: bool = False) -> None:
        self.descriptor = descriptor
        self.strict = strict
        listed = [name for name in descriptor.message_types if name not in _FIXED]
        self.rows = (
            *(Row("Open", name, "participant", ("Open",)) for name in listed),
            Row("Open", "Commitment", "initiator", ("Committed",)),
        )
        self.by_place = {(row.phase, row.message): row for row in self.rows}
        self.senders = {row.message: row.who for row in self.rows}

    def read_payload(self, message_type: str, payload: bytes) -> Struct:
        if message_type == "Commitment":
            return read(COMMITMENT, payload)
        return ContributePayload()

    def apply(self, state: ExtensionState, panel: Panel, step: Step) -> ExtensionState:
        return replace(state, messages=state.messages + 1)

    def committed(
        self, state: ExtensionState, panel: Panel, step: Step, payload: bytes
    ) -> tuple[ExtensionState, bytes]:
        commitment = step.payload
        assert isinstance(commitment, Commitment)
        resolution = {"action": commitment.action, "commitment_id": commitment.commitment_id}
        return replace(state, phase="Committed"), msgspec.json.encode(resolution)


_FIXED = ("SessionStart", "Commitment")


def check_descriptor(descriptor: Descriptor, known: frozenset[str]) -> None:
    """Raise `Rejection` unless this extension mode may be registered."""
    name = descriptor.mode
    if not name.strip():
        raise invalid("mode must not be blank")
    if name.startswith("macp.mode."):
        raise forbidden("macp.mode.* is reserved for the modes of the standard")
    if name in known:
        raise invalid(f"mode {name} is already registered")
    if not descriptor.mode_version.strip() or not descriptor.message_types:
        raise invalid("mode_version and message_types must not be empty")
    if any(not one.strip() for one in descriptor.message_types):
        raise invalid("message_types must not hold a blank name")
    if descriptor.terminal_message_types != ("Commitment",):
        raise invalid("terminal_message_types must be Commitment and nothing else")
    if "Commitment" not in descriptor.message_types:
        raise invalid("message_types must list Commitment")


def _canonical(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()
