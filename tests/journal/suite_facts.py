"""The journal's contract as tests: facts appended, read, followed and forgotten."""

import asyncio
import threading

import pytest
from msgspec.structs import replace

from batten.contract.envelope import MAX_ENVELOPE_BYTES, decode, decode_fact
from batten.contract.errors import CallerError, Conflict, FenceLost, NotFound
from batten.contract.facts import (
    ArtifactUpdated,
    GapArtifactCapped,
    GapEventsPruned,
    Unknown,
)
from batten.contract.ids import is_ulid, new_run_id, new_session_id
from batten.journal.contract import Journal, Lease, Stored
from batten.journal.receipt import Receipts
from batten.journal.workers import is_abandoned, this_worker
from tests.journal.given import (
    CANCEL,
    FAILED,
    FINISHED,
    INVOKED,
    QUEUED,
    STARTED,
    all_facts,
    approval,
    approved,
    artifact,
    called,
    new_run,
    started,
    text,
)
from tests.journal.opened import OpenJournal, WithJournal


class Appending(WithJournal):
    """Appends are atomic, ordered, and fail alone."""

    async def test_stored_bytes_are_the_envelope_and_are_read_back_unchanged(
        self, journal: Journal
    ) -> None:
        new = new_run(session_id=new_session_id())
        lease, first = await journal.create(new, [QUEUED])
        assert lease is not None
        more = await journal.append(new.run_id, [STARTED, text("hé")], fence=lease.fence)
        stored = first + more
        assert await journal.read(new.run_id) == stored
        envelopes = [decode(item.body) for item in stored]
        assert [envelope.data for envelope in envelopes] == [QUEUED, STARTED, text("hé")]
        assert [envelope.sequence for envelope in envelopes] == [0, 1, 2]
        assert {envelope.run_id for envelope in envelopes} == {new.run_id}
        assert {envelope.task_id for envelope in envelopes} == {new.task_id}
        assert {envelope.session_id for envelope in envelopes} == {new.session_id}
        assert all(is_ulid(envelope.event_id) for envelope in envelopes)
        assert len({envelope.event_id for envelope in envelopes}) == 3
        assert [item.type for item in stored] == [envelope.type for envelope in envelopes]

    async def test_appends_not_awaited_keep_the_order_of_their_calls(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        receipts = [
            journal.append(lease.run_id, [text(str(number))], fence=lease.fence)
            for number in range(200)
        ]
        await receipts[-1]
        found = [decode_fact(item.body) for item in await journal.read(lease.run_id, after=1)]
        assert found == [text(str(number)) for number in range(200)]

    async def test_one_receipt_may_be_awaited_by_several_tasks(self, journal: Journal) -> None:
        lease = await started(journal)
        receipt = journal.append(lease.run_id, [text("a")], fence=lease.fence)

        async def wait() -> list[Stored]:
            return await receipt

        both = await asyncio.gather(wait(), wait())
        assert list(both) == [await receipt, await receipt]

    @pytest.mark.parametrize("here", [False, True])
    async def test_receipts_are_opened_together_and_each_has_its_outcome(
        self, journal: Journal, here: bool
    ) -> None:
        lease = await started(journal)
        receipts = Receipts(
            [
                journal.append(lease.run_id, [text("1")], fence=lease.fence),
                journal.append(lease.run_id, [text("x")], fence=lease.fence + 1),
                journal.append(lease.run_id, [text("2")], fence=lease.fence),
            ]
        )
        opened = asyncio.get_running_loop().create_future()
        if here:
            receipts.write_here()
        receipts.when_filled(opened.set_result)
        async with asyncio.timeout(10):
            errors = await opened
        assert [type(error) for error in errors] == [type(None), FenceLost, type(None)]
        found = [decode_fact(item.body) for item in await journal.read(lease.run_id, after=1)]
        assert found == [text("1"), text("2")]

    async def test_an_append_goes_on_when_its_waiter_is_cancelled(self, journal: Journal) -> None:
        lease = await started(journal)

        async def append() -> None:
            await journal.append(lease.run_id, [text("kept")], fence=lease.fence)

        task = asyncio.create_task(append())
        await asyncio.sleep(0)
        task.cancel()
        await journal.append(lease.run_id, [text("next")], fence=lease.fence)
        kept = [decode_fact(item.body) for item in await journal.read(lease.run_id, after=1)]
        assert kept == [text("kept"), text("next")]

    async def test_an_append_is_taken_whole_or_not_at_all(self, journal: Journal) -> None:
        lease = await started(journal)
        with pytest.raises(NotFound):
            await journal.append(
                lease.run_id, [text("a"), approval(), approved("appr_9")], fence=lease.fence
            )
        assert len(await journal.read(lease.run_id)) == 2
        assert await journal.requests(lease.run_id) == []

    async def test_a_refused_append_does_not_harm_its_neighbours(self, journal: Journal) -> None:
        lease = await started(journal)
        run_id, fence = lease.run_id, lease.fence
        receipts = [
            journal.append(run_id, [text("1")], fence=fence),
            journal.append(run_id, [text("x")], fence=fence + 1),
            journal.append("run_00000000000000000000000000", [text("x")], fence=1),
            journal.append(run_id, [text("x")], fence=None),
            journal.append(run_id, [CANCEL], fence=None),
            journal.append(run_id, [INVOKED], fence=fence),
            journal.append(run_id, [FINISHED], fence=fence),
            journal.append(run_id, [FAILED], fence=fence),
            journal.append(run_id, [text("late")], fence=fence),
        ]

        async def outcome(number: int) -> type[BaseException] | None:
            try:
                await receipts[number]
            except Exception as error:
                return type(error)
            return None

        assert [await outcome(number) for number in range(len(receipts))] == [
            None,
            FenceLost,
            NotFound,
            CallerError,
            None,
            Conflict,
            None,
            Conflict,
            Conflict,
        ]
        types = [item.type for item in await journal.read(run_id, after=1)]
        assert types == ["assistant.text_delta", "run.cancel_requested", "run.finished"]
        assert await journal.verify() == []

    async def test_a_run_has_one_ending_and_takes_only_guest_facts_and_gaps_after_it(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        run_id, fence = lease.run_id, lease.fence
        with pytest.raises(Conflict):
            await journal.append(run_id, [FINISHED, FAILED], fence=fence)
        await journal.append(run_id, [artifact(), FINISHED], fence=fence)
        for late, by in ((STARTED, fence), (CANCEL, None)):
            with pytest.raises(Conflict) as refused:
                await journal.append(run_id, [late], fence=by)
            assert refused.value.code == "run_ended"
        await journal.append(
            run_id, [ArtifactUpdated("art_1", "status", "proposed", "applied")], fence=None
        )
        await journal.append(run_id, [GapArtifactCapped("art_1", 1, 2, "task")], fence=fence)

    async def test_a_client_appends_events_of_its_own_also_after_the_end(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
        event = Unknown("external.build.done", {"status": "ok"})
        (stored,) = await journal.append(lease.run_id, [event], fence=None)
        assert decode_fact(stored.body) == event
        for type_ in ("externals.x", "novel.x"):
            with pytest.raises(CallerError) as refused:
                await journal.append(lease.run_id, [Unknown(type_, {})], fence=None)
            assert refused.value.code == "fence_required"

    async def test_no_tool_is_invoked_once_a_cancel_is_requested(self, journal: Journal) -> None:
        lease = await started(journal)
        await journal.append(lease.run_id, [CANCEL], fence=None)
        with pytest.raises(Conflict) as refused:
            await journal.append(lease.run_id, [text("a"), INVOKED], fence=lease.fence)
        assert refused.value.code == "cancel_requested"
        assert len(await journal.read(lease.run_id)) == 3

    async def test_no_tool_is_invoked_below_a_run_whose_cancel_is_requested(
        self, journal: Journal
    ) -> None:
        parent = await started(journal)
        queued = replace(QUEUED, parent_run_id=parent.run_id)
        child, _ = await journal.create(new_run(), [queued, STARTED])
        assert child is not None
        await journal.append(child.run_id, [INVOKED], fence=child.fence)
        await journal.append(parent.run_id, [CANCEL], fence=None)
        with pytest.raises(Conflict) as refused:
            await journal.append(child.run_id, [INVOKED], fence=child.fence)
        assert refused.value.code == "cancel_requested"

    async def test_an_envelope_that_is_too_large_is_refused(self, journal: Journal) -> None:
        lease = await started(journal)
        with pytest.raises(CallerError) as refused:
            await journal.append(lease.run_id, [text("x" * MAX_ENVELOPE_BYTES)], fence=lease.fence)
        assert refused.value.code == "envelope_too_large"

    @pytest.mark.parametrize("words", ["\ud800", "a\ud9ffb"])
    async def test_what_json_cannot_say_is_the_callers_error(
        self, journal: Journal, words: str
    ) -> None:
        lease = await started(journal)
        with pytest.raises(CallerError):
            await journal.append(lease.run_id, [text(words)], fence=lease.fence)

    async def test_a_number_too_large_to_be_added_up_is_refused_alone(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        before = journal.append(lease.run_id, [text("a")], fence=lease.fence)
        refused = journal.append(lease.run_id, [called(2**63)], fence=lease.fence)
        after = journal.append(lease.run_id, [text("b")], fence=lease.fence)
        with pytest.raises(CallerError):
            await refused
        assert await journal.read(lease.run_id, after=1) == [*await before, *await after]

    async def test_an_unknown_fact_passes_through_but_cannot_pose_as_a_known_one(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        novel = Unknown("x.novel", {"deep": [1, {"a": None}]})
        [stored] = await journal.append(lease.run_id, [novel], fence=lease.fence)
        assert decode_fact(stored.body) == novel
        with pytest.raises(CallerError):
            await journal.append(lease.run_id, [Unknown("run.finished", {})], fence=lease.fence)

    async def test_a_run_is_created_once(self, journal: Journal) -> None:
        new = new_run()
        await journal.create(new, [QUEUED])
        with pytest.raises(Conflict):
            await journal.create(new, [QUEUED])

    async def test_a_run_whose_first_facts_are_refused_is_not_created(
        self, journal: Journal
    ) -> None:
        new = new_run()
        with pytest.raises(NotFound):
            await journal.create(new, [QUEUED, approved()])
        assert await journal.run(new.run_id) is None
        await journal.create(new, [QUEUED])

    async def test_append_now_works_while_the_event_loop_is_blocked(self, journal: Journal) -> None:
        lease = await started(journal)
        waiting = journal.append(lease.run_id, [text("before")], fence=lease.fence)
        done: list[Stored] = []
        thread = threading.Thread(
            target=lambda: done.extend(
                journal.append_now(lease.run_id, [FAILED], fence=lease.fence)
            )
        )
        thread.start()
        thread.join()
        await waiting
        assert await journal.read(lease.run_id, after=2) == done


class Reading(WithJournal):
    """Pages, the feed, and followers."""

    async def test_pages_are_exclusive_of_their_cursor(self, journal: Journal) -> None:
        lease = await started(journal)
        await journal.append(
            lease.run_id, [text(str(number)) for number in range(10)], fence=lease.fence
        )
        assert [item.sequence for item in await journal.read(lease.run_id, after=3, limit=4)] == [
            4,
            5,
            6,
            7,
        ]
        assert await journal.read(lease.run_id, after=11) == []
        with pytest.raises(NotFound):
            await journal.read(new_run_id())

    async def test_the_feed_has_every_fact_once_in_the_order_of_commits(
        self, journal: Journal
    ) -> None:
        leases = [await started(journal) for _ in range(3)]
        for number in range(4):
            for lease in leases:
                await journal.append(lease.run_id, [text(str(number))], fence=lease.fence)
        feed = await all_facts(journal)
        positions = [item.position for item in feed]
        assert positions == sorted(set(positions))
        for lease in leases:
            own = [item for item in feed if item.run_id == lease.run_id]
            assert own == await journal.read(lease.run_id)

    async def test_a_follower_sees_every_fact_once_from_wherever_it_starts(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        seen: list[Stored] = []

        async def follow(after: int) -> list[Stored]:
            found: list[Stored] = []
            async for page in journal.follow(lease.run_id, after=after):
                found += page
                if page[-1].type == "run.finished":
                    break
            return found

        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            early = group.create_task(follow(-1))
            for number in range(50):
                seen += await journal.append(lease.run_id, [text(str(number))], fence=lease.fence)
            late = group.create_task(follow(20))
            await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
        whole = await journal.read(lease.run_id)
        assert early.result() == whole
        assert late.result() == whole[21:]

    async def test_followers_end_when_the_journal_is_closed(
        self, open_journal: OpenJournal
    ) -> None:
        journal = open_journal()
        lease = await started(journal)
        pages = journal.follow(lease.run_id)
        assert len(await anext(pages)) == 2
        waiting = asyncio.ensure_future(anext(pages, None))
        await asyncio.sleep(0)
        journal.close()
        async with asyncio.timeout(20):
            assert await waiting is None

    async def test_a_follower_hears_of_commits_made_through_another_handle(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        lease = await started(journal)
        other = open_journal()
        pages = other.follow(lease.run_id, after=1)
        async with asyncio.timeout(20):
            waiting = asyncio.ensure_future(anext(pages))
            await asyncio.sleep(0)
            sent = await journal.append(lease.run_id, [text("a")], fence=lease.fence)
            assert await waiting == sent
        other.close()


class Leases(WithJournal):
    """Who executes a run."""

    async def test_a_living_worker_keeps_its_run(self, journal: Journal) -> None:
        lease = await started(journal)
        with pytest.raises(Conflict) as refused:
            await journal.claim(lease.run_id, "somebody")
        assert refused.value.code == "run_claimed"
        run = await journal.run(lease.run_id)
        assert run is not None
        assert not is_abandoned(run)

    async def test_a_run_is_taken_over_when_its_lease_has_run_out(self, journal: Journal) -> None:
        lease = await started(journal, worker_id="elsewhere", lease_s=-1)
        run = await journal.run(lease.run_id)
        assert run is not None
        assert is_abandoned(run)
        taken = await journal.claim(lease.run_id, this_worker())
        assert (taken.fence, taken.worker_id) == (lease.fence + 1, this_worker())
        with pytest.raises(FenceLost):
            await journal.append(lease.run_id, [text("late")], fence=lease.fence)
        with pytest.raises(FenceLost):
            await journal.renew(lease)
        await journal.release(lease)
        await journal.append(lease.run_id, [text("on time")], fence=taken.fence)

    async def test_a_worker_that_died_here_is_known_dead_before_its_lease_ends(
        self, journal: Journal
    ) -> None:
        machine, _, _ = this_worker().rpartition("-")
        reused = f"{machine}-1"  # this process id, but a process that started at another time
        lease = await started(journal, worker_id=reused, lease_s=600)
        run = await journal.run(lease.run_id)
        assert run is not None
        assert is_abandoned(run)
        await journal.claim(lease.run_id, this_worker())

    async def test_a_run_given_up_waits_and_can_be_claimed(self, journal: Journal) -> None:
        lease = await started(journal)
        await journal.append(lease.run_id, [approval()], fence=lease.fence)
        await journal.release(lease)
        run = await journal.run(lease.run_id)
        assert run is not None
        assert run.status == "awaiting_approval"
        assert not is_abandoned(run)
        taken = await journal.claim(lease.run_id, this_worker())
        renewed = await journal.renew(taken, 60)
        assert renewed.until > taken.until

    async def test_an_ended_run_is_neither_abandoned_nor_taken_over(self, journal: Journal) -> None:
        lease = await started(journal, worker_id="elsewhere", lease_s=-1)
        await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
        run = await journal.run(lease.run_id)
        assert run is not None
        assert not is_abandoned(run)
        with pytest.raises(Conflict):
            await journal.claim(lease.run_id, this_worker())


class Pruning(WithJournal):
    """The beginning of a run can be forgotten."""

    async def test_a_pruned_run_begins_at_its_base_and_stays_verifiable(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        run_id = lease.run_id
        await journal.append(run_id, [text(str(n)) for n in range(20)], fence=lease.fence)
        kept = await journal.read(run_id, after=9)
        marker = await journal.prune(run_id, before=10, reason="age")
        assert marker is not None
        assert await journal.read(run_id) == [*kept, marker]
        fact = decode_fact(marker.body)
        assert isinstance(fact, GapEventsPruned)
        assert (fact.first_pruned_sequence, fact.last_pruned_sequence) == (0, 9)
        run = await journal.run(run_id)
        assert run is not None
        assert (run.base_sequence, run.next_sequence) == (10, 23)
        assert await journal.verify() == []
        assert await journal.prune(run_id, before=10, reason="again") is None
        assert await journal.prune(run_id, before=23, reason="all") is not None
        [last] = await journal.append(run_id, [text("on")], fence=lease.fence)
        assert [item.sequence for item in await journal.read(run_id)] == [23, last.sequence]
        assert await journal.verify() == []

    async def test_positions_are_never_used_twice_also_after_pruning(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        lease = await started(journal)
        before = await all_facts(journal)
        marker = await journal.prune(lease.run_id, before=2, reason="age")
        assert marker is not None
        other = open_journal()
        [after] = await other.append(lease.run_id, [text("a")], fence=lease.fence)
        other.close()
        assert before[-1].position < marker.position < after.position

    async def test_pruning_more_than_there_is_is_refused(self, journal: Journal) -> None:
        lease: Lease = await started(journal)
        with pytest.raises(CallerError):
            await journal.prune(lease.run_id, before=9, reason="")
        with pytest.raises(NotFound):
            await journal.prune(new_run_id(), before=1, reason="")
