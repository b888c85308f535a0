"""The journal's contract as tests: what is kept beside the facts."""

import hashlib
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from batten.contract.envelope import decode
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.contract.facts import (
    ApprovalTimedOut,
    ArtifactUpdated,
    ContextCompacted,
    RequestClosed,
    RequestOpened,
    RunCancelled,
    RunFailed,
    SessionClosed,
    SessionConfigured,
    SessionOpened,
    ToolEditApplied,
    ToolFileWriteApplied,
    ToolMultiEditApplied,
    TurnCompleted,
    UserMessage,
)
from batten.contract.facts.assistant import Usage
from batten.contract.ids import new_session_id, new_task_id, session_stream
from batten.journal.budget import Spend
from batten.journal.contract import Journal
from tests.journal.given import (
    CANCEL,
    FINISHED,
    approval,
    approved,
    artifact,
    called,
    new_run,
    rebuilt,
    started,
)
from tests.journal.opened import WithJournal


class Rows(WithJournal):
    """Rows are a fold of the facts."""

    async def test_a_runs_row_follows_its_facts(self, journal: Journal) -> None:
        lease = await started(journal)

        async def after(*facts: object) -> dict[str, object]:
            await journal.append(lease.run_id, facts, fence=lease.fence)  # type: ignore[arg-type]
            run = await journal.run(lease.run_id)
            assert run is not None
            return asdict(run)

        first = await after(UserMessage(0, "w" * 300), UserMessage(0, "second"))
        assert (first["prompt"], first["status"]) == ("w" * 200, "running")
        assert (first["model"], first["workspace_path"]) == ("m", "/work")
        assert (await after(approval("a"), approval("b")))["status"] == "awaiting_approval"
        assert (await after(approved("a")))["status"] == "awaiting_approval"
        assert (await after(ApprovalTimedOut("b", 3)))["status"] == "running"
        paid = await after(called(70), called(None), TurnCompleted(2, 1, 1, 0, 0, 1, 0, "stop"))
        assert (paid["cost_micros_usd"], paid["cost_unknown"], paid["turns"]) == (70, True, 2)
        ended = await after(RunFailed("budget_exceeded", "", retriable=False, turns=3))
        assert (ended["status"], ended["outcome"], ended["turns"]) == ("failed", "budget", 3)
        assert ended["ended_at"] == decode((await journal.read(lease.run_id))[-1].body).occurred_at
        assert ended["next_sequence"] == len(await journal.read(lease.run_id))

    async def test_a_cancelled_run_says_how(self, journal: Journal) -> None:
        lease = await started(journal)
        ending = RunCancelled("ann", "ctrl-c", outcome="interrupted", turns=4)
        await journal.append(lease.run_id, [CANCEL, ending], fence=lease.fence)
        run = await journal.run(lease.run_id)
        assert run is not None
        assert (run.status, run.outcome, run.turns) == ("cancelled", "interrupted", 4)
        assert run.cancel_requested

    async def test_the_first_answer_wins_and_the_loser_is_told_who_won(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        asked = RequestOpened("req_1", "user_input", "call_2", "name?", {}, "dig")
        await journal.append(lease.run_id, [approval(), asked], fence=lease.fence)
        await journal.append(lease.run_id, [approved(by="ann")], fence=None)
        with pytest.raises(Conflict, match="by ann") as refused:
            await journal.append(lease.run_id, [approved(by="bob")], fence=None)
        assert refused.value.code == "already_resolved"
        answer = RequestClosed("req_1", "answered", "bob", {"name": "x"})
        await journal.append(lease.run_id, [answer], fence=None)
        with pytest.raises(Conflict):
            await journal.append(lease.run_id, [answer], fence=None)
        rows = {row.request_id: row for row in await journal.requests(lease.run_id)}
        assert (rows["appr_1"].status, rows["appr_1"].by) == ("answered", "ann")
        assert rows["appr_1"].resolvers == ("user",)
        assert rows["req_1"].answer == {"name": "x"}
        assert await journal.request("req_1") == rows["req_1"]

    async def test_runs_are_listed_newest_first_without_session_streams(
        self, journal: Journal
    ) -> None:
        session_id = new_session_id()
        stream = new_run(run_id=session_stream(session_id), kind="session", session_id=session_id)
        await journal.create(stream, [SessionOpened("/work", "task_1", "print")])
        first = await started(journal, session_id=session_id)
        second = await started(journal)
        listed = [run.run_id for run in await journal.runs()]
        assert listed == [second.run_id, first.run_id]
        assert [run.run_id for run in await journal.runs(session_id=session_id)] == [first.run_id]
        assert [run.run_id for run in await journal.runs(limit=1)] == [second.run_id]

    async def test_a_sessions_row_follows_its_stream_and_its_runs(self, journal: Journal) -> None:
        session_id = new_session_id()
        stream = new_run(run_id=session_stream(session_id), kind="session", session_id=session_id)
        lease, _ = await journal.create(
            stream,
            [
                SessionOpened("/work", "task_1", "print"),
                SessionConfigured({"model": "a", "mode": "ask"}),
                SessionConfigured({"model": "b"}),
            ],
        )
        assert lease is not None
        run = await started(journal, session_id=session_id)
        await journal.append(stream.run_id, [SessionClosed("done")], fence=lease.fence)
        row = await journal.session(session_id)
        assert row is not None
        assert row.settings == {"model": "b", "mode": "ask"}
        assert (row.last_run_id, row.closed, row.surface) == (run.run_id, True, "print")
        assert await journal.sessions(workspace_path="/work") == [row]
        assert await journal.sessions(workspace_path="/other") == []

    async def test_a_sessions_stream_has_its_own_kind_and_id(self, journal: Journal) -> None:
        opened = SessionOpened("/work", "task_1", "print")
        with pytest.raises(CallerError):
            await journal.create(new_run(kind="session", session_id=new_session_id()), [opened])
        with pytest.raises(CallerError):
            await journal.create(new_run(session_id=new_session_id()), [opened])

    async def test_a_ledger_row_per_model_call_compaction_included(self, journal: Journal) -> None:
        lease = await started(journal)
        compacted = ContextCompacted("s", 1, 9, 3, 0, "small", "p", Usage(4, 2), 11, "2026-02-02")
        await journal.append(lease.run_id, [called(100), compacted], fence=lease.fence)
        rows = await journal.ledger(lease.run_id)
        assert [(row.sequence, row.turn_index, row.model) for row in rows] == [
            (2, 1, "m"),
            (3, 0, "small"),
        ]
        run = await journal.run(lease.run_id)
        assert run is not None
        assert run.task_id is not None
        assert await journal.spend(run.task_id) == Spend(14, 7, 111)

    async def test_rows_folded_again_from_the_facts_are_the_stored_ones(
        self, journal: Journal
    ) -> None:
        lease = await started(journal)
        await journal.append(
            lease.run_id,
            [UserMessage(0, "hi"), called(None), artifact(), approval(), approved(), FINISHED],
            fence=lease.fence,
        )
        runs, changes = await rebuilt(journal)
        run = await journal.run(lease.run_id)
        assert run is not None
        folded = asdict(runs[lease.run_id])
        stored = asdict(run)
        assert folded.pop("pending") == 0
        assert folded == {name: stored[name] for name in folded}
        assert list(changes.requests.values()) == await journal.requests(lease.run_id)
        assert list(changes.artifacts.values()) == await journal.artifacts(lease.run_id)
        assert changes.ledger == await journal.ledger(lease.run_id)


class Budgets(WithJournal):
    """Money is held before it is spent."""

    async def test_siblings_cannot_overspend_together(self, journal: Journal) -> None:
        task_id = new_task_id()
        first = await started(journal, task_id=task_id)
        second = await started(journal, task_id=task_id)
        assert await journal.reserve(task_id, first.run_id, 60, 100) == Spend()
        third = await started(journal, task_id=task_id)
        held = await journal.reserve(task_id, second.run_id, 60, 100)
        assert held == Spend(reserved_micros_usd=60)
        assert (await journal.spend(task_id, but_run=first.run_id)).reserved_micros_usd == 40
        assert await journal.reserve(task_id, third.run_id, 1, 100) is None
        assert await journal.reserve(task_id, third.run_id, 0, 100) is None

    async def test_of_two_calls_at_the_limit_only_one_begins(self, journal: Journal) -> None:
        task_id = new_task_id()
        first = await started(journal, task_id=task_id)
        second = await started(journal, task_id=task_id)
        await journal.append(first.run_id, [called(100)], fence=first.fence)
        assert await journal.reserve(task_id, first.run_id, 60, 100) is not None
        assert await journal.reserve(task_id, second.run_id, 60, 100) is None
        await journal.append(first.run_id, [called(1)], fence=first.fence)
        assert await journal.reserve(task_id, second.run_id, 60, 100) is None

    @pytest.mark.parametrize("end", ["ledger", "unreserve", "terminal"])
    async def test_a_reservation_ends_with_its_call_or_its_run(
        self, journal: Journal, end: str
    ) -> None:
        task_id = new_task_id()
        lease = await started(journal, task_id=task_id)
        await journal.reserve(task_id, lease.run_id, 60, 100)
        if end == "unreserve":
            await journal.unreserve(lease.run_id)
        else:
            fact = called(5) if end == "ledger" else FINISHED
            await journal.append(lease.run_id, [fact], fence=lease.fence)
        assert (await journal.spend(task_id)).reserved_micros_usd == 0

    async def test_what_a_dead_run_held_is_free_again(self, journal: Journal) -> None:
        task_id = new_task_id()
        dead = await started(journal, task_id=task_id, worker_id="elsewhere", lease_s=-1)
        lease = await started(journal, task_id=task_id)
        await journal.reserve(task_id, dead.run_id, 90, 100)
        assert await journal.reserve(task_id, lease.run_id, 90, 100) == Spend()


class Artifacts(WithJournal):
    """Bodies, and the artifacts that name them."""

    @pytest.mark.parametrize("size", [0, 5, 16 * 1024 - 1, 16 * 1024, 300_000])
    async def test_a_body_is_read_back_whole_and_in_parts(
        self, journal: Journal, size: int
    ) -> None:
        lease = await started(journal)
        data = bytes(range(256)) * (size // 256 + 1)
        data = data[:size]
        body = journal.inline(data)
        assert body.sha256 == hashlib.sha256(data).hexdigest()
        assert (body.data is None) == (size >= 16 * 1024)
        await journal.append(
            lease.run_id, [artifact(digest=body.sha256)], fence=lease.fence, bodies=[body]
        )
        assert await journal.body(body.sha256) == data
        assert await journal.body(body.sha256, offset=3, limit=100) == data[3:103]
        assert await journal.verify() == []

    async def test_a_streamed_body_equals_the_same_bytes_given_at_once(
        self, journal: Journal
    ) -> None:
        writer = await journal.body_writer()
        for _ in range(100):
            writer.write(b"0123456789" * 100)
        assert writer.close() == journal.inline(b"0123456789" * 10_000)
        assert writer.refused_bytes == 0

    async def test_a_discarded_body_leaves_nothing(self, journal: Journal) -> None:
        data = b"unwanted" * 10_000
        writer = await journal.body_writer()
        writer.write(data)
        writer.discard()
        with pytest.raises(NotFound):
            await journal.body(hashlib.sha256(data).hexdigest())

    async def test_an_artifacts_row_follows_its_transitions(self, journal: Journal) -> None:
        lease = await started(journal)
        await journal.append(lease.run_id, [artifact()], fence=lease.fence)
        applied = ArtifactUpdated("art_1", "status", "proposed", "applied")
        [stored] = await journal.append(lease.run_id, [applied], fence=None)
        await journal.append(
            lease.run_id, [ArtifactUpdated("art_1", "reverted_at", None, "then")], fence=None
        )
        row = await journal.artifact("art_1")
        assert row is not None
        assert (row.status, row.applied_at) == ("applied", decode(stored.body).occurred_at)
        assert (row.reverted_at, row.metadata) == ("then", {"target_path": "a.py"})
        assert await journal.artifacts(lease.run_id, kind="patch") == [row]
        assert await journal.artifacts(lease.run_id, kind="image") == []

    @pytest.mark.parametrize(
        "report",
        [
            ToolEditApplied("call_1", "art_1", "before", tool_name="edit_file"),
            ToolFileWriteApplied("call_1", "art_1", "before", tool_name="write_file"),
            ToolMultiEditApplied("call_1", ["art_1"], "before", tool_name="multi_edit"),
        ],
    )
    async def test_a_patch_is_applied_when_its_report_says(
        self, journal: Journal, report: ToolEditApplied | ToolMultiEditApplied
    ) -> None:
        lease = await started(journal)
        await journal.append(lease.run_id, [artifact()], fence=lease.fence)
        applied = ArtifactUpdated("art_1", "status", "proposed", "applied")
        told, _ = await journal.append(lease.run_id, [report, applied], fence=lease.fence)
        row = await journal.artifact("art_1")
        assert row is not None
        assert decode(told.body).data == replace(report, applied_at=row.applied_at)
        assert await journal.verify() == []

    async def test_the_second_of_two_equal_transitions_is_refused(self, journal: Journal) -> None:
        lease = await started(journal)
        await journal.append(lease.run_id, [artifact()], fence=lease.fence)
        await journal.append(
            lease.run_id, [ArtifactUpdated("art_1", "status", "proposed", "rejected")], fence=None
        )
        with pytest.raises(Conflict, match="is 'rejected' by now") as refused:
            await journal.append(
                lease.run_id,
                [ArtifactUpdated("art_1", "status", "proposed", "applied")],
                fence=None,
            )
        assert refused.value.code == "artifact_changed"

    async def test_artifacts_of_all_runs_are_listed_newest_first(self, journal: Journal) -> None:
        first = await started(journal)
        second = await started(journal)
        made = [artifact(f"art_{number}") for number in range(6)]
        sealed = replace(artifact("art_9"), kind="sealed")
        await journal.append(first.run_id, made[:3], fence=first.fence)
        await journal.append(second.run_id, [*made[3:], sealed], fence=second.fence)
        await journal.append(
            second.run_id,
            [
                ArtifactUpdated("art_5", "deleted_at", None, "2026-01-01T00:00:00Z"),
                ArtifactUpdated("art_4", "pinned", False, True),
                ArtifactUpdated("art_3", "status", "proposed", "applied"),
            ],
            fence=None,
        )
        run = await journal.run(second.run_id)
        assert run is not None

        async def listed(**filters: Any) -> list[str]:
            return [row.artifact_id for row in await journal.public_artifacts(**filters)]

        assert await listed() == ["art_4", "art_3", "art_2", "art_1", "art_0"]
        assert await listed(limit=2) == ["art_4", "art_3"]
        assert await listed(limit=2, after="art_3") == ["art_2", "art_1"]
        assert await listed(run_id=first.run_id) == ["art_2", "art_1", "art_0"]
        assert await listed(task_id=run.task_id) == ["art_4", "art_3"]
        assert await listed(session_id="chat_x") == []
        assert await listed(pinned=True, kind="patch") == ["art_4"]
        assert await listed(status="applied") == ["art_3"]
        assert await listed(kind="image") == []
        assert await listed(since="2026-01-01") != []
        assert await listed(until="2026-01-01") == []
        assert await journal.artifact_bytes(run.task_id or "") == 6
        with pytest.raises(Conflict, match="art_4 is pinned"):
            await journal.append(
                second.run_id, [ArtifactUpdated("art_4", "deleted_at", None, "now")], fence=None
            )
