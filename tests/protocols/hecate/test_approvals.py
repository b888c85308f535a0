"""Approvals: what is asked is shown, and the first answer counts."""

from hashlib import sha256
from typing import Any

import msgspec
import pytest

from batten.contract.errors import Conflict
from batten.protocols.hecate.approvals import (
    MAX_INPUT,
    SPELLINGS,
    Approval,
    Asked,
    ResolveApproval,
    approval_object,
    approval_status,
    check_answerable,
    grants,
)

from .making import APPROVAL, RUN, TASK, request_row, run_row


@pytest.mark.parametrize("word", SPELLINGS)
@pytest.mark.parametrize("spell", [str.lower, str.upper, str.title, "  {}\n".format])
def test_a_decision_is_read_in_any_case_and_with_blanks(word: str, spell: Any) -> None:
    answer = msgspec.convert({"decision": spell(word)}, ResolveApproval)
    assert grants(answer.decision) is word.startswith("approve")


@pytest.mark.parametrize("word", ["", "yes", "approve it", "approvedd", "no", "cancelled", None, 1])
def test_any_other_decision_is_refused(word: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"decision": word}, ResolveApproval)


def test_an_answer_reaches_one_call_and_a_rejection_ends_the_run_unless_it_says_otherwise() -> None:
    answer = msgspec.convert({"decision": "deny"}, ResolveApproval)
    assert answer == ResolveApproval(decision="deny", scope="once", halt=True)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"decision": "approve", "scope": "for ever"}, ResolveApproval)


def test_a_pending_approval_shows_all_that_is_asked() -> None:
    asked = Asked(
        kind="bash",
        reason="rule ask bash(rm *)",
        input={"command": "rm -r build"},
        at="2026-09-02T08:00:05.000Z",
        step_id="step_1",
    )
    assert msgspec.to_builtins(approval_object(request_row(), TASK, asked)) == {
        "id": APPROVAL,
        "task_id": TASK,
        "run_id": RUN,
        "step_id": "step_1",
        "tool_call_id": "c1",
        "kind": "bash",
        "status": "pending",
        "reason": "rule ask bash(rm *)",
        "summary": "rm -r build",
        "input": {"command": "rm -r build"},
        "digest": "d1",
        "resolvers": ["operator"],
        "requested_by": "agent",
        "created_at": "2026-09-02T08:00:05.000Z",
        "deadline_at": "2026-09-02T09:00:00.000Z",
    }


def test_arguments_that_are_too_long_end_with_their_length_and_digest() -> None:
    arguments = {"command": "x" * (2 * MAX_INPUT)}
    whole = msgspec.json.encode(arguments)
    shown = approval_object(request_row(), TASK, Asked(input=arguments))
    assert shown.input is msgspec.UNSET
    assert shown.input_excerpt.startswith(whole[:MAX_INPUT].decode())
    assert str(len(whole)) in shown.input_excerpt[MAX_INPUT:]
    assert sha256(whole).hexdigest() in shown.input_excerpt[MAX_INPUT:]


@pytest.mark.parametrize(
    ("row", "status"),
    [
        ({}, "pending"),
        ({"status": "answered", "decision": "approved"}, "approved"),
        ({"status": "answered", "decision": "rejected"}, "rejected"),
        ({"status": "cancelled", "decision": "cancelled"}, "cancelled"),
        ({"status": "timed_out"}, "timed_out"),
        ({"status": "answered", "request_class": "user_input", "decision": "answered"}, "approved"),
        ({"status": "failed", "request_class": "user_input", "decision": "failed"}, "rejected"),
    ],
)
def test_each_state_of_a_request_has_a_status(row: dict[str, Any], status: str) -> None:
    assert approval_status(request_row(**row)) == status


def test_a_resolved_approval_tells_who_decided_and_why() -> None:
    row = request_row(
        status="answered",
        decision="rejected",
        by="ada",
        answer={"comment": "not on Fridays", "scope": "once"},
    )
    shown = approval_object(row, TASK, Asked(resolved_at="2026-09-02T08:00:09.000Z"))
    assert (shown.status, shown.resolved_by, shown.resolution_note, shown.scope) == (
        "rejected",
        "ada",
        "not on Fridays",
        "once",
    )
    assert shown.resolved_at == "2026-09-02T08:00:09.000Z"


def test_a_question_is_shown_by_its_class_and_its_answer() -> None:
    row = request_row(
        request_class="user_input",
        status="answered",
        decision="answered",
        by="ada",
        answer={"text": "1.1"},
    )
    shown: Approval = approval_object(row, TASK)
    assert (shown.kind, shown.status, shown.resolution_note) == ("user_input", "approved", "1.1")


def test_line_31_a_second_answer_is_refused_and_told_who_won() -> None:
    row = request_row(status="answered", decision="approved", by="ada")
    with pytest.raises(Conflict, match="is already approved by ada") as caught:
        check_answerable(row, run_row(status="queued"))
    assert caught.value.code == "already_resolved"


def test_line_33_an_approval_of_a_cancelled_run_takes_no_answer() -> None:
    row = request_row(status="cancelled", decision="cancelled", by="system")
    with pytest.raises(Conflict, match="already cancelled by system"):
        check_answerable(row, run_row(status="cancelled"))
    with pytest.raises(Conflict, match=r"has ended \(cancelled\)"):
        check_answerable(request_row(), run_row(status="cancelled"))


def test_an_answer_to_something_else_than_what_is_asked_is_refused() -> None:
    waiting = run_row(status="awaiting_approval")
    check_answerable(request_row(), waiting)
    check_answerable(request_row(), waiting, "d1")
    with pytest.raises(Conflict, match="its digest is d1") as caught:
        check_answerable(request_row(), waiting, "d2")
    assert caught.value.code == "digest_differs"
