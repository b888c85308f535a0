"""A stage for campaigns: one home, one workspace, and real `batten` processes on them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
from msgspec import Struct

from batten.contract.facts import TERMINAL

BATTEN = str(Path(sys.executable).with_name("batten"))
PATIENCE_S = 60.0
"""How long any one process may take before the campaign calls it hung."""

Json = dict[str, Any]


class Finished(Struct, frozen=True):
    """A process that has ended."""

    code: int
    out: bytes
    err: bytes
    ended_at: float
    """When its end was seen, in seconds of the epoch."""

    def lines(self) -> list[bytes]:
        return self.out.splitlines()

    def frames(self) -> list[Json]:
        return [msgspec.json.decode(line) for line in self.lines()]


class Playing:
    """One running `batten`, whose output is read as it comes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._out = bytearray()
        self._looked_at = 0
        self.pid = process.pid

    def reaches(self, seen: Callable[[Json], bool]) -> Json | None:
        """Read line by line until one is what is waited for; None if none is, to the end."""
        for line in self._lines():
            frame: Json = msgspec.json.decode(line)
            if seen(frame):
                return frame
        return None

    def until(self, seen: Callable[[Json], bool]) -> Json:
        """Read until a line is what is waited for, which must come."""
        frame = self.reaches(seen)
        if frame is None:
            ended = self.end()
            raise AssertionError(f"ended with {ended.code} before it: {ended.err.decode()}")
        return frame

    def until_type(self, kind: str, **data: Any) -> Json:
        """Read until an envelope of this type, with these fields among its data."""
        return self.until(lambda one: one["type"] == kind and data.items() <= one["data"].items())

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def interrupt(self) -> None:
        self.signal(signal.SIGINT)

    def kill(self) -> None:
        self._process.kill()

    def sip(self, size: int) -> None:
        """Read at most this much of what is there, or wait for the first of it."""
        assert self._process.stdout is not None
        self._out += os.read(self._process.stdout.fileno(), size)

    @property
    def descriptor(self) -> int:
        """Where its output is read."""
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def wait(self) -> int:
        """Wait for the end without reading another byte."""
        return self._process.wait(PATIENCE_S)

    def close(self) -> None:
        """Stop reading for good: whoever writes on is told so by the kernel."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def end(self) -> Finished:
        """Read the rest and wait for the end."""
        out, err = self._process.communicate(timeout=PATIENCE_S)
        return Finished(self._process.returncode, bytes(self._out) + out, err, time.time())

    def clear_away(self) -> None:
        """Whatever became of it: it is over, and its pipes are closed."""
        self._process.kill()
        with self._process:
            pass

    def _lines(self) -> Iterator[bytes]:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while True:
            end = self._out.find(b"\n", self._looked_at)
            if end >= 0:
                line = bytes(self._out[self._looked_at : end])
                self._looked_at = end + 1
                yield line
                continue
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                return
            self._out += piece


class Stage:
    """A home and a workspace of their own, in one directory. Leaving it ends what was started."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / "home"
        self.workspace = directory / "workspace"
        self.workspace.mkdir(parents=True)
        self.environ = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "BATTEN_HOME": str(self.home),
            # A machine too busy to run us for a while is not a loop that blocks.
            "BATTEN_WATCHDOG_S": str(PATIENCE_S),
        }
        self._played: list[Playing] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for playing in self._played:
            playing.clear_away()

    def scenario(self, *frames: list[Json], name: str = "play") -> str:
        """A scripted model that plays these frames: its name for `--model`."""
        path = self.directory / f"{name}.json"
        path.write_bytes(
            msgspec.json.encode(
                {
                    "schemaVersion": "evalops.maestro.scripted-scenario.v1",
                    "id": name,
                    "description": "a campaign",
                    "metadata": {"recordedAt": "2026-01-01T00:00:00Z", "toolsExpected": []},
                    "frames": [
                        {"index": index, "statements": statements}
                        for index, statements in enumerate(frames)
                    ],
                }
            )
        )
        return f"scripted/{path}"

    def start(self, *argv: str, **environ: str) -> Playing:
        """Start `batten`."""
        return self.start_program((BATTEN,), *argv, **environ)

    def start_program(self, program: tuple[str, ...], /, *argv: str, **environ: str) -> Playing:
        """Start a process in the workspace, with nothing on its standard input."""
        playing = Playing(
            subprocess.Popen(
                [*program, *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self.workspace,
                env=self.environ | environ,
            )
        )
        self._played.append(playing)
        return playing

    def batten(self, *argv: str, **environ: str) -> Finished:
        """Run a command to its end."""
        return self.start(*argv, **environ).end()

    def prompt(self, model: str, *argv: str, output: str = "events", **environ: str) -> Playing:
        """Start a run of `batten -p` that may use the shell."""
        return self.start(
            "-p", "go", "--model", model, "--allow", "bash", "--output-format", output, *argv,
            **environ,
        )  # fmt: skip

    def resume(self, name: str, *argv: str, output: str = "events") -> Playing:
        """Go on with a session; without a prompt its unfinished run is taken over."""
        return self.start("-p", "--resume", name, "--output-format", output, *argv)

    def runs(self) -> list[Json]:
        """All runs, oldest first."""
        found = self.batten("runs", "--json", "--limit", "100000")
        assert found.code == 0, found.err
        return found.frames()[::-1]

    def stored(self, run_id: str) -> list[bytes]:
        """The envelopes of a run as `batten events` prints them; without a gap from 0."""
        found = self.batten("events", run_id)
        assert found.code == 0, found.err
        lines = found.lines()
        sequences = [msgspec.json.decode(line)["sequence"] for line in lines]
        assert sequences == list(range(len(lines)))
        return lines

    def envelopes(self, run_id: str) -> list[Json]:
        return [msgspec.json.decode(line) for line in self.stored(run_id)]

    def verify(self) -> None:
        found = self.batten("verify")
        assert (found.code, found.err) == (0, b""), found.out


def say(text: str, stream_ms: int | None = None) -> Json:
    return {"kind": "text", "text": text, **({} if stream_ms is None else {"streamMs": stream_ms})}


def pause(milliseconds: int) -> Json:
    return {"kind": "delay", "ms": milliseconds}


def call(tool: str, **arguments: Any) -> Json:
    return {"kind": "tool_call", "tool": tool, "input": arguments}


def bash(command: str, **arguments: Any) -> Json:
    return call("bash", command=command, **arguments)


def terminal(envelopes: list[Json]) -> Json:
    """The terminal fact, of which there is exactly one."""
    endings = [one for one in envelopes if one["type"] in TERMINAL]
    assert len(endings) == 1, [one["type"] for one in endings]
    return endings[0]


def at(envelope: Json) -> float:
    """When a fact happened, in seconds of the epoch."""
    from datetime import datetime

    return datetime.fromisoformat(envelope["occurred_at"]).timestamp()


def processes(marker: str) -> dict[int, str]:
    """Living processes with this text in their command line, ours aside."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            line = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (OSError, UnicodeDecodeError):
            continue
        if marker in line:
            found[int(name)] = line
    return found


def assert_none_survive(marker: str) -> None:
    """Everything with this text in its command line is gone, or goes within a few seconds."""
    patience = time.monotonic() + 5
    while left := processes(marker):
        assert time.monotonic() < patience, left
        time.sleep(0.02)
