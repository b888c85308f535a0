"""What the handlers of Hecate work with, and the objects they answer with."""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.contract.facts import TaskCreated, TaskUpdated
from batten.contract.ids import SessionId, session_stream
from batten.control.artifacts import Artifacts
from batten.control.tasks import Tasks
from batten.journal.contract import Journal, RunRow, SessionRow
from batten.protocols.hecate.runs import Run, RunDetails, counted
from batten.protocols.hecate.tasks import Task, TaskDetails, task_now, task_object
from batten.protocols.hecate.view import RunView
from batten.serve.http.table import Reply
from batten.session.history import envelopes_of, prompts_of

T = TypeVar("T")

_KEPT = 4096
"""Objects kept in memory, by what they were made from."""
_KEPT_ANSWERS = 64


class Service:
    """The tasks and runs of one journal, as a client sees them."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.artifacts = Artifacts(tasks)
        self._runs: dict[tuple[str, int], Run] = {}
        self._answers: dict[str, tuple[int, Reply]] = {}
        self._asked: dict[tuple[str, int], TaskCreated | None] = {}

    async def cached(self, key: str, make: Callable[[], Awaitable[Struct]]) -> Reply:
        """The answer that `make` gives, made again only when anything in the store has changed."""
        version = await self.journal.version()
        known = self._answers.get(key)
        if known is not None and known[0] == version:
            return known[1]
        reply = Reply(msgspec.json.encode(await make()))
        self._answers.pop(key, None)
        while len(self._answers) >= _KEPT_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._answers[key] = (version, reply)
        return reply

    @property
    def journal(self) -> Journal:
        return self.tasks.journal

    async def run_object(self, row: RunRow, number: int = 0) -> Run:
        """A run's object; made again only when the run has grown."""
        key = (row.run_id, row.next_sequence)
        known = self._runs.get(key)
        if known is None:
            view = RunView(most=1)
            async for envelope in envelopes_of(self.journal, row.run_id):
                view.take(envelope)
            number = number or await self._number_of(row)
            known = view.run(row, RunDetails(number=number))
            _keep(self._runs, key, known)
        return known

    async def _number_of(self, row: RunRow) -> int:
        rows = await prompts_of(self.journal, row.session_id or "")
        return counted(rows).get(row.run_id, 0)

    async def task_object(self, session: SessionRow) -> Task:
        rows = await prompts_of(self.journal, session.session_id)
        runs = [await self.run_object(row, number) for number, row in enumerate(rows, 1)]
        details = TaskDetails()
        if runs:
            details = TaskDetails(
                pending_approval_count=await self._pending(rows[-1]),
                run_count=len(runs),
                step_count=_sum(run.step_count for run in runs),
                artifact_count=_sum(run.artifact_count for run in runs),
                total_cost_micros_usd=sum(row.cost_micros_usd for row in rows),
                started_at=runs[0].started_at,
                last_error=runs[-1].last_error,
            )
        asked = await self._described(session)
        return task_object(session, asked, rows[-1] if rows else None, details)

    async def _pending(self, row: RunRow) -> int:
        if row.status != "awaiting_approval":
            return 0
        return sum(one.status == "pending" for one in await self.journal.requests(row.run_id))

    async def _described(self, session: SessionRow) -> TaskCreated | None:
        """What the client asked for, as it is stored: without secrets."""
        stream = await self.journal.run(session_stream(SessionId(session.session_id)))
        if stream is None:
            return None
        key = (stream.run_id, stream.next_sequence)
        if key not in self._asked:
            created: TaskCreated | None = None
            updates: list[TaskUpdated] = []
            async for envelope in envelopes_of(self.journal, stream.run_id):
                if isinstance(envelope.data, TaskCreated):
                    created = envelope.data
                elif isinstance(envelope.data, TaskUpdated):
                    updates.append(envelope.data)
            _keep(self._asked, key, None if created is None else task_now(created, updates))
        return self._asked[key]


def _sum(counts: Iterable[int | UnsetType]) -> int:
    return sum(count for count in counts if count is not UNSET)


def _keep(kept: dict[tuple[str, int], T], key: tuple[str, int], value: T) -> None:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = value
