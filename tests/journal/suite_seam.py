"""What a queue, other workers and views by cursor need of every journal."""

import asyncio
from contextlib import aclosing

import pytest
from msgspec.structs import replace

from batten.contract.envelope import decode_fact
from batten.contract.errors import CallerError, Conflict, FenceLost, NotFound
from batten.contract.facts import (
    ApprovalResolved,
    ApprovalTimedOut,
    Fact,
    RequestClosed,
    RequestOpened,
    RunCancelled,
    RunQueued,
    RunResumedFromEvent,
    SessionOpened,
    TaskUpdated,
)
from batten.contract.ids import SessionId, new_session_id, session_stream
from batten.contract.outcomes import RunStatus
from batten.journal.contract import Journal, Lease, Stored
from batten.journal.workers import is_abandoned, this_worker
from tests.journal.given import CANCEL, FINISHED, QUEUED, STARTED, approval, new_run, started, text
from tests.journal.opened import OpenJournal, WithJournal

PATIENCE_S = 20
CANCELS = frozenset({CANCEL.type})


async def held_session(journal: Journal, *, worker_id: str = "elsewhere") -> Lease:
    session_id = new_session_id()
    stream = new_run(
        run_id=session_stream(SessionId(session_id)),
        kind="session",
        session_id=session_id,
        worker_id=worker_id,
        lease_s=-1,
    )
    lease, _ = await journal.create(stream, [SessionOpened("/work", "task_1", "print")])
    assert lease is not None
    return lease


async def _session_of(journal: Journal, stream: str) -> str:
    row = await journal.run(stream)
    assert row is not None
    assert row.session_id is not None
    return row.session_id


async def parked(journal: Journal, *requests: Fact) -> Lease:
    """A run that waits for these requests; the lease it was parked with."""
    lease = await started(journal)
    await journal.append(lease.run_id, [STARTED, *requests], fence=lease.fence)
    assert await journal.park(lease)
    return lease


