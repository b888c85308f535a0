"""A conversation with a real `batten`: its input is written, its frames are read, as they come."""

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import msgspec

from tests.agent.stage import Stage
from tests.session.processes import BATTEN, environment

Json = dict[str, Any]
PATIENCE_S = 60.0
INTERRUPT: Json = {"type": "control", "subtype": "interrupt"}


class Conversation:
    """Leaving it ends the process, whatever became of it."""

    def __init__(
        self, stage: Stage, *argv: str, program: Sequence[str] = (BATTEN,), **environ: str
    ) -> None:
        self._process = subprocess.Popen(
            [*program, "--input-format", "stream-json", "--sandbox", "none", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=stage.workspace,
            env={**environment(stage), **environ},
        )
        self.out = bytearray()
        self.err = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        with self._process:
            pass

    def send(self, *frames: Json | bytes) -> None:
        """All of them at once."""
        assert self._process.stdin is not None
        lines = (one if isinstance(one, bytes) else msgspec.json.encode(one) for one in frames)
        self._process.stdin.write(b"".join(line + b"\n" for line in lines))
        self._process.stdin.flush()

    def ask(self, *texts: str) -> None:
        self.send(*({"type": "user", "content": text} for text in texts))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def until(self, kind: str) -> Json:
        """Read until there is a frame of this type or subtype."""
        for frame in self._frames():
            if kind in (frame["type"], frame.get("subtype")):
                return frame
        raise AssertionError(f"no {kind}: {bytes(self.out)!r}")

    def end(self) -> int:
        """Read the rest and wait for the end; the exit code."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        for _ in self._frames():
            pass
        self.err = self._process.stderr.read()
        return self._process.wait(PATIENCE_S)

    def go_away(self) -> None:
        """Read no more: whoever writes on is told so by the kernel."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def code(self) -> int:
        """Wait for the end without reading."""
        return self._process.wait(PATIENCE_S)

    def frames(self) -> list[Json]:
        return [msgspec.json.decode(line) for line in self.out.splitlines()]

    def _frames(self) -> Iterator[Json]:
        """The frames that have not been read yet."""
        assert self._process.stdout is not None
        seen = self.out.count(b"\n")
        while True:
            lines = self.out.split(b"\n")[:-1]
            while seen < len(lines):
                seen += 1
                yield msgspec.json.decode(lines[seen - 1])
            descriptor = self._process.stdout.fileno()
            ready, _, _ = select.select([descriptor], [], [], PATIENCE_S)
            assert ready, f"nothing for {PATIENCE_S} s after {bytes(self.out[-500:])!r}"
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                return
            self.out += piece


def eventually(seen: Callable[[], object]) -> None:
    """Wait until this holds."""
    patience = time.monotonic() + PATIENCE_S
    while not seen():
        assert time.monotonic() < patience
        time.sleep(0.01)
