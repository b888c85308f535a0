"""Writes messages to the one client on standard output, except those it opted out of."""

from batten.protocols.maestro.connection import Connection
from batten.protocols.maestro.outgoing import Message, encode
from batten.protocols.maestro.vocabulary import RequestType
from batten.serve.output import Output


class StdioSink:
    """The `ClientSink` of a client on a pair of pipes."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.connection = Connection()

    def send(self, message: Message) -> None:
        if self.connection.wants(message):
            self._output.write(encode(message))

    @property
    def serves(self) -> frozenset[RequestType]:
        return self.connection.serves

    @property
    def wants_raw(self) -> bool:
        return self.connection.wants_raw

    @property
    def wants_endings(self) -> bool:
        return self.connection.wants_endings

    @property
    def has_room(self) -> bool:
        return self._output.has_room

    async def room(self) -> None:
        """Wait while the client reads slower than we write."""
        await self._output.room()
