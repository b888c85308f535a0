"""Facts of a run as Maestro's messages."""

from itertools import count
from typing import Any

import pytest
from msgspec import UNSET

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.contract.facts.assistant import Usage
from batten.contract.notes import ThinkingPiece
from batten.protocols.maestro import outgoing as out
from batten.protocols.maestro.frames import MaestroFrames

QUEUED = f.RunQueued(
    kind="agent_loop",
    model="m",
    provider="p",
    workspace_path="/w",
    workspace_mode="in_place",
    prior_run_id=None,
)
STARTED = f.RunStarted(worker_id="w", lease_until="")
FINISHED = f.RunFinished(final_status="completed", turns=1, cost_micros_usd=0, duration_ms=1)


class Feeding:
    """Frames that are fed facts, a tenth of a second apart."""

    def __init__(self, *asks: Any) -> None:
        self.frames = MaestroFrames()
        self.frames.shared.asks = frozenset(asks)
        self._numbers = count()

    def feed(self, *facts: f.Fact) -> list[out.Message]:
        said: list[out.Message] = []
        for fact in facts:
            number = next(self._numbers)
            envelope = Envelope(
                event_id=f"e{number}",
                run_id="run_1",
                sequence=number,
                occurred_at=f"2026-01-02T03:04:{number // 10:02}.{number % 10}00Z",
                type=fact.type,
                data=fact,
            )
            said += self.frames.feed(envelope)
        return said


def proposed(call: str, tool: str = "bash", **args: Any) -> f.Fact:
    return f.AssistantToolCallProposed(turn_index=1, tool_call_id=call, tool_name=tool, input=args)


def invoked(call: str, tool: str = "bash") -> f.Fact:
    return f.ToolInvoked(tool_call_id=call, tool_name=tool, kind="shell", turn_index=1)


def ended(call: str, tool: str, kind: Any = f.ToolCompleted, **more: Any) -> f.Fact:
    fact: f.Fact = kind(
        tool_call_id=call, tool_name=tool, kind="shell", duration_ms=1, summary="s", **more
    )
    return fact


def message(usage: Usage, cost: int | None) -> f.Fact:
    return f.AssistantMessageComplete(
        turn_index=1,
        model="m2",
        provider="p2",
        blocks=[],
        usage=usage,
        stop_reason="end_turn",
        cost_micros_usd=cost,
        price_as_of=None,
        duration_ms=5,
        time_to_first_token_ms=40,
    )


def end_of(said: list[out.Message]) -> out.ResponseEnd:
    (found,) = (one for one in said if isinstance(one, out.ResponseEnd))
    return found


def test_usage_is_the_sum_of_all_calls_and_each_token_is_counted_once() -> None:
    feeding = Feeding()
    used = Usage(input_tokens=10, output_tokens=3, cache_read_tokens=4, cache_write_tokens=1)
    said = feeding.feed(QUEUED, STARTED, message(used, 1500), message(used, None), FINISHED)
    usage = end_of(said).usage
    assert usage == out.UsageTotals(
        input_tokens=10,
        output_tokens=6,
        cache_read_tokens=8,
        cache_write_tokens=2,
        total_tokens=26,
        total_cost_usd=0.0015,
        model_id="m2",
        provider="p2",
    )


def test_a_response_without_any_call_has_zeros_and_no_time_to_its_first_token() -> None:
    response = end_of(Feeding().feed(QUEUED, STARTED, FINISHED))
    assert response.usage == out.UsageTotals(
        input_tokens=0,
        output_tokens=0,
        cache_read_tokens=0,
        cache_write_tokens=0,
        total_tokens=0,
        total_cost_usd=0,
        model_id="m",
        provider="p",
    )
    assert response.ttft_ms is UNSET
    assert response.duration_ms == 200
    assert response.tools_summary == out.ToolsSummary(
        tools_used=(), calls_succeeded=0, calls_failed=0
    )


def test_tools_are_named_once_in_order_and_counted_each_time() -> None:
    feeding = Feeding()
    said = feeding.feed(
        *(QUEUED, STARTED),
        *(invoked("c1", "zip"), ended("c1", "zip")),
        *(invoked("c2", "awk"), ended("c2", "awk", f.ToolFailed, error_kind="exit_status")),
        *(invoked("c2", "awk"), ended("c2", "awk")),
        FINISHED,
    )
    assert end_of(said).tools_summary == out.ToolsSummary(
        tools_used=("awk", "zip"),
        calls_succeeded=2,
        calls_failed=1,
        summary_labels=("zip", "awk"),
    )


