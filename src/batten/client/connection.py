"""The conversation with one worker: what is said to it, and who hears what it says."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Protocol

from msgspec import UNSET

from batten.client.decoding import Decoder
from batten.client.encoding import encoded
from batten.client.errors import WorkerDied, WorkerError
from batten.client.events import Unknown
from batten.client.mailbox import Flow
from batten.client.transport import Transport
from batten.contract.errors import BattenError, Conflict, PeerError
from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.incoming import Incoming

_END_S = 10.0
"""How long a worker that says nothing more may take to end before that is said of it."""

Said = heard.Message | Unknown


class Hearer(Protocol):
    """Who is told what the worker says, and that it says nothing more."""

    def take(self, message: Said, size: int) -> None: ...

    def fail(self, error: BattenError) -> None: ...


class Connection:
    """Speaks and listens. Once it has failed, everything that is asked of it raises that."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._decoder = Decoder()
        self._utilities: dict[str, Hearer] = {}
        self._numbers = count(1)
        self._last_words = ""
        self.flow = Flow()
        self.hearer: Hearer | None = None
        """Who is told of everything that is not about a utility."""
        self.failure: BattenError | None = None
        self._failed = asyncio.Event()

    def check(self) -> None:
        """Raise if there is nobody to speak to, or not from here."""
        if self.failure is not None:
            raise self.failure
        if asyncio.get_running_loop() is not self._loop:
            raise Conflict("the worker was started on another event loop, and is used on that one")

    async def send(self, message: Incoming) -> None:
        """Say something; it is said even if whoever waits for that leaves."""
        await self.write(encoded(message))

    async def write(self, line: bytes) -> None:
        """Say something that was encoded before."""
        self.check()
        with self.flow.awaited():
            try:
                await self._transport.write(line)
            except WorkerDied as error:
                raise await self._why(error) from error

    async def _why(self, error: WorkerDied) -> BattenError:
        """Who reads what the worker said last knows more of its end than who writes."""
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

    def hear(self, utility_id: str, hearer: Hearer) -> Callable[[], object]:
        """Tell somebody what is said of a utility, until what this returns is called."""
        self.check()
        self._utilities[utility_id] = hearer
        return lambda: self._utilities.pop(utility_id, None)

    async def listen(self) -> None:
        """Read until there is nothing more to read."""
        try:
            while data := await self._transport.read():
                for message, size in self._decoder.feed(data):
                    self._take(message, size)
                    if not self.flow.is_free:
                        await self.flow.free()
                await asyncio.sleep(0)  # who was told something gets to act on it
        except PeerError as error:
            self.fail(error)
        except OSError as error:
            self.fail(await self._death(f", and cannot be read: {error}"))
        else:
            self.fail(await self._death())

    def fail(self, error: BattenError) -> None:
        """Nothing more will be said or heard: everybody is told, once."""
        if self.failure is not None:
            return
        self.failure = error
        self._failed.set()
        hearers = [*self._utilities.values(), *([self.hearer] if self.hearer else [])]
        for hearer in hearers:
            hearer.fail(error)

    def _take(self, message: Said, size: int) -> None:
        if isinstance(message, heard.Error) and message.fatal:
            self._last_words = message.message
        about = _utility_id_of(message)
        hearer = self.hearer if about is None else self._utilities.get(about)
        if hearer is not None:
            hearer.take(message, size)

    async def _death(self, why: str = "") -> WorkerError:
        exit_code: int | None = None
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_S):
                exit_code = await self._transport.ended()
        how = "without ending" if exit_code is None else f"with exit code {exit_code}"
        said = f"the worker left {how}{why}"
        if self._last_words:
            said = f"{said}, saying {self._last_words!r}"
        return WorkerDied(said, exit_code=exit_code, complaints=self._transport.complaints)


def _utility_id_of(message: Said) -> str | None:
    match message:
        case (
            heard.CommandStarted()
            | heard.CommandResized()
            | heard.CommandOutput()
            | heard.CommandExited()
        ):
            return message.command_id
        case heard.FileSearchResults():
            return message.search_id
        case heard.FileReadResult():
            return message.read_id
        case heard.WatchStarted() | heard.WatchEvent() | heard.WatchStopped():
            return message.watch_id
        case heard.Error():
            return None if message.request_id is UNSET else message.request_id
        case _:
            return None
