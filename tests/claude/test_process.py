"""The process contract, without an SDK in between: lines in, lines out, and the exit code."""

import json
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from batten.redact.seal import SealKey
from batten.session.stored_settings import settings_of
from tests.agent.stage import Stage, bash, say
from tests.claude.driving import BATTEN
from tests.claude.process import SDK, Json, environ, started


def test_the_version_begins_with_that_of_the_protocol(stage: Stage) -> None:
    def said(**more: str) -> str:
        made = subprocess.run(
            [BATTEN, "-v"], capture_output=True, text=True, env=environ(stage, **more), check=True
        )
        return made.stdout

    assert re.match(r"2\.\d+\.\d+ \(Batten ", said(**SDK))
    assert re.match(r"\d+\.\d+\.\d+ \(Batten\)", said())


def test_a_prompt_whose_client_has_gone_is_finished(stage: Stage) -> None:
    with started(
        stage, [bash("sleep 0.2; echo hi", "c1")], [say("Done.")], flags=["--allowedTools", "Bash"]
    ) as ours:
        ours.request("r1", "initialize", hooks=None)
        ours.prompt("go")
        assert ours.end() == 0
    assert ours.types == ["control_response", "system", "assistant", "user", "assistant", "result"]
    assert ours.frames[-1]["result"] == "Done."


def test_nothing_asked_is_nothing_wrong(stage: Stage) -> None:
    with started(stage, [say("never")]) as ours:
        ours.request("r1", "initialize", hooks=None)
        assert ours.end() == 0
    assert ours.types == ["control_response"]


def test_an_unknown_request_is_answered_with_an_error(stage: Stage) -> None:
    with started(stage, [say("ok")]) as ours:
        ours.request("r1", "fly", height=3)
        answer = ours.until("control_response")["response"]
        assert (answer["subtype"], answer["request_id"]) == ("error", "r1")
        assert "fly" in answer["error"]
        ours.prompt("go")
        assert ours.until("result")["subtype"] == "success"
        assert ours.end() == 0


def test_requests_with_one_id_are_answered_each(stage: Stage) -> None:
    with started(stage, [say("ok")]) as ours:
        for _ in range(3):
            ours.request("same", "mcp_status")
        for _ in range(3):
            assert ours.until("control_response")["response"]["subtype"] == "success"
        ours.prompt("go")
        assert ours.until("result")["subtype"] == "success"
        assert ours.end() == 0


def test_the_beginning_is_asked_for_once(stage: Stage) -> None:
    with started(stage, [say("ok")]) as ours:
        for request_id, expected in (("r1", "success"), ("r2", "error")):
            ours.request(request_id, "initialize", hooks=None)
            assert ours.until("control_response")["response"]["subtype"] == expected
        assert ours.end() == 0


@pytest.mark.parametrize("system", ["Be a duck.", ["Be", "a duck."]])
async def test_what_the_model_is_told_first_may_come_with_the_beginning(
    stage: Stage, system: str | list[str]
) -> None:
    with started(stage, [say("ok")]) as ours:
        ours.request("r1", "initialize", systemPrompt=system, appendSystemPrompt="Be brief.")
        ours.prompt("go")
        assert ours.until("result")["subtype"] == "success"
        assert ours.end() == 0
    journal = stage.journal()
    (session,) = await journal.sessions()
    settings = await settings_of(session, journal, lambda: SealKey.load(str(stage.home)))
    journal.close()
    assert settings.system in ("Be a duck.", "Be\n\na duck.")
    assert settings.append_system == "Be brief."


def test_a_server_whose_name_cannot_be_used_is_an_error_at_once(stage: Stage) -> None:
    config = {"mcpServers": {"my__calc": {"type": "sdk", "name": "my__calc"}}}
    with started(stage, [say("ok")], flags=["--mcp-config", json.dumps(config)]) as ours:
        assert "my__calc" in ours.until("result")["errors"][0]
        assert ours.end() == 78