def test_every_call_has_a_label_whether_it_was_asked_about_or_not() -> None:
    feeding = Feeding("approval", "client_tool")
    asked = f.ApprovalRequested(
        approval_id="r", tool_call_id="c3", kind="bash", summary="make\nall", policy_reason=""
    )
    lent = f.RequestOpened(
        request_id="q",
        request_class="client_tool",
        tool_call_id="c4",
        summary="show",
        detail={},
        digest="d",
    )
    blocked = f.PolicyToolBlocked(tool_call_id="c5", tool_name="bash", reason="no", policy_id="p")
    said = feeding.feed(
        *(QUEUED, STARTED, proposed("c1", command="\n ls -l\npwd"), invoked("c1")),
        *(ended("c1", "bash"), proposed("c2", "read_file", file_path="a" * 99), invoked("c2")),
        *(ended("c2", "bash"), proposed("c3", command="make\nall"), asked, invoked("c3")),
        *(proposed("c4", "show", path="/w"), invoked("c4", "show"), lent, ended("c4", "show")),
        *(proposed("c5", command="rm x"), blocked),
        *(proposed("c6", "mcp__x__y", depth=1), invoked("c6", "mcp__x__y"), FINISHED),
    )
    assert end_of(said).tools_summary.summary_labels == (
        *("ls -l …", "a" * 79 + "…", "make …", "/w", "rm x", "mcp__x__y"),
    )


def test_a_label_is_named_once_however_often_it_was_asked_about() -> None:
    feeding = Feeding("approval")

    def asked(number: int, summary: str) -> f.Fact:
        return f.ApprovalRequested(
            approval_id=f"r{number}",
            tool_call_id=f"c{number}",
            kind="bash",
            summary=summary,
            policy_reason="",
        )

    said = feeding.feed(
        QUEUED, STARTED, asked(1, "one"), asked(2, "two"), asked(3, "one"), FINISHED
    )
    assert end_of(said).tools_summary.summary_labels == ("one", "two")


def test_output_is_shown_as_it_comes_and_otherwise_at_the_end() -> None:
    feeding = Feeding()
    chunk = f.ToolShellOutputChunk(tool_call_id="c1", stream="stdout", data="a", byte_offset=0)
    picture = f.ArtifactCreated(
        artifact_id="p", kind="image", size_bytes=1, summary="", mime_type="image/png"
    )
    said = feeding.feed(
        *(QUEUED, STARTED, proposed("c1", x=1), invoked("c1"), chunk),
        ended("c1", "bash", output="a"),
        *(invoked("c2", "look"), picture),
        ended("c2", "look", output="seen", image_artifact_ids=["p"]),
        *(invoked("c3", "quiet"), ended("c3", "quiet", output="")),
    )
    shown = [(one.call_id, one.content) for one in said if isinstance(one, out.ToolOutput)]
    assert shown == [("c1", "a"), ("c2", "seen\n[image:image/png]")]
    assert out.ToolCalled(call_id="c1", tool="bash", args={"x": 1}, requires_approval=False) in said


@pytest.mark.parametrize(
    ("kind", "more", "code"),
    [
        (f.ToolFailed, {"error_kind": "exit_status"}, "exit_status"),
        (f.ToolFailed, {}, "tool_error"),
        (f.ToolTimedOut, {}, "timed_out"),
        (f.ToolCancelled, {}, "cancelled"),
        (f.ToolCompleted, {"error": "the server's"}, "tool_error"),
    ],
)
def test_a_call_that_did_not_succeed_has_a_code(kind: Any, more: Any, code: str) -> None:
    said = Feeding().feed(QUEUED, STARTED, invoked("c1"), ended("c1", "bash", kind, **more))
    (last,) = (one for one in said if isinstance(one, out.ToolEnd))
    assert (last.success, last.error_code) == (False, code)


def test_the_arguments_that_are_asked_about_are_those_that_would_run() -> None:
    feeding = Feeding("approval")
    asked = f.ApprovalRequested(
        approval_id="r",
        tool_call_id="c1",
        kind="bash",
        summary="changed",
        policy_reason="because",
        input={"command": "changed"},
    )
    said = feeding.feed(QUEUED, STARTED, proposed("c1", command="given"), asked)
    requests = [one for one in said if isinstance(one, out.ToolCalled | out.ServerRequest)]
    assert [one.args for one in requests] == [{"command": "changed"}] * 2


def test_a_request_is_not_told_to_who_does_not_serve_it_and_so_is_its_end() -> None:
    feeding = Feeding()
    asked = f.ApprovalRequested(
        approval_id="r", tool_call_id="c1", kind="bash", summary="", policy_reason=""
    )
    answer = f.ApprovalResolved(approval_id="r", decision="approved", by="client", comment="")
    said = feeding.feed(QUEUED, STARTED, asked, answer)
    assert [type(one) for one in said] == [out.ResponseStart, out.ToolCalled]


