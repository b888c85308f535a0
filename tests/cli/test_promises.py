"""What print mode promises, line by line; `promises.py` says which test shows which line."""

import importlib
from typing import Any

import msgspec
import pytest

from tests.agent.stage import bash, call, say
from tests.models.server import Reply, answer, refusal
from tests.models.wire import (
    anthropic_block,
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)

from .invoking import Json, Said, Shell, serving
from .promises import PROMISES

MODEL = ("--model", "anthropic/claude-sonnet-4-6", "--sandbox", "none")
STREAM = ("--input-format", "stream-json", "--output-format", "stream-json")
WELL = answer(anthropic_turn("well"))


def test_every_line_is_shown_by_tests_that_are_there() -> None:
    assert sorted(PROMISES) == list(range(1, 36))
    for number, promise in PROMISES.items():
        assert promise.tests, f"line {number} is shown by nothing"
        for name in promise.tests:
            module, _, test = name.partition(":")
            assert callable(getattr(importlib.import_module(f"tests.{module}"), test)), name


def user(content: object) -> bytes:
    return msgspec.json.encode({"type": "user", "content": content}) + b"\n"


def converse(shell: Shell, replies: list[Reply], stdin: bytes, *flags: str) -> Said:
    with serving(shell, replies):
        return shell(*MODEL, *STREAM, *flags, stdin=stdin)


def kinds(said: Said) -> list[str]:
    return [str(frame.get("subtype", frame["type"])) for frame in said.frames()]


def test_help_lists_the_headless_flags(shell: Shell) -> None:
    """Line 1."""
    text = shell("--help").out.decode()
    for flag in (
        "-p", "--print", "--prompt", "--no-auto-print", "--output-format", "--input-format",
        "--include-partial-messages", "--include-hook-events", "--replay-user-messages",
        "--json-schema", "--bare", "--max-turns", "--max-budget-usd", "--resume", "--continue",
        "--session-id", "--fork-session", "--no-save", "--fail-on", "--permission-mode",
        "--auto-allow", "--no-permissions", "--allowed-tools", "--disallowed-tools", "--system",
        "--system-file", "--no-system", "--append-system-prompt", "--provider", "--model",
        "--fallback-model", "--temperature", "--workspace", "--no-tools", "--quiet", "--verbose",
        "--no-hooks", "--no-skills", "--no-mcp", "--no-plugins", "--no-sub-agent", "--settings",
        "--setting-sources",
    ):  # fmt: skip
        assert flag in text, flag


def test_two_messages_have_one_beginning_and_one_end(shell: Shell) -> None:
    """Lines 4 and 7."""
    replies = [answer(anthropic_turn("First.")), answer(anthropic_turn("Second."))]
    said = converse(shell, replies, user("one") + user("two"))
    assert said.code == 0
    assert kinds(said) == ["init", "message", "message", "success"]
    assert (said.result["turns"], said.result["result"]) == (2, "Second.")


@pytest.mark.parametrize("stdin", [b"", b"\n", b"   \n\t\n", b"\r\n\r\n"])
def test_no_message_is_a_beginning_an_error_and_nothing_between(shell: Shell, stdin: bytes) -> None:
    """Line 8."""
    said = converse(shell, [WELL], stdin)
    assert (said.code, kinds(said), said.result["turns"]) == (66, ["init", "error"], 0)


def test_a_malformed_second_line_keeps_the_first_message(shell: Shell) -> None:
    """Line 9."""
    said = converse(shell, [answer(anthropic_turn("First."))], user("one") + b"{nonsense\n")
    assert (said.code, kinds(said)) == (64, ["init", "message", "error"])
    assert said.result["error"].startswith("line 2 of standard input is not JSON")
    assert (said.result["turns"], said.result["last_assistant_text"]) == (1, "First.")
    (run,) = shell("runs", "--json").frames()
    assert run["outcome"] == "completed", "the run is not to blame for what came after it"


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"hi"}]}}',
        b'{"type":"user","content":"hi","session_id":"x"}',
        b'{"type":"assistant","content":"hi"}',
        b'{"type":"control_request","request_id":"1","request":{"subtype":"interrupt"}}',
        b'{"type":"control","subtype":"interrupt","now":true}',
        b'{"type":"control","subtype":"pause"}',
        b'{"content":"hi"}',
        b"hi",
    ],
)
def test_a_line_of_another_kind_is_refused_before_any_call(shell: Shell, line: bytes) -> None:
    """Line 10."""
    with serving(shell, [WELL]) as server:
        said = shell(*MODEL, *STREAM, stdin=line + b"\n")
        assert server.requests == []
    assert (said.code, kinds(said)) == (64, ["init", "error"])
    assert said.result["error"].startswith("line 1 of standard input ")