def test_a_line_that_is_no_frame_ends_the_input_after_what_was_asked(stage: Stage) -> None:
    with started(stage, [say("ok")]) as ours:
        ours.prompt("go")
        ours.send(b"{ not json")
        assert ours.end() == 64
    results = [frame for frame in ours.frames if frame["type"] == "result"]
    assert [result["is_error"] for result in results] == [False, True]
    assert "not of this protocol" in results[1]["errors"][0]


def test_a_question_that_nobody_answers_is_withdrawn_and_denied(stage: Stage) -> None:
    flags = ["--permission-prompt-tool", "stdio", "--request-seconds", "0.3"]
    with started(stage, [bash("touch made", "c1")], [say("ok")], flags=flags) as ours:
        ours.request("r1", "initialize", hooks=None)
        ours.prompt("go")
        asked = ours.until("control_request")
        assert asked["request"]["subtype"] == "can_use_tool"
        assert asked["request"]["tool_use_id"] == "c1"
        withdrawn = ours.until("control_cancel_request")
        assert withdrawn["request_id"] == asked["request_id"]
        assert ours.until("result")["permission_denials"][0]["tool_use_id"] == "c1"
        assert ours.end() == 0
    assert not (stage.workspace / "made").exists()


def test_an_interrupt_withdraws_the_question(stage: Stage) -> None:
    flags = ["--permission-prompt-tool", "stdio"]
    with started(stage, [bash("touch made", "c1")], [say("ok")], flags=flags) as ours:
        ours.prompt("go")
        asked = ours.until("control_request")
        ours.request("r1", "interrupt")
        assert ours.until("control_cancel_request")["request_id"] == asked["request_id"]
        result = ours.until("result")
        assert result["subtype"] == "error_during_execution"
        assert ours.end() == 124
    assert not (stage.workspace / "made").exists()


def test_a_signal_ends_the_turn_with_its_result(stage: Stage) -> None:
    with started(stage, [bash("sleep 60", "c1")], flags=["--allowedTools", "Bash"]) as ours:
        ours.prompt("go")
        ours.until("assistant")
        ours.kill(signal.SIGTERM)
        assert ours.until("result")["terminal_reason"] == "aborted_tools"
        assert ours.end() == 124
    assert ours.types.count("result") == 1


def test_a_client_that_is_gone_altogether_takes_its_command_with_it(stage: Stage) -> None:
    flags = ["--allowedTools", "Bash", "--include-partial-messages"]
    command = "echo $$ > pid; exec sleep 60"
    with started(stage, [bash(command, "c1")], [say("ok")], flags=flags) as ours:
        ours.prompt("go")
        ours.until("assistant")
        pid = stage.workspace / "pid"
        while not (pid.exists() and pid.read_text().strip()):
            ours.request("r", "mcp_status")
            ours.until("control_response")
        assert ours.abandon() != 0
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()


def frames_of(stage: Stage, argv: Sequence[str], **more: str) -> list[Json]:
    made = subprocess.run(
        [BATTEN, *argv, "--sandbox", "none"],
        capture_output=True,
        cwd=stage.workspace,
        env=environ(stage, **more),
        check=True,
    )
    text = re.sub(rb"(chat|run)_[0-9A-Z]{26}", rb"\1_ID", made.stdout)
    text = re.sub(rb'"duration_ms":\d+', b'"duration_ms":0', text)
    return [json.loads(line) for line in text.splitlines()]


def test_neither_mode_changes_the_other(stage: Stage) -> None:
    model = stage.scenario([say("I look."), bash("echo hi", "c1")], [say("All is well.")])
    ours = ["-p", "go", "--output-format", "stream-json", "--model", model, "--allow", "bash"]
    before = frames_of(stage, ours)
    claude = frames_of(stage, ["--compat", "claude-code", *ours])
    after = frames_of(stage, ours)
    inside = frames_of(stage, ours, **SDK, CLAUDE_AGENT_SDK_VERSION="0.1.6")
    assert before == after == inside
    assert [frame["type"] for frame in before] == [
        *("system", "tool_use", "tool_result", "message", "message", "result")
    ]
    assert [frame["type"] for frame in claude] == [
        *("system", "assistant", "user", "assistant", "result")
    ]
    assert claude[-1]["result"] == before[-1]["result"] == "All is well."
