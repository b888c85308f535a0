"""The dispatcher for every protocol on standard input and output.

It reads whole, bounded lines; turns a line that is not a JSON object into a typed fault and reads
on; waits for a slow reader, and stops reading from a client that stops reading; redirects other
writes to descriptor 1 to standard error; and ends the process in time, with a last frame, on a
signal, a closed pipe or a blocked loop.

A protocol is a codec in `batten.protocols` and a `Surface`, which `cli/headless.py` builds as
`make(stdio, opener)` and serves until its `run` returns the exit code:

- `take` receives each message in order and returns soon: it answers with `stdio.send`, passes
  commands to its `LiveSession`, and starts long work in `stdio.group`. Nothing more is read while
  it waits, so a full queue of prompts slows the client down.
- `refuse` answers a line that cannot be read; reading continues after it.
- `hang_up` is called once, when the client closes its side, or when a signal or a closed output
  ends the process (then `stdio.guard(…).asked` is set, and a `Showing` cancels its run). `run`
  finishes earlier requests and returns.
- `run` opens sessions with `opener.open` and shows each until it is shut down:
  `Showing(LiveSession(session), renderer, stdio.output, stdio.guard(renderer)).run()`.
- `fail` reports, as a frame of the protocol, why the process ends.

`take` may be called before `run` has opened anything, and importing a surface must stay cheap:
`opener.open` loads the agent, the tools and the store, after the client was greeted.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

from batten.protocols import json_line
from batten.protocols.json_line import Malformed
from batten.serve.lines import Lines, ReadFailed, TooLong
from batten.serve.output import Output, say
from batten.serve.pace import STALLED_S

if TYPE_CHECKING:
    from batten.contract.outcomes import Outcome
    from batten.serve.guard import Guard, SessionGuard
    from batten.serve.renderer import Renderer

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a line: a prompt may contain images."""
_MOST_UNREAD = 4 << 20
"""Queued output bytes above which no more input is read from the client."""


class Surface(Protocol):
    """One protocol on one pair of streams."""

    async def run(self) -> int:
        """Serve until all work is done; the exit code."""
        ...

    async def take(self, message: dict[str, Any]) -> None:
        """Handle a message from the client."""
        ...

    async def refuse(self, malformed: Malformed) -> None:
        """Answer a line that is not a message, in order with the others."""
        ...

    async def hang_up(self) -> None:
        """The client sends nothing more."""
        ...

    def fail(self, outcome: "Outcome", message: str) -> None:
        """Report an ending that no fact of a session shows."""
        ...