def test_a_text_and_its_blocks_reach_the_model_as_the_same(shell: Shell) -> None:
    """Line 11."""
    blocks = [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]
    asked: list[Any] = []
    for content in ("hello", [{"type": "text", "text": "hello"}], blocks):
        with serving(shell, [WELL]) as server:
            assert shell(*MODEL, *STREAM, stdin=user(content)).code == 0
            asked.append(server.requests[0].json()["messages"])
    assert asked[0] == asked[1] == asked[2]


SLOTS = {
    "print": ["-p", "{}"],
    "long print": ["--print", "{}"],
    "prompt": ["--prompt", "{}"],
    "words": ["{}"],
}


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", ["text", "json", "stream-json"])
def test_a_prompt_beside_stream_input_is_a_usage_error(shell: Shell, slot: str, form: str) -> None:
    """Line 12: seen while the flags are read, so there is no frame."""
    argv = [word.format("hello") for word in SLOTS[slot]]
    with serving(shell, [WELL]) as server:
        said = shell(
            *MODEL, "--input-format", "stream-json", "--output-format", form, *argv,
            stdin=user("one"),
        )  # fmt: skip
        assert server.requests == []
    assert (said.code, said.out) == (64, b"")
    assert "'hello'" in said.err


@pytest.mark.parametrize(
    "argv", [[], ["-p"], *([w.format("-") for w in s] for s in SLOTS.values())]
)
def test_a_dash_or_nothing_beside_stream_input_is_fine(shell: Shell, argv: list[str]) -> None:
    """Line 12."""
    with serving(shell, [WELL]):
        said = shell(*MODEL, *STREAM, *argv, stdin=user("one"))
    assert (said.code, said.result["result"]) == (0, "well")


def test_a_line_may_be_as_large_as_the_limit_and_not_a_byte_larger(shell: Shell) -> None:
    """Line 13."""
    cap = 10 * 1024 * 1024
    frame = user("x")
    fitting = user("x" * (cap - len(frame) + 2))
    assert len(fitting) == cap + 1, "its line end does not count"
    with serving(shell, [WELL]) as server:
        assert shell(*MODEL, *STREAM, "--max-turns", "0", stdin=fitting).code == 75
        larger = shell(*MODEL, *STREAM, stdin=fitting.replace(b"xx", b"xxx", 1))
        assert server.requests == []
    assert (larger.code, kinds(larger)) == (78, ["init", "error"])
    assert f"more than {cap} bytes" in larger.result["error"]


def test_a_run_out_of_turns_says_what_it_came_to(shell: Shell) -> None:
    """Line 14."""
    said = shell.play(
        [say("I look."), bash("echo 1")], [bash("echo 2")], [say("never")],
        flags=["--allow", "bash", "--output-format", "json", "--max-turns", "2"],
    )  # fmt: skip
    assert said.code == 75
    shown = {key: said.result[key] for key in ("subtype", "last_assistant_text", "turns")}
    assert shown == {"subtype": "max_turns", "last_assistant_text": "I look.", "turns": 2}
    assert said.result["tool_calls_seen"] == 2
    assert not {"result", "error"} & said.result.keys()


@pytest.mark.parametrize("first", [[bash("echo 1")], [say("  \n"), bash("echo 1")]])
def test_a_run_that_said_nothing_has_no_last_text(shell: Shell, first: list[Json]) -> None:
    """Line 16."""
    said = shell.play(first, flags=["--output-format", "json", "--max-turns", "1"])
    assert said.code == 75
    assert "last_assistant_text" not in said.result


