"""Hooks and a process that dies: nothing runs twice, and no gate is passed by dying."""

import pytest

from batten.contract.facts import (
    ApprovalRequested,
    HookCompleted,
    PolicyToolDecided,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
)
from batten.session.requests import resolve
from tests.session.processes import kill_after

from .dying import WAYS, die, model_of
from .stage import Played, Stage, finish


async def go_on(stage: Stage, way: str) -> Played:
    """Take the run over that a killed process left, with the same hooks."""
    with_one = stage.journal()
    (row,) = await with_one.runs()
    with_one.close()
    hooks = WAYS[way](stage, 0)
    async with stage.session(resume=row.run_id, hooks=hooks) as session:
        left = await session.unfinished()
        assert left is not None
        return await finish(session, await session.go_on(left))


async def test_a_prompt_is_refused_by_its_hook_also_after_we_died_in_it(stage: Stage) -> None:
    die(stage, "prompt")
    played = await go_on(stage, "prompt")
    assert played.ended.outcome == "hook_denied"
    assert "turn.started" not in played.types
    assert not (stage.workspace / "log").exists()


async def test_a_call_whose_hook_we_died_in_is_put_to_it_again_and_run_once(stage: Stage) -> None:
    die(stage, "before")
    assert not (stage.workspace / "log").exists()
    played = await go_on(stage, "before")
    assert (stage.workspace / "log").read_text() == "proposed\n"
    assert played.one(HookCompleted).decision == "allow"
    assert len(played.all(ToolInvoked)) == 1
    assert played.ended.outcome == "completed"


async def test_a_call_that_had_ended_when_we_died_is_not_run_again(stage: Stage) -> None:
    die(stage, "after")
    played = await go_on(stage, "after")
    assert (stage.workspace / "log").read_text() == "proposed\n"
    assert len(played.all(ToolCompleted)) == 1
    assert played.ended.outcome == "completed"


async def test_of_a_call_that_we_died_in_it_is_known_what_was_run(stage: Stage) -> None:
    die(stage, "call")
    played = await go_on(stage, "call")
    assert (stage.workspace / "log").read_text() == "changed\n"
    given = played.one(ToolInvoked).input
    assert isinstance(given, dict)
    assert given["command"].startswith("echo changed >> log; kill -9 ")
    assert played.one(ToolFailed).error_kind == "outcome_unknown"
    assert played.ended.outcome == "completed"


@pytest.mark.parametrize("halt", [False, True])
async def test_an_answer_given_while_nobody_worked_on_the_run_counts_in_full(
    stage: Stage, halt: bool
) -> None:
    run_id = kill_after(stage, "approval.requested", "--model", model_of(stage), "--ask-operator")
    async with stage.session(resume=run_id) as session:
        deps = session.deps
        (request,) = await deps.journal.requests(run_id)
        await resolve(
            deps.journal,
            deps.redactor,
            request.request_id,
            granted=not halt,
            by="operator",
            text="no more" if halt else "",
            updated_input={"command": "echo answered >> log"},
            halt=halt,
            seal_key=deps.seal_key,
        )
        left = await session.unfinished()
        assert left is not None
        played = await finish(session, await session.go_on(left))
    log = stage.workspace / "log"
    assert len(played.all(ApprovalRequested)) == 1
    assert played.all(PolicyToolDecided)[-1].decided_by == "resolver:operator"
    if halt:
        assert (played.ended.outcome, log.exists()) == ("cancelled", False)
    else:
        assert log.read_text() == "answered\n"
        assert played.one(ToolInvoked).input == {"command": "echo answered >> log"}
