"""A runtime on a real journal."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from batten.control.coordination.clock import now_ms
from batten.control.coordination.records import Keeping
from batten.control.coordination.runtime import Runtime
from batten.journal.sqlite import SqliteJournal
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey

SECRET = "known-secret-value-1234567890"


class Clock:
    """The time, which a test may move on."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead_ms


@asynccontextmanager
async def open_runtime(home: Path, clock: Clock | None = None) -> AsyncGenerator[Runtime]:
    journal = SqliteJournal.open(home)
    try:
        keeping = Keeping(journal, Redactor([SECRET]), partial(SealKey.load, str(home)))
        runtime = Runtime(keeping, clock=clock or Clock())
        await runtime.recover()
        yield runtime
    finally:
        journal.close()
