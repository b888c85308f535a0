"""The projection: a fold of canonical events into the state of their run.

`Projection` holds what the fold needs between events, and can be stored at any of them; `state_of`
shows it as `GET /runs/:id/state` does.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from batten.protocols.macp import decisions, graph
from batten.protocols.macp import state as st
from batten.protocols.macp.events import CanonicalEvent, EventType
from batten.protocols.macp.json_values import number_of, texts_of
from batten.protocols.macp.llm import cost_nanos, dollars
from batten.protocols.macp.messages import field, first_text, signal_fields
from batten.protocols.macp.standing import Projection
from batten.protocols.macp.state import TERMINAL, ProjectedState

VERSION = 3
"""Raised with every change of the fold: stored projections of another version are made anew."""
_COUNTED = 256
"""Ids of messages that were counted, to count none twice."""

T = TypeVar("T")


def project(projection: Projection, event: CanonicalEvent) -> None:
    """Take the run's next event."""
    timeline = projection.timeline
    timeline.latest_seq = event.seq
    timeline.total_events += 1
    _keep(
        timeline.recent,
        st.TimelineEntry(
            id=event.id, seq=event.seq, ts=event.ts, type=event.type, subject=event.subject
        ),
        st.MOST_RECENT,
    )
    projection.run.run_id = event.run_id
    _trace(projection, event)
    sender = event.data.get("sender")
    if isinstance(sender, str) and sender in projection.participants:
        projection.emitted[sender] = event.seq
    step = _STEPS.get(event.type)
    if step is not None:
        step(projection, event)


def _keep(entries: list[T], entry: T, most: int) -> None:
    entries.append(entry)
    if len(entries) > most:
        del entries[0]


def _trace(projection: Projection, event: CanonicalEvent) -> None:
    if event.trace is UNSET:
        return
    trace = projection.trace
    if event.trace.trace_id is not UNSET:
        trace.trace_id = event.trace.trace_id
    if event.trace.span_id is not UNSET:
        is_new = trace.last_span_id is UNSET or event.type == "tool.called"
        trace.span_count += is_new
        trace.last_span_id = event.trace.span_id


def _run(projection: Projection, event: CanonicalEvent) -> None:
    run, data = projection.run, event.data
    run.status = data["status"]
    for name, key in _RUN_FIELDS:
        if (value := data.get(key)) is not None:
            setattr(run, name, value)
    if run.status in TERMINAL:
        _sweep(projection)


_RUN_FIELDS = (
    ("runtime_session_id", "sessionId"),
    ("runtime_session_id", "runtimeSessionId"),
    ("started_at", "startedAt"),
    ("ended_at", "endedAt"),
    ("trace_id", "traceId"),
    ("mode_name", "modeName"),
)


def _sweep(projection: Projection) -> None:
    """Give every participant its end: who said something completed, who did not was skipped."""
    last = ""
    if projection.run.status == "failed" and projection.emitted:
        last = max(projection.emitted, key=lambda name: projection.emitted[name])
    for name, participant in projection.participants.items():
        if participant.status in ("completed", "failed", "skipped"):
            continue
        if name == last:
            participant.status = "failed"
        elif name in projection.emitted:
            participant.status = "completed"
        else:
            participant.status = "skipped"
        graph.mirror(projection, participant)
    decisions.run_ended(projection)


def _bound(projection: Projection, event: CanonicalEvent) -> None:
    run, data = projection.run, event.data
    run.runtime_session_id = data["sessionId"]
    run.mode_name = data.get("modeName") or run.mode_name
    if run.status not in TERMINAL:
        run.status = "binding_session"
    projection.initiator = data.get("initiator", "")
    projection.declared = len(texts_of(data.get("participants")))
    projection.policy.policy_version = (
        projection.policy.policy_version or data.get("policyVersion") or ""
    )


def _session_changed(projection: Projection, event: CanonicalEvent) -> None:
    run = projection.run
    run.runtime_session_id = event.data["sessionId"]
    if run.status in TERMINAL:
        return
    match event.data["state"]:
        case "SESSION_STATE_OPEN":
            run.status = "running"
        case "SESSION_STATE_SUSPENDED":
            run.status = "suspended"
        case _:
            pass


def _participant(projection: Projection, event: CanonicalEvent) -> None:
    graph.participant(projection, event.data["participantId"])


def _received(projection: Projection, event: CanonicalEvent) -> None:
    data = event.data
    _count(projection, data["messageId"], accepted=True)
    _speak(projection, event, data["sender"])
    recipients = graph.recipients_of(data, projection.participants)
    is_over = projection.run.status in TERMINAL
    for name in recipients:
        participant = graph.participant(projection, name)
        if not is_over:
            participant.status = "waiting"
            graph.mirror(projection, participant)
    graph.draw(projection, event, recipients)


def _sent(projection: Projection, event: CanonicalEvent) -> None:
    data = event.data
    _count(projection, data["messageId"], accepted=data["ok"])
    if isinstance(sender := data.get("sender"), str):
        _speak(projection, event, sender)


def _speak(projection: Projection, event: CanonicalEvent, sender: str) -> None:
    participant = graph.participant(projection, sender)
    projection.emitted[sender] = event.seq
    participant.latest_activity_at = event.ts
    participant.latest_summary = event.data.get("messageType") or event.type
    if projection.run.status not in TERMINAL:
        participant.status = "active"
        graph.mirror(projection, participant)


def _send_failed(projection: Projection, event: CanonicalEvent) -> None:
    _count(projection, event.data["messageId"], accepted=False)