def test_thinking_comes_in_its_place_and_says_since_when() -> None:
    feeding = Feeding()
    turn = f.TurnStarted(turn_index=1, model="m", provider="p", input_tokens_estimate=1)
    note = ThinkingPiece(turn_index=1, after=0, block_index=0, text="hm")
    assert feeding.frames.note(note) == []  # its turn has not begun
    said = feeding.feed(QUEUED, STARTED, turn)
    delta = f.AssistantTextDelta(turn_index=1, block_index=1, delta="so")
    said += feeding.feed(delta, message(Usage(), 0), FINISHED)
    chunks = [(one.content, one.is_thinking) for one in said if isinstance(one, out.ResponseChunk)]
    assert chunks == [("hm", True), ("so", False)]
    assert end_of(said).ttft_ms == 240  # until its turn, and what its call took


def test_a_compaction_is_told_whole() -> None:
    compacted = f.ContextCompacted(
        summary="before", messages_removed=4, tokens_before=90, tokens_after=9, kept_messages=2
    )
    (said,) = Feeding().feed(compacted)
    assert said == out.Compaction(
        summary="before",
        first_kept_entry_index=4,
        tokens_before=90,
        auto=True,
        timestamp="2026-01-02T03:04:00.000Z",
    )


def test_recovery_and_batches_of_tools_are_said_as_a_status() -> None:
    failed = f.ErrorUpstream(
        provider="p", status=529, message="busy", retriable=True, attempt=1, max_attempts=3
    )
    turn = f.TurnCompleted(
        turn_index=1,
        input_tokens=0,
        output_tokens=0,
        cached_input_tokens=0,
        cost_micros_usd=0,
        duration_ms=0,
        tool_calls=2,
        stop_reason="tool_use",
    )
    said = Feeding().feed(failed, turn)
    assert said == [
        out.Status(message="Retrying the model call: attempt 1 of 3 failed: busy"),
        out.Status(message="Completed 2 tool calls"),
    ]
    assert Feeding().feed(f.RunCancelRequested(by="client", reason=""), turn) == []


def test_what_ended_a_run_is_said_unless_the_client_did_it() -> None:
    failed = f.RunFailed(
        code="budget_exceeded", message="too much", retriable=False, turns=1, outcome="budget"
    )
    said = Feeding().feed(QUEUED, STARTED, failed)
    assert said[1] == out.Error(message="too much", fatal=False, error_type="fatal")
    for by, errors in (("client", 0), ("operator", 1)):
        cancelled = f.RunCancelled(by=by, reason="enough")
        told = Feeding().feed(QUEUED, STARTED, cancelled)
        assert sum(isinstance(one, out.Error) for one in told) == errors
        assert isinstance(told[-1], out.ResponseEnd)


def test_what_a_child_does_and_costs_is_of_the_response_and_what_it_says_is_not() -> None:
    feeding = Feeding("approval")
    used = Usage(input_tokens=10, output_tokens=3)
    feeding.feed(QUEUED, STARTED, proposed("c1", "agent"), invoked("c1", "agent"))
    child = feeding.frames.calls.child()
    facts = [
        STARTED,
        f.AssistantTextDelta(turn_index=1, block_index=0, delta="unheard"),
        proposed("k1", command="true"),
        message(used, 1500),
        invoked("k1"),
        ended("k1", "bash", output="done"),
        FINISHED,
    ]
    said: list[out.Message] = []
    for number, fact in enumerate(facts):
        said += feeding.frames.feed_child(
            child,
            Envelope(
                event_id=f"k{number}",
                run_id="run_2",
                sequence=number,
                occurred_at="2026-01-02T03:04:09.000Z",
                type=fact.type,
                data=fact,
            ),
        )
    kinds = [type(one) for one in said]
    assert kinds == [out.ToolCalled, out.ToolStart, out.ToolOutput, out.ToolEnd]
    last = end_of(feeding.feed(ended("c1", "agent"), FINISHED))
    assert (last.usage.total_tokens, last.usage.total_cost_usd) == (13, 0.0015)
    assert (last.usage.model_id, last.tools_summary.tools_used) == ("m", ("agent", "bash"))
    assert last.ttft_ms is UNSET


def test_a_run_that_was_taken_over_is_one_response() -> None:
    feeding = Feeding()
    gap = f.GapRunDisconnected(since_sequence=1, since_at="", reason="worker_lost")
    said = feeding.feed(QUEUED, STARTED, gap, STARTED, FINISHED)
    kinds = [type(one) for one in said]
    assert kinds == [out.ResponseStart, out.Status, out.ResponseEnd]
