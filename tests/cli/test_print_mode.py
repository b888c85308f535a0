"""`batten -p`: what each format writes, and the exit code of every ending."""

import os
import signal
import sys
import threading

import msgspec
import pytest

from batten.contract.facts import TERMINAL
from tests.agent.acting import Acting
from tests.agent.stage import Statement, bash, call, end, fail, say
from tests.models.server import Fault, answer, cut, refusal
from tests.models.wire import (
    anthropic_block,
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)
from tests.tools import mcp_servers

from .invoking import Shell, serving


def test_text_is_the_final_message_and_one_newline(shell: Shell) -> None:
    said = shell.play(
        [say("I look."), bash("echo hi")], [say("All is "), say("well.")], flags=["--allow", "bash"]
    )
    assert (said.code, said.out, said.err) == (0, b"All is well.\n", "")


def test_text_of_a_run_that_failed_is_nothing_and_the_reason_is_on_stderr(shell: Shell) -> None:
    said = shell.play([say("half"), end("limit_exceeded")])
    assert (said.code, said.out) == (1, b"")
    assert said.err == "batten: model_error: the answer was cut off at 8192 output tokens\n"


def test_json_is_exactly_the_result_frame(shell: Shell) -> None:
    said = shell.play([say("well")], flags=["--output-format", "json"])
    (frame,) = said.frames()
    assert frame["session_id"].startswith("chat_")
    assert frame["duration_ms"] >= 0
    assert {**frame, "session_id": "", "duration_ms": 0} == {
        "type": "result",
        "subtype": "success",
        "session_id": "",
        "run_id": shell.run_ids()[0],
        "outcome": "completed",
        "duration_ms": 0,
        "model": f"scripted/{shell.stage.directory / 'scenario.json'}",
        "result": "well",
        "total_cost_usd": 0.0,
        "turns": 1,
        "total_input_tokens": 0,
        "total_output_tokens": 0,
        "total_cache_read_tokens": 0,
        "total_cache_write_tokens": 0,
        "permission_denials": [],
    }


def test_tokens_of_the_cache_and_the_model_that_answered_are_in_the_result(shell: Shell) -> None:
    cached = anthropic_turn("well", cache_read_input_tokens=700, cache_creation_input_tokens=30)
    unknown = refusal(404, {"error": {"type": "not_found_error", "message": "no model one"}})
    with serving(shell, [unknown, answer(cached)]):
        said = shell.print(
            "anthropic/one", "--fallback-model", "anthropic/two", "--output-format", "json"
        )
    result = said.result
    assert (result["total_cache_read_tokens"], result["total_cache_write_tokens"]) == (700, 30)
    assert result["total_input_tokens"] == 740
    assert (result["model"], result["outcome"]) == ("anthropic/two", "completed")


def test_text_with_a_schema_is_the_json_and_nothing_else(shell: Shell) -> None:
    words = 'Here it is:\n```json\n{"count": 3,\n "names": ["é"]}\n```\nDone.'
    schema = '{"type": "object", "required": ["count"]}'
    said = shell.play([say(words)], flags=["--json-schema", schema])
    assert (said.code, said.out) == (0, '{"count":3,"names":["é"]}\n'.encode())


def test_events_are_the_stored_envelopes_byte_for_byte(shell: Shell) -> None:
    said = shell.play(
        [bash("echo hi")], [say("well")], flags=["--allow", "bash", "--output-format", "events"]
    )
    (run_id,) = shell.run_ids()
    assert said.out == shell("events", run_id).out
    assert [frame["sequence"] for frame in said.frames()] == list(range(len(said.frames())))
    assert said.frames()[-1]["type"] == "run.finished"


def test_a_timeline_on_stderr_is_there_for_whoever_asks(shell: Shell) -> None:
    said = shell.play(
        [say("I look."), bash("echo hi")], [say("well")],
        flags=["--allow", "bash", "--progress", "always"],
    )  # fmt: skip
    assert said.out == b"well\n"
    for words in ("> go", "I look.", "bash echo hi", "│ hi", "finished: 2 turns"):
        assert words in said.err


