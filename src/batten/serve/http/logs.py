"""The log of a server: JSON lines on stderr, with the ids of requests and runs.

A line is dropped rather than making the server wait for a stalled reader of stderr.
"""

import logging
import re
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

from batten.serve.output import Output
from batten.serve.words import Redact

request_id_of_log: ContextVar[str] = ContextVar("request_id", default="")
"""The request that the current task answers."""

_encode = msgspec.json.Encoder().encode
_LONGEST = 20_000
_RUN = re.compile(r"\brun_[0-9A-HJKMNP-TV-Z]{26}\b")
"""A line that names a run has its id as a field."""


class JsonLines(logging.Handler):
    """Writes records as objects. `extra={"fields": {…}}` adds fields, such as `run_id`."""

    def __init__(self, redact: Redact, descriptor: int = 2) -> None:
        super().__init__()
        self._redact = redact
        self._output = Output(descriptor)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._output.offer(self._redact(line(record)).encode(errors="replace") + b"\n")
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Wait for what is queued, as long as its reader takes some of it."""
        self._output.drain(0.5)


def line(record: logging.LogRecord) -> str:
    """One record as a JSON object."""
    shown: dict[str, Any] = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage()[:_LONGEST],
    }
    request_id = request_id_of_log.get()
    if request_id:
        shown["request_id"] = request_id
    fields: dict[str, Any] | None = getattr(record, "fields", None)
    if fields is not None:
        shown.update(fields)
    if "run_id" not in shown:
        found = _RUN.search(shown["message"]) or _RUN.search(str(shown.get("path", "")))
        if found is not None:
            shown["run_id"] = found[0]
    if record.exc_info is not None:
        shown["error"] = "".join(traceback.format_exception(*record.exc_info))[-_LONGEST:]
    return _encode(shown).decode()


def log_to_stderr(redact: Redact, level: int = logging.INFO) -> JsonLines:
    """Send the log to stderr; returns the handler, to be removed at the end."""
    handler = JsonLines(redact)
    for name, least in (("batten", level), ("_granian", max(level, logging.WARNING))):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(least)
        logger.propagate = False
    return handler