class Queueing(WithJournal):
    """Creating, claiming and executing are three steps; a waiting run can be parked."""

    async def test_a_queued_run_has_no_lease_until_it_is_claimed(self, journal: Journal) -> None:
        new = new_run(worker_id="")
        lease, [stored] = await journal.create(new, [QUEUED])
        assert lease is None
        run = await journal.run(new.run_id)
        assert run is not None
        assert (run.status, run.worker_id, is_abandoned(run)) == ("queued", "", False)
        with pytest.raises(FenceLost):
            await journal.append(new.run_id, [text("early")], fence=1)
        claimed = await journal.claim(new.run_id, this_worker())
        with pytest.raises(Conflict) as refused:
            await journal.claim(new.run_id, "somebody")
        assert refused.value.code == "run_claimed"
        await journal.append(new.run_id, [STARTED], fence=claimed.fence)
        assert (await journal.read(new.run_id))[0] == stored

    async def test_one_of_many_workers_gets_a_queued_run(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        new = new_run(worker_id="")
        await journal.create(new, [QUEUED])
        others = [open_journal() for _ in range(4)]
        results = await asyncio.gather(
            *(other.claim(new.run_id, this_worker()) for other in others), return_exceptions=True
        )
        assert sum(isinstance(result, Lease) for result in results) == 1
        for other in others:
            other.close()

    async def test_a_claim_whose_caller_is_cancelled_is_given_back(self, journal: Journal) -> None:
        new = new_run(worker_id="")
        await journal.create(new, [QUEUED])
        for turns in range(1, 8):
            claiming = asyncio.ensure_future(journal.claim(new.run_id, this_worker()))
            for _ in range(turns):
                await asyncio.sleep(0)
            claiming.cancel()
            await asyncio.wait([claiming])
            if not claiming.cancelled():
                await journal.release(claiming.result())
        assert (await journal.claim(new.run_id, "somebody")).worker_id == "somebody"

    async def test_runs_wait_in_the_order_of_their_priority_then_of_their_age(
        self, journal: Journal
    ) -> None:
        runs = [new_run(worker_id="") for _ in range(4)]
        for new, priority in zip(runs, (0, 5, 0, 5), strict=True):
            await journal.create(new, [replace(QUEUED, priority=priority)])
        await started(journal)  # it has a worker: it does not wait
        await journal.release(await held_session(journal))  # a session does not either
        in_order = [runs[place].run_id for place in (1, 3, 0, 2)]
        assert [row.run_id for row in await journal.queued()] == in_order
        assert [row.run_id for row in await journal.queued(limit=2)] == in_order[:2]
        await journal.claim(runs[1].run_id, this_worker())
        assert [row.run_id for row in await journal.queued()] == in_order[1:]

    async def test_a_queued_run_wakes_workers_in_other_handles_and_nothing_else_does(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        other = open_journal()
        async with aclosing(other.follow_queue()) as wakes:
            await anext(wakes)
            waiting = asyncio.ensure_future(anext(wakes))
            lease = await started(journal)
            await journal.append(lease.run_id, [text("a")], fence=lease.fence)
            async with aclosing(other.follow(lease.run_id)) as pages:
                await anext(pages)  # the commit was noticed there
            assert not waiting.done()
            await journal.create(new_run(worker_id=""), [QUEUED])
            await asyncio.wait_for(waiting, PATIENCE_S)
        other.close()

    async def test_a_question_to_a_panel_wakes_those_who_hold_panels(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        other = open_journal()
        lease = await started(journal)
        async with aclosing(other.follow_queue()) as wakes:
            await anext(wakes)
            waiting = asyncio.ensure_future(anext(wakes))
            await journal.append(lease.run_id, [approval("appr_1")], fence=lease.fence)
            async with aclosing(other.follow(lease.run_id)) as pages:
                await anext(pages)
            assert not waiting.done()
            to_panel = replace(approval("appr_2"), resolvers=["panel:review"])
            await journal.append(lease.run_id, [to_panel], fence=lease.fence)
            await asyncio.wait_for(waiting, PATIENCE_S)
        other.close()

    async def test_a_worker_that_gives_a_queued_run_up_wakes_the_others(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        other = open_journal()
        lease = await started(journal)
        async with aclosing(other.follow_queue()) as wakes:
            await anext(wakes)
            waiting = asyncio.ensure_future(anext(wakes))
            await journal.append(lease.run_id, [QUEUED], fence=lease.fence)
            assert await other.queued() == []
            await journal.release(lease)
            await asyncio.wait_for(waiting, PATIENCE_S)
        assert [row.run_id for row in await other.queued()] == [lease.run_id]
        other.close()

    async def test_the_length_of_a_run_is_its_next_sequence(self, journal: Journal) -> None:
        new = new_run()
        assert await journal.length(new.run_id) == 0
        lease, _ = await journal.create(new, [QUEUED])
        assert lease is not None
        assert await journal.length(new.run_id) == 1
        await journal.append(new.run_id, [STARTED, FINISHED], fence=lease.fence)
        row = await journal.run(new.run_id)
        assert row is not None
        assert await journal.length(new.run_id) == row.next_sequence == 3

    async def test_the_version_changes_with_every_commit_of_any_handle(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        other = open_journal()
        seen = await other.version()
        assert await other.version() == seen
        lease = await started(journal)
        versions = [seen, await other.version()]
        await journal.append(lease.run_id, [text("a")], fence=lease.fence)
        versions.append(await other.version())
        await journal.renew(lease)
        versions.append(await other.version())
        await journal.release(lease)
        versions.append(await other.version())
        assert len(set(versions)) == len(versions)
        other.close()

    async def test_the_position_is_that_of_the_last_fact_of_any_handle(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        other = open_journal()
        assert await other.position() == 0
        lease = await started(journal)
        [stored] = await journal.append(lease.run_id, [text("a")], fence=lease.fence)
        assert await other.position() == await journal.position() == stored.position
        other.close()

    async def test_the_feed_is_read_by_type_and_task_and_up_to_a_position(
        self, journal: Journal
    ) -> None:
        one, other = [await started(journal, task_id=task) for task in ("task_1", "task_2")]
        for lease in (one, other, one):
            await journal.append(lease.run_id, [text("a"), STARTED], fence=lease.fence)
        every = await journal.feed(limit=100)
        texts = frozenset({text("a").type})
        assert await journal.feed(types=texts) == [s for s in every if s.type in texts]
        of_one = [stored for stored in every if stored.run_id == one.run_id]
        assert await journal.feed(task_id="task_1") == of_one
        assert await journal.feed(task_id="task_1", limit=2) == of_one[:2]
        after, until = of_one[1].position, every[-1].position - 1
        assert await journal.feed(task_id="task_1", after=after, until=until) == [
            stored for stored in of_one if after < stored.position <= until
        ]
        assert await journal.feed(task_id="task_1", types=texts, after=after) == [
            stored for stored in of_one[2:] if stored.type in texts
        ]
        assert await journal.feed(until=until) == every[:-1]
        assert await journal.feed(task_id="task_none") == []

    async def test_sessions_are_listed_by_the_status_of_their_last_run(
        self, journal: Journal
    ) -> None:
        ids = [await _session_of(journal, (await held_session(journal)).run_id) for _ in range(3)]
        ended = await started(journal, session_id=ids[0])
        await journal.append(ended.run_id, [FINISHED], fence=ended.fence)
        working = await started(journal, session_id=ids[1])
        await journal.append(working.run_id, [STARTED], fence=working.fence)

        async def listed(status: RunStatus, limit: int = 9, after: str | None = None) -> list[str]:
            rows = await journal.sessions(status=status, limit=limit, after=after)
            return [row.session_id for row in rows]

        assert await listed("completed") == ids[:1]
        assert await listed("running") == ids[1:2]
        assert await listed("queued") == ids[2:]
        assert await listed("failed") == []
        again = await started(journal, session_id=ids[0])
        await journal.append(again.run_id, [STARTED], fence=again.fence)
        assert await listed("completed") == []
        assert sorted(await listed("running")) == sorted(ids[:2])
        [first] = await journal.sessions(status="running", limit=1)
        [second] = await listed("running", 1, first.cursor)
        assert {first.session_id, second} == set(ids[:2])

    async def test_a_session_may_be_held_to_one_unfinished_run(self, journal: Journal) -> None:
        session_id = await _session_of(journal, (await held_session(journal)).run_id)
        lease = await started(journal, session_id=session_id, alone=True)
        refused = new_run(session_id=session_id, worker_id="", alone=True)
        with pytest.raises(Conflict) as error:
            await journal.create(refused, [QUEUED])
        assert error.value.code == "run_active"
        assert await journal.run(refused.run_id) is None
        await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
        await journal.create(refused, [QUEUED])

    async def test_a_run_that_is_to_be_alone_needs_its_session(self, journal: Journal) -> None:
        refused = new_run(session_id=new_session_id(), worker_id="", alone=True)
        with pytest.raises(NotFound, match="deleted"):
            await journal.create(refused, [QUEUED])
        assert await journal.run(refused.run_id) is None

    async def test_a_session_may_be_held_to_one_run_for_ever(self, journal: Journal) -> None:
        session_id = await _session_of(journal, (await held_session(journal)).run_id)
        lease = await started(journal, session_id=session_id, first=True)
        await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
        refused = new_run(session_id=session_id, worker_id="", first=True)
        with pytest.raises(Conflict) as error:
            await journal.create(refused, [QUEUED])
        assert error.value.code == "session_used"
        assert await journal.run(refused.run_id) is None
        nowhere = new_run(session_id=new_session_id(), worker_id="", first=True)
        with pytest.raises(NotFound, match="deleted"):
            await journal.create(nowhere, [QUEUED])

    async def test_runs_that_wait_for_a_session_are_for_no_worker(self, journal: Journal) -> None:
        waiting = replace(QUEUED, kind="coordination")
        made = [new_run(kind="coordination", worker_id="") for _ in range(3)]
        for new in made:
            await journal.create(new, [waiting])
        other = new_run(worker_id="")
        await journal.create(other, [QUEUED])
        assert [row.run_id for row in await journal.queued()] == [other.run_id]
        ids = [new.run_id for new in made]
        assert [row.run_id for row in await journal.awaited()] == ids
        assert [row.run_id for row in await journal.awaited(limit=2)] == ids[:2]
        lease = await journal.claim(ids[0], "w-1")
        assert [row.run_id for row in await journal.awaited()] == ids[1:]
        await journal.append(ids[0], [FINISHED], fence=lease.fence)
        await journal.release(lease)
        assert [row.run_id for row in await journal.awaited()] == ids[1:]

    async def test_facts_for_the_session_are_stored_with_the_new_run_or_not_at_all(
        self, journal: Journal
    ) -> None:
        stream = (await held_session(journal)).run_id
        session_id = await _session_of(journal, stream)
        raised = TaskUpdated(by="ann", budget_micros_usd=9)
        new = new_run(session_id=session_id, worker_id="", alone=True)
        await journal.create(new, [QUEUED], of_session=[raised])
        other = new_run(session_id=session_id, worker_id="", alone=True)
        with pytest.raises(Conflict):
            await journal.create(other, [QUEUED], of_session=[raised])
        not_a_guests = new_run(session_id=session_id, worker_id="")
        with pytest.raises(CallerError) as error:
            await journal.create(not_a_guests, [QUEUED], of_session=[FINISHED])
        assert error.value.code == "fence_required"
        assert await journal.run(not_a_guests.run_id) is None
        types = [stored.type for stored in await journal.read(stream)]
        assert types == [SessionOpened.TYPE, TaskUpdated.TYPE]
        page = await journal.feed()
        assert [stored.position for stored in page] == sorted({one.position for one in page})
        assert await journal.verify() == []

    async def test_what_has_a_worker_is_listed_until_it_ends_or_is_given_up(
        self, journal: Journal
    ) -> None:
        session, run = await held_session(journal), await started(journal)
        await journal.create(new_run(worker_id=""), [QUEUED])
        assert [row.run_id for row in await journal.held()] == [session.run_id, run.run_id]
        assert [row.run_id for row in await journal.held(kind="session")] == [session.run_id]
        own = await started(journal, session_id=await _session_of(journal, session.run_id))
        assert [row.run_id for row in await journal.held(surface="print")] == [own.run_id]
        assert await journal.held(surface="hecate") == []
        await journal.append(own.run_id, [FINISHED], fence=own.fence)
        await journal.append(run.run_id, [FINISHED], fence=run.fence)
        assert [row.run_id for row in await journal.held()] == [session.run_id]
        await journal.release(session)
        assert await journal.held() == []

    async def test_a_run_is_created_only_under_a_current_lease_of_its_session(
        self, journal: Journal
    ) -> None:
        lease = await held_session(journal)
        await journal.create(new_run(), [QUEUED], under=lease)
        taken = await journal.claim(lease.run_id, this_worker())
        refused = new_run()
        with pytest.raises(FenceLost):
            await journal.create(refused, [QUEUED], under=lease)
        assert await journal.run(refused.run_id) is None
        await journal.create(new_run(), [QUEUED], under=taken)
        await journal.release(taken)
        with pytest.raises(FenceLost):
            await journal.create(refused, [QUEUED], under=taken)

    async def test_a_lease_that_ran_out_is_renewed_unless_another_worker_has_claimed_it(
        self, journal: Journal
    ) -> None:
        lease = await started(journal, worker_id="elsewhere", lease_s=-1)
        renewed = await journal.renew(lease, 0)
        assert renewed.fence == lease.fence
        await journal.claim(lease.run_id, this_worker())
        with pytest.raises(FenceLost):
            await journal.renew(renewed)

    async def test_a_waiting_run_is_parked_and_its_answer_queues_it_again(
        self, journal: Journal
    ) -> None:
        lease = await parked(journal, approval())
        run = await journal.run(lease.run_id)
        assert run is not None
        assert (run.status, run.worker_id, is_abandoned(run)) == ("awaiting_approval", "", False)
        with pytest.raises(FenceLost):
            await journal.append(lease.run_id, [text("late")], fence=lease.fence)
        with pytest.raises(FenceLost):
            await journal.renew(lease)
        answer = ApprovalResolved("appr_1", "approved", "operator", "")
        stored = await journal.append(lease.run_id, [answer], fence=None)
        assert [one.type for one in stored] == ["approval.resolved", "run.queued"]
        queued = decode_fact(stored[1].body)
        assert isinstance(queued, RunQueued)
        assert (queued.kind, queued.model, queued.workspace_path) == (
            QUEUED.kind,
            QUEUED.model,
            QUEUED.workspace_path,
        )
        run = await journal.run(lease.run_id)
        assert run is not None
        assert (run.status, is_abandoned(run)) == ("queued", False)
        claimed = await journal.claim(lease.run_id, this_worker())
        await journal.append(lease.run_id, [STARTED, FINISHED], fence=claimed.fence)
        assert await journal.verify() == []

    async def test_a_run_queued_again_says_what_it_was_queued_with_first(
        self, journal: Journal
    ) -> None:
        first = replace(
            QUEUED,
            by="ci",
            identity={"user": "ann"},
            additional_directories=["/beside"],
            prior_cost_micros_usd=7,
            priority=10,
        )
        lease, _ = await journal.create(
            new_run(), [RunResumedFromEvent("run_1", 3, 7), first, STARTED, approval()]
        )
        assert lease is not None
        assert await journal.park(lease)
        answer = ApprovalResolved("appr_1", "approved", "operator", "")
        stored = await journal.append(lease.run_id, [answer], fence=None)
        assert decode_fact(stored[1].body) == first

    async def test_a_parked_run_waits_for_the_last_of_its_answers(self, journal: Journal) -> None:
        asked = RequestOpened("req_1", "user_input", "call_2", "name?", {}, "d")
        lease = await parked(journal, approval(), asked)
        answer = ApprovalResolved("appr_1", "approved", "operator", "")
        assert len(await journal.append(lease.run_id, [answer], fence=None)) == 1
        run = await journal.run(lease.run_id)
        assert run is not None
        assert run.status == "awaiting_approval"
        closed = RequestClosed("req_1", "answered", "bob", {"name": "x"})
        stored = await journal.append(lease.run_id, [closed], fence=None)
        assert [one.type for one in stored] == ["request.closed", "run.queued"]

    async def test_a_run_that_was_answered_meanwhile_is_not_parked(self, journal: Journal) -> None:
        lease = await started(journal)
        await journal.append(lease.run_id, [approval()], fence=lease.fence)
        answer = ApprovalResolved("appr_1", "approved", "operator", "")
        stored = await journal.append(lease.run_id, [answer], fence=None)
        assert [one.type for one in stored] == ["approval.resolved"]
        assert not await journal.park(lease)
        await journal.append(lease.run_id, [FINISHED], fence=lease.fence)

    async def test_a_run_that_is_to_be_cancelled_is_not_parked(self, journal: Journal) -> None:
        lease = await started(journal)
        await journal.append(lease.run_id, [approval()], fence=lease.fence)
        await journal.append(lease.run_id, [CANCEL], fence=None)
        assert not await journal.park(lease)
        await journal.append(lease.run_id, [text("still mine")], fence=lease.fence)

    @pytest.mark.parametrize(
        ("answer", "by", "reason"),
        [
            (
                ApprovalResolved(
                    "appr_1", "rejected", "ann", "no", halt=True, halt_reason="approval rejected"
                ),
                "ann",
                "approval rejected",
            ),
            (ApprovalResolved("appr_1", "rejected", "ann", "no", halt=True), "ann", "no"),
            (ApprovalTimedOut("appr_1", 300, halt=True), "policy", "approval timed out"),
        ],
    )
    async def test_an_answer_that_halts_a_parked_run_ends_it(
        self, journal: Journal, answer: Fact, by: str, reason: str
    ) -> None:
        lease = await parked(journal, approval())
        stored = await journal.append(lease.run_id, [answer], fence=None)
        assert [one.type for one in stored] == [answer.type, "run.cancelled"]
        ending = decode_fact(stored[1].body)
        assert isinstance(ending, RunCancelled)
        assert (ending.by, ending.reason, ending.outcome) == (by, reason, "cancelled")
        assert ending.turns == 1  # the agent asked in its first turn
        run = await journal.run(lease.run_id)
        assert run is not None
        assert (run.status, run.outcome) == ("cancelled", "cancelled")
        with pytest.raises(Conflict):
            await journal.claim(lease.run_id, this_worker())
        assert await journal.verify() == []


class Listing(WithJournal):
    """Rows by filters and by pages."""

    async def test_runs_are_listed_page_by_page(self, journal: Journal) -> None:
        ids = [(await started(journal)).run_id for _ in range(7)]
        found: list[str] = []
        after: str | None = None
        while page := await journal.runs(after=after, limit=3):
            found += [row.run_id for row in page]
            after = page[-1].run_id
        assert found == ids[::-1]

    async def test_runs_are_filtered(self, journal: Journal) -> None:
        waiting = await started(journal, task_id="task_1")
        await journal.append(waiting.run_id, [approval()], fence=waiting.fence)
        ended = await started(journal, task_id="task_2")
        await journal.append(ended.run_id, [FINISHED], fence=ended.fence)
        first, second = await journal.run(waiting.run_id), await journal.run(ended.run_id)
        assert first is not None
        assert second is not None
        assert await journal.runs(status="awaiting_approval") == [first]
        assert await journal.runs(task_id="task_2") == [second]
        assert await journal.runs(workspace_path=QUEUED.workspace_path) == [second, first]
        assert await journal.runs(model=QUEUED.model, kind=QUEUED.kind, limit=1) == [second]
        assert await journal.runs(workspace_path="/nowhere") == []
        assert await journal.runs(until=first.created_at) == []
        assert await journal.runs(since=first.created_at, status=None) == [second, first]

    async def test_sessions_are_filtered_and_listed_page_by_page(self, journal: Journal) -> None:
        leases = [await held_session(journal) for _ in range(5)]
        assert len(leases) == 5
        everything = await journal.sessions()
        found: list[str] = []
        after: str | None = None
        while page := await journal.sessions(after=after, limit=2, surface="print"):
            found += [row.session_id for row in page]
            after = page[-1].cursor
        assert found == [row.session_id for row in everything]
        assert len(set(found)) == 5
        assert await journal.sessions(surface="acp") == []
        assert await journal.sessions(task_id="task_1", since=everything[-1].updated_at) != []
        assert await journal.sessions(until=everything[-1].updated_at) == []

    async def test_ids_that_begin_alike_are_found_in_order(self, journal: Journal) -> None:
        runs = sorted([(await started(journal)).run_id for _ in range(3)])
        stream = (await held_session(journal)).run_id
        (session,) = await journal.sessions()
        assert await journal.ids("run", "run_", "run_Z") == runs
        assert await journal.ids("stream", "run_", "run_Z") == sorted([*runs, stream])
        assert await journal.streams() == 4
        assert stream not in runs
        assert await journal.ids("run", runs[1], runs[2]) == runs[1:]
        assert await journal.ids("run", runs[0], runs[2], limit=1) == runs[:1]
        assert await journal.ids("session", "chat_", "chat_Z") == [session.session_id]
        lease = await started(journal)
        await journal.append(lease.run_id, [approval()], fence=lease.fence)
        assert await journal.ids("request", "appr_", "appr_z") == ["appr_1"]
        assert await journal.ids("artifact", "", "z") == []

    async def test_requests_without_an_answer_are_found_over_all_runs(
        self, journal: Journal
    ) -> None:
        first, second = await started(journal), await started(journal)
        await journal.append(first.run_id, [approval()], fence=first.fence)
        asked = RequestOpened("req_1", "user_input", "call_2", "name?", {}, "d")
        await journal.append(second.run_id, [asked], fence=second.fence)
        pending = await journal.pending_requests()
        assert [row.request_id for row in pending] == ["req_1", "appr_1"]
        closed = RequestClosed("req_1", "answered", "bob", {})
        await journal.append(second.run_id, [closed], fence=None)
        assert [row.run_id for row in await journal.pending_requests()] == [first.run_id]

    async def test_pending_requests_are_found_by_their_deadline_until_their_run_ends(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        due, never = "2026-01-02T03:04:05.000Z", "2026-01-02T03:04:04.999Z"
        asked = RequestOpened("req_1", "user_input", "call_2", "name?", {}, "d", deadline_at=due)
        await journal.append(lease.run_id, [asked, approval()], fence=lease.fence)
        assert [row.request_id for row in await journal.pending_requests(due_by=due)] == ["req_1"]
        assert await journal.pending_requests(due_by=never) == []
        await journal.append(lease.run_id, [FINISHED], fence=lease.fence)
        assert await journal.pending_requests() == []


class Feeding(WithJournal):
    """Following every run, and following only some facts of one."""

    async def test_the_feed_is_followed_without_gap_or_repeat(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        other = open_journal()
        leases = [await started(one) for one in (journal, other, journal)]
        writers = [journal, other, journal]

        async def write(which: int) -> None:
            lease, writer = leases[which], writers[which]
            for number in range(40):
                facts = [text(f"{which} {number}")] * (1 + number % 3)
                await writer.append(lease.run_id, facts, fence=lease.fence)

        count = 6 + 3 * sum(1 + number % 3 for number in range(40))
        seen: list[Stored] = []
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            for which in range(3):
                group.create_task(write(which))
            async with aclosing(journal.follow_feed()) as pages:
                async for page in pages:
                    seen += page
                    if len(seen) >= count:
                        break
        positions = [stored.position for stored in seen]
        assert positions == sorted(set(positions))
        assert seen == await journal.feed(limit=count + 1)
        other.close()

    async def test_the_feed_is_followed_from_a_position(self, journal: Journal) -> None:
        lease = await started(journal)
        last = (await journal.feed(limit=1000))[-1].position
        async with asyncio.timeout(PATIENCE_S), aclosing(journal.follow_feed(after=last)) as pages:
            sent = await journal.append(lease.run_id, [text("a")], fence=lease.fence)
            assert await anext(pages) == sent
            waiting = asyncio.ensure_future(anext(pages))
            new = await started(journal)
            assert (await waiting)[0].run_id == new.run_id

    async def test_only_facts_of_the_wanted_types_are_followed(
        self, journal: Journal, open_journal: OpenJournal
    ) -> None:
        other = open_journal()
        lease = await started(journal)
        await journal.append(lease.run_id, [text(str(n)) for n in range(300)], fence=lease.fence)
        following = journal.follow(lease.run_id, types=CANCELS)
        async with asyncio.timeout(PATIENCE_S), aclosing(following) as pages:
            waiting = asyncio.ensure_future(anext(pages))
            for number in range(20):
                await journal.append(lease.run_id, [text(str(number))], fence=lease.fence)
            assert not waiting.done()
            sent = await other.append(lease.run_id, [CANCEL], fence=None)
            assert await waiting == sent
            waiting = asyncio.ensure_future(anext(pages))
            await journal.append(lease.run_id, [text("b")], fence=lease.fence)
            again = await journal.append(lease.run_id, [CANCEL], fence=None)
            assert await waiting == again
        other.close()
