"""Who observes a run: one server at a time, and the next where the one before left off."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from batten.contract import facts
from batten.control.coordination.ids import journal_session
from batten.control.observer.observer import Observer
from batten.journal.contract import Lease
from tests.control.observer.elsewhere import (
    FRAME,
    Observing,
    describe,
    elsewhere,
    in_thread,
    observing,
    panel,
    transcript,
)
from tests.coordination.published import sdk
from tests.serve.grpc.running import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with elsewhere(tmp_path_factory.mktemp("elsewhere")) as started:
        yield started


async def give_up(here: Observing, run_id: str) -> None:
    """Take the lease away from an observer that does not know."""
    row = await here.journal.run(run_id)
    assert row is not None
    await here.journal.release(Lease(run_id, row.fence, row.worker_id, row.lease_until))


async def test_a_run_goes_on_where_a_stopped_observer_left_it(
    tmp_path: Path, server: Server
) -> None:
    with panel(server.address) as agents:
        async with observing(tmp_path, server.address) as first:
            run_id = await first.followed(agents)
        await in_thread(agents.propose, 1)  # nobody listens
        async with observing(tmp_path, server.address) as second:
            await second.until(run_id, FRAME, 3)
            await in_thread(agents.commit)
            row = await second.ended(run_id)
            assert row.status == "completed"
            ids = [one.message_id for one in await second.said(run_id)]
            assert ids == transcript(server, agents.session_id, 3)
            statuses = [
                event.data["status"]
                for event in await second.events(run_id)
                if event.type == "session.stream.opened"
            ]
            assert statuses == ["opened", "reconnecting", "recovered"]


async def test_a_run_that_waited_for_its_session_waits_on_with_the_next_observer(
    tmp_path: Path, server: Server
) -> None:
    with panel(server.address) as agents:
        async with observing(tmp_path, server.address) as first:
            run_id = await describe(first.journal, agents.session_id)
            await first.until(run_id, facts.RunStarted.TYPE)
        async with observing(tmp_path, server.address) as second:
            await second.until(run_id, facts.RunStarted.TYPE, 2)
            await in_thread(agents.start)
            await in_thread(agents.commit_after, 1)
            assert (await second.ended(run_id)).status == "completed"


async def test_without_recovery_a_run_of_an_observer_that_is_gone_stays_as_it_is(
    tmp_path: Path, server: Server
) -> None:
    with panel(server.address) as agents:
        async with observing(tmp_path, server.address) as first:
            run_id = await first.followed(agents)
        async with observing(tmp_path, server.address, run_recovery_enabled=False) as second:
            other = await describe(second.journal, sdk.new_session_id(), mode="nowhere")
            await second.ended(other)  # it has looked
            row = await second.journal.run(run_id)
            assert row is not None
            assert (row.status, row.worker_id) == ("running", "")


async def test_two_observers_never_follow_one_run_together(tmp_path: Path, server: Server) -> None:
    """Both in this process, so each is given a name of its own."""
    async with (
        observing(tmp_path, server.address) as one,
        observing(tmp_path, server.address) as two,
    ):
        _rename(one.observer, "worker-elsewhere-1")
        _rename(two.observer, "worker-elsewhere-2")
        with panel(server.address) as agents:
            run_id = await one.followed(agents)
            for number in range(5):
                await in_thread(agents.propose, number)
            await in_thread(agents.commit)
            await one.ended(run_id)
        told = await one.told(run_id)
        assert sum(isinstance(fact, facts.RunStarted) for fact in told) == 1
        assert len(await one.said(run_id)) == 7


async def test_an_observer_that_lost_its_lease_writes_nothing_more(
    tmp_path: Path, server: Server
) -> None:
    """As after SIGSTOP: it wakes up, and another has its run."""
    async with observing(tmp_path, server.address) as stopped:
        _rename(stopped.observer, "worker-elsewhere-1")
        with panel(server.address) as agents:
            run_id = await stopped.followed(agents)
            await give_up(stopped, run_id)
            async with observing(tmp_path, server.address) as other:
                _rename(other.observer, "worker-elsewhere-2")
                await other.until(run_id, facts.RunStarted.TYPE, 2)
                await in_thread(agents.commit_after, 1)
                assert (await other.ended(run_id)).status == "completed"
                assert len(await other.said(run_id)) == 3


async def test_a_request_to_cancel_ends_the_run(tmp_path: Path, server: Server) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            waiting = await describe(here.journal, sdk.new_session_id())
            await here.until(waiting, facts.RunStarted.TYPE)
            for one in (run_id, waiting):
                asked = facts.RunCancelRequested(by="operator", reason="enough")
                await here.journal.append(one, [asked], fence=None)
                here.observer.look()
                row = await here.ended(one)
                assert row.status == "cancelled"
                fact = await here.one(one, facts.RunCancelled)
                assert (fact.by, fact.reason) == ("operator", "enough")


async def test_cancelling_a_run_whose_session_has_resolved_completes_it(
    tmp_path: Path, server: Server
) -> None:
    with panel(server.address) as agents:
        async with observing(tmp_path, server.address) as here:
            run_id = await here.followed(agents)
        await in_thread(agents.commit_after, 1)
        async with observing(tmp_path, server.address, run_recovery_enabled=False) as later:
            asked = facts.RunCancelRequested(by="operator", reason="enough")
            await later.journal.append(run_id, [asked], fence=None)
        async with observing(tmp_path, server.address) as here:
            assert (await here.ended(run_id)).status == "completed"


async def test_runs_of_the_runtime_of_this_home_are_left_alone(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address) as here:
        embedded = await describe(here.journal, sdk.new_session_id(), kind="embedded")
        other = await describe(here.journal, sdk.new_session_id(), mode="nowhere")
        await here.ended(other)
        row = await here.journal.run(embedded)
        assert row is not None
        assert (row.status, row.fence) == ("queued", 0)


async def test_deleting_a_run_whose_session_is_followed_harms_no_other(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as gone, panel(server.address) as agents:
            removed = await here.followed(gone)
            run_id = await here.followed(agents)
            await give_up(here, removed)
            await here.journal.delete_session(journal_session(gone.session_id))
            await in_thread(gone.propose, 1)
            await in_thread(gone.signal, "ann", "risk.flag")
            await in_thread(agents.commit_after, 1)
            assert (await here.ended(run_id)).status == "completed"
        assert await here.journal.run(removed) is None


def _rename(observer: Observer, name: str) -> None:
    observer._worker_id = name  # pyright: ignore[reportPrivateUsage]
