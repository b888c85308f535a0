"""A session's past, read back from its journal."""

import asyncio
from pathlib import Path

from batten.journal.sqlite import SqliteJournal
from batten.session.history import envelopes_of
from tests.journal.given import started, text


async def test_a_long_run_is_read_without_keeping_others_waiting(tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path)
    lease = await started(journal)
    await journal.append(lease.run_id, [text("x")] * 2000, fence=lease.fence)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    waiting = asyncio.ensure_future(others())
    read = [envelope.sequence async for envelope in envelopes_of(journal, lease.run_id)]
    waiting.cancel()
    journal.close()
    assert read == list(range(2002))
    assert turns >= 2000 // 256
