"""The record of past removals: a small file in the home, the newest first."""

import logging
import os
from contextlib import suppress

import msgspec

from batten.protocols.hecate.system import MAX_RETENTION_PAGE, RetentionRun

_log = logging.getLogger("batten.retention")
_decode = msgspec.json.Decoder(list[RetentionRun]).decode


class RetentionLog:
    """The latest removals of a home. One service writes it."""

    def __init__(self, home: str) -> None:
        self._path = os.path.join(home, "retention.json")
        self._runs: list[RetentionRun] | None = None

    def latest(self, limit: int) -> list[RetentionRun]:
        if self._runs is None:
            self._runs = self._read()
        return self._runs[:limit]

    def _read(self) -> list[RetentionRun]:
        try:
            with open(self._path, "rb") as file:
                return _decode(file.read())
        except FileNotFoundError:
            return []
        except (OSError, msgspec.MsgspecError) as error:
            _log.warning("the record of removals cannot be read and begins anew: %s", error)
            return []

    def add(self, run: RetentionRun) -> None:
        """Keep it; a record that cannot be written is logged and kept in memory."""
        self._runs = [run, *self.latest(MAX_RETENTION_PAGE - 1)]
        new = f"{self._path}.new"
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(msgspec.json.encode(self._runs))
            os.replace(new, self._path)
        except OSError as error:
            _log.warning("the record of removals cannot be written: %s", error)
            with suppress(OSError):
                os.unlink(new)
