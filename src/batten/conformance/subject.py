"""The program under test: one process that speaks over its pipes and ends with the check."""

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from batten.conformance.check import Broken, Json

SILENT = "nothing was said for"
"""How the reason begins if an answer did not come in time."""
LONGEST_LINE = 16 * 1024 * 1024
MOST_HEARD = 64 * 1024 * 1024
MOST_LINES = 50_000
"""Bytes and lines of one process. A program that writes more in one check never stops."""
_TRANSCRIPT_LINES = 14
_SHOWN_CHARACTERS = 240
_KEPT_ERRORS = 4096
_LEAVING_S = 0.3
_ENDING_S = 2.0
_POLL_S = 0.01

Match = Callable[[Json], bool]


class Subject:
    """Writes lines and reads objects. Other lines are kept apart."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", output: asyncio.StreamReader, patience_s: float
    ) -> None:
        assert process.stdin is not None
        self._process = process
        self._input = process.stdin
        self._output = output
        self._patience_s = patience_s
        self._heard_bytes = self._heard_lines = 0
        self._transcript: deque[str] = deque(maxlen=_TRANSCRIPT_LINES)
        self.heard: list[Json] = []
        self.stray: list[bytes] = []
        self.errors = b""
        self._deaf = ""

    async def say(self, *messages: Json) -> None:
        await self.write(b"".join(msgspec.json.encode(one) + b"\n" for one in messages))

    async def write(self, data: bytes) -> None:
        for line in data.splitlines():
            self._transcript.append(f"> {_shown(line)}")
        left = memoryview(data)
        try:
            async with asyncio.timeout(self._patience_s):
                while left:
                    left = left[await self._written(left) :]
        except TimeoutError:
            raise Broken(f"it read nothing for {self._patience_s:g} s") from None
        except OSError:
            self._deaf = " after it closed its standard input"  # it may have written the reason

    async def _written(self, data: memoryview) -> int:
        with suppress(BlockingIOError):
            return os.write(self._input.fileno(), data)
        loop = asyncio.get_running_loop()
        writable = asyncio.Event()
        loop.add_writer(self._input, writable.set)
        try:
            await writable.wait()
        finally:
            loop.remove_writer(self._input)
        return 0

    async def hear(self, what: str) -> Json:
        """The next object; `what` names it in errors."""
        message = await self._next(what)
        if message is None:
            await self._gone(_ENDING_S)
            raise Broken(f"it ended its output{self._how_it_ended()}; expected {what}")
        return message

    async def until(self, match: Match, what: str) -> Json:
        """The next object that matches; those before it are kept in `heard`."""
        while not match(message := await self.hear(what)):
            pass
        return message

    async def rest(self) -> list[Json]:
        """All objects until the end of output."""
        before = len(self.heard)
        while await self._next("the end of its output") is not None:
            pass
        return self.heard[before:]

    async def _next(self, what: str) -> Json | None:
        while line := await self._line(what):
            self._transcript.append(f"< {_shown(line.rstrip())}")
            message = _object(line)
            if message is not None:
                self.heard.append(message)
                return message
            if len(self.stray) < _TRANSCRIPT_LINES:
                self.stray.append(line)
        return None

    async def _line(self, what: str) -> bytes:
        try:
            async with asyncio.timeout(self._patience_s):
                line = await self._output.readline()
        except TimeoutError:
            reason = f"{SILENT} {self._patience_s:g} s{self._deaf}"
            raise Broken(f"{reason}; expected {what}") from None
        except ValueError:
            raise Broken(f"it wrote a line of more than {LONGEST_LINE} bytes") from None
        self._heard_bytes += len(line)
        self._heard_lines += 1
        if self._heard_bytes > MOST_HEARD or self._heard_lines > MOST_LINES:
            raise Broken(f"it wrote {self._heard_lines} lines and did not stop; expected {what}")
        return line

    def hang_up(self) -> None:
        with suppress(OSError):
            self._input.close()

    async def exit_code(self) -> int:
        """Its exit code; below zero for a signal."""
        if not await self._gone(self._patience_s):
            raise Broken(f"it still runs after {self._patience_s:g} s; expected it to leave")
        code: int = self._process.returncode
        return code

    async def keep_errors(self, reader: asyncio.StreamReader) -> None:
        """Read its standard error to the end and keep the last of it."""
        while piece := await reader.read(65536):
            self.errors = (self.errors + piece)[-_KEPT_ERRORS:]

    async def end(self) -> None:
        """It is asked to leave, then told, then made to; and so is its whole process group."""
        self.hang_up()
        if not await self._gone(_LEAVING_S):
            self._signal(signal.SIGTERM)
            await self._gone(_ENDING_S)
        self._signal(signal.SIGKILL)
        while not await self._gone(_ENDING_S):
            pass

    def transcript(self) -> list[str]:
        """The last lines of the conversation and of standard error."""
        return [*self._transcript, *(f"! {_shown(one)}" for one in self.errors.splitlines()[-3:])]

    async def _gone(self, seconds: float) -> bool:
        for _ in range(int(seconds / _POLL_S)):
            if self._process.poll() is not None:
                return True
            await asyncio.sleep(_POLL_S)
        return self._process.poll() is not None

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def _how_it_ended(self) -> str:
        code = self._process.poll()
        return "" if code is None else f" and left with {code}"


def spawn(
    argv: Sequence[str], workspace: str, environ: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start it as the leader of a process group of its own. `Broken`: it cannot be started."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=workspace,
            env=dict(environ),
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise Broken(f"{argv[0]} cannot be started: {error.strerror}") from error
    assert process.stdin is not None
    os.set_blocking(process.stdin.fileno(), False)
    return process


def end_marked(marker: str) -> None:
    """Kill every process with this text in its environment that left the process group.

    Needs /proc; elsewhere only the process group is killed.
    """
    wanted = marker.encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if not name.isdigit():
            continue
        with suppress(OSError):
            with open(f"/proc/{name}/environ", "rb") as file:
                found = wanted in file.read()
            if found:
                os.kill(int(name), signal.SIGKILL)


def _object(line: bytes) -> Json | None:
    """The object on a complete line; None for any other line."""
    try:
        message: Json = msgspec.json.decode(line, type=Json)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None
    return message if line.endswith(b"\n") else None


def _shown(line: bytes) -> str:
    return shown(line[: 4 * _SHOWN_CHARACTERS].decode(errors="backslashreplace"))


def shown(text: str, most: int = _SHOWN_CHARACTERS) -> str:
    """Text of the program's, shortened and made printable on one line."""
    cut = text if len(text) <= most else f"{text[:most]}…"
    return "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in cut)
