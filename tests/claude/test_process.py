"""The process contract, without an SDK in between: lines in, lines out, and the exit code."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.agent.stage import Stage, Statement, bash, say
from tests.claude.driving import BATTEN

Json = dict[str, Any]
SDK = {"CLAUDE_CODE_ENTRYPOINT": "sdk-py"}
OPENING = ("--output-format", "stream-json", "--verbose", "--input-format", "stream-json")


class Process:
    """A process of ours and its two sides."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self.frames: list[Json] = []

    def send(self, frame: Json | bytes) -> None:
        assert self._process.stdin is not None
        line = frame if isinstance(frame, bytes) else json.dumps(frame).encode()
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()

    def prompt(self, text: str) -> None:
        self.send({"type": "user", "message": {"role": "user", "content": text}})

    def request(self, request_id: str, subtype: str, **more: Any) -> None:
        body = {"subtype": subtype, **more}
        self.send({"type": "control_request", "request_id": request_id, "request": body})

    def until(self, kind: str) -> Json:
        """The next frame of this type; those before it are kept too."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            frame: Json = json.loads(line)
            self.frames.append(frame)
            if frame["type"] == kind:
                return frame
        raise AssertionError(f"no {kind} came, but {self.types}")

    def kill(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Close our side and read the rest; the exit code."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self.frames += [json.loads(line) for line in self._process.stdout]
        return self._process.wait(20)

    def abandon(self) -> int:
        """Go away without a word; the exit code."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.request("r", "mcp_status")  # whose answer finds nobody
        return self._process.wait(20)

    @property
    def types(self) -> list[str]:
        return [frame["type"] for frame in self.frames]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def environ(stage: Stage, **more: str) -> dict[str, str]:
    home = {"BATTEN_HOME": str(stage.home), "HOME": str(stage.directory)}
    return {"PATH": os.environ["PATH"], **home, **more}


@contextmanager
def started(
    stage: Stage, *frames: Sequence[Statement], flags: Sequence[str] = ()
) -> Generator[Process, None, None]:
    model = stage.scenario(*frames)
    argv = [str(BATTEN), *OPENING, "--model", model, "--sandbox", "none", *flags]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=stage.workspace,
        env=environ(stage, **SDK),
    ) as process:
        try:
            yield Process(process)
        finally:
            process.kill()


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
    text = re.sub(rb"chat_[0-9A-Z]{26}", b"chat_ID", made.stdout)
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
