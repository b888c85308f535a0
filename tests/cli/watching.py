"""`batten` on a terminal of its own, and what that terminal shows."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

import pyte

from tests.agent.stage import Stage
from tests.session.processes import BATTEN, PATIENCE_S, environment


class Watched:
    """A process whose standard output and error are one terminal."""

    def __init__(self, process: "subprocess.Popen[bytes]", terminal: int, columns: int) -> None:
        self.process = process
        self.raw = b""
        self._terminal = terminal
        self._screen = pyte.Screen(columns, 200)
        self._stream = pyte.ByteStream(self._screen)

    @property
    def text(self) -> str:
        """The screen, without blanks at the ends of lines."""
        return "\n".join(row.rstrip() for row in self._screen.display).rstrip("\n")

    @property
    def cursor(self) -> tuple[int, int]:
        """Row and column."""
        return self._screen.cursor.y, self._screen.cursor.x

    @property
    def is_cursor_hidden(self) -> bool:
        return bool(self._screen.cursor.hidden)

    def color(self, text: str) -> str:
        """The colour of the first letter of a text on the screen."""
        for y, row in enumerate(self._screen.display):
            if text in row:
                return str(self._screen.buffer[y][row.index(text)].fg)
        raise AssertionError(f"{text!r} is not on the screen:\n{self.text}")

    def until(self, is_so: "Callable[[Watched], bool]") -> None:
        """Read until the screen shows it."""
        deadline = time.monotonic() + PATIENCE_S
        while not is_so(self):
            assert time.monotonic() < deadline, self.text
            assert self._read(1.0) is not None, f"it ended:\n{self.text}"

    def end(self) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read(1.0) is not None:
            assert time.monotonic() < deadline, self.text
        return self.process.wait(PATIENCE_S)

    def resize(self, columns: int) -> None:
        self._screen.resize(200, columns)
        resize(self._terminal, columns)

    def press(self, keys: bytes) -> None:
        os.write(self._terminal, keys)

    def _read(self, timeout_s: float) -> bytes | None:
        """The next bytes, empty for none yet; None at the end."""
        if not select.select([self._terminal], [], [], timeout_s)[0]:
            return b""
        try:
            piece = os.read(self._terminal, 65536)
        except OSError:  # no process has the terminal any more
            return None
        self.raw += piece
        self._stream.feed(piece)
        return piece


def resize(terminal: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))


@contextmanager
def watching(
    stage: Stage,
    *argv: str,
    columns: int = 80,
    stdout: int | None = None,
    environ: Mapping[str, str] | None = None,
) -> Generator[Watched, None, None]:
    """`batten` on a terminal that it controls; `stdout` may be something else."""
    ours, its = pty.openpty()
    resize(its, columns)
    settings = {**environment(stage), "TERM": "xterm-256color", **(environ or {})}
    process = subprocess.Popen(
        [BATTEN, *argv], env=settings, cwd=stage.workspace, stdin=its,
        stdout=its if stdout is None else stdout, stderr=its, start_new_session=True,
        preexec_fn=_control_terminal,
    )  # fmt: skip
    os.close(its)
    try:
        yield Watched(process, ours, columns)
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _control_terminal() -> None:
    """Make standard input the terminal that sends the signals of keys."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def watch(stage: Stage, *argv: str, columns: int = 80, **environ: str) -> Watched:
    """Run to the end."""
    with watching(stage, *argv, columns=columns, environ=environ) as watched:
        watched.end()
    return watched
