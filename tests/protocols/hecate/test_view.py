"""Steps, timeline, approvals and artifacts, folded from the facts of a run."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract import facts as f
from batten.contract.errors import CallerError
from batten.journal.rows import Changes, FactContext, RunFold, fold
from batten.protocols.hecate.activity import Activity
from batten.protocols.hecate.runs import RunDetails
from batten.protocols.hecate.step_fold import CUT_MARK, PREVIEW_BYTES
from batten.protocols.hecate.steps import Step
from batten.protocols.hecate.view import RunView
from tests.contract.journals import GOLDEN, envelopes
from tests.journal import given as journal_facts

from .making import RUN, TASK, enveloped, run_row

RUNS = [name for name in GOLDEN if name not in ("session", "task")]
RUN_DETAILS = RunDetails(number=1)
TURN = f.TurnStarted(1, "m-small", "scripted", 10)


def view_of(facts: Iterable[f.Fact], most: int | None = None) -> RunView:
    view = RunView(most)
    for sequence, fact in enumerate(facts):
        view.take(enveloped(fact, sequence))
    return view


def golden(name: str) -> RunView:
    view = RunView()
    for envelope in envelopes(name):
        view.take(envelope)
    return view


def proposed(call: str, command: str = "make") -> f.AssistantToolCallProposed:
    return f.AssistantToolCallProposed(1, call, "bash", {"command": command})


def invoked(call: str, kind: str = "shell", name: str = "bash") -> f.ToolInvoked:
    return f.ToolInvoked(call, name, kind, 1)


def asked(approval_id: str = "appr_1", call: str = "c1") -> f.ApprovalRequested:
    return f.ApprovalRequested(approval_id, call, "bash", "make", "rule ask bash(*)", digest="d1")


def ended(cls: type[f.ToolEnded], call: str = "c1", **more: Any) -> f.ToolEnded:
    return cls(call, "bash", "shell", 3, "it ended", **more)


def shown(step: Step, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(step, name) for name in names)


def test_a_model_call_is_a_step_that_ends_with_its_message() -> None:
    view = view_of([TURN, f.AssistantTextComplete(1, 0, "I look\nfirst.")])
    (step,) = view.steps
    assert msgspec.to_builtins(step) == {
        "id": "step_01M1GJ3K00EANR001AAM000000",
        "task_id": TASK,
        "run_id": RUN,
        "index": 1,
        "kind": "model",
        "title": "Turn 1: m-small",
        "status": "running",
        "phase": "thinking",
        "turn_index": 1,
        "started_at": "2026-09-02T08:00:00.000Z",
    }
    view.take(enveloped(journal_facts.called(), 2))
    (step,) = view.steps
    assert shown(step, "status", "result", "output_summary", "finished_at") == (
        "completed",
        "success",
        "I look first.",
        "2026-09-02T08:00:02.000Z",
    )


def test_a_command_is_a_step_below_its_model_call_with_its_exit_code() -> None:
    view = view_of(
        [
            TURN,
            proposed("c1", "wc -l a"),
            invoked("c1"),
            f.ToolShellOutputChunk("c1", "stdout", "3 a\n", 0),
            f.ToolShellExited("c1", 0, None, 4, 0, truncated=False),
            ended(f.ToolCompleted, result_artifact_id="art_1"),
        ]
    )
    model, step = view.steps
    assert msgspec.to_builtins(step) == {
        "id": "step_01M1GJ3K00EANR001AAM000002",
        "task_id": TASK,
        "run_id": RUN,
        "parent_step_id": model.id,
        "index": 2,
        "kind": "shell",
        "title": "bash(wc -l a)",
        "status": "completed",
        "phase": "execution",
        "result": "success",
        "turn_index": 1,
        "tool_name": "bash",
        "tool_call_id": "c1",
        "input": {"command": "wc -l a"},
        "output_summary": "it ended",
        "exit_code": 0,
        "artifact_id": "art_1",
        "started_at": "2026-09-02T08:00:02.000Z",
        "finished_at": "2026-09-02T08:00:05.000Z",
    }


@pytest.mark.parametrize(
    ("end", "status", "result", "error_kind"),
    [
        (ended(f.ToolCompleted), "completed", "success", ""),
        (ended(f.ToolCompleted, result="tool_error", error="x"), "completed", "error", ""),
        (ended(f.ToolFailed, error="x"), "failed", "error", "shell_command_failed"),
        (
            ended(f.ToolFailed, error="x", error_kind="exit_status"),
            "failed",
            "error",
            "shell_command_failed",
        ),
        (
            ended(f.ToolFailed, error="x", error_kind="outcome_unknown"),
            "failed",
            "error",
            "outcome_unknown",
        ),
        (ended(f.ToolTimedOut, error="x", after_ms=9), "failed", "error", "shell_timeout"),
        (ended(f.ToolCancelled, error="x"), "cancelled", "", "run_cancelled"),
    ],
)
def test_each_end_of_a_call_gives_its_step_a_status(
    end: f.ToolEnded, status: str, result: str, error_kind: str
) -> None:
    (_, step) = view_of([TURN, invoked("c1"), end]).steps
    assert shown(step, "status", "result", "error_kind") == (status, result, error_kind)


@pytest.mark.parametrize(
    ("kind", "name", "step_kind"),
    [
        ("shell", "bash", "shell"),
        ("shell", "git", "git"),
        ("edit", "edit_file", "file"),
        ("multi_edit", "multi_edit", "file"),
        ("file_write", "write_file", "file"),
        ("grep", "grep", "tool"),
        ("mcp", "mcp__a__b", "tool"),
        ("novel", "novel", "tool"),
    ],
)
def test_each_kind_of_tool_has_a_kind_of_step(kind: str, name: str, step_kind: str) -> None:
    (step,) = view_of([invoked("c1", kind, name)]).steps
    assert step.kind == step_kind


def test_a_retried_call_is_a_step_of_its_own() -> None:
    view = view_of(
        [TURN, invoked("c1"), ended(f.ToolFailed), invoked("c1"), ended(f.ToolCompleted)]
    )
    assert [(step.index, step.status) for step in view.steps[1:]] == [
        (2, "failed"),
        (3, "completed"),
    ]


def test_line_44_a_blocked_call_is_a_completed_step_that_was_denied() -> None:
    blocked = f.PolicyToolBlocked("c1", "mcp__a__b", "approval_policy=block", kind="mcp")
    (_, step) = view_of([TURN, blocked]).steps
    assert shown(step, "status", "phase", "result", "error", "error_kind") == (
        "completed",
        "policy",
        "denied",
        "approval_policy=block",
        "policy_denied",
    )
    bound = f.PolicyToolBlocked("c1", "read_file", "outside", policy_id="bounds:workspace")
    assert view_of([bound]).steps[0].error_kind == "sandbox_policy_denied"


@pytest.mark.parametrize(
    ("answer", "status", "result"),
    [
        (f.ApprovalResolved("appr_1", "approved", "ada", "go"), "completed", "success"),
        (f.ApprovalResolved("appr_1", "rejected", "ada", "no"), "completed", "denied"),
        (f.ApprovalResolved("appr_1", "cancelled", "system", ""), "cancelled", ""),
        (f.ApprovalTimedOut("appr_1", 300), "failed", "denied"),
    ],
)
def test_an_approval_within_a_turn_is_a_step(answer: f.Fact, status: str, result: str) -> None:
    view = view_of([TURN, proposed("c1"), asked()])
    step = view.steps[1]
    assert shown(step, "kind", "status", "phase", "approval_id") == (
        "approval",
        "awaiting_approval",
        "approval",
        "appr_1",
    )
    view.take(enveloped(answer, 9))
    assert shown(view.steps[1], "status", "result") == (status, result)


def test_line_32_a_rejected_command_of_its_own_leaves_no_step() -> None:
    view = view_of(
        [
            journal_facts.QUEUED,
            asked(),
            f.ApprovalResolved("appr_1", "rejected", "ada", "no"),
            f.RunCancelled("ada", "approval rejected"),
        ]
    )
    assert (view.steps, view.status, view.last_error) == ([], "cancelled", "approval rejected")


def test_line_33_a_cancel_leaves_no_active_step_and_no_pending_approval() -> None:
    facts = [
        journal_facts.QUEUED,
        journal_facts.STARTED,
        TURN,
        invoked("c0"),
        asked(),
        f.ApprovalResolved("appr_1", "cancelled", "system", ""),
        f.RunCancelled("operator", ""),
    ]
    view = view_of(facts)
    assert {step.status for step in view.steps} == {"cancelled"}
    assert {step.error_kind for step in view.steps} == {"run_cancelled"}
    assert [each.status for each in view.approvals(TASK)] == ["cancelled"]
    assert not any(item.needs_action for item in view.activity())


def test_a_model_call_of_a_lost_worker_is_a_failed_step_and_is_made_again() -> None:
    lost = f.GapRunDisconnected(3, "2026-09-02T08:00:00.000Z", "worker_lease_expired")
    view = view_of([TURN, lost, journal_facts.STARTED, TURN])
    assert [shown(step, "status", "error_kind") for step in view.steps] == [
        ("failed", "worker_lease_expired"),
        ("running", ""),
    ]


def test_a_retracted_answer_leaves_no_text_behind() -> None:
    view = view_of(
        [
            TURN,
            f.AssistantTextComplete(1, 0, "void"),
            f.AssistantRetracted(1, "broken", []),
            f.AssistantTextComplete(1, 0, "whole"),
            journal_facts.called(),
        ]
    )
    assert view.steps[0].output_summary == "whole"


def test_long_arguments_of_a_step_are_visibly_cut() -> None:
    (_, step) = view_of([TURN, proposed("c1", "x" * 9000), invoked("c1")]).steps
    assert step.input is msgspec.UNSET
    assert "cut here" in step.input_excerpt
    assert "sha256" in step.input_excerpt


def output_of(*chunks: tuple[str, str]) -> dict[str, Any]:
    offsets = f.ToolShellOutputChunk
    facts = [offsets("c1", stream, data, 0) for stream, data in chunks]  # type: ignore[arg-type]
    (item,) = view_of([invoked("c1"), *facts]).activity()
    return item.summary


def test_the_streams_of_a_command_are_kept_apart_and_empty_is_not_absent() -> None:
    assert output_of(("stdout", "a\n"), ("stderr", "b\n"), ("stdout", "c\n")) == {
        "stdout": "a\nc\n",
        "stderr": "b\n",
    }
    assert output_of() == {"stdout": "", "stderr": ""}
    (other,) = view_of([invoked("c1", "grep", "grep")]).activity()
    assert other.summary == {}


@pytest.mark.parametrize("character", ["a", "é", "🦉"])
def test_a_preview_is_cut_between_characters_and_says_so(character: str) -> None:
    summary = output_of(("stdout", character * 1500), ("stdout", character * 1500))
    text = summary["stdout"].removesuffix(CUT_MARK)
    assert summary["stdout"].endswith(CUT_MARK)
    assert text == character * (PREVIEW_BYTES // len(character.encode()))
    exact = output_of(("stdout", "a" * PREVIEW_BYTES))
    assert exact["stdout"] == "a" * PREVIEW_BYTES


def test_the_timeline_names_each_thing_once_in_order() -> None:
    view = golden("finished")
    items = view.activity()
    assert len({item.id for item in items}) == len(items)
    assert {item.type for item in items} == {
        "thinking",
        "tool_call",
        "patch",
        "artifact",
        "final_answer",
        "run_result",
    }
    times = [item.occurred_at for item in items]
    assert times == sorted(times)
    (result,) = [item for item in items if item.terminal]
    assert result.id == f"run:{envelopes('finished')[0].run_id}:terminal"
    prefixes = {item.id.partition(":")[0] for item in items}
    assert prefixes == {"step", "artifact", "run"}


def test_items_that_wait_for_a_person_say_so() -> None:
    view = view_of([TURN, asked(), journal_facts.artifact()])
    waiting: list[Activity] = [item for item in view.activity() if item.needs_action]
    assert [(item.type, item.status) for item in waiting] == [
        ("approval", "pending"),
        ("patch", "proposed"),
    ]
    for sequence, fact in enumerate(
        [
            f.ApprovalResolved("appr_1", "approved", "ada", ""),
            f.ArtifactUpdated("art_1", "status", "proposed", "applied"),
        ],
        3,
    ):
        view.take(enveloped(fact, sequence))
    assert not any(item.needs_action for item in view.activity())


def test_files_that_a_command_changed_are_named_in_the_timeline() -> None:
    (item,) = [item for item in golden("cancelled").activity() if item.type == "changed_files"]
    assert item.summary["file_count"] == len(item.summary["files"]) == 2
    assert item.step_id


def test_an_approval_shows_the_arguments_that_would_run() -> None:
    hooked = msgspec.structs.replace(asked(), input={"command": "make -n"})
    view = view_of([TURN, proposed("c1"), asked("appr_1"), hooked])
    first = view_of([TURN, proposed("c1"), asked()]).approvals(TASK)[0]
    assert (first.input, first.reason, first.kind) == (
        {"command": "make"},
        "rule ask bash(*)",
        "bash",
    )
    assert view.approvals(TASK)[0].input == {"command": "make -n"}


def test_line_65_sealed_artifacts_do_not_show() -> None:
    sealed = f.ArtifactCreated("art_9", "sealed", 3, "sealed")
    view = view_of([sealed, journal_facts.artifact()])
    assert [made.id for made in view.artifacts(run_row())] == ["art_1"]
    assert [item.artifact_id for item in view.activity()] == ["art_1"]


def test_the_cost_of_a_turn_counts_earlier_runs_for_the_task_only() -> None:
    queued = msgspec.structs.replace(journal_facts.QUEUED, prior_cost_micros_usd=900)
    turn = f.TurnCompleted(1, 1, 1, 0, 0, 5, 2, "tool_use")
    view = view_of([queued, journal_facts.STARTED, TURN, journal_facts.called(0), turn])
    cost = msgspec.to_builtins(view.turn)
    assert cost == {
        "turn_index": 1,
        "step_id": view.steps[0].id,
        "cost_micros_usd": 0,
        "run_cumulative_cost_micros_usd": 0,
        "task_cumulative_cost_micros_usd": 900,
        "tool_calls": 2,
    }
    view.take(enveloped(f.CostTick(1, 1, 900), 5))
    assert view.turn is msgspec.UNSET


def test_a_bounded_view_keeps_the_newest_and_what_is_unfinished() -> None:
    facts: list[f.Fact] = [TURN, asked("appr_open"), invoked("open")]
    for n in range(50):
        facts += [
            asked(f"appr_{n}"),
            f.ApprovalResolved(f"appr_{n}", "approved", "ada", ""),
            invoked(f"c{n}"),
            ended(f.ToolCompleted, f"c{n}"),
            journal_facts.artifact(f"art_{n}"),
            f.ArtifactUpdated(f"art_{n}", "status", "proposed", "applied"),
        ]
    view, whole = view_of(facts, 10), view_of(facts)
    assert len(view.steps) == len(view.approvals(TASK)) == len(view.artifacts(None)) == 10
    assert len(view.activity()) <= 40
    assert {"open"} <= {step.tool_call_id for step in view.steps}
    assert "appr_open" in {each.id for each in view.approvals(TASK)}
    assert view.steps[-5:] == whole.steps[-5:]
    run, full = (each.run(run_row(), RUN_DETAILS) for each in (view, whole))
    assert run == full
    assert (run.step_count, run.approval_count, run.artifact_count) == (103, 51, 50)


@pytest.mark.parametrize("name", RUNS)
def test_every_golden_run_leaves_nothing_open(name: str) -> None:
    view = golden(name)
    assert all(step.finished_at for step in view.steps)
    assert [step.index for step in view.steps] == list(range(1, len(view.steps) + 1))
    assert not any(each.status == "pending" for each in view.approvals(None))


@pytest.mark.parametrize("name", RUNS)
def test_a_view_can_begin_after_a_pruned_prefix(name: str) -> None:
    journal = envelopes(name)
    for first in range(len(journal)):
        view = RunView()
        for envelope in journal[first:]:
            view.take(envelope)
        view.activity()
        assert view.sequence == journal[-1].sequence


@given(st.lists(journal_facts.facts, max_size=30))
def test_a_view_agrees_with_the_rows_of_the_journal(facts: list[f.Fact]) -> None:
    run, changes, view = RunFold(kind="agent_loop"), Changes(), RunView()
    for sequence, fact in enumerate([journal_facts.QUEUED, *facts]):
        envelope = enveloped(fact, sequence)
        place = FactContext(RUN, TASK, None, sequence, envelope.occurred_at)
        try:
            run = fold(run, changes, place, fact)
        except CallerError:
            continue
        view.take(envelope)
        assert view.status == run.status
    pending = [each.id for each in view.approvals(TASK) if each.status == "pending"]
    assert pending == [
        row.request_id for row in changes.requests.values() if row.status == "pending"
    ]
    assert {made.id: made.status for made in view.artifacts(None)} == {
        row.artifact_id: row.status for row in changes.artifacts.values()
    }
