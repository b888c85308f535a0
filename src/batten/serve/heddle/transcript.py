"""Writes a transcript file for a client: the stored messages, one per line."""

import os

from batten.contract.envelope import Envelope
from batten.contract.errors import CallerError
from batten.protocols.heddle.transcript import Transcript
from batten.serve.output import say


class TranscriptFile:
    """Appends to one file, readable only by its owner."""

    def __init__(self, path: str, opening: bytes) -> None:
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._descriptor = os.open(path, flags, 0o600)
        except OSError as error:
            raise CallerError(
                f"the transcript {path} cannot be written: {error.strerror}"
            ) from error
        self._path = path
        self._send = Transcript()
        self._write(opening)

    def begin(self) -> None:
        self._send = Transcript()

    def add(self, envelope: Envelope) -> None:
        self._write(self._send.feed(envelope))

    def close(self) -> None:
        os.close(self._descriptor)

    def _write(self, lines: bytes) -> None:
        """A write error does not end the send: the journal has all messages."""
        rest = memoryview(lines)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError as error:
            say(f"batten: the transcript {self._path} is incomplete: {error.strerror}")
