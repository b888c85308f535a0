"""Tasks and the runs that workers execute for them."""

import asyncio
from pathlib import Path

import pytest

from batten.contract import facts as f
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.journal.workers import this_worker
from tests.control.given import Place, called, said


async def test_a_started_task_runs_in_a_worker_to_its_end(place: Place) -> None:
    model = place.model([called("echo hello")], [said("Done.")])
    row = await place.started(model)
    assert (row.status, row.worker_id) == ("queued", "")
    async with place.working():
        ended = await place.ended(row)
    assert (ended.status, ended.outcome, ended.turns) == ("completed", "completed", 2)
    types = [fact.type for fact in await place.facts(row)]
    assert types[:3] == ["run.queued", "user.message", "run.started"]
    assert types[-1] == "run.finished"
    queued = (await place.facts(row))[0]
    assert isinstance(queued, f.RunQueued)
    assert queued.by == "somebody"


async def test_several_runs_work_at_once_and_the_more_urgent_begins_first(place: Place) -> None:
    model = place.model([said("Done.")])
    rows = [
        await place.started(model, priority=priority) for priority in ("low", "normal", "urgent")
    ]
    async with place.working(runs=1):
        ended = await asyncio.gather(*(place.ended(row) for row in rows))
    began = sorted(ended, key=lambda row: row.ended_at or "")
    assert [row.priority for row in began] == [20, 0, -10]


async def test_a_task_has_one_unfinished_run(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]))
    assert row.task_id is not None
    with pytest.raises(Conflict) as refused:
        await place.tasks.start(row.task_id, by="somebody")
    assert refused.value.code == "run_active"
    assert row.run_id in str(refused.value)
    for again in (place.tasks.retry, place.tasks.resume):
        with pytest.raises(Conflict):
            await again(row.task_id, row.run_id, by="somebody")


async def test_what_does_not_exist_is_named(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]))
    with pytest.raises(NotFound, match="task_none"):
        await place.tasks.find("task_none")
    with pytest.raises(NotFound, match="run_none"):
        await place.tasks.run(row.task_id or "", "run_none")
    with pytest.raises(NotFound):
        await place.tasks.run("task_other", row.run_id)


async def test_a_continued_run_remembers_and_a_retried_one_does_not(place: Place) -> None:
    model = place.model([said("One.")], [said("Two.")], [said("Three.")])
    first = await place.started(model)
    async with place.working():
        await place.ended(first)
        task_id = first.task_id or ""
        second = await place.tasks.go_on(task_id, first.run_id, "and then?", by="somebody")
        assert (await place.ended(second)).prior_run_id == first.run_id
        retried = await place.tasks.retry(task_id, first.run_id, by="somebody")
        await place.ended(retried)
        # The scripted model counts the messages that it is shown.
        assert [await _answer(place, row.run_id) for row in (first, second, retried)] == [
            "One.",
            "Two.",
            "One.",
        ]
        begun = (await place.facts(second))[0]
        assert isinstance(begun, f.RunResumedFromEvent)
        assert begun.from_run_id == first.run_id


async def test_a_run_begins_again_before_one_of_its_turns(place: Place) -> None:
    model = place.model([called("echo a")], [called("echo b", "c2")], [said("Done.")])
    first = await place.started(model)
    async with place.working():
        assert (await place.ended(first)).turns == 3
        task_id = first.task_id or ""
        again = await place.tasks.retry_from_turn(task_id, first.run_id, 2, by="somebody")
        ended = await place.ended(again)
        facts = await place.facts(again)
        with pytest.raises(CallerError, match="from 1 to 3"):
            await place.tasks.retry_from_turn(task_id, first.run_id, 4, by="somebody")
    assert ended.status == "completed"
    proposed = [one for one in facts if isinstance(one, f.AssistantToolCallProposed)]
    assert [one.input["command"] for one in proposed] == ["echo b"]
    assert not any(isinstance(one, f.UserMessage) for one in facts)