def test_a_long_answer_is_whole_in_every_format(shell: Shell) -> None:
    long = "word " * 40_000
    assert shell.play([say(long)]).out == long.encode() + b"\n"
    for form in ("json", "stream-json"):
        said = shell.play([say(long)], flags=["--output-format", form])
        assert said.result["result"] == long
    message = said.frames()[-2]
    assert message["content"] == [{"type": "text", "text": long}]


ENDINGS: dict[str, tuple[int, str, list[list[Statement]], list[str]]] = {
    "success": (0, "success", [[say("well")]], []),
    "max_turns": (75, "max_turns", [[bash("echo 1")], [bash("echo 2")]], ["--max-turns", "1"]),
    "no turns": (75, "max_turns", [[say("well")]], ["--max-turns", "0"]),
    "same calls": (75, "max_turns", [[bash("echo 1")]] * 8, ["--max-turns", "6"]),
    "timeout": (1, "error", [[bash("sleep 30")]], ["--max-seconds", "0.3"]),
    "model_error": (1, "error", [[fail("fatal", "no")]], []),
    "cut off": (1, "error", [[say("half"), end("limit_exceeded")]], []),
    "schema": (2, "error", [[say("no")]] * 3, ["--json-schema", '{"type": "object"}']),
}


@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("form", ["text", "json", "stream-json", "events"])
def test_the_exit_code_is_that_of_the_outcome_in_every_format(
    shell: Shell, name: str, form: str
) -> None:
    code, subtype, frames, flags = ENDINGS[name]
    said = shell.play(*frames, flags=["--allow", "bash", "--output-format", form, *flags])
    assert said.code == code
    if form in ("json", "stream-json"):
        result = said.result
        assert result["subtype"] == subtype
        assert ("result" in result) == (subtype == "success")
        assert ("error" in result) == (subtype == "error")
        assert ("tool_calls_seen" in result) == (subtype != "success")
        assert "last_assistant_text" not in result or result["last_assistant_text"]
    if form == "events":
        assert [one["type"] in TERMINAL for one in said.frames()].count(True) == 1
    if form == "stream-json":
        types = [(one["type"], one.get("subtype")) for one in said.frames()]
        assert types[0] == ("system", "init")
        assert types.count(("system", "init")) == 1
        assert [one[0] for one in types].count("result") == 1


def test_a_budget_that_is_spent_has_its_own_code_and_subtype(shell: Shell) -> None:
    prices = shell.stage.directory / "prices.json"
    prices.write_text(
        '{"as_of": "2026-02-03", "providers": {"anthropic": [[["=m"], 9999, ["1000", "2000"]]]}}'
    )
    shell.set(BATTEN_PRICES=str(prices))
    step = answer(anthropic_turn(calls=[("c1", "todo_write", {"todos": []})]))
    with serving(shell, [step, answer(anthropic_turn("x"))]):
        said = shell.print(
            "anthropic/m", "--output-format", "stream-json", "--max-budget-usd", "0.01"
        )
    assert said.code == 137
    assert said.frames()[0]["pricing"] == {"as_of": "2026-02-03"}
    result = said.result
    assert (result["subtype"], result["total_cost_usd"]) == ("budget_exceeded", 0.02)
    assert (result["tool_calls_seen"], result["turns"]) == (1, 1)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (10, 5)


def test_a_price_nobody_knows_is_said_in_the_result(shell: Shell) -> None:
    with serving(shell, [answer(anthropic_turn("x"))]):
        said = shell.print("anthropic/unheard-of", "--output-format", "json")
    assert (said.result["cost_unknown"], said.result["total_cost_usd"]) == (True, 0.0)


