"""A process of ours with nothing in between: lines in, lines out, and the exit code."""

import json
import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.agent.stage import Stage, Statement
from tests.claude.driving import BATTEN

Json = dict[str, Any]
SDK = {"CLAUDE_CODE_ENTRYPOINT": "sdk-py"}
OPENING = ("--output-format", "stream-json", "--verbose", "--input-format", "stream-json")


def user(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}}


def request(request_id: str, subtype: str, **more: Any) -> Json:
    body = {"subtype": subtype, **more}
    return {"type": "control_request", "request_id": request_id, "request": body}


def success(request_id: str, **body: Any) -> Json:
    """The answer of a client."""
    answer = {"subtype": "success", "request_id": request_id, "response": body}
    return {"type": "control_response", "response": answer}


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

    def send_at_once(self, *frames: Json) -> None:
        """Several lines in one write."""
        self.send(b"\n".join(json.dumps(frame).encode() for frame in frames))

    def prompt(self, text: str) -> None:
        self.send(user(text))

    def request(self, request_id: str, subtype: str, **more: Any) -> None:
        self.send(request(request_id, subtype, **more))

    def until(self, *kinds: str) -> Json:
        """The next frame of one of these types; those before it are kept too."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            frame: Json = json.loads(line)
            self.frames.append(frame)
            if frame["type"] in kinds:
                return frame
        raise AssertionError(f"no {' or '.join(kinds)} came, but {self.types}")

    @property
    def stdin(self) -> int:
        """The descriptor that we write to."""
        assert self._process.stdin is not None
        return self._process.stdin.fileno()

    def kill(self, number: int) -> None:
        self._process.send_signal(number)

    def end(self) -> int:
        """Close our side and read the rest; the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self.wait()

    def wait(self) -> int:
        """Read the rest while our side stays open; the exit code."""
        assert self._process.stdout is not None
        self.frames += [json.loads(line) for line in self._process.stdout]
        return self._process.wait(20)

    def abandon(self) -> int:
        """Go away without a word; the exit code."""
        assert self._process.stdout is not None
        self._process.stdout.close()
        self.request("r", "mcp_status")  # whose answer finds nobody
        return self._process.wait(20)

    @property
    def said(self) -> str:
        """What it told people, once it has ended."""
        assert self._process.stderr is not None
        return self._process.stderr.read().decode()

    @property
    def types(self) -> list[str]:
        return [frame["type"] for frame in self.frames]


def environ(stage: Stage, **more: str) -> dict[str, str]:
    home = {"BATTEN_HOME": str(stage.home), "HOME": str(stage.directory)}
    return {"PATH": os.environ["PATH"], **home, **more}


@contextmanager
def started(
    stage: Stage, *frames: Sequence[Statement], flags: Sequence[str] = (), **more: str
) -> Generator[Process, None, None]:
    model = stage.scenario(*frames)
    argv = [str(BATTEN), *OPENING, "--model", model, "--sandbox", "none", *flags]
    with subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=stage.workspace,
        env=environ(stage, **SDK, **more),
    ) as process:
        try:
            yield Process(process)
        finally:
            process.kill()
