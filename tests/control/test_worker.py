"""What a worker does with runs that it cannot execute now, or not at all."""

import asyncio
import logging

import pytest
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.errors import StoreFull
from batten.control.worker import Slots, Worker
from batten.journal.contract import RunRow, SessionRow
from batten.journal.workers import this_worker
from batten.wiring.spec import SessionSpec
from tests.control.given import Place, called, said

ELSEWHERE = "worker-elsewhere-1-1"


async def _queued_twice(place: Place, model: str) -> tuple[RunRow, RunRow]:
    """Two runs of one session, the second after the first."""
    spec = replace(place.base, cwd=str(place.workspace), surface="print", models=(model,))
    opened = await place.opener.open(spec)
    ids = [await opened.session.queue(text) for text in ("one", "two")]
    await opened.session.leave()
    await opened.close()
    rows = [await place.journal.run(run_id) for run_id in ids]
    assert rows[0] is not None
    assert rows[1] is not None
    return rows[0], rows[1]


async def test_a_run_whose_turn_has_not_come_is_not_taken_again_and_again(place: Place) -> None:
    first, second = await _queued_twice(place, place.model([said("Done.")]))
    assert second.prior_run_id == first.run_id
    lease = await place.journal.claim(first.run_id, ELSEWHERE, 600)
    other = await place.started(place.model([called("sleep 1")], [said("Done.")], name="other"))
    async with place.working():
        await place.ended(other)
        meanwhile = await place.journal.run(second.run_id)
        assert meanwhile is not None
        assert meanwhile.status == "queued"
        assert 1 <= meanwhile.fence <= 10
        finished = f.RunFinished("completed", 1, 0, 1)
        await place.journal.append(first.run_id, [finished], fence=lease.fence)
        assert (await place.ended(second)).outcome == "completed"


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "batten.workers")
    return caplog


def _failing(place: Place, error: Exception) -> Worker:
    async def specify(row: RunRow, session: SessionRow) -> SessionSpec:
        raise error

    return Worker(place.opener, specify, this_worker(), Slots(1))


async def _end_of(place: Place, row: RunRow, worker: Worker) -> f.RunFailed:
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        ended = await place.ended(row)
        worker.stop()
    assert ended.status == "failed"
    last = (await place.facts(row))[-1]
    assert isinstance(last, f.RunFailed)
    return last


async def test_a_bug_before_a_session_is_open_fails_its_run_and_is_logged_with_its_traceback(
    place: Place, logged: pytest.LogCaptureFixture
) -> None:
    row = await place.started(place.model([said("Done.")]))
    last = await _end_of(place, row, _failing(place, ZeroDivisionError("by 0")))
    assert (last.code, last.message) == ("internal_error", "ZeroDivisionError: by 0")
    (record,) = [one for one in logged.records if one.levelno == logging.ERROR]
    assert row.run_id in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


async def test_clients_of_a_run_are_not_told_where_a_store_is_that_failed(
    place: Place, logged: pytest.LogCaptureFixture
) -> None:
    row = await place.started(place.model([said("Done.")]))
    error = StoreFull(f"no room left for the journal in {place.opener.home}")
    last = await _end_of(place, row, _failing(place, error))
    assert last.code == "store_full"
    assert last.message == "the disk of the store is full; the log of the service has the reason"
    (record,) = [one for one in logged.records if one.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert record.exc_info[1] is error
