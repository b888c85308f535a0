"""Sends frames, and control requests to the client."""

from typing import Any

from batten.contract.errors import BattenError
from batten.protocols.claude.control import Answered, ask, withdraw
from batten.protocols.claude.line import Frame, encode, encode_whole
from batten.serve.client_calls import ClientCalls
from batten.serve.output import Output


class TooLongToAsk(BattenError):
    """The arguments do not fit in a line, and the client must not decide on truncated ones."""

    code = "too_long_to_ask"


class ControlChannel(ClientCalls[str, Answered]):
    """Writes frames, and matches the client's responses to our calls."""

    def __init__(self, output: Output, *, seamless: bool) -> None:
        super().__init__(lambda number: f"batten_{number + 1}")
        self._output = output
        self._seamless = seamless

    def send(self, frame: Frame) -> None:
        self._output.write(encode(frame, seamless=self._seamless))

    @property
    def has_room(self) -> bool:
        """Whether the client reads fast enough to send it optional frames."""
        return self._output.has_room

    async def room(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._output.room()

    async def ask(self, subtype: str, **fields: Any) -> Answered:
        """Call the client, without a timeout; raises `ClientGone` or `TooLongToAsk`."""

        def send(request_id: str) -> None:
            line = encode_whole(ask(request_id, subtype, **fields), seamless=self._seamless)
            if line is None:
                raise TooLongToAsk("it is too long to ask the client about")
            self._output.write(line)

        return await self.call(send, lambda request_id: self.send(withdraw(request_id)))
