"""A service without HTTP: tasks, and a worker in this process."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from batten.contract.envelope import decode
from batten.contract.facts import TERMINAL, Fact, TaskCreated
from batten.control.pool import hold_panels
from batten.control.specification import of_task, resumed
from batten.control.tasks import Tasks
from batten.control.worker import Slots, Worker
from batten.journal.contract import RunRow, SessionRow
from batten.journal.workers import this_worker
from batten.wiring.opener import SessionOpener
from batten.wiring.spec import SessionSpec


def said(text: str) -> dict[str, Any]:
    return {"kind": "text", "text": text}


def called(command: str, id_: str = "c1") -> dict[str, Any]:
    return {
        "kind": "tool_call",
        "id": id_,
        "tool": "bash",
        "input": {"command": command},
        "expectedResult": "success",
    }


class Place:
    """A home, a workspace and scripted models."""

    def __init__(self, folder: Path, **spec: Any) -> None:
        self.workspace = folder / "work"
        self.workspace.mkdir(exist_ok=True)
        self._folder = folder
        environ = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(folder),
            "BATTEN_HOME": str(folder / "home"),
        }
        defaults: dict[str, Any] = {"auto_allow": True, "sandbox": "none", "bare": True}
        self.base = SessionSpec(
            environ=environ, cwd=str(folder), surface="hecate", **{**defaults, **spec}
        )
        self.opener = SessionOpener(self.base)
        self.tasks = Tasks(self.opener.journal, self.opener.home, self.base)
        self.journal = self.opener.journal

    def model(self, *frames: list[dict[str, Any]], name: str = "model") -> str:
        """A scripted model with these messages."""
        path = self._folder / f"{name}.json"
        scenario: dict[str, Any] = {
            "schemaVersion": "evalops.maestro.scripted-scenario.v1",
            "id": name,
            "description": "for a test",
            "metadata": {"recordedAt": "2026-11-15T00:00:00Z", "toolsExpected": []},
            "frames": [
                {"index": index, "statements": statements}
                for index, statements in enumerate(frames)
            ],
        }
        path.write_bytes(msgspec.json.encode(scenario))
        return f"scripted/{path}"

    def described(self, model: str, **fields: Any) -> TaskCreated:
        given: dict[str, Any] = {
            "title": "a task",
            "execution_kind": "agent_loop",
            "workspace_mode": "in_place",
            "priority": "normal",
            "by": "somebody",
            "prompt": "go",
            "working_directory": str(self.workspace),
            "requested_model": model,
        }
        return TaskCreated(**{**given, **fields})

    async def started(self, model: str, **fields: Any) -> RunRow:
        session = await self.tasks.create(self.described(model, **fields))
        return await self.tasks.start(session.task_id, by="somebody")

    async def ended(self, row: RunRow) -> RunRow:
        """The run once it has an ending."""
        async for page in self.journal.follow(row.run_id):
            if any(stored.type in TERMINAL for stored in page):
                break
        found = await self.journal.run(row.run_id)
        assert found is not None
        return found

    async def reached(self, row: RunRow, type_: str, count: int = 1) -> None:
        """Wait until the run has so many facts of this type."""
        async for page in self.journal.follow(row.run_id, types=frozenset({type_})):
            count -= len(page)
            if count <= 0:
                return

    async def facts(self, row: RunRow) -> list[Fact]:
        stored = await self.journal.read(row.run_id, limit=1000)
        return [decode(one.body).data for one in stored]

    async def specify(self, row: RunRow, session: SessionRow) -> SessionSpec:
        task = await self.tasks.described(session)
        base = self.base if task is None else of_task(self.base, task)
        return resumed(base, row, session)

    @asynccontextmanager
    async def working(self, runs: int = 4, *, holds_panels: bool = True) -> AsyncGenerator[Worker]:
        """A worker that executes queued runs meanwhile."""
        worker = Worker(self.opener, self.specify, this_worker(), Slots(runs))
        async with asyncio.TaskGroup() as group:
            group.create_task(worker.run())
            panels = hold_panels(self.opener, self.specify, runs if holds_panels else 0)
            holding = group.create_task(panels)
            try:
                yield worker
            finally:
                holding.cancel()
                worker.stop()
