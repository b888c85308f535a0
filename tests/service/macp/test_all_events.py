"""`GET /events` of a real service: filters, and a cursor that is sound across runs."""

import asyncio
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from batten.journal.sqlite import SqliteJournal
from tests.protocols.macp.making import failed, finished, said
from tests.service.macp.runs import descriptor, get, refused, session, write_run, write_runs
from tests.service.serving import Service

NOTE = b"x"


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--no-runtime",)


async def pages(service: Service, query: str, limit: int) -> list[Any]:
    """All events, page by page, by the cursors of the service."""
    found: list[Any] = []
    after = 0
    while True:
        page = await get(service, f"/events?limit={limit}&afterSeq={after}&{query}")
        assert page["limit"] == limit
        found += page["data"]
        if "nextCursor" not in page:
            assert len(page["data"]) < limit
            return found
        assert len(page["data"]) == limit
        after = page["nextCursor"]


@pytest.mark.own_service
async def test_the_cursor_across_runs_skips_and_repeats_nothing(service: Service) -> None:
    runs = [session(descriptor(), said("ann", "Note", NOTE), finished()) for _ in range(3)]
    ids = await write_runs(service.stage.home, *runs)
    whole = await get(service, "/events")
    assert whole["total"] == len(whole["data"]) == 30
    assert "nextCursor" not in whole
    for limit in (1, 4, 10, 30):
        assert await pages(service, "", limit) == whole["data"]
    for run_id in ids:
        own = await get(service, f"/runs/{run_id}/events")
        assert [one for one in whole["data"] if one["runId"] == run_id] == own
        assert await pages(service, f"runId={run_id}", 4) == own


@pytest.mark.own_service
async def test_late_commits_of_any_run_are_behind_the_cursor(service: Service) -> None:
    """Many writers at once, and one reader that goes on from where it was."""
    home = service.stage.home
    seen: list[Any] = []
    after = 0
    is_over = asyncio.Event()

    async def write(journal: SqliteJournal) -> None:
        for _ in range(6):
            frames = [said("ann", "Note", NOTE) for _ in range(3)]
            await write_run(journal, session(descriptor(), *frames, finished()))

    async def read() -> None:
        nonlocal after
        while True:
            ends = is_over.is_set()
            page = await get(service, f"/events?limit=7&afterSeq={after}")
            seen.extend(page["data"])
            if "nextCursor" in page:
                after = page["nextCursor"]
            elif ends:
                return
            else:
                del seen[len(seen) - len(page["data"]) :]  # a short page has no cursor

    async def write_all() -> None:
        journals = [SqliteJournal.open(home) for _ in range(3)]
        try:
            await asyncio.gather(*map(write, journals))
        finally:
            for journal in journals:
                journal.close()
            is_over.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(write_all())
        group.create_task(read())
    numbers: dict[str, list[int]] = {}
    for one in seen:
        numbers.setdefault(one["runId"], []).append(one["seq"])
    assert len(numbers) == 18
    assert all(seqs == [*range(1, len(seqs) + 1)] for seqs in numbers.values())
    assert len({one["id"] for one in seen}) == len(seen) == (await get(service, "/events"))["total"]


@pytest.mark.own_service
async def test_events_are_filtered_by_type_time_and_scenario(service: Service) -> None:
    first, second = await write_runs(
        service.stage.home,
        session(descriptor(source="s-1"), finished()),
        session(descriptor(scenario="Fraud-Check"), failed()),
    )
    ended = await get(service, "/events?type=run.completed,%20run.failed")
    assert [one["runId"] for one in ended["data"]] == [first, second]
    assert ended["total"] == 2
    for query, run_id in {"s-1": first, "fraud": second}.items():
        found = await get(service, f"/events?scenarioRef={query}")
        assert {one["runId"] for one in found["data"]} == {run_id}
        assert found["total"] == len(found["data"])
    assert (await get(service, "/events?scenarioRef=s"))["data"] == []
    at = ended["data"][1]["ts"]
    since = (await get(service, f"/events?afterTs={at}"))["data"]
    before = (await get(service, f"/events?beforeTs={at}"))["data"]
    assert min(one["ts"] for one in since) == at
    assert max(one["ts"] for one in before) < at
    assert len(since) + len(before) == (await get(service, "/events"))["total"]
    both = await get(service, f"/events?runId={second}&scenarioRef=s-1")
    assert (both["data"], both["total"]) == ([], 0)


