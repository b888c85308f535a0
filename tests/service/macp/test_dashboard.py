"""`GET /dashboard/…` of a real service."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.protocols.macp.making import failed, finished, json_text, said
from tests.service.macp.runs import descriptor, get, refused, session, write_runs
from tests.service.serving import Service

SIGNAL = said("ann", "Signal", json_text(signalType="risk", confidence=0.85))


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--no-runtime",)


@pytest.mark.own_service
async def test_the_overview_has_all_parts_and_is_never_stale(service: Service) -> None:
    empty = await get(service, "/dashboard/overview")
    assert empty.keys() == {"kpis", "recentRuns", "runtimeHealth", "charts"}
    assert empty["kpis"]["totalRuns"] == 0
    assert empty["runtimeHealth"] == {
        "ok": False,
        "runtimeKind": "none",
        "detail": "this service has no runtime",
    }
    assert len(empty["charts"]) == 13
    assert {*map(str, empty["charts"].values())} == {"{'labels': [], 'data': []}"}
    for number in range(1, 4):
        ended = failed() if number == 3 else finished()
        await write_runs(service.stage.home, session(descriptor(source="s-1"), SIGNAL, ended))
        kpis = (await get(service, "/dashboard/overview"))["kpis"]
        assert kpis["totalRuns"] == kpis["totalSignals"] == number
    shown = await get(service, "/dashboard/overview")
    assert len(shown["recentRuns"]) == 3
    assert shown["kpis"]["failedRuns"] == 1
    assert shown["charts"]["errorClasses"] == {"labels": ["timeout"], "data": [1]}
    assert shown["charts"]["perScenario"] == {"labels": ["s-1"], "data": [3]}
    await write_runs(
        service.stage.home, session(descriptor(scenario="Fraud@1.2")), session(descriptor())
    )
    shown = await get(service, "/dashboard/overview")
    assert shown["charts"]["perScenario"] == {
        "labels": ["s-1", "Fraud@1.2", "unknown"],
        "data": [3, 1, 1],
    }


@pytest.mark.own_service
async def test_windows_and_ranges(service: Service) -> None:
    await write_runs(service.stage.home, session(descriptor(), finished()))
    now = datetime.now(UTC)
    tomorrow = (now + timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    yesterday = (now - timedelta(days=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    totals = {
        "": 1,
        "window=1h": 1,
        "window=30d": 1,
        "range=7d": 1,
        "window=6h&range=24h": 1,
        f"from={yesterday}": 1,
        f"from={yesterday}&to={tomorrow}&window=1h": 1,
        f"from={tomorrow}": 0,
        "from=2026-01-01&to=2026-01-02": 0,
        f"to={yesterday}": 1,
        "environment=prod": 0,
        "scenarioRef=x": 0,
        "unknown=1": 1,
    }
    for query, total in totals.items():
        shown = await get(service, f"/dashboard/overview?{query}")
        assert shown["kpis"]["totalRuns"] == total, query
        assert len(shown["recentRuns"]) == (
            0 if query in ("environment=prod", "scenarioRef=x") else 1
        )
    minutes = await get(service, "/dashboard/overview?window=1h")
    [label] = minutes["charts"]["runVolume"]["labels"]
    assert label.endswith(":00.000Z")
    assert abs(datetime.fromisoformat(label) - now) < timedelta(minutes=2)


@pytest.mark.parametrize(
    "query",
    [
        *("window=2h", "window=1H", "range=1h", "range=6h", "from=soon", "to=never"),
        *("from=2026-01-01&to=x", "from=2026-02-01&to=2026-01-01", "window=1h&window=6h"),
    ],
)
async def test_a_bad_value_is_a_400(service: Service, query: str) -> None:
    status, code, _ = await refused(service, f"/dashboard/overview?{query}")
    assert (status, code) == (400, "VALIDATION_ERROR")


@pytest.mark.own_service
async def test_d31_agents_have_real_numbers(service: Service) -> None:
    assert await get(service, "/dashboard/agents/metrics") == []
    # The published signal has no field for it: its data has.
    data = json_text(confidence=0.85).encode()
    published = said("ann", "Signal", signal_type="risk", data=data)
    await write_runs(
        service.stage.home,
        session(descriptor(), SIGNAL, published),
        session(descriptor(), SIGNAL, said("ben", "Note", b"x")),
    )
    ann = {"participantId": "ann", "runs": 2, "messages": 3, "signals": 3}
    ben = {"participantId": "ben", "runs": 1, "messages": 1, "signals": 0}
    assert await get(service, "/dashboard/agents/metrics") == [
        {**ann, "averageConfidence": 0.85},
        {**ben, "averageConfidence": 0.0},
    ]


async def test_an_unknown_path_has_the_documented_shape(service: Service) -> None:
    status, code, _ = await refused(service, "/dashboard/nothing")
    assert (status, code) == (404, "NOT_FOUND")
