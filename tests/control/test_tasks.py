"""Tasks and the runs that workers execute for them."""

import asyncio
from pathlib import Path

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.contract.facts import TaskCreated
from batten.contract.facts.task import TaskServer
from batten.control.layers import LayersOfWorkspaces
from batten.control.tasks import Tasks
from batten.journal.contract import SessionRow
from batten.journal.workers import this_worker
from batten.wiring.spec import TaskGrants
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
        again = await place.tasks.retry_from_turn(
            task_id, first.run_id, 2, by="somebody", reason="b was wrong"
        )
        ended = await place.ended(again)
        facts = await place.facts(again)
        with pytest.raises(CallerError, match="from 1 to 3"):
            await place.tasks.retry_from_turn(task_id, first.run_id, 4, by="somebody")
    assert ended.status == "completed"
    proposed = [one for one in facts if isinstance(one, f.AssistantToolCallProposed)]
    assert [one.input["command"] for one in proposed] == ["echo b"]
    assert not any(isinstance(one, f.UserMessage) for one in facts)
    assert isinstance(facts[0], f.RunResumedFromEvent)
    assert (facts[0].from_run_id, facts[0].reason) == (first.run_id, "b was wrong")


async def test_a_run_without_a_model_has_no_turn_to_repeat(place: Place) -> None:
    row = await place.started("", execution_kind="shell", shell_command="true")
    async with place.working():
        await place.ended(row)
        with pytest.raises(CallerError, match="of the kind shell and has no turns"):
            await place.tasks.retry_from_turn(row.task_id or "", row.run_id, 1, by="somebody")


async def test_a_failed_run_is_resumed_with_a_higher_budget_only(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]), budget_micros_usd=5)
    task_id = row.task_id or ""
    await place.tasks.cancel(task_id, row.run_id, by="somebody")
    with pytest.raises(CallerError, match="only be raised"):
        await place.tasks.resume(task_id, row.run_id, by="somebody", budget_micros_usd=4)
    resumed = await place.tasks.resume(
        task_id, row.run_id, by="somebody", budget_micros_usd=6, reason="it may cost more"
    )
    beginning = (await place.facts(resumed))[0]
    assert isinstance(beginning, f.RunResumedFromEvent)
    assert beginning.reason == "it may cost more"
    task = await place.tasks.described(await place.tasks.find(task_id))
    assert task is not None
    assert task.budget_micros_usd == 6


async def test_a_budget_is_raised_with_the_run_that_goes_on_or_not_at_all(place: Place) -> None:
    row = await place.started(place.model([said("Done.")]), budget_micros_usd=5)
    task_id = row.task_id or ""
    await place.tasks.cancel(task_id, row.run_id, by="somebody")
    await place.tasks.retry(task_id, row.run_id, by="somebody")
    with pytest.raises(Conflict) as refused:
        await place.tasks.resume(task_id, row.run_id, by="somebody", budget_micros_usd=6)
    assert refused.value.code == "run_active"
    task = await place.tasks.described(await place.tasks.find(task_id))
    assert task is not None
    assert task.budget_micros_usd == 5


async def test_a_start_that_a_delete_overtakes_makes_no_run(place: Place) -> None:
    task = await place.tasks.create(place.described(place.model([said("Done.")])))

    class Overtaken(Tasks):
        async def described(self, session: SessionRow) -> TaskCreated | None:
            found = await super().described(session)
            await self.delete(session.task_id)
            return found

    overtaken = Overtaken(place.journal, place.opener.home, place.base)
    with pytest.raises(NotFound):
        await overtaken.start(task.task_id, by="somebody")
    assert await place.journal.runs(task_id=task.task_id) == []
    assert await place.journal.queued() == []


async def test_a_run_without_the_turn_to_begin_at_says_what_there_is(place: Place) -> None:
    shell = await place.tasks.create(
        place.described("", execution_kind="shell", shell_command="true", prompt=UNSET)
    )
    row = await place.tasks.start(shell.task_id, by="somebody")
    await place.tasks.cancel(shell.task_id, row.run_id, by="somebody")
    with pytest.raises(CallerError, match="of the kind shell and has no turns: retry it"):
        await place.tasks.retry_from_turn(shell.task_id, row.run_id, 1, by="somebody")
    agent = await place.started(place.model([said("Done.")]))
    await place.tasks.cancel(agent.task_id or "", agent.run_id, by="somebody")
    with pytest.raises(CallerError, match="has no turn 1: retry it"):
        await place.tasks.retry_from_turn(agent.task_id or "", agent.run_id, 1, by="somebody")


async def test_settings_files_are_read_again_only_when_they_change(tmp_path: Path) -> None:
    place = Place(tmp_path, bare=False)
    config = tmp_path / ".config/batten/settings.toml"
    config.parent.mkdir(parents=True)
    layers = LayersOfWorkspaces(place.base, place.opener.home)
    where = str(place.workspace)
    empty = layers.of(where)
    assert empty.model is None
    assert layers.of(where) is empty
    config.write_text('model = "openai/one"\n')
    first = layers.of(where)
    assert first.model == "openai/one"
    assert layers.of(where) is first
    config.write_text('model = "openai/other"\n')
    assert layers.of(where).model == "openai/other"
    config.unlink()
    assert layers.of(where).model is None
    (place.workspace / ".batten").mkdir()
    (place.workspace / ".batten/settings.toml").write_text("model = 7\n")
    with pytest.raises(CallerError):
        layers.of(where)
    place.opener.close()


async def test_managed_settings_that_an_environment_names_are_read_again_too(
    tmp_path: Path,
) -> None:
    managed = tmp_path / "managed.json"
    place = Place(tmp_path, bare=False)
    environ = {**place.base.environ, "BATTEN_MANAGED_SETTINGS": str(managed)}
    layers = LayersOfWorkspaces(replace(place.base, environ=environ), place.opener.home)
    where = str(place.workspace)
    for model in ("openai/one", "openai/other"):
        managed.write_text(f'{{"model": "{model}"}}')
        assert layers.of(where).model == model
    place.opener.close()


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


async def test_literals_of_tool_servers_are_stored_encrypted(tmp_path: Path) -> None:
    grants = TaskGrants(servers=("sandboxed",), variables=("NOTES_KEY",))
    place = Place(tmp_path, tasks=grants)
    server = TaskServer(
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
    place.opener.close()


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