@pytest.mark.own_service
async def test_an_event_has_the_nested_envelope(service: Service) -> None:
    [run_id] = await write_runs(service.stage.home, session(descriptor()))
    [first, *_] = (await get(service, "/events?limit=1"))["data"]
    assert first["subject"] == {"kind": "run", "id": run_id}
    assert first["source"]["kind"] == "macp-control-plane"
    assert first["seq"] == 1
    # A limit may be any number; an answer has 10,000 events at most.
    largest = 2**53 - 1
    page = await get(service, f"/events?limit={largest}")
    assert (len(page["data"]), page["limit"]) == (page["total"], 10_000)
    path = f"/runs/{run_id}/events"
    assert await get(service, f"{path}?limit={largest}") == page["data"]
    assert await get(service, f"{path}?afterSeq={largest}") == []


@pytest.mark.parametrize(
    "query",
    [
        *("runId=7", "limit=0", "limit=x", "afterSeq=-1", "afterSeq=1.5", "afterTs=soon"),
        *("beforeTs=2026-99-01", "afterSeq=99999999999999999999"),
    ],
)
async def test_a_bad_value_is_a_400_that_names_it(service: Service, query: str) -> None:
    status, code, message = await refused(service, f"/events?{query}")
    assert (status, code) == (400, "VALIDATION_ERROR")
    assert query.partition("=")[0] in message or "uuid" in message


async def test_events_of_an_unknown_run_are_none(service: Service) -> None:
    page = await get(service, f"/events?runId={uuid4()}")
    assert (page["data"], page["total"]) == ([], 0)


@pytest.mark.own_service
async def test_a_cursor_stays_good_when_a_run_before_it_is_deleted(service: Service) -> None:
    home = service.stage.home
    run = await service.started(service.stage.scenario([]))
    await run.ended()
    [second] = await write_runs(home, session(descriptor(), finished()))
    events = (await get(service, "/events"))["data"]
    own = [one for one in events if one["runId"] == second]
    cursor = (await get(service, f"/events?limit={len(events) - len(own) + 2}"))["nextCursor"]
    assert (await service.ask("DELETE", run.task_path)).status == 204
    assert (await get(service, "/events"))["data"] == own
    assert (await get(service, f"/events?afterSeq={cursor}"))["data"] == own[2:]


@pytest.mark.own_service
async def test_views_that_are_deleted_under_a_stopped_service_come_back_equal(
    service: Service,
) -> None:
    await write_runs(service.stage.home, session(descriptor(), finished()), session(descriptor()))
    paths = ("/events", "/runs", "/dashboard/agents/metrics")
    before = [await get(service, path) for path in paths]
    await service.stop()
    for file in service.stage.home.glob("views.db*"):
        file.unlink()
    await service.start()
    assert [await get(service, path) for path in paths] == before


@pytest.mark.own_service
async def test_two_services_on_one_home_see_the_same(service: Service) -> None:
    other = Service(service.stage, ("--no-runtime",))
    await other.start()
    try:
        with closing(SqliteJournal.open(service.stage.home)) as journal:
            for number in range(1, 8):
                await write_run(journal, session(descriptor(), finished()))
                for one in (service, other):
                    assert (await get(one, "/runs"))["total"] == number
                assert await get(service, "/events") == await get(other, "/events")
    finally:
        await other.stop()