def test_a_wrong_key_is_an_error_in_the_providers_words(shell: Shell) -> None:
    """Line 18."""
    wrong = refusal(401, {"error": {"type": "authentication_error", "message": "no such key"}})
    with serving(shell, [wrong]) as server:
        said = shell(*MODEL, "-p", "go", "--output-format", "json")
        assert len(server.requests) == 1
    assert (said.code, said.result["subtype"]) == (1, "error")
    assert "no such key" in said.result["error"]


def hooks(event: str, command: str, **more: Any) -> tuple[str, str]:
    handler: Json = {"type": "command", "command": command, **more}
    settings = {"hooks": {event: [{"handlers": [handler]}]}}
    return "--settings", msgspec.json.encode(settings).decode()


def test_a_prompt_that_a_hook_denies_is_an_error_in_its_words(shell: Shell) -> None:
    """Line 18."""
    with serving(shell, [WELL]) as server:
        said = shell(
            *MODEL, "-p", "go", "--output-format", "stream-json",
            *hooks("UserPromptSubmit", "echo not on a Sunday >&2; exit 2"),
        )  # fmt: skip
        assert server.requests == []
    assert (said.code, kinds(said)) == (1, ["init", "error"])
    assert "not on a Sunday" in said.result["error"]


def test_thinking_is_shown_only_when_asked_for_and_never_in_the_result(shell: Shell) -> None:
    """Line 23."""
    thinking = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "a private thought"},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    words = anthropic_text_block(1, "Yes.")
    reply = answer(sse(anthropic_start(), *thinking, *words, *anthropic_end(), named=True))
    for flags, shown in (((), False), (("--include-partial-messages",), True)):
        with serving(shell, [reply]):
            said = shell(*MODEL, "-p", "go", "--output-format", "stream-json", *flags)
        assert said.result["result"] == "Yes."
        assert ("content_block_delta" in kinds(said)) is shown
        pieces = [one["delta"].get("thinking", "") for one in said.frames() if "delta" in one]
        assert ("".join(pieces) == "a private thought") is shown
        (message,) = [frame for frame in said.frames() if frame["type"] == "message"]
        thought = {"type": "thinking", "thinking": "a private thought"}
        assert (thought in message["content"]) is shown
        assert "private" not in str(said.result)


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ((), "default"),
        (("--permission-mode", "acceptEdits"), "acceptEdits"),
        (("--permission-mode", "plan"), "plan"),
        (("--no-permissions",), "disabled"),
    ],
)
def test_the_permission_mode_is_told_first(shell: Shell, flags: tuple[str, ...], mode: str) -> None:
    """Line 24."""
    said = shell.play([say("well")], flags=["--output-format", "stream-json", *flags])
    assert said.frames()[0]["permission_mode"] == mode


def test_hooks_are_told_of_between_the_beginning_and_the_end(shell: Shell) -> None:
    """Line 25."""
    settings: Json = {
        "hooks": {
            event: [{"handlers": [{"type": "command", "command": "true"}]}]
            for event in ("SessionStart", "UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")
        }
    }
    given = ("--settings", msgspec.json.encode(settings).decode())
    flags = ["--output-format", "stream-json", "--allow", "bash", *given]
    said = shell.play([bash("echo hi")], [say("well")], flags=[*flags, "--include-hook-events"])
    frames = said.frames()
    assert (frames[0]["subtype"], frames[-1]["type"]) == ("init", "result")
    told = [frame["hookEventName"] for frame in frames if frame["type"] == "hook_event"]
    assert told == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
    ]  # fmt: skip
    assert frames[1]["hookEventName"] == "SessionStart"
    assert said.result["hooks"]["completed"] == 5
    unasked = shell.play([bash("echo hi")], [say("well")], flags=flags)
    assert "hook_event" not in kinds(unasked)
    assert unasked.result["hooks"] == said.result["hooks"]


