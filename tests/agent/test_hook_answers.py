"""What handlers say, read: whatever bytes come, something is made of them."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.agent.hooks.matching import fits, names_of
from batten.agent.hooks.reply import (
    LONGEST_CONTEXT,
    HookReply,
    Nonsense,
    of_command,
    of_reply,
    of_response,
)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
fields = st.sampled_from(
    ["hookSpecificOutput", "decision", "reason", "continue", "stopReason", "systemMessage", "x"]
)
specific = st.dictionaries(
    st.sampled_from(["permissionDecision", "updatedInput", "additionalContext", "decision"]), values
)
replies = st.dictionaries(fields, values | specific)
events = st.sampled_from(["PreToolUse", "PermissionRequest", "SessionStart", "Stop"])


@given(events, replies)
def test_any_object_is_an_answer_or_nonsense(event: str, reply: dict[str, Any]) -> None:
    try:
        said = of_reply(event, reply)
    except Nonsense:
        return
    assert not said.failure
    assert said.updated_input is None or isinstance(said.updated_input, dict)


printed = st.binary() | replies.map(lambda reply: json.dumps(reply).encode())


@given(events, st.integers(0, 255) | st.sampled_from([0, 1, 2]), printed, st.binary())
def test_any_output_of_a_command_is_read(event: str, code: int, out: bytes, err: bytes) -> None:
    said = of_command(event, code, out, err)
    assert said.exit_code == code
    objects = said.decision in ("deny", "ask") or said.stop is not None
    if code == 2:
        assert objects
    if code not in (0, 2):
        assert said.failure or objects


@given(st.integers(100, 599), st.binary())
def test_any_answer_of_a_server_is_read(status: int, body: bytes) -> None:
    said = of_response("PreToolUse", status, body)
    assert said.failure or 200 <= status < 300


@pytest.mark.parametrize("depth", [2000, 100_000])
def test_an_answer_nested_without_end_is_no_answer(depth: int) -> None:
    said = of_command("PreToolUse", 0, b'{"a":' * depth, b"")
    assert "no JSON" in said.failure


def test_the_nested_decision_wins_over_the_flat_one() -> None:
    reply = {"decision": "block", "hookSpecificOutput": {"permissionDecision": "allow"}}
    assert of_reply("PreToolUse", reply).decision == "allow"


def test_to_defer_is_to_deny_with_a_reason_that_says_so() -> None:
    reply = {"hookSpecificOutput": {"permissionDecision": "defer"}}
    denied = HookReply(decision="deny", reason="deferred: nobody takes it up later here")
    assert of_reply("PreToolUse", reply) == denied
    reply["hookSpecificOutput"]["permissionDecisionReason"] = "after lunch"
    assert of_reply("PreToolUse", reply).reason == f"{denied.reason}: after lunch"


def test_what_is_added_is_bounded() -> None:
    reply = {"additionalContext": "x" * 100_000}
    assert of_reply("SessionStart", reply).context == "x" * LONGEST_CONTEXT
    said = of_command("SessionStart", 0, b"y" * 100_000, b"")
    assert said.context == "y" * LONGEST_CONTEXT


@pytest.mark.parametrize("event", ["PreToolUse", "PostToolUse", "Stop"])
def test_plain_words_are_meant_for_the_model_only_where_something_begins(event: str) -> None:
    assert of_command(event, 0, b"hello\n", b"") == HookReply(exit_code=0)
    assert of_command("UserPromptSubmit", 0, b"hello\n", b"").context == "hello"
    assert of_command("UserPromptSubmit", 2, b"hello\n", b"no").context == ""


@pytest.mark.parametrize(
    "printed",
    [
        b'\xef\xbb\xbf{"decision": "block", "reason": "no"}',
        b'starting up\n{"decision": "block", "reason": "no"}\n',
        b'starting up\n{"hookSpecificOutput":\n  {"permissionDecision": "deny",\n'
        b'   "permissionDecisionReason": "no"}}',
        b'took {a}\n{"level": "info"}\n{"decision": "block", "reason": "no"}',
    ],
)
def test_a_denial_behind_a_byte_order_mark_or_a_log_line_denies(printed: bytes) -> None:
    said = of_command("PreToolUse", 0, printed, b"")
    assert (said.decision, said.reason) == ("deny", "no")


def test_a_permission_behind_a_log_line_is_none() -> None:
    said = of_command("PreToolUse", 0, b'starting up\n{"decision": "approve"}', b"")
    assert said == HookReply(exit_code=0)


def test_half_a_character_in_a_reason_is_replaced() -> None:
    said = of_command("PreToolUse", 0, b'{"decision": "block", "reason": "a\\ud83db"}', b"")
    assert (said.decision, said.reason) == ("deny", "a\ufffdb")


def test_the_end_of_a_run_has_a_reason_in_any_case() -> None:
    assert of_reply("Stop", {"continue": False}).stop == "a hook asked for the end of the run"
    assert of_reply("Stop", {"continue": False, "stopReason": "x"}).stop == "x"
    assert of_reply("Stop", {"continue": True}).stop is None


def test_an_event_about_nothing_that_has_a_name_is_for_every_matcher() -> None:
    assert fits("Bash", ())
    assert not fits("Bash", ("startup",))


def test_a_tool_of_a_server_is_matched_by_its_prefix() -> None:
    names = names_of("mcp__notes__list")
    assert names == ("mcp__notes__list",)
    for matcher in ("mcp__.*", "mcp__*", "mcp__notes__*", "Bash|mcp__notes__list"):
        assert fits(matcher, names)
    assert not fits("mcp__other__*", names)


def test_an_answer_is_what_its_bytes_say() -> None:
    reply = {"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "é"}}
    said = of_command("PreToolUse", 0, b"\n " + msgspec.json.encode(reply) + b"\n", b"ignored")
    assert said == HookReply(decision="deny", reason="é", exit_code=0)
