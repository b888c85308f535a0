"""The views: what each of them holds of a run, and how a fact moves it on."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec import field as member
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.protocols.macp import normaliser, projection
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.json_values import number_of
from batten.protocols.macp.messages import field, payload_fields, signal_fields
from batten.protocols.macp.metrics import Metrics, RunMetrics, measure, metrics_of
from batten.protocols.macp.normaliser import normalise
from batten.protocols.macp.projection import new_projection, project
from batten.protocols.macp.records import RunRecord, describe, enrich, note
from batten.protocols.macp.sessions import SessionRow, observe
from batten.protocols.macp.standing import Projection, Weight

S = TypeVar("S", bound="Folded")
MICRO = 1_000_000
_MOST_CONFIDENCE = 1000
"""A confidence beyond it is none."""


class Folded(Struct, kw_only=True):
    """The state of a view for one stream of the journal."""

    normaliser: NormaliserState = member(default_factory=NormaliserState)
    is_pruned: bool = False
    """Its first facts were removed: it has no canonical events any more."""
    first_position: int = 0
    """Of its first fact; another one if it was deleted and created again with the same id."""

    @property
    def sequence(self) -> int:
        """The last fact it holds."""
        return self.normaliser.sequence

    @property
    def seq(self) -> int:
        """The last canonical event it holds."""
        return self.normaliser.seq


class EventsFold(Folded, kw_only=True):
    """Enough to make the next events; the events themselves are rows."""


class StateFold(Folded, kw_only=True):
    projection: Projection = member(default_factory=new_projection)


class AgentShare(Struct, kw_only=True):
    """What one participant did in a run."""

    messages: int = 0
    signals: int = 0
    confidence_micros: int = 0
    """The sum over its signals that have one: whole numbers add up the same in any order."""
    confident: int = 0


class RunFold(Folded, kw_only=True):
    """The run's record and numbers, and what its participants did."""

    record: RunRecord = member(default_factory=RunRecord)
    metrics: Metrics = member(default_factory=Metrics)
    session: SessionRow = member(default_factory=SessionRow)
    agents: dict[str, AgentShare] = {}
    weight: Weight = member(default_factory=Weight)


class View(Struct, Generic[S], frozen=True):
    """A fold that is kept."""

    name: str
    version: str
    """Kept states of another version are folded anew."""
    state: type[S]
    apply: Callable[[S, Envelope, list[CanonicalEvent]], None]
    """Moves a state on by a fact and its events."""

    def step(self, state: S, envelope: Envelope) -> list[CanonicalEvent]:
        """Move a state on by the stream's next fact; returns the fact's events."""
        events = canonical_events(state, envelope)
        self.apply(state, envelope, events)
        return events

    def encode(self, state: S) -> bytes:
        return _encoder.encode(state)

    def decode(self, body: bytes) -> S:
        return msgspec.json.decode(body, type=self.state)


_encoder = msgspec.json.Encoder()


def canonical_events(state: Folded, envelope: Envelope) -> list[CanonicalEvent]:
    """The events of a stream's next fact: none of a session's stream, none of a pruned run."""
    standing = state.normaliser
    if state.is_pruned or not (standing.kind or isinstance(envelope.data, f.RunQueued)):
        standing.sequence = envelope.sequence
        return []
    return normalise(standing, envelope)


def _events(state: EventsFold, envelope: Envelope, events: list[CanonicalEvent]) -> None:
    pass


def _state(state: StateFold, envelope: Envelope, events: list[CanonicalEvent]) -> None:
    for event in events:
        project(state.projection, event)


def _run(state: RunFold, envelope: Envelope, events: list[CanonicalEvent]) -> None:
    if not state.normaliser.kind:
        return
    describe(state.record, envelope)
    observe(state.session, envelope, events, state.normaliser.runtime_kind)
    for event in events:
        note(state.record, event, state.weight)
        measure(state.metrics, event)
        _share(state, event)


def _share(state: RunFold, event: CanonicalEvent) -> None:
    is_message = event.type.startswith("message.")
    if not is_message and event.type != "signal.emitted":
        return
    sender = event.data.get("sender")
    if not isinstance(sender, str) or not sender:
        return
    share = state.agents.setdefault(sender, AgentShare())
    share.messages += is_message
    share.signals += not is_message
    if not is_message:
        _trust(share, event.data.get("decodedPayload"))


def _trust(share: AgentShare, payload: Any) -> None:
    confidence = number_of(field(signal_fields(payload), "confidence"))
    if confidence is not None and abs(confidence) <= _MOST_CONFIDENCE:
        share.confidence_micros += round(confidence * MICRO)
        share.confident += 1


def outcome_of(event: CanonicalEvent) -> int:
    """1 for a decision that says it is positive, -1 for a negative one, 0 if it says nothing."""
    said = field(payload_fields(event.data.get("decodedPayload")), "outcomePositive")
    return 0 if not isinstance(said, bool) else 1 if said else -1


_RULES = f"{normaliser.VERSION}"
EVENTS = View("events", f"6-{_RULES}", EventsFold, _events)
STATES = View("states", f"6-{_RULES}.{projection.VERSION}", StateFold, _state)
RUNS = View("runs", f"6-{_RULES}", RunFold, _run)
VIEWS: tuple[View[Any], ...] = (EVENTS, STATES, RUNS)


def shown_record(state: RunFold) -> RunRecord:
    return replace(state.record, metadata=enrich(state.record, state.metrics))


def shown_metrics(state: RunFold) -> RunMetrics:
    return metrics_of(state.record.id, state.metrics)