class Stdio:
    """Standard input and output while a protocol uses them."""

    def __init__(
        self,
        signals: Sequence[signal.Signals] = (),
        streams: tuple[int, int] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        """`streams` are the descriptors to read and write in an embedder's process. They are
        closed at the end; the process's own descriptors and signals are not touched.
        """
        self.longest_line = LONGEST_LINE
        """Bytes; a surface may lower it in its constructor."""
        self._signals = list(signals)
        self._streams = streams
        self._environ = environ or {}
        self._kept: list[int] = []
        self._group: asyncio.TaskGroup | None = None
        self._guard: Guard | None = None
        self._main: asyncio.Task[int] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._has_begun = False
        """Whether `Lines` has the descriptor that is read, and closes it if it is an embedder's."""
        self._ending: asyncio.Task[None] | None = None
        self._surface: Surface | None = None
        self._hung_up = False

    def __enter__(self) -> Self:
        """Redirect descriptors 0 and 1, so that other code and child processes cannot use them."""
        self.people = Output(2, styled=True)
        if self._streams is not None:
            self.output = Output(self._streams[1], owned=True)
            return self
        self._kept = [os.dup(0), os.dup(1)]
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self.output = Output(self._kept[1])
        return self

    def __exit__(self, *raised: object) -> None:
        if self._guard is not None:
            self._guard.stop()
        self.output.close()
        self.people.close()
        if self._streams is not None and not self._has_begun:
            os.close(self._streams[0])
        for number, descriptor in enumerate(self._kept):
            os.dup2(descriptor, number)

    @property
    def group(self) -> asyncio.TaskGroup:
        """For background tasks; they must end, or be cancelled, before `run` returns."""
        assert self._group is not None
        return self._group

    def send(self, frame: bytes) -> None:
        self.output.write(frame)

    async def room(self) -> None:
        """Wait while the client reads slower than we write."""
        await self.output.room()

    def guard_process(self) -> "Guard":
        """The guard that ends this process in time; the first call starts it."""
        from batten.serve.guard import Guard, blocked_s

        if self._guard is None:
            leave = None if self._streams is None else self._leave_from_outside
            limit_s = blocked_s(self._environ)
            self._guard = Guard(self.output, self.people, leave, blocked_s=limit_s)
            self._guard.start(self._main, self._signals)
            self._guard.begun = True
            self._ending = self.group.create_task(self._end_when_asked(self._guard))
        return self._guard

    def guard(self, renderer: "Renderer", *, is_only: bool = True) -> "SessionGuard":
        """A guard for one session; call its `leave` when the session is closed."""
        return self.guard_process().session(renderer, is_only=is_only)

    @property
    def is_ending(self) -> bool:
        """Whether a signal or a closed output has asked the process to end."""
        return self._guard is not None and self._guard.asked.is_set()

    async def serve(self, surface: Surface) -> int:
        """Serve a protocol until its `run` returns; the exit code."""
        loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        assert self._main is not None
        # Before there is a guard there is no run to end: cancelling is enough.
        self.output.on_closed(lambda: loop.call_soon_threadsafe(self._cancel))
        for number in self._signals:
            loop.add_signal_handler(number, self._cancel)
        if self._streams is None:
            self.output.watch_reader(self._cancel)  # a killed client sends no shutdown
        try:
            async with asyncio.TaskGroup() as self._group:
                self._surface = surface
                self._reading = self._group.create_task(self._read(surface))
                try:
                    code = await surface.run()
                finally:
                    for task in (self._reading, self._ending):
                        if task is not None:
                            task.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        return code

    async def leave(self, outcome: "Outcome", code: int) -> int:
        """Wait until the client has read all output or stalls; returns the exit code."""
        if self._guard is not None:
            self._guard.finishing(outcome)
        await self.output.drained(STALLED_S)
        if self.output.problem:
            code = code or 1  # the client did not receive the result
        if self._guard is not None:
            self._guard.leave(code)
        return code

    def _leave_from_outside(self, code: int) -> None:
        """From a thread: cancel our part of an embedder's process."""
        assert self._main is not None
        self._main.get_loop().call_soon_threadsafe(self._main.cancel)

    def _cancel(self) -> None:
        if self._guard is not None:
            self._guard.cancel("output closed")
        elif self._main is not None:
            self._main.cancel()

    async def _read(self, surface: Surface) -> None:
        self._has_begun = True
        owned = self._streams is not None
        source = self._streams[0] if self._streams is not None else self._kept[0]
        async for line in Lines(source, longest=self.longest_line, owned=owned):
            match line:
                case TooLong():
                    await surface.refuse(json_line.too_long(self.longest_line, line.head))
                case ReadFailed():
                    say(f"batten: standard input cannot be read: {line.reason}")
                case bytes() if line.strip():
                    message = json_line.read(line)
                    if isinstance(message, Malformed):
                        await surface.refuse(message)
                    else:
                        await surface.take(message)
                case _:
                    pass
            while self.output.waiting > _MOST_UNREAD and not self.output.closed:
                await self.output.room()
        await self._hang_up()

    async def _end_when_asked(self, guard: "Guard") -> None:
        await guard.asked.wait()
        if self._reading is not None:
            self._reading.cancel()
        await self._hang_up()

    async def _hang_up(self) -> None:
        if not self._hung_up:
            self._hung_up = True
            assert self._surface is not None
            await self._surface.hang_up()