def _count(projection: Projection, message_id: str, *, accepted: bool) -> None:
    key = f"{'+' if accepted else '-'}{message_id}"
    if key in projection.counted:
        return  # its answer and its message on the stream are one
    projection.counted[key] = True
    if len(projection.counted) > _COUNTED:
        del projection.counted[next(iter(projection.counted))]
    outbound = projection.outbound
    outbound.total += 1
    if accepted:
        outbound.accepted += 1
    else:
        outbound.rejected += 1


def _emitted(projection: Projection, event: CanonicalEvent) -> None:
    fields = signal_fields(event.data.get("decodedPayload"))
    _keep(
        projection.signals,
        st.Signal(
            id=event.subject.id if event.subject is not UNSET else event.id,
            name=first_text(fields, "signalType") or event.data["messageType"] or "Signal",
            severity=first_text(fields, "severity") or UNSET,
            source_participant_id=event.data["sender"] or UNSET,
            ts=event.ts,
            confidence=_number(field(fields, "confidence")),
            payload=event.data.get("decodedPayload"),
        ),
        st.MOST_SIGNALS,
    )


def _number(value: Any) -> float | UnsetType:
    number = number_of(value)
    return UNSET if number is None else float(number)


def _acknowledged(projection: Projection, event: CanonicalEvent) -> None:
    if event.subject is UNSET:
        return
    for signal in reversed(projection.signals):
        if signal.id == event.subject.id:
            signal.acknowledged_at = event.ts
            signal.acknowledged_by = event.data["sender"]
            return


def _progress(projection: Projection, event: CanonicalEvent) -> None:
    fields = event.data["decodedPayload"]
    entry = st.ProgressEntry(
        participant_id=event.data["sender"],
        percentage=_number(fields.get("percentage", fields.get("progress"))),
        message=first_text(fields, "message", "status"),
        ts=event.ts,
    )
    _keep(projection.progress, entry, st.MOST_PROGRESS)


def _artifact(projection: Projection, event: CanonicalEvent) -> None:
    linked, artifact_id = projection.trace.linked_artifacts, event.data["artifactId"]
    if artifact_id not in linked:
        _keep(linked, artifact_id, st.MOST_ARTIFACTS)


def _called(projection: Projection, event: CanonicalEvent) -> None:
    call: dict[str, Any] = event.data["decodedPayload"]
    nanos, latency_ms = cost_nanos(call), number_of(call.get("latencyMs"))
    projection.cost_nanos += nanos
    totals = projection.totals
    totals.call_count += 1
    totals.prompt_tokens += call["promptTokens"]
    totals.completion_tokens += call["completionTokens"]
    totals.total_tokens += call["totalTokens"]
    totals.estimated_cost_usd = dollars(projection.cost_nanos)
    entry = st.LlmCall(
        participant_id=event.data["sender"],
        model=_text(call.get("model")),
        prompt_tokens=call["promptTokens"],
        completion_tokens=call["completionTokens"],
        total_tokens=call["totalTokens"],
        latency_ms=UNSET if latency_ms is None else round(latency_ms),
        ts=event.ts,
        message_id=event.data["messageId"] or UNSET,
        artifact_id=_text(call.get("artifactId")),
        estimated_cost_usd=dollars(nanos),
    )
    _keep(projection.calls, entry, st.MOST_CALLS)


def _text(value: Any) -> str | UnsetType:
    return value if isinstance(value, str) and value else UNSET


_Step: TypeAlias = Callable[[Projection, CanonicalEvent], None]
_STEPS: dict[EventType, _Step] = {
    "run.created": _run,
    "run.started": _run,
    "run.completed": _run,
    "run.failed": _run,
    "run.cancelled": _run,
    "session.bound": _bound,
    "session.state.changed": _session_changed,
    "participant.seen": _participant,
    "message.received": _received,
    "message.sent": _sent,
    "message.send_failed": _send_failed,
    "signal.emitted": _emitted,
    "signal.acknowledged": _acknowledged,
    "proposal.created": decisions.contributed,
    "proposal.updated": decisions.contributed,
    "decision.finalized": decisions.finalized,
    "progress.reported": _progress,
    "artifact.created": _artifact,
    "policy.resolved": decisions.resolved,
    "policy.commitment.evaluated": decisions.evaluated,
    "llm.call.completed": _called,
}
"""The events that change a block beside the timeline."""


def state_of(projection: Projection) -> ProjectedState:
    """What readers see. It shares values with the projection: encode it before the next event."""
    policy = projection.policy
    if tallies := decisions.tallies(projection):
        policy = replace(policy, vote_tally=tallies)
    current = UNSET if projection.current is None else projection.current
    return ProjectedState(
        run=projection.run,
        participants=list(projection.participants.values()),
        graph=st.Graph(
            nodes=list(projection.nodes.values()), edges=list(projection.edges.values())
        ),
        decision=st.Decision(current=current),
        signals=st.Signals(signals=projection.signals),
        progress=st.Progress(entries=projection.progress),
        timeline=projection.timeline,
        trace=projection.trace,
        outbound_messages=projection.outbound,
        policy=policy,
        llm=st.Llm(calls=projection.calls, totals=projection.totals),
    )


def empty_state(run_id: str) -> ProjectedState:
    """The state of a run without events."""
    return state_of(new_projection(run_id))


def new_projection(run_id: str = "") -> Projection:
    return Projection(run=st.RunBlock(run_id=run_id))
