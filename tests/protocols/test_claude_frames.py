"""Claude Code's frames: of every journal there is, within a line, and the same each time."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.contract.facts import Fact
from batten.contract.facts.assistant import MessageBlock, Usage
from batten.contract.facts.hook import HookHandler
from batten.contract.ids import Minter, to_uuid
from batten.contract.notes import ThinkingPiece, ToolInputPiece
from batten.protocols.claude.frames import ClaudeFrames
from batten.protocols.claude.line import LONGEST, Frame, encode, encode_whole
from batten.protocols.stream_json import FrameOptions
from tests.contract.journals import GOLDEN as JOURNALS
from tests.contract.journals import envelopes

SESSION = "chat_01J0000000E008000000000000"
EVERYTHING = FrameOptions(partial_messages=True, hook_events=True, user_messages=True)
KNOWN = {"system", "assistant", "user", "result", "stream_event"}
DESCRIBED: dict[str, Any] = {
    "cwd": "/w",
    "tools": ["bash", "mcp__calc__add"],
    "mcp_servers": [{"name": "calc", "status": "connected", "tools": 1}],
    "model": "anthropic/claude-x",
    "permission_mode": "default",
    "plugins": [{"name": "p", "version": "1", "source": "/p"}],
}


class Run:
    """A run whose facts are told one by one."""

    def __init__(self, wanted: FrameOptions = EVERYTHING) -> None:
        self.frames = ClaudeFrames(SESSION, wanted)
        self._minter = Minter()
        self._sequence = 0

    def feed(self, *facts: Fact) -> list[Frame]:
        return [frame for fact in facts for frame in self.frames.feed(self.envelope(fact))]

    def envelope(self, fact: Fact) -> Envelope:
        self._sequence += 1
        return Envelope(
            event_id="evt_" + self._minter.mint(),
            run_id="run_01J0000000E008000000000000",
            sequence=self._sequence,
            occurred_at="2026-01-02T03:04:05.000Z",
            type=fact.type,
            data=fact,
        )


def started(turn: int = 1) -> f.TurnStarted:
    return f.TurnStarted(
        turn_index=turn, model="claude-x", provider="anthropic", input_tokens_estimate=9
    )


def complete(*blocks: MessageBlock, **more: Any) -> f.AssistantMessageComplete:
    given: dict[str, Any] = {
        "turn_index": 1,
        "model": "claude-x",
        "provider": "anthropic",
        "blocks": list(blocks),
        "usage": Usage(100, 20, 30, 40),
        "stop_reason": "end_turn",
        "cost_micros_usd": 1_500_000,
        "price_as_of": "2026-01-01",
        "duration_ms": 700,
        "time_to_first_token_ms": 100,
    }
    return f.AssistantMessageComplete(**(given | more))


def said(text: str, block: int = 0) -> f.AssistantTextDelta:
    return f.AssistantTextDelta(turn_index=1, block_index=block, delta=text)


def whole(text: str, block: int = 0) -> f.AssistantTextComplete:
    return f.AssistantTextComplete(turn_index=1, block_index=block, text=text)


def proposed(call_id: str = "c1", block: int = 1) -> f.AssistantToolCallProposed:
    return f.AssistantToolCallProposed(
        turn_index=1,
        tool_call_id=call_id,
        tool_name="bash",
        input={"command": "ls"},
        block_index=block,
    )


FINISHED = f.RunFinished(final_status="completed", turns=1, cost_micros_usd=1, duration_ms=900)


def test_the_first_frame_of_a_prompt() -> None:
    frame = Run().frames.init(DESCRIBED)
    assert frame["session_id"] == to_uuid(SESSION)
    assert frame.pop("uuid")
    assert frame == {
        "type": "system",
        "subtype": "init",
        "cwd": "/w",
        "tools": ["Bash", "mcp__calc__add"],
        "mcp_servers": [{"name": "calc", "status": "connected"}],
        "model": "claude-x",
        "permissionMode": "default",
        "slash_commands": [],
        "apiKeySource": "none",
        "claude_code_version": "2.1.325",
        "output_style": "default",
        "agents": [],
        "skills": [],
        "plugins": [{"name": "p", "path": "/p"}],
        "session_id": to_uuid(SESSION),
    }


def test_the_last_frame_of_a_prompt_that_ended_well() -> None:
    run = Run()
    run.frames.init(DESCRIBED)
    run.feed(started(), said("All is "), said("well."), whole("All is well."))
    run.feed(complete(MessageBlock("text", 0)), FINISHED)
    result = run.frames.result()
    assert result.pop("uuid")
    usage = {
        "input_tokens": 30,
        "cache_creation_input_tokens": 40,
        "cache_read_input_tokens": 30,
        "output_tokens": 20,
    }
    assert result == {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 900,
        "duration_api_ms": 700,
        "num_turns": 1,
        "stop_reason": "end_turn",
        "usage": usage,
        "modelUsage": {
            "claude-x": {
                "inputTokens": 30,
                "outputTokens": 20,
                "cacheReadInputTokens": 30,
                "cacheCreationInputTokens": 40,
                "webSearchRequests": 0,
                "costUSD": 1.5,
            }
        },
        "permission_denials": [],
        "total_cost_usd": 1.5,
        "result": "All is well.",
        "terminal_reason": "completed",
        "session_id": to_uuid(SESSION),
    }


def test_cost_is_counted_over_prompts_and_left_out_where_it_is_not_known() -> None:
    run = Run()
    for cost, shown in ((1_000_000, 1.0), (500_000, 1.5), (None, None)):
        run.frames.init(DESCRIBED)
        run.feed(started(), complete(cost_micros_usd=cost), FINISHED)
        result = run.frames.result()
        assert result.get("total_cost_usd") == shown
        assert result["num_turns"] == 1


@pytest.mark.parametrize(
    ("outcome", "subtype"),
    [
        ("max_turns", "error_max_turns"),
        ("budget", "error_max_budget_usd"),
        ("schema_invalid", "error_max_structured_output_retries"),
        ("model_error", "error_during_execution"),
        ("hook_denied", "error_during_execution"),
    ],
)
def test_a_prompt_that_failed_says_why(outcome: Any, subtype: str) -> None:
    run = Run()
    run.feed(started(), said("So far"), complete(MessageBlock("text", 0)))
    failed = f.RunFailed(
        code="x", message="it broke", retriable=False, turns=1, outcome=outcome, duration_ms=5
    )
    run.feed(failed)
    result = run.frames.result()
    assert (result["subtype"], result["is_error"]) == (subtype, True)
    assert result["errors"] == ["it broke"]
    assert "result" not in result


def test_the_time_of_a_call_that_failed_is_time_of_the_provider() -> None:
    run = Run()
    run.feed(
        started(),
        f.TurnFailed(1, "model_overloaded", "later", False, duration_ms=70),
        f.RunFailed(
            code="model_overloaded",
            message="later",
            retriable=True,
            turns=0,
            outcome="model_error",
            duration_ms=90,
        ),
    )
    assert run.frames.result()["duration_api_ms"] == 70


def test_pieces_become_the_events_of_one_message() -> None:
    run = Run()
    events = run.feed(started())
    events += run.frames.note(ThinkingPiece(turn_index=1, after=0, block_index=0, text="Hm."))
    events += run.feed(said("Hel", 1), said("lo", 1), whole("Hello", 1))
    piece = ToolInputPiece(
        turn_index=1, after=3, block_index=2, tool_call_id="c1", tool_name="bash", text='{"comm'
    )
    events += run.frames.note(piece)
    events += run.feed(proposed("c1", 2), proposed("c2", 3))
    blocks = [
        MessageBlock("thinking", 0),
        MessageBlock("text", 1),
        MessageBlock("tool_call", 2, "c1"),
        MessageBlock("tool_call", 3, "c2"),
    ]
    *rest, assistant = run.feed(complete(*blocks, stop_reason="tool_use"))
    shown = [frame["event"] for frame in [*events, *rest]]
    assert [(event["type"], event.get("index")) for event in shown] == [
        ("message_start", None),
        ("content_block_start", 0),
        ("content_block_delta", 0),
        ("content_block_stop", 0),
        ("content_block_start", 1),
        ("content_block_delta", 1),
        ("content_block_delta", 1),
        ("content_block_stop", 1),
        ("content_block_start", 2),
        ("content_block_delta", 2),
        ("content_block_stop", 2),
        ("content_block_start", 3),
        ("content_block_delta", 3),
        ("content_block_stop", 3),
        ("message_delta", None),
        ("message_stop", None),
    ]
    kinds = [block["type"] for block in assistant["message"]["content"]]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert assistant["message"]["id"] == shown[0]["message"]["id"]


def test_a_call_that_was_not_allowed_is_a_denial_in_the_result() -> None:
    run = Run()
    run.feed(started(), proposed())
    (shown,) = run.feed(
        f.PolicyToolBlocked(tool_call_id="c1", tool_name="bash", reason="no", output="Error: no")
    )
    (block,) = shown["message"]["content"]
    assert (block["type"], block["content"], block["is_error"]) == (
        "tool_result",
        "Error: no",
        True,
    )
    denial = {"tool_name": "Bash", "tool_use_id": "c1", "tool_input": {"command": "ls"}}
    assert run.frames.result()["permission_denials"] == [denial]


def test_an_interrupt_after_the_answer_is_one_of_its_tools() -> None:
    """Also while a call waits for its permission."""
    run, cancelled = Run(), f.RunCancelled(by="client", reason="enough")
    run.feed(started(), said("I look"), cancelled)
    assert run.frames.result()["terminal_reason"] == "aborted_streaming"
    run = Run()
    run.feed(started(), proposed(), complete(stop_reason="tool_use"), cancelled)
    assert run.frames.result()["terminal_reason"] == "aborted_tools"


def test_a_hook_that_was_waited_for_is_shown_from_its_start() -> None:
    handler = HookHandler(type="callback", name="hook_0")
    completed = f.HookCompleted(
        hook_call_id="h1",
        hook_event="PreToolUse",
        handler=handler,
        matcher="Bash",
        pace="sync",
        router_decision="deny",
        decision="deny",
        reason="not this",
        duration_ms=3,
    )
    shown = Run().feed(completed)
    assert [frame["subtype"] for frame in shown] == ["hook_started", "hook_response"]
    assert (shown[1]["hook_event"], shown[1]["output"]) == ("PreToolUse", "not this")
    assert Run(FrameOptions()).feed(completed) == []
    unheard = msgspec.structs.replace(completed, handler=HookHandler(type="observer", name=""))
    assert Run().feed(unheard) == []


@pytest.mark.parametrize("name", sorted(JOURNALS))
def test_every_journal_there_is_gives_frames_of_known_types_the_same_each_time(name: str) -> None:
    def frames() -> list[Frame]:
        made = ClaudeFrames(SESSION, EVERYTHING)
        shown = [made.init(DESCRIBED)]
        shown += [frame for envelope in envelopes(name) for frame in made.feed(envelope)]
        return [*shown, made.result()]

    first = frames()
    assert first == frames()
    assert {frame["type"] for frame in first} <= KNOWN
    assert len({frame["uuid"] for frame in first}) == len(first)
    for frame in first:
        assert frame["session_id"] == to_uuid(SESSION)


TEXTS = st.text(alphabet=st.sampled_from("aé \n\u2028\U0001f600\x00"), max_size=40)


@given(
    st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from([1, 40_000, 400_000]), st.booleans()
)
def test_a_frame_is_one_line_that_the_sdk_takes(
    texts: list[str], times: int, seamless: bool
) -> None:
    blocks = [{"type": "text", "text": text * (times // 10 + 1)} for text in texts]
    frame: Frame = {"type": "user", "message": {"role": "user", "content": blocks}, "uuid": "u"}
    line = encode(frame, seamless=seamless)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert len(line) <= LONGEST + 1
    read = msgspec.json.decode(line)
    if len(msgspec.json.encode(frame)) < LONGEST // 6:
        assert read == frame
    assert read["type"] == "user"
    if seamless:
        assert not any(letter.isspace() for letter in line.decode()[:-1])


def test_many_small_parts_that_do_not_fit_are_left_out_and_it_is_said() -> None:
    blocks = [{"type": "text", "text": "x" * 30}] * 40_000
    frame: Frame = {"type": "assistant", "message": {"model": "m", "content": blocks}, "uuid": "u"}
    read = msgspec.json.decode(encode(frame))
    assert read["message"]["model"] == "m"
    assert "too long for one line" in read["message"]["content"][0]["text"]


def test_structured_output_is_whole_or_its_result_is_an_error() -> None:
    small = {"type": "result", "result": "x" * 2_000_000, "structured_output": {"a": "y" * 600_000}}
    read = msgspec.json.decode(encode(small))
    assert read["structured_output"] == {"a": "y" * 600_000}
    assert "cut here" in read["result"]
    good = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "terminal_reason": "completed",
    }
    line = encode({**good, "result": "x" * LONGEST, "structured_output": {"a": "y" * LONGEST}})
    assert len(line) <= LONGEST + 1
    read = msgspec.json.decode(line)
    assert (read["subtype"], read["is_error"]) == ("error_during_execution", True)
    assert not read.keys() & {"structured_output", "result", "terminal_reason"}
    assert "too long" in read["errors"][0]


def test_what_is_decided_on_is_never_cut() -> None:
    frame = {"type": "control_request", "request": {"input": {"command": "x" * LONGEST}}}
    assert encode_whole(frame) is None
    assert encode_whole({"type": "control_request"}) == b'{"type":"control_request"}\n'
