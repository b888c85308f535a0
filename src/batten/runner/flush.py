"""Stops a runtime for a drain and records its last state."""

import asyncio
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import Struct

from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.redact.redactor import Redactor
from batten.runner.evidence import FlushStatus

STOP_S = 30.0
"""How long a runtime may take to stop: less than the 45 s a pod has."""
SUFFIX = ".batten"
"""Of the name of a session file."""
_LONGEST_ERROR = 2000


class SessionFile(Struct, frozen=True, kw_only=True):
    """A session as a file of the workspace."""

    path: str
    sha256: str


class Drainable(Protocol):
    """The part of a runtime that draining uses."""

    def snapshot(self) -> RuntimeSnapshot: ...

    async def stop(self) -> None:
        """End all work and all waits; return once everything is durable."""
        ...

    async def keep(self) -> SessionFile | None:
        """Write the session where the next runner finds it; None if it was never stored."""
        ...


class Flush(Struct, frozen=True, kw_only=True):
    status: FlushStatus
    snapshot: RuntimeSnapshot | None = None
    """Taken before the stop."""
    cursor: int | None = None
    """Of the last message, those of the stop included: a restored runtime starts after it."""
    session_file: SessionFile | None = None
    error: str | None = None


NOTHING = Flush(status="skipped")
"""There was no runtime."""


async def flush(runtime: Drainable | None) -> Flush:
    """Stop the runtime. Errors go into the manifest, which is written in any case."""
    if runtime is None:
        return NOTHING
    snapshot: RuntimeSnapshot | None = None
    session_file: SessionFile | None = None
    error: str | None = None
    try:
        snapshot = runtime.snapshot()
    except Exception as fault:
        error = _told(fault)
    try:
        async with asyncio.timeout(STOP_S):
            await runtime.stop()
    except TimeoutError as fault:
        error = error or str(fault) or f"Runtime did not stop within {STOP_S:g} s"
    except Exception as fault:
        error = error or _told(fault)
    try:
        session_file = await runtime.keep()
    except Exception as fault:
        error = error or f"Session file cannot be written: {_told(fault)}"
    return Flush(
        status="completed" if error is None else "failed",
        snapshot=snapshot,
        cursor=_cursor_of(runtime),
        session_file=session_file,
        error=error,
    )


def redacted(flushed: Flush, redactor: Redactor) -> Flush:
    """Redact what only clients may see, such as the arguments of their tools."""
    value, places = redactor.value(msgspec.to_builtins(flushed))
    return msgspec.convert(value, Flush) if places else flushed


def _cursor_of(runtime: Drainable) -> int | None:
    with suppress(Exception):  # the error is already recorded
        return runtime.snapshot().cursor
    return None


def _told(fault: Exception) -> str:
    return (str(fault) or type(fault).__name__)[:_LONGEST_ERROR]
