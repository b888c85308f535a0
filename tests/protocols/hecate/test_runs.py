"""Runs from their rows."""

from typing import get_args

import msgspec
import pytest

from batten.contract.facts import RunCancelled, RunFailed, RunFinished, RunQueued
from batten.contract.outcomes import RunStatus
from batten.protocols.hecate.runs import (
    ContinueRun,
    RetryFromTurn,
    RunDetails,
    counted,
    error_of,
    run_object,
)
from batten.protocols.hecate.view import RunView

from .making import CHAT, RUN, TASK, enveloped, run_row


def test_line_28_a_queued_run_is_shown_without_empty_values() -> None:
    row = run_row(status="queued", model=None, provider=None, turns=0, prompt="", next_sequence=1)
    assert msgspec.to_builtins(run_object(row, RunDetails(number=1))) == {
        "id": RUN,
        "task_id": TASK,
        "session_id": CHAT,
        "number": 1,
        "kind": "agent_loop",
        "status": "queued",
        "orchestrator": "builtin",
        "workspace_path": "/work",
        "workspace_mode": "in_place",
        "turns": 0,
        "total_cost_micros_usd": 0,
        "last_sequence": 0,
        "created_at": "2026-09-02T08:00:00.000Z",
    }


@pytest.mark.parametrize("status", get_args(RunStatus))
def test_a_run_has_the_status_of_its_row(status: RunStatus) -> None:
    assert run_object(run_row(status=status)).status == status


def test_an_ended_run_tells_how_it_ended_and_what_it_cost() -> None:
    row = run_row(
        status="failed",
        outcome="budget",
        cost_micros_usd=410,
        ended_at="2026-09-02T08:00:09.000Z",
        prior_run_id="run_before",
    )
    details = RunDetails(
        number=2,
        prior_cost_micros_usd=90,
        step_count=0,
        started_at="2026-09-02T08:00:01.000Z",
        last_error="the task has spent its budget",
    )
    shown = msgspec.to_builtins(run_object(row, details))
    assert shown["outcome"] == "budget"
    assert shown["total_cost_micros_usd"] == 410
    assert shown["prior_cost_micros_usd"] == 90
    assert shown["prior_run_id"] == "run_before"
    assert shown["step_count"] == 0
    assert "artifact_count" not in shown
    assert shown["started_at"] == "2026-09-02T08:00:01.000Z"
    assert shown["finished_at"] == "2026-09-02T08:00:09.000Z"
    assert shown["last_error"] == "the task has spent its budget"


def test_line_32_a_rejected_run_keeps_its_reason_as_last_error() -> None:
    assert error_of(RunCancelled("operator", "approval rejected")) == "approval rejected"
    assert error_of(RunFailed("timeout", "too long", retriable=True, turns=1)) == "too long"
    assert error_of(RunFailed("timeout", "", retriable=True, turns=1)) == "timeout"
    assert error_of(RunFinished("completed", 1, 0, 5)) == ""


def test_runs_of_a_task_are_numbered_from_one_without_child_runs() -> None:
    rows = [
        run_row(run_id="a"),
        run_row(run_id="child", parent_run_id="a"),
        run_row(run_id="b"),
    ]
    assert counted(rows) == {"a": 1, "b": 2}
    assert counted(rows[::-1], oldest_first=False) == {"a": 1, "b": 2}


@pytest.mark.parametrize("turn", [0, -1, "2", 2.5])
def test_a_turn_to_repeat_from_is_a_number_from_one(turn: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"turn": turn}, RetryFromTurn)


def test_a_run_is_not_continued_without_a_prompt() -> None:
    for body in ({}, {"prompt": ""}, {"prompt": " \n"}, {"prompt": None}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(body, ContinueRun)


def test_a_continued_run_shows_what_the_task_had_spent_before_it() -> None:
    queued = RunQueued(
        kind="agent_loop",
        model="m-small",
        provider="scripted",
        workspace_path="/work",
        workspace_mode="in_place",
        prior_run_id="run_before",
        prior_cost_micros_usd=90,
    )
    view = RunView(most=1)
    view.take(enveloped(queued))
    assert view.run(run_row(), RunDetails()).prior_cost_micros_usd == 90
