"""One process of a queue: `queue` a prompt, or `work` on what can be claimed, and leave."""

import asyncio
import sys
from pathlib import Path

import msgspec

from batten.contract.envelope import timestamp
from batten.journal.contract import Journal, RunRow
from batten.session.session import Session, find_session
from batten.session.stored_settings import settings_of
from batten.session.worker import execute, parking
from batten.settings.contract import Settings
from tests.agent.stage import Stage


async def claimable(journal: Journal) -> list[RunRow]:
    """Queued runs, and those parked at a question whose deadline has passed, oldest first."""
    rows = {row.run_id: row for row in await journal.queued()}
    for request in await journal.pending_requests(due_by=timestamp()):
        row = await journal.run(request.run_id)
        if row is not None and not row.worker_id:
            rows[row.run_id] = row
    return sorted(rows.values(), key=lambda row: (row.created_at, row.run_id))


async def queue(stage: Stage, *flags: str) -> str:
    async with stage.session(*flags) as session:
        return await session.queue("go")


async def work(stage: Stage) -> list[str]:
    """Execute each run that can be claimed; how each was left."""
    async with stage.parts() as parts:
        return [await work_on(stage, row) for row in await claimable(parts.journal)]


async def work_on(stage: Stage, run: RunRow) -> str:
    async with stage.parts() as parts:
        row = await find_session(parts.journal, run.run_id)
        settings = await settings_of(row, parts.journal, parts.seal_key)
        deps = await parts.run_deps(row.workspace_path, settings, Settings())
        session = await Session.resume(parking(deps, settings), row, settings)
        try:
            ended = await execute(session, run)
        finally:
            await session.leave()
    return "parked" if ended is None else ended.outcome


if __name__ == "__main__":
    order, directory, *flags = sys.argv[1:]
    stage = Stage(Path(directory))
    done = asyncio.run(queue(stage, *flags) if order == "queue" else work(stage))
    sys.stdout.buffer.write(msgspec.json.encode(done))
