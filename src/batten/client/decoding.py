"""Decodes a worker's output, bytes to messages. Does no I/O."""

from collections.abc import Iterator
from typing import Any, Union

import msgspec

from batten.client.events import Unknown
from batten.contract.errors import PeerError
from batten.protocols import json_line
from batten.protocols.maestro import outgoing
from batten.protocols.maestro.outgoing import Message

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes; workers write shorter lines."""
_LONGEST_SHOWN = 200


class Decoder:
    """Splits bytes into lines and decodes messages. Raises `PeerError` for anything else."""

    def __init__(self) -> None:
        self._held = bytearray()
        kinds: list[type[Message]] = Message.__subclasses__()
        self._known = {str(one.__struct_config__.tag) for one in kinds}
        self._decode = msgspec.json.Decoder[Any](Union[tuple(kinds)]).decode  # noqa: UP007

    def feed(self, data: bytes) -> Iterator[tuple[Message | Unknown, int]]:
        """The complete messages, each with its size in bytes. Read it to the end.

        Messages before a broken one are yielded before the error is raised.
        """
        *ended, rest = data.split(b"\n")
        if self._held and ended:
            self._held += ended[0]
            ended[0] = bytes(self._held)
            self._held.clear()
        self._held += rest
        for line in ended:
            if line.strip():
                yield self.read(line), len(line)
        if len(self._held) > LONGEST_LINE:
            raise PeerError(f"the worker writes a line of more than {LONGEST_LINE} bytes")

    def read(self, line: bytes) -> Message | Unknown:
        try:
            message: Message = self._decode(line)
        except (ValueError, RecursionError) as error:
            return self._unknown(line, error)
        return message

    def _unknown(self, line: bytes, error: Exception) -> Unknown:
        """A message of an unknown type. One of a known type is broken: raises `PeerError`."""
        body = json_line.read(line)
        if isinstance(body, json_line.Malformed):
            shown = line[:_LONGEST_SHOWN].decode(errors="replace")
            raise PeerError(f"the worker writes what is no message: {body.problem}: {shown!r}")
        kind = body.get("type")
        if not isinstance(kind, str) or kind in self._known:
            raise PeerError(f"the worker writes a broken message {kind!r}: {error}") from error
        return Unknown(type=kind, body=body)


assert outgoing.LONGEST < LONGEST_LINE
