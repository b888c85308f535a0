"""The dashboard over runs whose times are known, and the laws of views across runs."""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from batten.contract import facts as f
from batten.contract.ids import new_run_id
from batten.control.views.agents import read_agents
from batten.control.views.dashboard import (
    Query,
    range_query,
    read_numbers,
    window_query,
)
from batten.control.views.listing import RunQuery, read_events, read_runs
from batten.control.views.store import EventFilter
from batten.journal.contract import Stored
from tests.control.views.kept import Read, ask, encoded, stored
from tests.examples import examples
from tests.protocols.macp.making import (
    START_NS,
    cancelled,
    failed,
    finished,
    json_text,
    queued,
    said,
    snapshot,
    started,
)
from tests.service.macp.runs import descriptor

START_MS = START_NS // 1_000_000
HOUR = 3600.0
IDS = [new_run_id() for _ in range(6)]


class Feed:
    """Facts in the order of their positions."""

    def __init__(self) -> None:
        self.facts: list[Stored] = []
        self._sequences: dict[str, int] = {}

    def add(self, run_id: str, second: float, *facts: f.Fact) -> None:
        for fact in facts:
            sequence = self._sequences[run_id] = self._sequences.get(run_id, -1) + 1
            self.facts.append(stored(len(self.facts) + 1, run_id, sequence, fact, second))


def signal(confidence: float | None = None) -> f.Fact:
    body = {"signalType": "risk"} | ({} if confidence is None else {"confidence": confidence})
    return said("ann", "Signal", json_text(**body))


def committed(**fields: Any) -> f.Fact:
    return said("lead", "Commitment", json_text(action="decision.selected", **fields))


def evaluated(tokens: int) -> f.Fact:
    usage = {"promptTokens": tokens, "completionTokens": 0, "model": "gpt-4o"}
    return said("ann", "Evaluation", json_text(proposalId="p1", tokenUsage=usage))


def some_runs() -> Feed:
    """Three completed after 100, 200 and 1000 s, one failed, one cancelled, one queued."""
    feed = Feed()
    for number, lasted in enumerate((100, 200, 1000)):
        run_id, at = IDS[number], number * 60.0
        about = descriptor(environment="prod", scenario=f"Fraud-{number}", source="s-1")
        feed.add(run_id, at, queued(), about, started(), snapshot())
        feed.add(run_id, at + 1, signal(0.5), evaluated(1000 * (number + 1)))
        feed.add(run_id, at + 2, committed(outcomePositive=number > 0))
        feed.add(run_id, at + lasted, finished())
    feed.add(IDS[3], 2 * HOUR, queued(), descriptor(environment="test"), started(), failed())
    feed.add(IDS[4], 2 * HOUR, queued(), descriptor(mode="sandbox"), started(), cancelled())
    feed.add(IDS[5], 3 * HOUR, queued(), descriptor(environment="prod"))
    feed.add(IDS[3], 3 * HOUR, committed())
    return feed


async def shown(tmp_path: Path, query: Query) -> dict[str, Any]:
    feed = some_runs()
    [found] = await ask(tmp_path, feed.facts, lambda db: read_numbers(db, query))
    numbers: dict[str, Any] = msgspec.to_builtins(found.numbers)
    return numbers


def day(second: float = 4 * HOUR, **filters: str) -> Query:
    return window_query(START_MS + round(second * 1000), "24h", **filters)


async def test_kpis_of_a_window(tmp_path: Path) -> None:
    assert (await shown(tmp_path, day()))["kpis"] == {
        "totalRuns": 6,
        "activeRuns": 1,
        "completedRuns": 3,
        "failedRuns": 1,
        "cancelledRuns": 1,
        "totalSignals": 3,
        "totalTokens": 6000,
        "totalCostUsd": 0.02,
        "avgDurationMs": 433_333,
    }


def hour(number: int) -> str:
    return f"2026-05-01T{10 + number}:00:00.000Z"