@pytest.mark.parametrize("form", ["text", "json", "stream-json", "events"])
def test_a_model_without_a_price_is_warned_of_once_on_stderr(shell: Shell, form: str) -> None:
    calls = [("c1", "agent", {"prompt": "help"})]
    replies = [answer(anthropic_turn("", calls)), answer(anthropic_turn("x"))]
    with serving(shell, replies) as server:
        said = shell.print("anthropic/unheard-of", "--output-format", form)
    assert (said.code, len(server.requests)) == (0, 3)
    (line,) = said.err.splitlines()
    assert "no price is known for anthropic/unheard-of" in line
    assert b"no price" not in said.out


def test_a_model_with_a_price_is_not_warned_of(shell: Shell) -> None:
    with serving(shell, [answer(anthropic_turn("x"))]):
        said = shell.print("anthropic/claude-sonnet-4-5")
    assert (said.code, said.err) == (0, "")


def test_a_signal_cancels_the_run_and_the_result_says_so(shell: Shell) -> None:
    tool = Acting()
    model = shell.stage.scenario([say("I wait."), call("acting", act="wait")], [say("never")])
    stopper = threading.Thread(target=_interrupt_when_begun, args=(tool,))
    stopper.start()
    said = shell(
        "-p", "go", "--model", model, "--allow", "acting", "--output-format", "stream-json",
        tools=[tool],
    )  # fmt: skip
    stopper.join()
    assert said.code == 124
    result = said.result
    assert (result["subtype"], result["last_assistant_text"]) == ("cancelled", "I wait.")
    assert "error" not in result


def _interrupt_when_begun(tool: Acting) -> None:
    while not tool.begun.is_set():
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGTERM)


def test_a_denied_call_is_a_result_with_an_error_and_the_run_goes_on(shell: Shell) -> None:
    said = shell.play(
        [
            bash(
                "touch made",
            )
        ],
        [say("then not")],
        flags=["--output-format", "stream-json"],
    )
    assert said.code == 0
    (told,) = [one for one in said.frames() if one["type"] == "tool_result"]
    assert told["is_error"] is True
    assert told["content"][0]["text"].startswith("Error: Permission denied — bash needs approval")


def test_arguments_that_are_no_json_are_shown_as_the_text_they_are(shell: Shell) -> None:
    start: Statement = {"type": "tool_use", "id": "c1", "name": "bash", "input": {}}
    garbage = {"type": "input_json_delta", "partial_json": '{"command": ec'}
    block = anthropic_block(0, start, garbage)
    turn = sse(anthropic_start(), *block, *anthropic_end("tool_use"), named=True)
    with serving(shell, [answer(turn), answer(anthropic_turn("well"))]):
        said = shell.print("anthropic/claude-sonnet-4-5", "--output-format", "stream-json")
    used = next(one for one in said.frames() if one["type"] == "tool_use")
    message = next(one for one in said.frames() if one["type"] == "message")
    assert used["input"] == '{"command": ec'
    assert message["content"] == [used]


def test_retries_are_frames_before_the_answer(shell: Shell) -> None:
    busy = refusal(529, {"error": {"type": "overloaded_error", "message": "busy"}}, retry_after="0")
    with serving(shell, [busy, answer(anthropic_turn("well"))]):
        said = shell.print("anthropic/claude-sonnet-4-5", "--output-format", "stream-json")
    assert said.code == 0
    assert said.frames()[1] == {
        "type": "system",
        "subtype": "api_retry",
        "attempt": 1,
        "max_retries": 2,
        "retry_delay_ms": 0,
        "error_status": 529,
        "error_category": "overloaded",
    }


def test_a_broken_answer_is_taken_back_before_the_retry(shell: Shell) -> None:
    begun = sse(anthropic_start(), *anthropic_text_block(0, "Half of")[:-1], named=True)
    with serving(shell, [cut(begun, Fault.RESET), answer(anthropic_turn("well"))]):
        said = shell.print(
            "anthropic/claude-sonnet-4-5", "--output-format", "stream-json",
            "--include-partial-messages",
        )  # fmt: skip
    assert said.code == 0
    assert said.result["result"] == "well"
    shown = [one.get("subtype") or one["delta"]["text"] for one in said.frames()[1:-2]]
    assert shown == ["Half", " of", "message_retracted", "api_retry", "well"]
    assert said.frames()[-2]["content"] == [{"type": "text", "text": "well"}]