async def test_a_failed_run_is_resumed_with_a_higher_budget_only(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]), budget_micros_usd=5)
    task_id = row.task_id or ""
    await place.tasks.cancel(task_id, row.run_id, by="somebody")
    with pytest.raises(CallerError, match="only be raised"):
        await place.tasks.resume(task_id, row.run_id, by="somebody", budget_micros_usd=4)
    await place.tasks.resume(task_id, row.run_id, by="somebody", budget_micros_usd=6)
    task = await place.tasks.described(await place.tasks.find(task_id))
    assert task is not None
    assert task.budget_micros_usd == 6


async def test_a_queued_run_is_cancelled_at_once(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]))
    ended = await place.tasks.cancel(row.task_id or "", row.run_id, by="ann", reason="changed")
    assert (ended.status, ended.outcome) == ("cancelled", "cancelled")
    last = (await place.facts(row))[-1]
    assert isinstance(last, f.RunCancelled)
    assert (last.by, last.reason) == ("ann", "changed")
    same = await place.tasks.cancel(row.task_id or "", row.run_id, by="bob")
    assert same == ended


async def test_a_working_run_ends_when_its_worker_hears_of_the_cancel(place: Place) -> None:
    row = await place.started(place.model([called("sleep 60")]))
    async with place.working():
        await place.reached(row, f.ToolShellCommand.TYPE)
        await place.tasks.cancel(row.task_id or "", row.run_id, by="ann", reason="enough")
        ended = await place.ended(row)
    assert ended.status == "cancelled"
    last = (await place.facts(row))[-1]
    assert isinstance(last, f.RunCancelled)
    assert (last.by, last.reason) == ("ann", "enough")


async def test_a_run_that_cannot_be_opened_ends_with_the_reason(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]))
    place.workspace.rmdir()
    async with place.working():
        ended = await place.ended(row)
    last = (await place.facts(row))[-1]
    assert ended.status == "failed"
    assert isinstance(last, f.RunFailed)
    assert str(place.workspace) in last.message


async def test_literals_of_tool_servers_are_stored_encrypted(place: Place, tmp_path: Path) -> None:
    server = f.task.TaskServer(
        name="notes",
        approval_policy="auto",
        command="notes-server",
        env={"KEY": "a-very-private-value", "FROM": "$NOTES_KEY"},
    )
    session = await place.tasks.create(
        place.described(place.model([said("Done.")]), mcp_servers=[server])
    )
    task = await place.tasks.described(session)
    assert task is not None
    assert task.mcp_servers == [server]
    stored = b"".join(
        path.read_bytes() for path in (tmp_path / "home").rglob("*") if path.is_file()
    )
    assert b"a-very-private-value" not in stored
    assert b"$NOTES_KEY" in stored


async def test_a_worker_leaves_the_run_of_a_faster_one_alone(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]))
    lease = await place.journal.claim(row.run_id, "worker-elsewhere-1-1", 600)
    other = await place.started(place.model([said("Done.")], name="other"))
    async with place.working():
        await place.ended(other)
    found = await place.journal.run(row.run_id)
    assert found is not None
    assert (found.worker_id, found.status) == (lease.worker_id, "queued")
    assert found.worker_id != this_worker()


async def _answer(place: Place, run_id: str) -> str:
    row = await place.journal.run(run_id)
    assert row is not None
    texts = [one for one in await place.facts(row) if isinstance(one, f.AssistantTextComplete)]
    return texts[-1].text


async def test_a_cancel_that_a_claim_overtakes_keeps_its_author_and_reason(place: Place) -> None:
    row = await place.started(place.model([called("sleep 60")], [said("Done.")]))
    asked = f.RunCancelRequested(by="ann", reason="not now")
    await place.journal.append(row.run_id, [asked], fence=None)
    async with place.working():
        await place.ended(row)
    last = (await place.facts(row))[-1]
    assert isinstance(last, f.RunCancelled)
    assert (last.by, last.reason) == ("ann", "not now")


async def test_a_secret_in_the_reason_of_a_cancel_is_not_stored(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]))
    secret = "sk-ant-api03-" + "A" * 40
    await place.tasks.cancel(row.task_id or "", row.run_id, by="ann", reason=f"see {secret}")
    stored = b"".join(one.body for one in await place.journal.read(row.run_id))
    assert b"run.cancelled" in stored
    assert secret.encode() not in stored
