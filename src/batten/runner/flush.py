"""Stopping a runtime, and what is known of it then."""

import asyncio
from contextlib import suppress
from typing import Protocol

import msgspec
from msgspec import Struct

from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.redact.redactor import Redactor
from batten.runner.evidence import FlushStatus

STOP_S = 30.0
"""How long a runtime may take to stop: less than the 45 s a pod is given to end."""
_LONGEST_ERROR = 2000


class Drainable(Protocol):
    """A runtime, as far as draining goes."""

    @property
    def session_file(self) -> str | None:
        """Where its session is stored."""
        ...

    def snapshot(self) -> RuntimeSnapshot: ...

    async def stop(self) -> None:
        """End everything that works or waits, and return when all of it is durable."""
        ...


class Flush(Struct, frozen=True, kw_only=True):
    """What became of a runtime."""

    status: FlushStatus
    snapshot: RuntimeSnapshot | None = None
    """As it was before it was stopped."""
    cursor: int | None = None
    """Of what was said last, also of the stop: whoever goes on uses none of these again."""
    session_file: str | None = None
    error: str | None = None


NOTHING = Flush(status="skipped")
"""There was no runtime."""


async def flush(runtime: Drainable | None) -> Flush:
    """Whatever goes wrong in there is told in the manifest, which is written all the same."""
    if runtime is None:
        return NOTHING
    snapshot: RuntimeSnapshot | None = None
    session_file: str | None = None
    error: str | None = None
    try:
        session_file = runtime.session_file
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
    return Flush(
        status="completed" if error is None else "failed",
        snapshot=snapshot,
        cursor=_cursor_of(runtime),
        session_file=session_file,
        error=error,
    )


def redacted(flushed: Flush, redactor: Redactor) -> Flush:
    """What a client is shown for its eyes alone, as the arguments of its tools, is not stored."""
    value, places = redactor.value(msgspec.to_builtins(flushed))
    return msgspec.convert(value, Flush) if places else flushed


def _cursor_of(runtime: Drainable) -> int | None:
    with suppress(Exception):  # told already, if it is so broken
        return runtime.snapshot().cursor
    return None


def _told(fault: Exception) -> str:
    return (str(fault) or type(fault).__name__)[:_LONGEST_ERROR]
