"""Sessions whose journal has forgotten the beginning of a run: the conversation is kept."""

from functools import partial

import pytest

from batten.agent.conversation import Conversation
from batten.contract.conversation import Message
from batten.contract.errors import Conflict
from batten.journal.sqlite import SqliteJournal
from batten.redact.seal import SealKey
from batten.session.history import prune, read_back
from tests.agent.acting import Acting
from tests.agent.stage import Stage, bash, call, finish, say


async def conversation_of(stage: Stage, session_id: str) -> tuple[Message, ...]:
    journal = stage.journal()
    key = partial(SealKey.load, str(stage.home))
    conversation = Conversation()
    await read_back(conversation, journal, key, session_id)
    journal.close()
    return conversation.messages


async def forget(stage: Stage, run_id: str, before: int) -> None:
    journal = SqliteJournal.open(stage.home)
    key = partial(SealKey.load, str(stage.home))
    row = await journal.run(run_id)
    assert row is not None
    try:
        await prune(journal, key, row, before)
        assert await journal.verify() == []
    finally:
        journal.close()


@pytest.fixture
async def told(stage: Stage) -> tuple[str, list[str], list[int]]:
    """A session of two runs with tools, pictures and a secret: its id, its runs, their lengths."""
    stage.environ["SERVICE_TOKEN"] = "tok-0123456789-abcdefghij"
    model = stage.scenario(
        [say("Looking."), bash("echo tok-0123456789-abcdefghij", "c1"), bash("echo 2", "c2")],
        [call("acting", "c3", act="picture")],
        [say("one")],
        [bash("echo 3", "c4")],
        [say("two")],
        [say("three")],
    )
    flags = ("--model", model, "--allow", "bash", "--allow", "acting")
    async with stage.session(*flags, tools=[Acting()]) as session:
        runs = [await finish(session, await session.prompt(f"prompt {n}")) for n in range(2)]
    ids = [run.ended.run_id for run in runs]
    return session.session_id, ids, [len(run.run) for run in runs]


async def test_wherever_a_run_is_cut_its_conversation_stays_whole(
    stage: Stage, told: tuple[str, list[str], list[int]]
) -> None:
    session_id, (first, second), lengths = told
    whole = await conversation_of(stage, session_id)
    for before in range(1, lengths[1], 5):
        await forget(stage, second, before)
        assert await conversation_of(stage, session_id) == whole
    for before in range(1, lengths[0] + 1, 5):
        await forget(stage, first, before)
        assert await conversation_of(stage, session_id) == whole


async def test_a_pruned_session_is_resumed_and_goes_on(
    stage: Stage, told: tuple[str, list[str], list[int]]
) -> None:
    session_id, runs, lengths = told
    for run_id, length in zip(runs, lengths, strict=True):
        await forget(stage, run_id, length)
    async with stage.session(resume=session_id) as session:
        played = await finish(session, await session.prompt("and now?"))
    assert played.ended.answer == "three"


async def test_nothing_of_the_kept_conversation_can_be_read_in_the_store(
    stage: Stage, told: tuple[str, list[str], list[int]]
) -> None:
    _, runs, lengths = told
    for run_id, length in zip(runs, lengths, strict=True):
        await forget(stage, run_id, length)
    for path in stage.home.rglob("*"):
        if path.is_file():
            stored = path.read_bytes()
            assert b"tok-0123456789" not in stored, path


async def test_a_run_that_has_not_ended_is_not_pruned(stage: Stage) -> None:
    async with stage.session("--model", stage.scenario([say("x")])) as session:
        execution = await session.prompt("go")
        row = await session.deps.journal.run(execution.run_id)
        assert row is not None
        with pytest.raises(Conflict, match="has not ended"):
            await prune(session.deps.journal, session.deps.seal_key, row, 1)
        await finish(session, execution)