def test_what_was_said_before_the_turns_ran_out_is_kept(shell: Shell) -> None:
    """Line 29."""
    step = answer(anthropic_turn("I plan.", [("c1", "todo_write", {"todos": []})]))
    with serving(shell, [step, WELL]) as server:
        cut = shell(*MODEL, "-p", "go", "--output-format", "json", "--max-turns", "1")
        assert cut.code == 75
        again = shell("-p", "go on", "--resume", cut.result["session_id"], "--max-turns", "5")
        messages = server.requests[1].json()["messages"]
    assert (again.code, again.out) == (0, b"well\n")
    assert [message["role"] for message in messages[:2]] == ["user", "assistant"]
    assert "I plan." in str(messages[1])
    assert "go on" in str(messages[-1])


OBJECT: Json = {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}
EITHER: Json = {"type": "object", "properties": {"n": {"type": ["string", "null"]}}}


@pytest.mark.parametrize(
    ("schema", "said", "value"),
    [
        (OBJECT, '{"n": 3}', {"n": 3}),
        (OBJECT, '{"n": 3.0}', {"n": 3.0}),
        (OBJECT, 'Here it is: {"n": 3}. Is it {right}?', {"n": 3}),
        (OBJECT, '{"m": 3}', None),
        (OBJECT, '{"n": "3"}', None),
        (OBJECT, '{"n": 3.5}', None),
        (OBJECT, "[3]", None),
        (EITHER, '{"n": null}', {"n": None}),
        (EITHER, '{"n": "x"}', {"n": "x"}),
        (EITHER, '{"n": 1}', None),
    ],
)
def test_an_answer_is_held_against_the_whole_schema(
    shell: Shell, schema: Json, said: str, value: Json | None
) -> None:
    """Line 31."""
    given = msgspec.json.encode(schema).decode()
    told = shell.play([say(said)], [say(said)], [say(said)],
                      flags=["--output-format", "json", "--json-schema", given])  # fmt: skip
    if value is None:
        assert (told.code, told.result["subtype"]) == (2, "error")
        assert "structured_output" not in told.result
    else:
        assert (told.code, told.result["structured_output"]) == (0, value)
        assert told.result["turns"] == 1


@pytest.mark.parametrize("yes", ["", "=true", "=1", "=YES", "=On"])
@pytest.mark.parametrize("no", ["=false", "=0", "=no", "=OFF"])
def test_a_flag_may_say_yes_or_no(shell: Shell, yes: str, no: str) -> None:
    """Line 34: of two, the last one counts; the next word is not swallowed."""
    flag = "--replay-user-messages"
    model = shell.stage.scenario([say("well")])
    frames = ("--output-format", "stream-json")
    for flags, shown in (([flag + yes], True), ([flag + yes, flag + no], False)):
        said = shell("--model", model, *frames, *flags, "the prompt")
        assert said.code == 0
        assert ("user" in kinds(said)) is shown


def test_a_flag_that_says_neither_is_a_usage_error(shell: Shell) -> None:
    """Line 34."""
    said = shell("-p", "go", "--bare=perhaps")
    assert (said.code, said.out) == (64, b"")
    assert "--bare is 'perhaps'" in said.err


def test_without_any_flag_it_is_headless_and_a_script_may_insist_on_saying_so(shell: Shell) -> None:
    model = ("--model", shell.stage.scenario([say("well")], [say("well")], [say("well")]))
    assert shell(*model, stdin=b"go").out == b"well\n"
    assert shell(*model, "go").out == b"well\n"
    refused = shell(*model, "--no-auto-print", "go")
    assert (refused.code, refused.out) == (64, b"")
    for flags in (["-p", "go"], ["--output-format", "text", "go"]):
        assert shell(*model, "--no-auto-print", *flags).code == 0


def test_a_call_that_is_denied_says_so_and_the_run_goes_on(shell: Shell) -> None:
    """What would be asked is denied where nobody is declared to answer."""
    said = shell.play(
        [call("write_file", path="made", content="x")], [say("Then not.")],
        flags=["--output-format", "stream-json"],
    )  # fmt: skip
    (told,) = [frame for frame in said.frames() if frame["type"] == "tool_result"]
    assert (said.code, told["is_error"]) == (0, True)
    assert not (shell.stage.workspace / "made").exists()
