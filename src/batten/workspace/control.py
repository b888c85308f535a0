"""Our end of one command's control socket: the shim's reports, and our requests to it."""

import asyncio
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress

from batten.contract.errors import ProviderError
from batten.workspace import keeper_messages as wire

PATIENCE_S = 10.0
"""How long the keeper may take to start a command, or to end one beyond its grace period."""


def keeper_lost(what: str) -> ProviderError:
    return ProviderError(
        f"{what}: the process that keeps commands ended; the next command starts a new one",
        code="keeper_lost",
        retriable=True,
    )


class Control:
    """The state of one command, updated as the shim reports. `until` waits for a change."""

    def __init__(self, sock: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._buffer = wire.MessageBuffer()
        self._waiting: set[asyncio.Future[None]] = set()
        self.accepted = False
        """A shim accepted the command, or may have. Otherwise nothing can have run."""
        self.pid = 0
        self.terminal: int | None = None
        self.failure: tuple[int, int] | None = None
        """Error number and stage; no process was started."""
        self.status: int | None = None
        self.killed: tuple[str, ...] = ()
        self.ended = False
        """The whole tree has ended."""
        self.lost = False
        """The shim died, or we closed the socket, before it reported the exit."""
        self._when_closed: Callable[[], None] | None = None
        self._loop.add_reader(sock, self._receive)

    @property
    def answered(self) -> bool:
        return self.pid != 0 or self.failure is not None or self.over

    @property
    def over(self) -> bool:
        return self.ended or self.lost

    async def request(self, body: bytes, descriptors: list[int]) -> None:
        """Send the command with its pipes, and wait until it has started or failed."""
        message = wire.message(wire.REQUEST, body)
        try:
            async with asyncio.timeout(PATIENCE_S):
                sent = socket.send_fds(self._socket, [message], descriptors)
                if sent < len(message):
                    await self._loop.sock_sendall(self._socket, message[sent:])
                await self.until(lambda: self.answered)
        except TimeoutError:
            # A stopped shim may still have accepted it.
            self.accepted = True
            self.close()
        except OSError:
            self.close()

    def end_tree(self, grace_s: float) -> None:
        """Ask the shim to end the whole tree. Does not wait."""
        if self.over:
            return
        grace = wire.GRACE.pack(min(int(grace_s * 1000), 2**32 - 1))
        try:
            self._socket.send(wire.message(wire.END_TREE, grace))
        except OSError:
            # The shim has just ended. Its last messages are still to be read.
            return

    def numbered(self) -> None:
        """Tell the shim that the command's pid was looked up."""
        with suppress(OSError):  # it has just ended
            self._socket.send(wire.message(wire.NUMBERED))

    async def until_over(self, patience_s: float = PATIENCE_S) -> None:
        try:
            async with asyncio.timeout(patience_s):
                await self.until(lambda: self.over)
        except TimeoutError:
            self.close()

    async def until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            await self.change()

    async def change(self) -> None:
        """Wait for the next `wake`."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)

    def wake(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def when_closed(self, call: Callable[[], None]) -> None:
        """Register a call for when the shim is gone or the socket is closed."""
        self._when_closed = call

    def close(self) -> None:
        """Close the socket, on which the shim ends the whole tree.

        The exit is no longer reported, so waiters wake at once.
        """
        self.lost = not self.ended
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            if self._when_closed is not None:
                self._when_closed()
        self.wake()

    def _receive(self) -> None:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, 65536, 1)
        except BlockingIOError:
            return
        except OSError:
            data, descriptors = b"", []
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
            self.terminal = descriptor
        if not data:
            self.close()
            return
        self._buffer.receive(data)
        try:
            while (found := self._buffer.next_message()) is not None:
                self._learn(*found)
        except (ValueError, struct.error):
            # Not a message of a shim: treat the command as lost.
            self.close()
        self.wake()

    def _learn(self, kind: int, body: bytes) -> None:
        if kind == wire.ACCEPTED:
            self.accepted = True
        elif kind == wire.STARTED:
            (self.pid,) = wire.PID.unpack(body)
        elif kind == wire.FAILED:
            self.failure = wire.FAILURE.unpack(body)
        elif kind == wire.EXITED:
            (self.status,) = wire.STATUS.unpack(body)
        elif kind == wire.ENDED:
            self.killed = tuple(n.decode(errors="replace") for n in body.split(b"\0") if n)
            self.ended = True
