"""The control plane's counts of runs and messages: from facts, and bounded."""

from pathlib import Path

import pytest

from batten.contract import facts
from batten.serve.http.metrics import Histogram, Metrics
from batten.serve.http.plane_gauges import PlaneCounts, PlaneGauges
from batten.serve.http.plane_watch import PlaneWatch
from batten.serve.http.sink_gauges import SinkGauges
from tests.control.coordination.given import open_runtime
from tests.control.views.sessions import DECISION, ROUNDS, play, spoken
from tests.coordination.given import SESSION_ID, start_message
from tests.journal.given import new_run


async def test_a_session_is_counted_from_its_facts(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        counts = PlaneCounts(runtime.journal)
        await counts.catch_up()
        await play(runtime, DECISION)
        await counts.catch_up()
        await counts.catch_up()  # nothing is counted twice
        statuses = ("queued", "starting", "binding_session", "running", "completed")
        assert counts.transitions == dict.fromkeys(statuses, 1)
        assert counts.inbound == {
            (DECISION, "SessionStart"): 1,
            (DECISION, "Proposal"): 1,
            (DECISION, "Evaluation"): 1,
            (DECISION, "Vote"): 2,
            (DECISION, "Commitment"): 1,
        }
        ended = f'{{terminal_status="completed",mode_name="{DECISION}"}}'
        assert f"x_count{ended} 1" in counts.durations.lines("x")


async def test_suspending_and_resuming_a_session_are_transitions(tmp_path: Path) -> None:
    begun = dict.fromkeys(("queued", "starting", "binding_session"), 1)
    async with open_runtime(tmp_path) as runtime:
        counts = PlaneCounts(runtime.journal)
        await counts.catch_up()
        await runtime.send(start_message())
        for change in (runtime.suspend, runtime.resume, runtime.suspend, runtime.cancel):
            await change(SESSION_ID, "lead", "lunch")
        await counts.catch_up()
        assert counts.transitions == {**begun, "running": 2, "suspended": 2, "cancelled": 1}
        elsewhere = PlaneCounts(runtime.journal)
        await elsewhere.catch_up()
        queued = facts.RunQueued("coordination", None, None, "", "in_place", None)
        states = ("OPEN", "SUSPENDED", "SUSPENDED", "OPEN", "OPEN")
        frames = [
            facts.MacpFrameObserved("session_snapshot", "s", {"state": f"SESSION_STATE_{state}"})
            for state in states
        ]
        first = [queued, facts.RunStarted("w", "x"), *frames]
        await runtime.journal.create(new_run(kind="coordination"), first)
        await elsewhere.catch_up()
        assert elsewhere.transitions == {**begun, "running": 2, "suspended": 1}


async def test_a_run_that_began_before_the_process_ends_under_its_mode(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        first, *others = spoken(DECISION)
        await runtime.send(first)
        counts = PlaneCounts(runtime.journal)
        await counts.catch_up()
        for message in others:
            await runtime.send(message)
        await counts.catch_up()
        assert counts.transitions == {"completed": 1}
        assert {mode for mode, _ in counts.inbound} == {DECISION}


async def test_what_clients_make_up_counts_as_other(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        counts = PlaneCounts(runtime.journal)
        await counts.catch_up()
        await play(runtime, ROUNDS)
        run = new_run(kind="coordination")
        queued = facts.RunQueued("coordination", None, None, "", "in_place", None)
        lease, _ = await runtime.journal.create(run, [queued, facts.RunStarted("w", "x")])
        assert lease is not None
        for number in range(200):
            detail = {"signalType": f"s{number}"}
            frames = [
                facts.MacpFrameObserved(
                    "envelope", "s", detail, mode=f"m{number}", message_type=kind
                )
                for kind in ("Signal", f"Type{number}")
            ]
            await runtime.journal.append(run.run_id, frames, fence=lease.fence)
        for status in ("opened", "reconnecting", "reconnecting", "strange"):
            frame = facts.MacpFrameObserved("stream_status", "s", {"status": status})
            await runtime.journal.append(run.run_id, [frame], fence=lease.fence)
        await counts.catch_up()
        assert {mode for mode, _ in counts.inbound} == {"other"}
        assert counts.inbound["other", "Signal"] == counts.inbound["other", "other"] == 200
        assert len(counts.signals) == 101
        assert sum(counts.signals.values()) == 200
        assert counts.streams == {"opened": 1, "reconnecting": 2}


async def test_agent_runs_count_by_their_kind(tmp_path: Path) -> None:
    async with open_runtime(tmp_path) as runtime:
        counts = PlaneCounts(runtime.journal)
        await counts.catch_up()
        for ending in (
            facts.RunFailed("budget", "too much", False, 1, duration_ms=1500),
            facts.RunCancelled("ann", "enough", duration_ms=10),
        ):
            run = new_run()
            queued = facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", None)
            lease, _ = await runtime.journal.create(run, [queued, facts.RunStarted("w", "x")])
            assert lease is not None
            again = [queued, facts.RunStarted("w", "x"), ending]
            await runtime.journal.append(run.run_id, again, fence=lease.fence)
        await counts.catch_up()
        assert counts.transitions == {
            **dict.fromkeys(("queued", "starting", "running"), 2),
            **dict.fromkeys(("failed", "cancelled"), 1),
        }
        lines = counts.durations.lines("x")
        # Cancelled runs have no duration here.
        assert 'x_bucket{terminal_status="failed",mode_name="agent_loop",le="1.0"} 0' in lines
        assert 'x_bucket{terminal_status="failed",mode_name="agent_loop",le="2.0"} 1' in lines
        assert not any("cancelled" in line for line in lines)


def test_a_histogram_counts_a_value_on_its_bound() -> None:
    histogram = Histogram((1.0, 5.0))
    for value in (1.0, 3.0, 6.0):
        histogram.observe((("a", "b"),), value)
    assert histogram.lines("x") == [
        'x_bucket{a="b",le="1.0"} 1',
        'x_bucket{a="b",le="5.0"} 2',
        'x_bucket{a="b",le="+Inf"} 3',
        'x_sum{a="b"} 10.000000',
        'x_count{a="b"} 3',
    ]


@pytest.mark.parametrize(("ok", "status"), [(True, "ok"), (False, "error")])
async def test_calls_to_a_runtime_are_timed_by_method_and_status(
    tmp_path: Path, ok: bool, status: str
) -> None:
    async with open_runtime(tmp_path) as runtime:
        watch = PlaneWatch("rust")
        metrics = Metrics()
        sinks = SinkGauges(runtime.journal, str(tmp_path))
        PlaneGauges(PlaneCounts(runtime.journal), watch, [], sinks).add_to(metrics)
        watch.timed("GetSession", ok, 0.02)
        await metrics.refresh()
        line = f'grpc_call_duration_seconds_count{{method="GetSession",status="{status}"}} 1'
        assert line in metrics.text().splitlines()