async def test_all_13_charts_have_only_buckets_with_something_in_them(tmp_path: Path) -> None:
    charts = (await shown(tmp_path, day()))["charts"]
    assert charts == {
        "runVolume": {"labels": [hour(0), hour(2), hour(3)], "data": [3, 2, 1]},
        "latency": {"labels": [hour(0)], "data": [433_333]},
        "signalVolume": {"labels": [hour(0)], "data": [3]},
        "errorClasses": {"labels": ["timeout"], "data": [1]},
        "throughput": {"labels": [hour(0), hour(2)], "data": [3, 0]},
        "queueDepth": {"labels": [hour(0), hour(2), hour(3)], "data": [0, 0, 1]},
        "latencyP50": {"labels": [hour(0)], "data": [200_000]},
        "latencyP95": {"labels": [hour(0)], "data": [920_000]},
        "latencyP99": {"labels": [hour(0)], "data": [984_000]},
        "cost": {"labels": [hour(0), hour(2), hour(3)], "data": [0.015, 0, 0]},
        "successRate": {"labels": [hour(0), hour(2), hour(3)], "data": [100, 0, 0]},
        # A decision that says nothing of its outcome counts for neither side.
        "decisionOutcome": {"labels": [hour(0), hour(3)], "data": [1, 0]},
        "perScenario": {"labels": ["s-1", "unknown"], "data": [3, 3]},
    }


async def test_recent_runs_are_not_bound_to_the_window(tmp_path: Path) -> None:
    found = await shown(tmp_path, window_query(START_MS + 400 * 86_400_000, "1h"))
    assert found["kpis"]["totalRuns"] == 0
    assert found["kpis"]["avgDurationMs"] is None
    assert [one["status"] for one in found["recentRuns"]] == [
        *("queued", "failed", "completed", "completed", "completed")
    ]
    assert found["recentRuns"][2].keys() == {
        *("id", "status", "runtimeKind", "sourceRef", "startedAt", "endedAt", "createdAt")
    }
    assert "startedAt" not in found["recentRuns"][0]


async def test_d30_the_end_bounds_every_number(tmp_path: Path) -> None:
    query = range_query(START_MS + 10**9, START_MS + 30_000, START_MS + 2 * 3_600_000)
    found = await shown(tmp_path, query)
    assert found["kpis"]["totalRuns"] == 2
    assert found["kpis"]["totalSignals"] == 2
    assert found["charts"]["throughput"]["data"] == [1, 1, 1]
    assert found["charts"]["decisionOutcome"]["data"] == [1, 1]
    assert found["charts"]["runVolume"]["labels"] == [
        "2026-05-01T10:01:00.000Z",
        "2026-05-01T10:02:00.000Z",
    ]


async def test_filters_hold_for_every_part(tmp_path: Path) -> None:
    of_environment = await shown(tmp_path, day(environment="test"))
    assert of_environment["kpis"]["failedRuns"] == of_environment["kpis"]["totalRuns"] == 1
    assert of_environment["kpis"]["totalSignals"] == 0
    assert of_environment["charts"]["decisionOutcome"] == {"labels": [hour(3)], "data": [0]}
    assert [one["status"] for one in of_environment["recentRuns"]] == ["failed"]
    by_part = await shown(tmp_path, day(scenario_ref="FRAUD-1"))
    assert (by_part["kpis"]["totalRuns"], by_part["kpis"]["totalSignals"]) == (1, 1)
    by_source = await shown(tmp_path, day(scenario_ref="s-1"))
    assert by_source["kpis"]["totalRuns"] == len(by_source["recentRuns"]) == 3


def test_buckets_follow_the_window() -> None:
    assert [window_query(0, one).bucket for one in ("1h", "6h", "24h", "7d", "30d")] == [
        *("minute", "minute", "hour", "day", "day")
    ]
    spans = {6: "minute", 6.1: "hour", 48: "hour", 48.1: "day"}
    for hours, bucket in spans.items():
        assert range_query(0, 0, round(hours * 3_600_000)).bucket == bucket


