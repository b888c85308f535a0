"""Sessions: a conversation goes on, is branched, and belongs to one process at a time."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from batten.agent.conversation import Conversation
from batten.agent.execution import Execution
from batten.contract import facts as f
from batten.contract.errors import CallerError, Conflict, FenceLost, NotFound, Refused
from batten.contract.ids import SessionId, session_stream
from batten.redact.seal import SealKey
from batten.session.history import facts_of, read_back
from batten.session.session import Session, find_session
from batten.session.stored_settings import settings_of
from batten.settings.contract import Settings
from tests.agent.acting import Acting
from tests.agent.hooking import Fifo, hook, hooks_of, saying
from tests.agent.stage import Played, Stage, bash, call, finish, say

SECRET = "s3kr1t-Value-99"


def no_key() -> SealKey:
    raise AssertionError("nothing was sealed")


async def talk(stage: Stage, *answers: str) -> tuple[str, list[Played]]:
    """A session in which each prompt got one of these answers; its id and its runs."""
    model = stage.scenario(*[[say(text)] for text in answers])
    async with stage.session("--model", model) as session:
        runs = [
            await finish(session, await session.prompt(f"prompt {number}"))
            for number in range(len(answers))
        ]
    return session.session_id, runs


def shown_to(execution: Execution) -> list[str]:
    return [message.text() for message in execution.conversation.messages]


async def test_a_resumed_session_remembers_the_conversation(stage: Stage) -> None:
    session_id, runs = await talk(stage, "one", "two")
    model = stage.scenario([say("one")], [say("two")], [say("three")])
    async with stage.session("--model", model, resume=session_id) as session:
        execution = await session.prompt("prompt 2")
        played = await finish(session, execution)
        shown = shown_to(execution)
    assert shown == ["prompt 0", "one", "prompt 1", "two", "prompt 2", "three"]
    queued = played.one(f.RunQueued)
    assert queued.prior_run_id == runs[-1].ended.run_id


async def test_a_session_is_found_by_the_id_of_any_of_its_runs(stage: Stage) -> None:
    session_id, runs = await talk(stage, "one", "two")
    journal = stage.journal()
    for name in (session_id, *(run.ended.run_id for run in runs)):
        assert (await find_session(journal, name)).session_id == session_id
    with pytest.raises(NotFound, match="`batten runs` lists them"):
        await find_session(journal, "chat_nobody")
    journal.close()


async def test_a_session_has_one_task_over_all_its_runs(stage: Stage) -> None:
    session_id, runs = await talk(stage, "one", "two")
    journal = stage.journal()
    rows = await journal.runs(session_id=session_id)
    assert {row.task_id for row in rows} == {(await find_session(journal, session_id)).task_id}
    assert len(rows) == len(runs)
    journal.close()


async def test_settings_are_kept_and_a_flag_overrides_one_of_them(stage: Stage) -> None:
    model = stage.scenario([bash("touch made")], [say("done")])
    flags = ("--model", model, "--allow", "bash", "--max-turns", "7", "--temperature", "0.5")
    async with stage.session(*flags) as session:
        first = session.settings
    async with stage.session(resume=session.session_id) as again:
        assert again.settings == replace(first, max_turns=None)  # limits are of one invocation
    async with stage.session("--max-turns", "1", resume=session.session_id) as changed:
        assert changed.settings == replace(first, max_turns=1)
        played = await finish(changed, await changed.prompt("go"))
    assert played.ended.outcome == "max_turns"
    assert (stage.workspace / "made").exists()
    journal = stage.journal()
    row = await find_session(journal, session.session_id)
    assert (await settings_of(row, journal, no_key)).max_turns == 1
    journal.close()


async def test_settings_this_version_does_not_know_are_an_error_in_words(stage: Stage) -> None:
    session_id, _ = await talk(stage, "one")
    journal = stage.journal()
    row = await find_session(journal, session_id)
    with pytest.raises(CallerError, match=session_id) as raised:
        await settings_of(replace(row, settings={**row.settings, "mode": "yolo"}), journal, no_key)
    journal.close()
    assert raised.value.code == "config"


async def test_a_secret_in_the_settings_is_sealed_and_comes_back_on_resume(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"DEPLOY_TOKEN": SECRET})
    model = stage.scenario([say("done")])
    async with stage.session("--model", model, "--append-system-prompt", f"use {SECRET}") as first:
        session_id = first.session_id
    stored = b"".join(path.read_bytes() for path in stage.home.rglob("*") if path.is_file())
    assert SECRET.encode() not in stored
    async with stage.session(resume=session_id) as again:
        assert again.settings == first.settings
    async with stage.session("--append-system-prompt", f"not {SECRET}", resume=session_id):
        pass
    async with stage.session(resume=session_id) as last:
        assert last.settings.append_system == f"not {SECRET}"
    (stage.home / "seal.key").unlink()
    with pytest.raises(Refused):
        async with stage.session(resume=session_id):
            pass


async def test_settings_too_large_for_an_event_come_back_on_resume(stage: Stage) -> None:
    words = "界" * 100_000
    async with stage.session("--model", "scripted/x", "--append-system-prompt", words) as one:
        assert one.settings.append_system == words
    async with stage.session(resume=one.session_id) as again:
        assert again.settings == one.settings


async def test_a_session_in_use_is_refused_to_others_and_free_afterwards(stage: Stage) -> None:
    session_id, _ = await talk(stage, "one")
    async with stage.session(resume=session_id):
        with pytest.raises(
            Conflict, match=f"session {session_id} is in use by another process"
        ) as refused:
            async with stage.session(resume=session_id):
                pass
        assert "run_" not in str(refused.value), "the session's own stream is no run to look at"
    async with stage.session(resume=session_id) as again:
        assert again.session_id == session_id


async def test_a_sessions_lease_lasts_as_long_as_its_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"BATTEN_LEASE_S": "0.3"})
    model = stage.scenario([bash("sleep 0.5")], [say("done")])
    async with stage.session("--model", model, "--allow", "bash") as session:
        stream = session_stream(SessionId(session.session_id))
        before = await session.deps.journal.run(stream)
        await finish(session, await session.prompt("go"))
        after = await session.deps.journal.run(stream)
    assert before is not None
    assert after is not None
    assert after.lease_until != before.lease_until
    assert after.fence == before.fence


async def test_a_session_tells_of_its_life_in_a_stream_of_its_own(stage: Stage) -> None:
    session_id, _ = await talk(stage, "one")
    async with stage.session("--max-turns", "3", resume=session_id):
        pass
    journal = stage.journal()
    told = [fact.type async for fact in facts_of(journal, session_stream(SessionId(session_id)))]
    assert await journal.verify() == []
    journal.close()
    assert told == [
        "session.opened",
        "session.configured",
        "session.closed",
        "session.configured",
        "session.closed",
    ]


async def branch(
    stage: Stage, played: Played, until: int | None, prompt: str
) -> tuple[Played, list[str], str]:
    """Branch from a place in a run and prompt; the new run, what it was shown, its session."""
    async with stage.parts() as parts:
        journal = parts.journal
        run = await journal.run(played.ended.run_id)
        assert run is not None
        row = await find_session(journal, run.run_id)
        settings = await settings_of(row, journal, parts.seal_key)
        deps = await parts.run_deps(str(stage.workspace), settings, Settings())
        last = run.next_sequence - 1 if until is None else until
        session = await Session.branch(deps, row, settings, run=run, until=last)
        execution = await session.prompt(prompt)
        result = await finish(session, execution)
        await session.close()
        shown = shown_to(execution)
    return result, shown, session.session_id


async def test_a_branch_shares_the_history_up_to_its_place_and_leaves_the_other_alone(
    stage: Stage,
) -> None:
    session_id, runs = await talk(stage, "one", "two")
    played, shown, branched = await branch(stage, runs[0], None, "another way")
    assert shown == ["prompt 0", "one", "another way", "two"]
    assert branched != session_id
    resumed = played.one(f.RunResumedFromEvent)
    assert played.run[0].data == resumed
    assert (resumed.from_run_id, resumed.from_sequence) == (
        runs[0].ended.run_id,
        runs[0].run[-1].sequence,
    )
    journal = stage.journal()
    row = await journal.session(branched)
    assert row is not None
    assert (row.forked_from, row.forked_at_run_id) == (session_id, runs[0].ended.run_id)
    assert len(await journal.runs(session_id=session_id)) == 2
    journal.close()


async def test_a_branch_from_the_middle_of_a_run_knows_nothing_of_the_rest(stage: Stage) -> None:
    played = await stage.play([say("Looking."), bash("echo hi")], [say("late words")])
    place = played.types.index("run.checkpoint_saved") + 1
    _, shown, _ = await branch(stage, played, place, "stop there")
    assert shown[:2] == ["go", "Looking."]
    assert shown[3] == "stop there"
    assert "late words" not in shown[:4]


async def test_a_branch_before_the_first_checkpoint_is_refused(stage: Stage) -> None:
    played = await stage.play([say("Looking."), bash("echo hi")], [say("late words")])
    with pytest.raises(CallerError, match="no checkpoint"):
        await branch(stage, played, played.types.index("tool.invoked"), "stop there")


async def test_a_branch_of_a_branch_remembers_both(stage: Stage) -> None:
    _, runs = await talk(stage, "one", "two")
    second, _, _ = await branch(stage, runs[0], None, "first branch")
    _, shown, _ = await branch(stage, second, None, "second branch")
    assert shown[:5] == ["prompt 0", "one", "first branch", "two", "second branch"]


async def test_a_branch_is_resumed_with_the_history_it_shares(stage: Stage) -> None:
    _, runs = await talk(stage, "one", "two")
    _, _, branched = await branch(stage, runs[0], None, "another way")
    async with stage.session(resume=branched) as session:
        execution = await session.prompt("and on")
        await finish(session, execution)
        assert shown_to(execution)[:5] == ["prompt 0", "one", "another way", "two", "and on"]


async def test_a_branch_counts_what_was_spent_before_it_and_has_a_budget_of_its_own(
    stage: Stage,
) -> None:
    _, runs = await talk(stage, "one")
    played, _, branched = await branch(stage, runs[0], None, "go")
    journal = stage.journal()
    old, new = (
        await find_session(journal, runs[0].ended.run_id),
        await find_session(journal, branched),
    )
    assert old.task_id != new.task_id
    assert played.one(f.RunResumedFromEvent).prior_cost_micros_usd == 0
    journal.close()


def test_a_session_cannot_be_opened_without_a_model(stage: Stage) -> None:
    with pytest.raises(CallerError, match="no model: give --model") as raised:
        stage.settings()
    assert raised.value.code == "config"


async def read_again(session: Session) -> Conversation:
    deps = session.deps
    conversation = Conversation()
    await read_back(conversation, deps.journal, deps.seal_key, session.session_id)
    return conversation


async def test_a_session_goes_on_with_what_it_remembers_and_that_is_what_the_journal_holds(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path, {"SERVICE_TOKEN": SECRET})
    model = stage.scenario(
        [say("looking"), call("acting", "c1", act="picture"), call("acting", "c2", act=SECRET)],
        [call("acting", "c3", act="raise"), call("nobody", "c4")],
        [say("one " + "x" * 50_000)],
        [call("acting", "c5", act="long")],
        [say("two")],
        [say("three")],
    )
    added = {"hookSpecificOutput": {"additionalContext": f"mind {SECRET}"}}
    hooks = hooks_of(
        stage, *(hook(event, saying(added)) for event in ("UserPromptSubmit", "PostToolUse"))
    )
    flags = ("--model", model, "--allow", "acting")
    prior: list[str] = []
    async with stage.session(*flags, tools=[Acting()], hooks=hooks) as session:
        first: Execution | None = None
        for prompt in (f"use {SECRET}", "y" * 100_000, "again"):
            execution = await session.prompt(prompt)
            first = first or execution
            assert execution.conversation is first.conversation
            played = await finish(session, execution)
            assert played.ended.outcome == "completed"
            assert played.one(f.RunQueued).prior_run_id == (prior[-1] if prior else None)
            prior.append(played.ended.run_id)
            again = await read_again(session)
            assert execution.conversation.messages == again.messages
            assert execution.conversation.tokens == again.tokens


async def test_a_run_that_did_not_complete_is_read_back_before_the_next_prompt(
    stage: Stage,
) -> None:
    model = stage.scenario([bash("true", "c1")], [say("two")], [say("three")])
    flags = ("--model", model, "--max-turns", "1", "--allow", "bash")
    async with stage.session(*flags) as session:
        first = await session.prompt("go")
        assert (await finish(session, first)).ended.outcome == "max_turns"
        second = await session.prompt("on")
        assert second.conversation is not first.conversation
        assert (await finish(session, second)).ended.outcome == "completed"
        assert second.conversation.messages == (await read_again(session)).messages


async def test_a_holder_that_was_relieved_starts_no_run_and_a_resume_reads_back_the_others(
    stage: Stage,
) -> None:
    model = stage.scenario(*[[say(text)] for text in ("one", "two", "three")])
    async with stage.session("--model", model) as session:
        await finish(session, await session.prompt("first"))
        await session.close()
        await stage.run("--model", model, resume=session.session_id, prompt="second")
        with pytest.raises(FenceLost):
            await session.prompt("third")
    async with stage.session("--model", model, resume=session.session_id) as again:
        execution = await again.prompt("third")
        await finish(again, execution)
    assert shown_to(execution)[:5] == ["first", "one", "second", "two", "third"]


async def test_a_resume_that_is_cancelled_anywhere_leaves_the_session_free(stage: Stage) -> None:
    """After ever more turns of the loop, until they are enough to resume it."""
    session_id, _ = await talk(stage, "one")
    async with stage.session("--model", stage.scenario([say("two")])) as other:
        journal = other.deps.journal
        row = await find_session(journal, session_id)
        settings = replace(other.settings, max_turns=7)
        turns, is_open = 0, False
        while not is_open:
            turns += 1 + turns // 4
            resuming = asyncio.ensure_future(Session.resume(other.deps, row, settings))
            for _ in range(turns):
                await asyncio.sleep(0)
            is_open = resuming.done()
            resuming.cancel()
            await asyncio.wait([resuming])
            if is_open:
                await resuming.result().leave()
            await journal.unreserve("")  # it is written after what came before it
            held = await journal.run(session_stream(SessionId(session_id)))
            assert held is not None
            assert not held.worker_id, turns


async def test_a_session_whose_closing_is_cancelled_is_free(stage: Stage, tmp_path: Path) -> None:
    begun = Fifo(tmp_path / "begun")
    hooks = hooks_of(stage, hook("SessionEnd", f"echo begun > {begun.path}; sleep 60"))
    async with stage.session("--model", stage.scenario([say("one")]), hooks=hooks) as session:
        closing = asyncio.ensure_future(session.close())
        await begun.line()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        row = await session.deps.journal.run(session_stream(SessionId(session.session_id)))
        assert row is not None
        assert not row.worker_id