def test_retries_are_as_many_as_the_flag_then_the_variable_then_the_settings_say(
    shell: Shell,
) -> None:
    busy = refusal(529, {"error": {"type": "overloaded_error", "message": "busy"}}, retry_after="0")
    settings = ("--settings", '{"maxRetries": 4}')
    for variable, flags, retries in (
        ("", (*settings, "--max-retries", "1"), 1),
        ("3", settings, 3),
        ("", settings, 4),
        ("", (), 2),
        ("", ("--max-retries", "0"), 0),
    ):
        with serving(shell, [busy]) as server:
            shell.set(BATTEN_MAX_RETRIES=variable)
            said = shell.print("anthropic/claude-sonnet-4-5", "--output-format", "json", *flags)
        assert said.code == 1
        assert len(server.requests) == retries + 1
        count = {0: "", 1: " (after 1 retry)"}.get(retries, f" (after {retries} retries)")
        assert said.result["error"].endswith(f"busy{count}")


@pytest.mark.parametrize(
    ("variable", "settings", "told"),
    [
        ("many", "{}", "BATTEN_MAX_RETRIES is 'many'; it must be a whole number, 0 to"),
        ("", '{"max_retries": -1}', "max_retries must be a whole number from 0 to 1000, not -1"),
        ("", '{"parallel_reads": 0}', "parallel_reads must be a whole number from 1 to 64, not 0"),
    ],
)
def test_a_wrong_count_is_refused_with_what_is_right(
    shell: Shell, variable: str, settings: str, told: str
) -> None:
    shell.set(BATTEN_MAX_RETRIES=variable)
    said = shell("-p", "go", "--model", "scripted/none.json", "--settings", settings)
    assert said.code == 78
    assert told in said.err


@pytest.mark.parametrize("form", ["json", "stream-json"])
def test_a_missing_key_is_a_result_that_programs_can_read(shell: Shell, form: str) -> None:
    said = shell.print("anthropic/claude-sonnet-4-5", "--output-format", form)
    assert (said.code, said.result["outcome"]) == (1, "model_error")
    assert "ANTHROPIC_API_KEY" in said.result["error"]
    assert "ANTHROPIC_API_KEY" in said.err


def test_no_model_at_all_is_said_before_anything_begins(shell: Shell) -> None:
    said = shell("-p", "go", "--output-format", "stream-json")
    assert said.code == 1
    (frame,) = said.frames()
    assert (frame["subtype"], frame["session_id"], frame["turns"]) == ("error", "", 0)
    assert "no model: give --model" in frame["error"]
    assert shell.run_ids() == []


def test_the_first_frame_tells_of_the_session(shell: Shell) -> None:
    said = shell.play(
        [say("well")], flags=["--output-format", "stream-json", "--permission-mode", "plan"]
    )
    init = said.frames()[0]
    assert init["permission_mode"] == "plan"
    assert init["cwd"] == str(shell.stage.workspace)
    assert init["tools"] == sorted(init["tools"])
    assert "bash" in init["tools"]
    assert init["session_id"] == said.result["session_id"]
    assert init["model"] == f"scripted/{shell.stage.directory}/scenario.json"


def test_only_the_tools_asked_for_are_offered(shell: Shell) -> None:
    said = shell.play(
        [say("x")], flags=["--output-format", "stream-json", "--tools", "Bash, TodoWrite"]
    )
    assert said.frames()[0]["tools"] == ["bash", "todo_write"]
    wrong = shell.play(
        [say("x")], flags=["--output-format", "stream-json", "--tools", "Bash,Hammer"]
    )
    assert wrong.code == 64
    assert "no tool is named 'Hammer'" in wrong.result["error"]


