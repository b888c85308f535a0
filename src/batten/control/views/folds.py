"""The views: what each of them holds of a run, and how a fact moves it on."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct
from msgspec import field as member
from msgspec.structs import replace

from batten.contract.envelope import Envelope
from batten.protocols.macp import normaliser, projection
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.json_values import number_of
from batten.protocols.macp.messages import field, payload_fields
from batten.protocols.macp.metrics import Metrics, RunMetrics, measure, metrics_of
from batten.protocols.macp.normaliser import normalise
from batten.protocols.macp.projection import new_projection, project
from batten.protocols.macp.records import RunRecord, describe, enrich, note
from batten.protocols.macp.sessions import SessionRow, observe
from batten.protocols.macp.standing import Projection

S = TypeVar("S", bound="Folded")
MINUTE_MS = 60_000


class Folded(Struct, kw_only=True):
    """The state of a view for one run."""

    normaliser: NormaliserState = member(default_factory=NormaliserState)

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
    confidence: float = 0.0
    """The sum over its signals that have one."""
    confident: int = 0


class RunFold(Folded, kw_only=True):
    """The run's record and numbers, and its share of what the dashboard adds up."""

    record: RunRecord = member(default_factory=RunRecord)
    metrics: Metrics = member(default_factory=Metrics)
    session: SessionRow = member(default_factory=SessionRow)
    signals: dict[str, int] = {}
    """Signals by the minute of their event."""
    decisions: dict[str, int] = {}
    """Positive decisions less negative ones, by minute."""
    agents: dict[str, AgentShare] = {}


class View(Struct, Generic[S], frozen=True):
    """A fold that is kept."""

    name: str
    version: str
    """Kept states of another version are folded anew."""
    state: type[S]
    step: Callable[[S, Envelope], list[CanonicalEvent]]
    """Moves a state on by a fact; returns the fact's events."""

    def encode(self, state: S) -> bytes:
        return _encoder.encode(state)

    def decode(self, body: bytes) -> S:
        return msgspec.json.decode(body, type=self.state)


_encoder = msgspec.json.Encoder()


def _events(state: EventsFold, envelope: Envelope) -> list[CanonicalEvent]:
    return normalise(state.normaliser, envelope)


def _state(state: StateFold, envelope: Envelope) -> list[CanonicalEvent]:
    events = normalise(state.normaliser, envelope)
    for event in events:
        project(state.projection, event)
    return events


def _run(state: RunFold, envelope: Envelope) -> list[CanonicalEvent]:
    events = normalise(state.normaliser, envelope)
    describe(state.record, envelope)
    observe(state.session, envelope, events, state.normaliser.runtime_kind)
    for event in events:
        note(state.record, event)
        measure(state.metrics, event)
        _share(state, event)
    return events


def _share(state: RunFold, event: CanonicalEvent) -> None:
    minute = event.ts[:16]
    if event.type == "signal.emitted":
        state.signals[minute] = state.signals.get(minute, 0) + 1
    elif event.type == "decision.finalized":
        positive = state.record.metadata["finalOutcomePositive"]
        if positive is not None:
            change = 1 if positive else -1
            state.decisions[minute] = state.decisions.get(minute, 0) + change
    sender = event.data.get("sender")
    if not isinstance(sender, str) or not sender:
        return
    is_message = event.type.startswith("message.")
    if is_message or event.type == "signal.emitted":
        share = state.agents.setdefault(sender, AgentShare())
        share.messages += is_message
        share.signals += not is_message
        if not is_message:
            _trust(share, event.data.get("decodedPayload"))


def _trust(share: AgentShare, payload: Any) -> None:
    confidence = number_of(field(payload_fields(payload), "confidence"))
    if confidence is not None:
        share.confidence += confidence
        share.confident += 1


_RULES = f"{normaliser.VERSION}"
EVENTS = View("events", f"1-{_RULES}", EventsFold, _events)
STATES = View("states", f"1-{_RULES}.{projection.VERSION}", StateFold, _state)
RUNS = View("runs", f"2-{_RULES}", RunFold, _run)
VIEWS: tuple[View[Any], ...] = (EVENTS, STATES, RUNS)


def shown_record(state: RunFold) -> RunRecord:
    return replace(state.record, metadata=enrich(state.record, state.metrics))


def shown_metrics(state: RunFold) -> RunMetrics:
    return metrics_of(state.record.id, state.metrics)
