"""Our side of the control protocol: what we ask the client, and its answers as they come."""

import asyncio
from typing import Any

from batten.contract.errors import BattenError
from batten.protocols.claude.control import Answered, ask, withdraw
from batten.protocols.claude.line import Frame, encode, encode_whole
from batten.serve.output import Output


class ClientGone(BattenError):
    """Nobody is there to answer."""

    code = "client_gone"


class TooLongToAsk(BattenError):
    """What is to be decided on does not fit in a line, and is not decided on by halves."""

    code = "too_long_to_ask"


class ControlChannel:
    """Writes frames, and waits for the answers to those that ask."""

    def __init__(self, output: Output, *, seamless: bool) -> None:
        self._output = output
        self._seamless = seamless
        self._waiting: dict[str, asyncio.Future[Answered]] = {}
        self._asked = 0
        self._gone = False

    def send(self, frame: Frame) -> None:
        self._output.write(encode(frame, seamless=self._seamless))

    @property
    def has_room(self) -> bool:
        """Whether little enough waits for the client for what nobody must wait for."""
        return self._output.has_room

    async def room(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._output.room()

    async def ask(self, subtype: str, **fields: Any) -> Answered:
        """Ask, and wait as long as the caller does. Nobody answers who is no longer asked."""
        if self._gone:
            raise ClientGone("the client has closed its side")
        self._asked += 1
        request_id = f"batten_{self._asked}"
        line = encode_whole(ask(request_id, subtype, **fields), seamless=self._seamless)
        if line is None:
            raise TooLongToAsk("it is too long to ask the client about")
        waiting: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting[request_id] = waiting
        self._output.write(line)
        try:
            return await waiting
        except asyncio.CancelledError:
            self.send(withdraw(request_id))
            raise
        finally:
            del self._waiting[request_id]

    def answer(self, answered: Answered) -> None:
        """An answer has come. One that nobody waits for any more is nothing to anybody."""
        waiting = self._waiting.get(answered.request_id)
        if waiting is not None and not waiting.done():
            waiting.set_result(answered)

    def close(self) -> None:
        """The client says nothing any more: whoever waits for it is told."""
        self._gone = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ClientGone("the client has closed its side"))
