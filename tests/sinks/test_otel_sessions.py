"""Traces of coordination sessions: spans below the run's, its annotations, and the same ids as the
canonical events have.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest

from batten.contract import facts
from batten.contract.envelope import Envelope, decode
from batten.contract.ids import to_uuid
from batten.contract.tracing import span_of, trace_of
from batten.journal.sqlite import SqliteJournal
from batten.protocols.macp.emitting import NormaliserState
from batten.protocols.macp.events import CanonicalEvent
from batten.protocols.macp.normaliser import normalise
from batten.sinks.store import SinkStore
from tests.control.coordination.given import open_runtime
from tests.control.views.sessions import DECISION, play
from tests.journal.given import new_run
from tests.sinks.http_receiver import HttpReceiver, http_receiver
from tests.sinks.test_otel import attributes, by_name, export, spans_of

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
async def receiver() -> AsyncIterator[HttpReceiver]:
    async with http_receiver() as running:
        yield running


async def stored(journal: SqliteJournal, run_id: str) -> list[Envelope]:
    return [decode(one.body) for one in await journal.read(run_id, limit=1000)]


def canonical(envelopes: list[Envelope]) -> list[list[CanonicalEvent]]:
    """The events of each fact."""
    state = NormaliserState()
    return [normalise(state, one) for one in envelopes]


async def test_a_session_is_one_trace_with_a_span_for_each_fact(
    tmp_path: Path, receiver: HttpReceiver
) -> None:
    async with open_runtime(tmp_path) as runtime:
        journal = runtime.journal
        assert isinstance(journal, SqliteJournal)
        run_id = await play(runtime, DECISION)
        store = SinkStore.open(str(tmp_path))
        await export(journal, store, receiver)
        store.close()
        envelopes = await stored(journal, run_id)
    events = canonical(envelopes)
    spans = spans_of(receiver.taken)
    root = by_name(spans)["run.lifecycle"]
    told = attributes(root)
    assert {name: told[name] for name in ("run_id", "runtime_kind", "mode_name")} == {
        "run_id": to_uuid(run_id),
        "runtime_kind": "embedded",
        "mode_name": DECISION,
    }
    assert (told["execution_mode"], told["run.terminal_status"]) == ("live", "completed")
    # The span of the run is the one that each canonical event names.
    contexts = {(event.trace, event.run_id) for made in events for event in made}
    [(trace, named)] = contexts
    assert (root["traceId"], root["spanId"]) == (trace_of(run_id), span_of(run_id))
    assert msgspec.to_builtins(trace) == {"traceId": root["traceId"], "spanId": root["spanId"]}
    assert UUID(named).hex == root["traceId"]

    below = [span for span in spans if span is not root]
    assert {span["parentSpanId"] for span in below} == {root["spanId"]}
    assert len({span["spanId"] for span in spans}) == len(spans)
    expected: list[tuple[str, int]] = []
    for envelope, made in zip(envelopes, events, strict=True):
        if envelope.type.startswith("macp."):
            expected += [("stream.handle_raw_event", 0), ("run-event.persist", len(made))]
        elif made:
            expected.append(("run-event.emit", len(made)))
    assert sorted(expected) == sorted(
        (span["name"], int(attributes(span).get("macp.event_count", 0))) for span in below
    )
    raw = [attributes(span) for span in below if span["name"] == "stream.handle_raw_event"]
    assert {one["macp.raw_kind"] for one in raw} == {"session-snapshot", "stream-envelope"}
    said = [one["macp.message_type"] for one in raw if "macp.message_type" in one]
    assert said[:2] == ["SessionStart", "Proposal"]
    assert {one["macp.session_id"] for one in raw} == {
        fact.session_id
        for fact in (one.data for one in envelopes)
        if isinstance(fact, facts.MacpSessionBound)
    }
    [finalized] = root["events"]
    assert finalized["name"] == "decision.finalized"
    note = attributes(finalized)
    assert (note["action"], note["outcome"]) == ("decision.rejected", "negative")
    [decided] = [one for made in events for one in made if one.type == "decision.finalized"]
    assert int(note["seq"]) == decided.seq
    resource = msgspec.json.decode(receiver.taken[0].body)["resourceSpans"][0]["resource"]
    assert attributes(resource)["service.name"] == "macp-control-plane"


def frame(kind: Any, detail: dict[str, Any], **more: Any) -> facts.MacpFrameObserved:
    return facts.MacpFrameObserved(kind, "session-1", detail, **more)


async def test_an_observed_session_is_annotated_under_its_callers_trace(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    run = new_run(kind="coordination")
    queued = facts.RunQueued("coordination", None, None, "", "in_place", None, traceparent=CALLER)
    descriptor = {
        "mode": "sandbox",
        "runtime": {"kind": "rust"},
        "session": {"modeName": DECISION},
    }
    lease, _ = await journal.create(
        run,
        [
            queued,
            facts.MacpRunDescribed("session-1", descriptor, 1),
            facts.RunStarted("w", "x"),
            frame("session_snapshot", {"state": "SESSION_STATE_OPEN", "modeName": DECISION}),
            frame(
                "envelope",
                {"signalType": "fraud", "severity": "high"},
                message_type="Signal",
                message_id="m1",
                sender="ann",
            ),
            frame(
                "envelope",
                {"signalId": "m1"},
                message_type="SignalAck",
                message_id="m2",
                sender="ben",
            ),
            frame("stream_error", {"code": "POLICY_DENIED", "message": "no", "messageId": "m3"}),
            facts.RunFailed("RUNTIME_TIMEOUT", "gone", False, 0),
        ],
    )
    assert lease is not None
    await export(journal, store, receiver)
    root = by_name(spans_of(receiver.taken))["run.lifecycle"]
    assert (root["traceId"], root["parentSpanId"]) == tuple(CALLER.split("-")[1:3])
    [trace] = {
        event.trace for made in canonical(await stored(journal, run.run_id)) for event in made
    }
    assert msgspec.to_builtins(trace) == {"traceId": root["traceId"], "spanId": root["spanId"]}
    assert root["status"]["code"] == 2
    told = attributes(root)
    assert (told["runtime_kind"], told["execution_mode"]) == ("rust", "sandbox")
    assert told["run.terminal_status"] == "failed"
    notes = {one["name"]: attributes(one) for one in root["events"]}
    assert notes.keys() == {"signal.emitted", "signal.acknowledged", "policy.denied"}
    assert (notes["signal.emitted"]["name"], notes["signal.emitted"]["sender"]) == ("fraud", "ann")
    acknowledged = notes["signal.acknowledged"]
    assert (acknowledged["signalId"], acknowledged["sender"]) == ("m1", "ben")
    assert notes["policy.denied"]["errorCode"] == "POLICY_DENIED"
    kinds = [
        attributes(span)["macp.raw_kind"]
        for span in spans_of(receiver.taken)
        if span["name"] == "stream.handle_raw_event"
    ]
    assert kinds == [
        "session-snapshot",
        "stream-envelope",
        "stream-envelope",
        "stream-inline-error",
    ]


async def test_an_export_of_a_session_that_is_repeated_is_the_same(
    journal: SqliteJournal, store: SinkStore, receiver: HttpReceiver
) -> None:
    run = new_run(kind="coordination")
    queued = facts.RunQueued("coordination", None, None, "", "in_place", None)
    frames = [
        frame("envelope", {}, message_type="Vote", message_id=f"m{number}", sender="ann")
        for number in range(60)
    ]
    described = facts.MacpRunDescribed("session-1", {}, 1)
    lease, _ = await journal.create(run, [queued, described, facts.RunStarted("w", "x"), *frames])
    assert lease is not None
    await export(journal, store, receiver)
    first = [one.body for one in receiver.taken]
    # A session is told while it goes on.
    assert sum(len(msgspec.json.decode(body)["resourceSpans"]) for body in first) == 2
    await export(journal, store, receiver)
    assert [one.body for one in receiver.taken] == [*first, *first]
