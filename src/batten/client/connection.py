"""Messages to and from one worker, dispatched to the runs and utilities that wait for them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import Protocol

from msgspec import UNSET

from batten.client.decoding import Decoder
from batten.client.encoding import encoded
from batten.client.errors import NoAnswer, WorkerDied, WorkerError
from batten.client.events import Unknown
from batten.client.mailbox import Flow
from batten.client.transport import Transport
from batten.contract.errors import BattenError, Conflict, PeerError
from batten.protocols.maestro import outgoing
from batten.protocols.maestro.incoming import Incoming

_END_S = 10.0
"""How long to wait for the exit code after the worker closed its output."""

AnyMessage = outgoing.Message | Unknown


class Receiver(Protocol):
    """Receives messages from the worker, and the failure that ends the connection."""

    def take(self, message: AnyMessage, size: int) -> None: ...

    def fail(self, error: BattenError) -> None: ...


class Connection:
    """Sends and dispatches messages. After a failure every call raises that failure."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder()
        self._utilities: dict[str, Receiver] = {}
        self._numbers = count(1)
        self._last_words = ""
        self.flow = Flow()
        self.receiver: Receiver | None = None
        """Receives every message that does not belong to a utility."""
        self.failure: BattenError | None = None
        self._failed = asyncio.Event()

    def check(self) -> None:
        """Raise the failure, or `Conflict` on another event loop."""
        if self.failure is not None:
            raise self.failure
        if asyncio.get_running_loop() is not self._loop:
            raise Conflict("the worker was started on another event loop, and is used on that one")

    async def send(self, message: Incoming) -> None:
        """Send a message. It is written whole even if the caller is cancelled meanwhile."""
        await self.write(encoded(message))

    async def write(self, line: bytes) -> None:
        self.check()
        with self.flow.awaited():
            try:
                await self._transport.write(line)
            except WorkerDied as error:
                raise await self._why(error) from error

    async def _why(self, error: WorkerDied) -> BattenError:
        """The reading side knows more about the worker's end than a failed write does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                await self._failed.wait()
        return self.failure or error

    def hang_up(self) -> None:
        self._transport.hang_up()

    @property
    def complaints(self) -> str:
        return self._transport.complaints

    def utility_id(self) -> str:
        return f"utility-{next(self._numbers)}"

    def register(self, utility_id: str, receiver: Receiver) -> Callable[[], object]:
        """Send messages about a utility to `receiver` until the returned function is called."""
        self.check()
        self._utilities[utility_id] = receiver
        return lambda: self._utilities.pop(utility_id, None)

    async def listen(self) -> None:
        """Read and dispatch messages until the end of output."""
        try:
            while data := await self._transport.read():
                for message, size in self._decoder.feed(data):
                    self._take(message, size)
                    if not self.flow.is_free:
                        await self.flow.free()
                await asyncio.sleep(0)  # let the receivers act on the message
        except PeerError as error:
            self.fail(error)
        except OSError as error:
            self.fail(await self._death(f", and cannot be read: {error}"))
        else:
            self.fail(await self._death())

    def fail(self, error: BattenError) -> None:
        """End the connection: every receiver gets the error, once."""
        if self.failure is not None:
            return
        self.failure = error
        self._failed.set()
        receivers = [*self._utilities.values(), *([self.receiver] if self.receiver else [])]
        for receiver in receivers:
            receiver.fail(error)

    def _take(self, message: AnyMessage, size: int) -> None:
        if isinstance(message, outgoing.Error) and message.fatal:
            self._last_words = message.message
        about = _utility_id_of(message)
        receiver = self.receiver if about is None else self._utilities.get(about)
        if receiver is not None:
            receiver.take(message, size)

    async def _death(self, why: str = "") -> WorkerError:
        exit_code: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                exit_code = await self._transport.ended()
        how = "without ending" if exit_code is None else f"with exit code {exit_code}"
        text = f"the worker left {how}{why}"
        if self._last_words:
            text = f"{text}, saying {self._last_words!r}"
        return WorkerDied(text, exit_code=exit_code, complaints=self._transport.complaints)


@asynccontextmanager
async def within(seconds: float | None, late: str) -> AsyncGenerator[None, None]:
    """Bound a wait: `NoAnswer` after so many seconds. A timeout of the caller's passes."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise NoAnswer(f"{late} within {seconds:g} s") from error


def _utility_id_of(message: AnyMessage) -> str | None:
    match message:
        case (
            outgoing.CommandStarted()
            | outgoing.CommandResized()
            | outgoing.CommandOutput()
            | outgoing.CommandExited()
        ):
            return message.command_id
        case outgoing.FileSearchResults():
            return message.search_id
        case outgoing.FileReadResult():
            return message.read_id
        case outgoing.WatchStarted() | outgoing.WatchEvent() | outgoing.WatchStopped():
            return message.watch_id
        case outgoing.Error():
            return None if message.request_id is UNSET else message.request_id
        case _:
            return None