async def test_numbers_tell_when_something_leaves_the_window(tmp_path: Path) -> None:
    feed = some_runs()

    async def until(query: Query) -> int | None:
        [found] = await ask(tmp_path, feed.facts, lambda db: read_numbers(db, query))
        at: int | None = found.until_ms
        return at

    async def kpis(now_ms: int) -> Any:
        query = window_query(now_ms, "24h")
        [found] = await ask(tmp_path, feed.facts, lambda db: read_numbers(db, query))
        return found.numbers.kpis

    first = await until(day())
    assert first == START_MS + 24 * 3_600_000 + 1
    assert (await kpis(first - 1)).total_runs == 6
    assert (await kpis(first)).total_runs == 5
    # Facts of a clock that runs ahead enter when their time comes.
    assert await until(range_query(START_MS + 1000, START_MS, None)) == START_MS + 1000 + 1000
    assert await until(range_query(START_MS, START_MS, START_MS + 5)) is None


async def test_d31_agents_are_credited_with_what_they_sent(tmp_path: Path) -> None:
    feed = some_runs()
    feed.add(IDS[3], 4 * HOUR, signal(1), signal())
    [found] = await ask(tmp_path, feed.facts, read_agents)
    assert (
        msgspec.to_builtins(found)
        == [
            {
                "participantId": "lead",
                "runs": 4,
                "messages": 4,
                "signals": 0,
                "averageConfidence": 0.0,
            },
            {
                "participantId": "ann",
                "runs": 4,
                "messages": 8,
                "signals": 5,
                "averageConfidence": 0.625,
            },
        ][::-1]
    )


FACTS: tuple[f.Fact, ...] = (
    *(signal(0.25), signal(), committed(outcomePositive=True), committed(outcomePositive=False)),
    *(evaluated(10), finished(), failed(), f.GapEventsPruned(0, 1, "2026-05-01T10:00:00Z", "age")),
)


@st.composite
def feeds(draw: st.DrawFn) -> list[Stored]:
    """Facts of a few runs, interleaved, some of them pruned."""
    feed = Feed()
    begun: set[str] = set()
    for number in range(draw(st.integers(1, 25))):
        run_id = draw(st.sampled_from(IDS[:4]))
        if run_id not in begun:
            begun.add(run_id)
            environment = draw(st.sampled_from(["", "prod"]))
            feed.add(run_id, number, queued(), descriptor(environment=environment))
        feed.add(run_id, number * draw(st.sampled_from([1, 7])), draw(st.sampled_from(FACTS)))
    return feed.facts


READS: tuple[Read, ...] = (
    lambda db: read_runs(db, RunQuery()),
    lambda db: read_runs(db, RunQuery(sort_by="updatedAt", environment="prod", limit=2)),
    lambda db: read_events(db, EventFilter(), 1000),
    lambda db: read_events(db, EventFilter(after_seq=3 << 17, scenario_ref="x"), 3),
    lambda db: read_numbers(db, range_query(START_MS + 10**8, START_MS, None)),
    lambda db: read_numbers(db, day(environment="prod")),
    read_agents,
)


@given(facts=feeds(), data=st.data())
@settings(max_examples=examples(60), deadline=None)
async def test_what_is_kept_and_what_is_not_are_read_as_one(
    facts: Sequence[Stored], data: st.DataObject
) -> None:
    last = facts[-1].position
    cuts = data.draw(st.lists(st.integers(0, last), max_size=4))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        whole = await ask(Path(one), facts, *READS)
        parts = await ask(Path(other), facts, *READS, keep=cuts)
        assert encoded(parts) == encoded(whole)
        assert encoded(await ask(Path(one), facts, *READS, keep=[last])) == encoded(whole)
