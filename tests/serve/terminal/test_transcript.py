"""A run as people read it: every fact can be shown, and each call has its own result."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.envelope import Envelope
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    AssistantRetracted,
    AssistantTextComplete,
    ErrorUpstream,
    Fact,
    PolicyToolBlocked,
    RunFailed,
    RunFinished,
    ToolEditApplied,
    ToolMultiEditApplied,
    TurnFailed,
    TurnStarted,
    Unknown,
)
from batten.contract.marks import plain
from batten.serve.terminal.lines import Line
from batten.serve.terminal.printers import PlainPrinter, TerminalPrinter
from batten.serve.terminal.status import Status
from batten.serve.terminal.transcript import Transcript
from tests.contract.journals import GOLDEN, OF_SESSIONS, envelopes

from .telling import completed, envelope, exited, failed, invoked, proposed, shown, wrote

ESCAPE = "\x1b]0;owned\x07\x1b[2J\x9b2K\r\u202e"


@pytest.mark.parametrize("name", GOLDEN)
def test_every_fact_of_a_golden_journal_can_be_shown(name: str) -> None:
    transcript = Transcript(verbose=True)
    lines = [line for one in envelopes(name) for line in transcript.lines(one)]
    for printer in (
        PlainPrinter(color=True, times=True),
        TerminalPrinter(lambda: 40, color=True, times=True),
    ):
        rows = [printer.rows(line) for line in lines]
        assert all(row.endswith("\n") for row in rows)
        assert any("\x1b[" in row for row in rows) is (name not in OF_SESSIONS)
    if name not in OF_SESSIONS:
        ends = ("finished", "failed", "cancelled", "pruned", "reverted")
        last = [line for line in lines if line.kind][-1]
        assert any(word in last.pieces[0][0] for word in ends)


EVERYTHING = [one for name in GOLDEN for one in envelopes(name)]


@given(st.lists(st.sampled_from(EVERYTHING), max_size=40), st.booleans(), st.booleans())
def test_facts_in_any_order_can_be_shown(
    facts: list[Envelope], verbose: bool, holds_answer: bool
) -> None:
    transcript = Transcript(verbose=verbose, holds_answer=holds_answer)
    printer = PlainPrinter(color=True, times=True)
    status = Status(0.0)
    for number, one in enumerate(facts):
        for line in transcript.lines(one):
            assert printer.rows(line).endswith("\n")
        status.feed(one.data, float(number))
        assert status.text(float(number), 79)


def test_two_calls_of_one_message_have_their_results_below_them() -> None:
    assert shown(
        proposed("a", command="echo 1"), proposed("b", command="echo 2"),
        invoked("a"), wrote("a", "1\n"), exited("a"), completed("a"),
        invoked("b"), wrote("b", "2\n"), exited("b"), completed("b"),
    ) == [
        "● bash echo 1", "  │ 1", "  └ ok",
        "● bash echo 2", "  │ 2", "  └ ok",
    ]  # fmt: skip


def test_calls_that_overlap_do_not_mix() -> None:
    assert shown(
        proposed("a", command="A"), proposed("b", command="B"), proposed("c", command="C"),
        invoked("a"), invoked("b"), invoked("c"),
        wrote("b", "of b\n"), wrote("a", "of a\n"), wrote("c", "of c\n"),
        completed("c"), wrote("b", "more of b\n"), exited("a"), completed("a"), completed("b"),
    ) == [
        "● bash A", "  │ of a", "  └ ok",
        "● bash C", "  │ of c", "  └ ok",
        "● bash B", "  │ of b", "  │ more of b", "  └ ok",
    ]  # fmt: skip


def test_the_open_call_is_written_as_it_goes() -> None:
    transcript = Transcript()
    assert shown(proposed("a", command="A"), transcript=transcript) == []
    assert shown(invoked("a"), transcript=transcript) == ["● bash A"]
    assert shown(wrote("a", "1\n2"), transcript=transcript) == ["  │ 1"]


def test_a_run_that_ends_within_its_calls_shows_what_they_wrote() -> None:
    lines = shown(
        proposed("a", command="A"), proposed("b", command="B"), invoked("a"), invoked("b"),
        wrote("b", "of b\n"), RunFailed("model_error", "gone", False, 1),
    )  # fmt: skip
    assert lines == ["● bash A", "● bash B", "  │ of b", "✗ failed (model_error): gone", "  1 turn"]


def test_a_call_that_is_tried_again_is_shown_again() -> None:
    facts = (invoked("a"), failed("a", "exited with status 1"), invoked("a"), completed("a"))
    assert shown(proposed("a", command="A"), *facts) == [
        "● bash A", "  └ exited with status 1", "● bash A", "  └ ok",
    ]  # fmt: skip


def test_an_edit_is_shown_as_a_diff() -> None:
    transcript = Transcript()
    transcript.patches["art"] = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,2 @@\n one\n--- two\n-three\n+3\n"
    )
    shown(proposed("a", "edit_file", file_path="x", old_string="o", new_string="n"),
          transcript=transcript)  # fmt: skip
    assert shown(invoked("a", "edit_file", "edit"), transcript=transcript) == ["● edit_file x"]
    transcript.patches["art"] = (
        "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,3 +1,2 @@\n one\n--- two\n-three\n+3\n"
    )
    lines = transcript.lines(envelope(ToolEditApplied("a", "art", "now")))
    assert [line.pieces[0] for line in lines] == [
        ("@@ -1,3 +1,2 @@", "cyan"), (" one", ""), ("--- two", "red"), ("-three", "red"),
        ("+3", "green"),
    ]  # fmt: skip


def test_the_diffs_of_several_files_are_named() -> None:
    transcript = Transcript()
    shown(proposed("a", "multi_edit", edits=[{"file_path": "x"}, {"file_path": "y"}]),
          invoked("a", "multi_edit", "multi_edit"), transcript=transcript)  # fmt: skip
    for name in ("x", "y"):
        transcript.patches[name] = (
            f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-a\n+b\n"
        )
    assert shown(ToolMultiEditApplied("a", ["x", "y"], "now"), transcript=transcript) == [
        "  │ x", "  │ @@ -1 +1 @@", "  │ -a", "  │ +b",
        "  │ y", "  │ @@ -1 +1 @@", "  │ -a", "  │ +b",
    ]  # fmt: skip


def test_a_denied_call_says_so_below_it() -> None:
    blocked = PolicyToolBlocked("a", "bash", "no rule allows it", allow_with="--allow 'bash(rm *)'")
    assert shown(proposed("a", command="rm x"), blocked) == [
        "● bash rm x", "  └ denied: no rule allows it", "    allow with --allow 'bash(rm *)'",
    ]  # fmt: skip


def asked(call_id: str, summary: str) -> Fact:
    return ApprovalRequested(f"appr_{call_id}", call_id, "bash", summary, "a rule asks")


def test_a_question_is_asked_below_its_call_which_is_named_once() -> None:
    assert shown(
        proposed("a", command="rm x"), asked("a", "rm x"),
        ApprovalResolved("appr_a", "approved", "operator", "fine"),
        invoked("a"), completed("a"),
    ) == [
        "● bash rm x", "  │ needs approval", "  │ batten answer appr_a allow|deny",
        "  │ approved by operator: fine", "  └ ok",
    ]  # fmt: skip


def test_a_question_does_not_wait_for_another_call() -> None:
    lines = shown(
        proposed("a", command="sleep 60"), proposed("b", command="rm x"), invoked("a"),
        asked("b", "rm x"),
    )  # fmt: skip
    assert lines[1:] == ["? bash needs approval: rm x", "  batten answer appr_b allow|deny"]


def test_an_approval_shows_all_of_a_long_command() -> None:
    command = "echo " + "x" * 3000 + "; rm -rf /"
    lines = shown(proposed("a", command=command), asked("a", command))
    assert any(line.endswith("; rm -rf /") for line in lines)


def test_a_retry_says_what_failed_and_when_it_goes_on() -> None:
    fact = ErrorUpstream("p", 529, "Overloaded.", True, 1, 3, retry_delay_ms=2500)
    assert shown(fact) == ["↻ retry 1 of 2 in 2.5 s: 529 Overloaded."]


def test_an_answer_that_is_taken_back_is_said_to_be() -> None:
    transcript = Transcript(holds_answer=True)
    lines = shown(
        TurnStarted(1, "m", "p", 1), AssistantTextComplete(1, 0, "Half an answ"),
        AssistantRetracted(1, "the stream broke", []), AssistantTextComplete(1, 0, "The answer."),
        RunFailed("model_error", "gone", False, 1), transcript=transcript,
    )  # fmt: skip
    assert lines[:2] == ["↻ the answer so far is void", "The answer."]


def test_the_last_attempt_is_reported_by_the_ending() -> None:
    assert shown(ErrorUpstream("p", 529, "Overloaded", False, 3, 3)) == []


def test_a_failure_is_shown_once() -> None:
    lines = shown(
        TurnFailed(1, "model_error", "the key is wrong", False),
        RunFailed("model_error", "the key is wrong", False, 1, cost_micros_usd=0, duration_ms=2000),
    )
    assert lines == ["✗ failed (model_error): the key is wrong", "  1 turn, $0.0000, 2.0 s"]


def test_the_answer_is_left_to_standard_output_and_other_texts_are_not() -> None:
    transcript = Transcript(holds_answer=True)
    lines = shown(
        TurnStarted(1, "m", "p", 1), AssistantTextComplete(1, 0, "I look."),
        proposed("a", command="ls"), invoked("a"), completed("a"),
        TurnStarted(2, "m", "p", 1), AssistantTextComplete(2, 0, "The answer."),
        RunFinished("completed", 2, 0, 900), transcript=transcript,
    )  # fmt: skip
    assert lines == [
        "I look.", "● bash ls", "  └ ok", "✓ finished: 2 turns, $0.0000, 900 ms",
    ]  # fmt: skip


def test_a_text_that_turned_out_not_to_be_the_answer_is_shown() -> None:
    said = AssistantTextComplete(1, 0, "Half an answ")
    ended = RunFailed("model_error", "gone", False, 1)
    for after in (TurnStarted(2, "m", "p", 1), ended):
        assert "Half an answ" in shown(said, after, transcript=Transcript(holds_answer=True))


def test_a_fact_of_a_newer_version_is_shown_as_it_is() -> None:
    assert shown(Unknown(type="tool.dreamt", data={"of": "sheep"})) == [
        'tool.dreamt {"of":"sheep"}'
    ]


def test_no_text_of_a_run_reaches_the_terminal_as_a_command() -> None:
    transcript = Transcript()
    transcript.patches["art"] = f"diff --git a/x b/x\n@@ -1 +1 @@\n+{ESCAPE}\n"
    facts = (
        AssistantTextComplete(1, 0, ESCAPE), proposed("a", f"evil{ESCAPE}", x=ESCAPE),
        proposed("b", command=ESCAPE), asked("b", ESCAPE), invoked("a", ESCAPE),
        wrote("a", f"{ESCAPE}\n{ESCAPE}"), exited("a"), failed("a", ESCAPE),
        PolicyToolBlocked("b", "bash", ESCAPE), ErrorUpstream("p", None, ESCAPE, True, 1, 3),
        invoked("c", "edit_file", "edit"), RunFailed("x", ESCAPE, False, 1),
        Unknown(type="x", data={"y": ESCAPE}),
    )  # fmt: skip
    lines: list[Line] = []
    for fact in facts:
        lines += transcript.lines(envelope(fact))
    plain_printer = PlainPrinter(color=False, times=True)
    wide = TerminalPrinter(lambda: 80, color=False, times=True)
    narrow = TerminalPrinter(lambda: 20, color=False, times=True)
    for printer in (plain_printer, wide, narrow):
        text = "".join(printer.rows(line) for line in lines)
        assert "owned" in text.replace("\n", "").replace(" ", "")
        assert plain(text) == text
