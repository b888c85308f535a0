"""The log of a server: JSON lines on stderr, with the ids of requests and runs.

A line is dropped rather than making the server wait for a stalled reader of stderr.
"""

import asyncio
import logging
import re
import time
import traceback
from collections.abc import Mapping
from contextlib import nullcontext
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
_TOGETHER_S = 0.02
"""How long a line about a request may wait for others."""
_RUN = re.compile(r"\brun_[0-9A-HJKMNP-TV-Z]{26}\b")
"""A line that names a run has its id as a field."""


class JsonLines(logging.Handler):
    """Writes records as objects. `extra={"fields": {…}}` adds fields, such as `run_id`."""

    def __init__(
        self, redact: Redact, descriptor: int = 2, always: Mapping[str, str] | None = None
    ) -> None:
        """`always`: fields of every line."""
        super().__init__()
        self._redact = redact
        self._always = always or {}
        self._output = Output(descriptor)
        self._requests: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write_requests()
            self._offer(line(record, self._always))
        except Exception:
            self.handleError(record)

    def request(self, level: int, logger: str, fields: Mapping[str, Any]) -> None:
        """Write a line about an answered request, together with others: it is the only line that
        a busy server writes often, and a record for each would be a third of a small request.
        """
        shown = _shown(time.time(), logging.getLevelName(level), logger, "request", self._always)
        shown.update(fields)
        with self.lock or nullcontext():
            self._requests.append(_with_run_id(shown))
            if len(self._requests) == 1:
                asyncio.get_running_loop().call_later(_TOGETHER_S, self._on_timer)

    def _on_timer(self) -> None:
        with self.lock or nullcontext():
            self._write_requests()

    def _write_requests(self) -> None:
        requests, self._requests = self._requests, []
        if not requests:
            return
        lines = [_encode(one).decode() for one in requests]
        together = self._redact("\n".join(lines))
        if together.count("\n") == len(lines) - 1:
            self._write(together)
        else:  # what looks like a secret spans lines
            for one in lines:
                self._offer(one)

    def _offer(self, text: str) -> None:
        self._write(self._redact(text))

    def _write(self, text: str) -> None:
        self._output.offer(text.encode(errors="replace") + b"\n")

    def flush(self) -> None:
        """Wait for what is queued, as long as its reader takes some of it."""
        self._on_timer()
        self._output.drain(0.5)


def line(record: logging.LogRecord, always: Mapping[str, str] | None = None) -> str:
    """One record as a JSON object."""
    message = record.getMessage()[:_LONGEST]
    shown = _shown(record.created, record.levelname, record.name, message, always)
    request_id = request_id_of_log.get()
    if request_id:
        shown["request_id"] = request_id
    fields: dict[str, Any] | None = getattr(record, "fields", None)
    if fields is not None:
        shown.update(fields)
    _with_run_id(shown)
    if record.exc_info is not None:
        shown["error"] = "".join(traceback.format_exception(*record.exc_info))[-_LONGEST:]
    return _encode(shown).decode()


def _shown(
    at: float, level: str, logger: str, message: str, always: Mapping[str, str] | None
) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "time": datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds"),
        "level": level.lower(),
        "logger": logger,
        "message": message,
    }
    if always:
        shown.update(always)
    return shown


def _with_run_id(shown: dict[str, Any]) -> dict[str, Any]:
    if "run_id" not in shown:
        found = _RUN.search(shown["message"]) or _RUN.search(str(shown.get("path", "")))
        if found is not None:
            shown["run_id"] = found[0]
    return shown


def log_request(logger: logging.Logger, level: int, fields: Mapping[str, Any]) -> None:
    """Log an answered request; the caller has asked whether the level is logged."""
    for handler in logging.getLogger("batten").handlers:
        if isinstance(handler, JsonLines):
            handler.request(level, logger.name, fields)
            return
    logger.log(level, "request", extra={"fields": fields})


def log_to_stderr(
    redact: Redact, level: int = logging.INFO, always: Mapping[str, str] | None = None
) -> JsonLines:
    """Send the log to stderr; returns the handler, to be removed at the end."""
    handler = JsonLines(redact, always=always)
    logger = logging.getLogger("batten")
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
    return handler
