"""A new protocol is one file: prompts, text, approvals, endings, interrupts, on the kit alone."""

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.agent.stage import Stage, Statement, bash, end, say
from tests.session.processes import environment

REPOSITORY = Path(__file__).parents[2]
Frame = dict[str, Any]


class Client:
    """Writes and reads one line at a time."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process

    def write(self, line: Frame | bytes) -> None:
        assert self._process.stdin is not None
        data = line if isinstance(line, bytes) else msgspec.json.encode(line)
        self._process.stdin.write(data + b"\n")
        self._process.stdin.flush()

    def read(self, until: str) -> list[Frame]:
        """Frames up to the first with this field."""
        assert self._process.stdout is not None
        frames: list[Frame] = []
        for line in self._process.stdout:
            frames.append(msgspec.json.decode(line))
            if until in frames[-1]:
                return frames
        raise AssertionError(f"no {until} in {frames}")

    def leave(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(60)


@contextmanager
def speaking(stage: Stage, *turns: list[Statement]) -> Generator[Client, None, None]:
    program = [sys.executable, "-m", "tests.serve.example_protocol", "--sandbox", "none"]
    with subprocess.Popen(
        [*program, "--workspace", str(stage.workspace), "--model", stage.scenario(*turns)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**environment(stage), "PYTHONPATH": str(REPOSITORY)},
        cwd=stage.workspace,
    ) as process:
        try:
            yield Client(process)
        finally:
            process.kill()


def text(frames: list[Frame]) -> str:
    return "".join(frame.get("text", "") for frame in frames)


def test_a_prompt_is_answered_and_the_run_ends(stage: Stage) -> None:
    with speaking(stage, [say("Hello."), end()]) as client:
        client.write({"prompt": "hi"})
        frames = client.read("end")
        assert text(frames) == "Hello."
        assert frames[-1] == {"end": "completed", "message": ""}
        assert client.leave() == 0


def test_a_call_runs_once_the_client_allows_it(stage: Stage) -> None:
    with speaking(stage, [bash("echo ran > ran.txt")], [say("Done."), end()]) as client:
        client.write({"prompt": "go"})
        asked = client.read("approve")[-1]
        assert asked["tool"] == "bash"
        assert not (stage.workspace / "ran.txt").exists()
        client.write({"answer": asked["approve"], "allow": True})
        assert text(client.read("end")) == "Done."
        assert (stage.workspace / "ran.txt").read_text() == "ran\n"
        client.write({"answer": asked["approve"], "allow": True})
        assert client.read("error") == [{"error": "it has an answer"}]
        assert client.leave() == 0


def test_a_question_is_refused_when_the_client_leaves(stage: Stage) -> None:
    with speaking(stage, [bash("echo ran > ran.txt")], [say("Then not."), end()]) as client:
        client.write({"prompt": "go"})
        client.read("approve")
        assert client.leave() == 0
        assert text(client.read("end")) == "Then not."
    assert not (stage.workspace / "ran.txt").exists()


def test_an_interrupt_ends_the_run_and_the_next_prompt_is_answered(stage: Stage) -> None:
    with speaking(stage, [bash("sleep 60")], [say("Again."), end()]) as client:
        client.write({"prompt": "go"})
        client.read("approve")
        client.write({"stop": True})
        assert client.read("end")[-1]["end"] == "cancelled"
        client.write({"prompt": "again"})
        assert client.read("end")[-1]["end"] == "completed"
        assert client.leave() == 0


def test_a_line_that_is_no_message_is_refused_and_reading_goes_on(stage: Stage) -> None:
    with speaking(stage, [say("Hello."), end()]) as client:
        client.write(b"nonsense")
        client.write({"unknown": 1})
        assert len(client.read("error")) == 1
        assert client.read("error") == [{"error": "a line is a prompt, an answer or a stop"}]
        client.write({"prompt": "hi"})
        assert text(client.read("end")) == "Hello."
        assert client.leave() == 0