def test_a_structured_answer_is_in_the_result_beside_its_text(shell: Shell) -> None:
    said = shell.play(
        [say('{"count": 3}')],
        flags=["--output-format", "json", "--json-schema", '{"type": "object"}'],
    )
    assert said.result["structured_output"] == {"count": 3}
    assert said.result["result"] == '{"count": 3}'


def test_a_recorded_run_plays_again(shell: Shell) -> None:
    recorded = shell.stage.directory / "recorded.json"
    calls = [("c1", "bash", {"command": "echo hi >> log"})]
    with serving(shell, [answer(anthropic_turn("I look.", calls)), answer(anthropic_turn("well"))]):
        live = shell.print(
            "anthropic/claude-sonnet-4-5", "--allow", "bash", "--record", str(recorded),
            "--output-format", "stream-json",
        )  # fmt: skip
    assert live.code == 0
    assert shell("scenario", "validate", str(recorded)).code == 0
    again = shell.print(f"scripted/{recorded}", "--allow", "bash", "--output-format", "stream-json")
    assert [one for one in again.frames() if one["type"] == "message"] == [
        one for one in live.frames() if one["type"] == "message"
    ]
    assert (shell.stage.workspace / "log").read_text() == "hi\nhi\n"


@pytest.mark.parametrize("place", ["/nowhere/at/all.json", ".", "nul\0.json"])
def test_a_place_where_nothing_can_be_recorded_is_refused_before_a_run(
    shell: Shell, place: str
) -> None:
    with serving(shell, [answer(anthropic_turn("x"))]) as server:
        said = shell.print("anthropic/claude-sonnet-4-5", "--record", place)
    assert (said.code, said.out, server.requests) == (64, b"", [])
    shown = place.replace("\0", "\ufffd")
    assert f"--record: {shown}: cannot record the scenario" in said.err
    assert shell.run_ids() == []


def test_a_run_that_fails_before_a_message_leaves_an_earlier_recording_alone(shell: Shell) -> None:
    recorded = shell.stage.directory / "recorded.json"
    recorded.write_text("precious")
    said = shell.play([say("well")], flags=["--record", str(recorded), "--max-turns", "0"])
    assert said.code == 75
    assert recorded.read_text() == "precious"
    assert list(shell.stage.directory.glob("recorded.json.*")) == []


@pytest.mark.parametrize("form", ["text", "json", "stream-json", "events"])
def test_a_server_that_is_not_there_is_one_line_on_stderr_and_the_run_goes_on(
    shell: Shell, form: str
) -> None:
    config = '{"mcpServers": {"away": {"command": "/nowhere/at/all"}}}'
    said = shell.play([say("well")], flags=["--mcp-config", config, "--output-format", form])
    assert said.code == 0
    (line,) = said.err.splitlines()
    assert line.startswith("batten: MCP server away is not available: ")
    assert "/nowhere/at/all" in line


def test_a_server_with_too_many_tools_is_one_line_on_stderr_and_the_run_goes_on(
    shell: Shell,
) -> None:
    servers = {"endless": {"command": sys.executable, "args": [mcp_servers.__file__, "endless"]}}
    config = msgspec.json.encode({"mcpServers": servers}).decode()
    said = shell.play([say("well")], flags=["--mcp-config", config])
    warning = "MCP server endless has more than 512 tools; the rest is left out"
    assert (said.code, said.err) == (0, f"batten: {warning}\n")


@pytest.mark.parametrize("output_format", ["json", "stream-json"])
def test_a_structured_answer_too_large_for_an_event_is_in_the_result(
    shell: Shell, output_format: str
) -> None:
    rows = {"rows": ["row " * 20] * 5000}
    schema = '{"type": "object", "properties": {"rows": {"type": "array"}}}'
    said = shell.play(
        [say(msgspec.json.encode(rows).decode())],
        flags=["--output-format", output_format, "--json-schema", schema],
    )
    assert said.code == 0
    assert said.result["structured_output"] == rows
