"""`GET /runs` of a real service: filters, pages, order, and no stale answer."""

from typing import Any

import pytest
import pytest_asyncio

from tests.agent.stage import end, say
from tests.protocols.macp.making import cancelled, failed, finished
from tests.service.macp.runs import descriptor, get, refused, session, write_runs
from tests.service.serving import Service


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--no-runtime",)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ids(shared: Service) -> dict[str, str]:
    """Runs of every kind in the service of the module."""
    return await write_kinds(shared)


async def write_kinds(service: Service) -> dict[str, str]:
    """Runs of every kind, by a name for each, oldest first."""
    runs = {
        "done": session(descriptor(tags=["a", "b"], environment="prod"), finished()),
        "failed": session(descriptor(tags=["b"], scenario="Fraud-Check@1.2"), failed()),
        "live": session(descriptor(tags=["B"], environment="prod-eu", scenario="fraud%x")),
        "cancelled": session(descriptor(source="s-1"), cancelled()),
        "sandbox": session(descriptor(mode="sandbox", environment="prod"), finished()),
    }
    return dict(zip(runs, await write_runs(service.stage.home, *runs.values()), strict=True))


async def listed(service: Service, ids: dict[str, str], query: str) -> list[str]:
    """The names of the runs on a page, which has all that fit."""
    names = {run_id: name for name, run_id in ids.items()}
    page = await get(service, f"/runs?{query}")
    assert page.keys() == {"data", "total", "limit", "offset"}
    assert page["total"] == len(page["data"])
    return [names[one["id"]] for one in page["data"]]


async def test_runs_are_listed_with_their_records(service: Service, ids: dict[str, str]) -> None:
    page = await get(service, "/runs")
    assert (page["total"], page["limit"], page["offset"]) == (4, 50, 0)
    for record in page["data"]:
        assert record == await get(service, f"/runs/{record['id']}")
    assert [one["id"] for one in page["data"]] == [
        ids[name] for name in ("cancelled", "live", "failed", "done")
    ]


FILTERS = {
    "status=failed": ["failed"],
    "status=running": ["live"],
    "status=queued": [],
    "tags=b": ["failed", "done"],
    "tags=a,b": ["done"],
    "tags=a, b ,": ["done"],
    "tags=a,c": [],
    "environment=prod": ["done"],
    "environment=pro": [],
    "environment=prod&includeSandbox=true": ["sandbox", "done"],
    "includeSandbox=true": ["sandbox", "cancelled", "live", "failed", "done"],
    "includeSandbox=false": ["cancelled", "live", "failed", "done"],
    "tags=sandbox&includeSandbox=true": ["sandbox"],
    "scenarioRef=FRAUD": ["live", "failed"],
    "scenarioRef=d%25x": ["live"],
    "scenarioRef=f_aud": [],
    "search=fraud-check": ["failed"],
    "search=PROD": ["live", "done"],
    "search=nothing": [],
    "sortOrder=asc": ["done", "failed", "live", "cancelled"],
    "sortBy=updatedAt&sortOrder=asc": ["done", "failed", "live", "cancelled"],
    "status=completed&tags=a&environment=prod&search=b": ["done"],
    "unknown=1&status=": ["cancelled", "live", "failed", "done"],
}


async def test_every_filter_and_their_totals(service: Service, ids: dict[str, str]) -> None:
    found = {query: await listed(service, ids, query.replace(" ", "%20")) for query in FILTERS}
    assert found == FILTERS
    assert await listed(service, ids, f"search={ids['live'][-13:].upper()}") == ["live"]


async def test_created_after_and_before_are_strict(service: Service, ids: dict[str, str]) -> None:
    shown = {one["id"]: one for one in (await get(service, "/runs"))["data"]}
    at = shown[ids["failed"]]["createdAt"]
    later = [name for name in ("cancelled", "live") if shown[ids[name]]["createdAt"] > at]
    earlier = [name for name in ("done",) if shown[ids[name]]["createdAt"] < at]
    assert await listed(service, ids, f"createdAfter={at}") == later
    assert await listed(service, ids, f"createdBefore={at}") == earlier
    inside = at.replace("Z", "900%2B00:00")
    assert await listed(service, ids, f"createdAfter={inside}") == later
    assert (await listed(service, ids, f"createdBefore={inside}"))[-1:] == ["done"]
    assert "failed" in await listed(service, ids, f"createdBefore={inside}")
    assert len(await listed(service, ids, "createdAfter=2020-01-31")) == 4
    # An offset whose plus was not encoded, and the last instant that Python has.
    assert len(await listed(service, ids, "createdAfter=2020-01-31T12:00:00+01:00")) == 4
    assert len(await listed(service, ids, "createdBefore=9999-12-31T23:59:59.999999")) == 4
    last = "from=2020-01-31&to=9999-12-31T23:59:59.999999Z"
    assert (await get(service, f"/dashboard/overview?{last}"))["kpis"]["totalRuns"] == 5


async def test_pages_follow_each_other(service: Service, ids: dict[str, str]) -> None:
    seen: list[Any] = []
    for offset in range(0, 6, 2):
        page = await get(service, f"/runs?limit=2&offset={offset}")
        assert (page["total"], page["limit"], page["offset"]) == (4, 2, offset)
        seen += [one["id"] for one in page["data"]]
    assert seen == [one["id"] for one in (await get(service, "/runs"))["data"]]


@pytest.mark.parametrize(
    "query",
    [
        *(
            "limit=0",
            "limit=201",
            "limit=x",
            "limit=1.5",
            "offset=-1",
            "offset=99999999999999999999",
        ),
        *("status=done", "status=RUNNING", "sortBy=id", "sortOrder=up", "includeArchived=maybe"),
        *("createdAfter=not-a-date", "createdBefore=yesterday", "createdAfter=2026-13-01"),
        *("limit=1&limit=2", "search=%FF", f"tags={','.join(map(str, range(2000)))}"),
    ],
)
async def test_a_bad_value_is_a_400_that_names_it(service: Service, query: str) -> None:
    status, code, message = await refused(service, f"/runs?{query}")
    assert (status, code) == (400, "VALIDATION_ERROR")
    assert query.partition("=")[0] in message or "UTF-8" in message


@pytest.mark.own_service
async def test_the_next_read_shows_what_any_process_committed(service: Service) -> None:
    home = service.stage.home
    assert (await get(service, "/runs"))["total"] == 0
    for number in range(1, 4):
        [run_id] = await write_runs(home, session(descriptor(), finished()))
        page = await get(service, "/runs")
        assert (page["total"], page["data"][0]["id"]) == (number, run_id)
        assert page["data"][0]["status"] == "completed"


@pytest.mark.own_service
async def test_runs_of_agents_are_listed_beside_sessions(service: Service) -> None:
    await write_kinds(service)
    run = await service.started(service.stage.scenario([say("Hello."), end()]))
    await run.ended()
    page = await get(service, "/runs?limit=1")
    assert page["total"] == 5
    assert page["data"][0]["status"] == "completed"
    assert page["data"][0] == await get(service, f"/runs/{page['data'][0]['id']}")
