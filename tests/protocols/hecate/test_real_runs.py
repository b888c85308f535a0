"""Runs of the real agent with real tools, as Hecate shows them."""

from batten.contract.envelope import decode
from batten.journal.contract import RunRow, Stored
from batten.protocols.hecate.runs import RunDetails
from batten.protocols.hecate.snapshots import MOST, snapshot_of
from batten.protocols.hecate.streams import FeedFilter, event_list, is_of_session
from batten.protocols.hecate.view import RunView
from tests.agent.stage import Played, Stage, bash, call, end, say


async def stored_run(stage: Stage, played: Played) -> tuple[RunRow, list[Stored]]:
    journal = stage.journal()
    try:
        row = await journal.run(played.ended.run_id)
        assert row is not None
        return row, await journal.read(played.ended.run_id, limit=1000)
    finally:
        journal.close()


async def test_a_run_with_a_command_and_an_edit_agrees_with_its_rows(stage: Stage) -> None:
    played = await stage.play(
        [say("I write and look."), call("write_file", path="a.txt", content="one\n")],
        [bash("cat a.txt; echo bad >&2; exit 3")],
        [say("It says one."), end()],
    )
    row, events = await stored_run(stage, played)
    view = RunView(MOST)
    for event in events:
        view.take(decode(event.body))
    state = snapshot_of(view, row, RunDetails(number=1))
    assert (state.run.status, state.run.last_sequence) == (row.status, row.next_sequence - 1)
    assert [(step.kind, step.status, step.result) for step in state.steps] == [
        ("model", "completed", "success"),
        ("file", "completed", "success"),
        ("model", "completed", "success"),
        ("shell", "failed", "error"),
        ("model", "completed", "success"),
    ]
    command = state.steps[3]
    assert (command.exit_code, command.error_kind) == (3, "shell_command_failed")
    (item,) = [item for item in state.activity if item.step_id == command.id and item.tool_name]
    assert (item.summary["stdout"], item.summary["stderr"]) == ("one\n", "bad\n")
    patches = [made for made in state.artifacts if made.kind == "patch"]
    assert [(made.target_path, made.status, made.base_revision) for made in patches] == [
        ("a.txt", "applied", None)
    ]
    assert state.activity[-1].type == "run_result"


async def test_the_feed_without_a_filter_is_the_run_and_no_session(stage: Stage) -> None:
    played = await stage.play([say("Done."), end()])
    journal = stage.journal()
    try:
        feed = await journal.feed(limit=1000)
    finally:
        journal.close()
    _, events = await stored_run(stage, played)
    assert any(is_of_session(each) for each in feed)
    assert event_list(FeedFilter().select(feed)) == event_list(events)
