"""One running command: its output, its input, its terminal and its exit.

The process itself belongs to the keeper. Output is read straight from the pipe, on demand, so the
kernel throttles a command that writes faster than its reader.
"""

import asyncio
import fcntl
import os
import struct
from collections.abc import AsyncIterator
from signal import Signals
from typing import Literal, Self

from msgspec import Struct

from batten.contract.errors import Conflict
from batten.workspace.control import PATIENCE_S, Control, keeper_lost
from batten.workspace.sandbox import Layer

Stream = Literal["stdout", "stderr"]

CHUNK_BYTES = 64 * 1024
_END_OF_INPUT = b"\x04"


class Exit(Struct, frozen=True):
    """The command's own exit: a code or a signal."""

    exit_code: int | None
    signal: str | None = None

    @property
    def success(self) -> bool:
        return self.exit_code == 0


class Launch(Struct, frozen=True):
    """A command's start, as it is recorded."""

    line: str
    """The command line as a user would type it."""
    argv: list[str]
    cwd: str
    env_keys: list[str]
    """The names are recorded, the values are not."""
    sandbox_layer: Layer
    pty: tuple[int, int] | None = None
    terminal_id: str | None = None
    """The client's terminal that runs the command, if it does."""


class Command:
    """Use it as `async with`: leaving the block, also by cancellation, ends the whole tree.

    Processes the command leaves behind are ended shortly after its exit and named in `killed`.
    """

    cut = False
    """All output is read as it is written."""

    def __init__(
        self,
        control: Control,
        launch: Launch,
        streams: dict[Stream, int],
        stdin: int | None,
        pid: int | None,
    ) -> None:
        self._control = control
        self._streams = streams
        self._stdin = stdin
        self.launch = launch
        self.pid = pid
        """As we see it; None unless it was asked for, and where the kernel does not tell."""

    @property
    def killed(self) -> tuple[str, ...]:
        """Command lines of the processes killed besides the command itself."""
        return self._control.killed

    @property
    def exit(self) -> Exit | None:
        """None while the command runs."""
        status = self._control.status
        return None if status is None else _exit_of(status)

    @property
    def over(self) -> bool:
        """The whole tree has ended, or the keeper was lost and the tree with it."""
        return self._control.over

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Chunks as they arrive, until the command has exited and all output is read.

        Iteration can stop and resume. Raises if the keeper was lost before the command exited.
        """
        while True:
            over = self._control.over
            found = False
            for stream in tuple(self._streams):
                if chunk := self._read(stream):
                    found = True
                    yield stream, chunk
                    # A reader that never has to wait would starve other tasks.
                    await asyncio.sleep(0)
            if found:
                continue
            if over or not self._streams:
                break
            await self._wait_for_output()
        self._close_streams()
        await self.wait()
        self._control.end_tree(0)
        await self._control.until_over()

    async def wait(self) -> Exit:
        """Wait for the exit. If nothing reads the output, the command may never exit."""
        await self._control.until(lambda: self._control.status is not None or self._control.over)
        if self.exit is None:
            raise keeper_lost(f"Command {self.launch.argv[0]} was lost")
        return self.exit

    async def write_stdin(self, data: bytes) -> None:
        """Return once all of it is written, which waits for a command that reads slowly."""
        rest = memoryview(data)
        while rest:
            descriptor = self._open_stdin()
            try:
                rest = rest[os.write(descriptor, rest) :]
            except BlockingIOError:
                await self._wait_for_room(descriptor)
            except OSError as error:
                self._close_stdin()
                raise Conflict(
                    "The command's stdin is not writable: it has been closed",
                    code="stdin_closed",
                ) from error

    async def close_stdin(self) -> None:
        """Signal end of input; on a terminal, by a control character."""
        if self.launch.pty is None:
            self._open_stdin()
            self._close_stdin()
        else:
            await self.write_stdin(_END_OF_INPUT)

    def resize(self, columns: int, rows: int) -> None:
        if self.launch.pty is None:
            raise Conflict("Resize is only supported for pty commands", code="not_a_terminal")
        import termios

        size = struct.pack("@HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._open_stdin(), termios.TIOCSWINSZ, size)

    async def terminate(self, grace_s: float = 1.0) -> None:
        """Send TERM to the whole tree, kill the rest after the grace period, wait for its end.

        Does nothing once the tree has ended.
        """
        self._control.end_tree(grace_s)
        await self._control.until_over(grace_s + PATIENCE_S)
        self._close_stdin()

    async def kill(self) -> None:
        await self.terminate(0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Kill the tree and close every descriptor."""
        try:
            await self.kill()
        finally:
            self.drop()

    def drop(self) -> None:
        """Close every descriptor, on which the tree ends. Does not wait."""
        self._close_stdin()
        self._close_streams()
        self._control.close()

    def _read(self, stream: Stream) -> bytes:
        """The available bytes, or none. Closes a stream at its end."""
        descriptor = self._streams[stream]
        try:
            chunk = os.read(descriptor, CHUNK_BYTES)
        except BlockingIOError:
            return b""
        except OSError:
            # A terminal without a process on its other side reports an error.
            chunk = b""
        if not chunk:
            del self._streams[stream]
            os.close(descriptor)
        return chunk

    async def _wait_for_output(self) -> None:
        loop = asyncio.get_running_loop()
        watched = list(self._streams.values())
        for descriptor in watched:
            loop.add_reader(descriptor, self._control.wake)
        try:
            await self._control.change()
        finally:
            for descriptor in watched:
                loop.remove_reader(descriptor)

    async def _wait_for_room(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        loop.add_writer(descriptor, self._control.wake)
        try:
            await self._control.change()
        finally:
            loop.remove_writer(descriptor)

    def _open_stdin(self) -> int:
        if self._stdin is None:
            raise Conflict(
                "The command's stdin is closed; start it with stdin open to write to it",
                code="stdin_closed",
            )
        return self._stdin

    def _close_stdin(self) -> None:
        if self._stdin is not None:
            descriptor, self._stdin = self._stdin, None
            os.close(descriptor)

    def _close_streams(self) -> None:
        while self._streams:
            os.close(self._streams.popitem()[1])


def _exit_of(status: int) -> Exit:
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return Exit(code)
    try:
        return Exit(None, Signals(-code).name)
    except ValueError:
        return Exit(None, f"SIG{-code}")
