"""What the handlers of Hecate work with, and the objects they answer with."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.contract.envelope import decode
from batten.contract.facts import TaskCreated, TaskUpdated
from batten.contract.ids import SessionId, session_stream
from batten.control.artifacts import Artifacts
from batten.control.patches import Patches
from batten.control.retention import Retention
from batten.control.tasks import Tasks
from batten.journal.contract import Journal, RunRow, SessionRow
from batten.protocols.hecate.runs import Run, RunDetails, counted
from batten.protocols.hecate.tasks import Task, TaskDetails, task_now, task_object
from batten.protocols.hecate.view import RunView
from batten.serve.http.fanout import Fanout
from batten.serve.http.table import Reply
from batten.session.history import envelopes_of, prompts_of

T = TypeVar("T")

_KEPT = 4096
"""Objects kept in memory, by what they were made from."""
_KEPT_ANSWERS = 64
_KEPT_WHOLE = 4
"""Views with all steps of a run: a client pages through them."""


class Service:
    """The tasks and runs of one journal, as a client sees them."""

    def __init__(
        self,
        tasks: Tasks,
        fanout: Fanout,
        retention: Retention,
        count_workers: Callable[[], int] = int,
    ) -> None:
        """`count_workers`: how many processes of the service execute runs now."""
        self.tasks = tasks
        self.fanout = fanout
        self.count_workers = count_workers
        self.patches = Patches(tasks)
        self.artifacts = Artifacts(tasks, self.patches)
        self.retention = retention
        self._runs: dict[tuple[str, int], Run] = {}
        self._views: dict[tuple[str, int], RunView] = {}
        self._whole: dict[tuple[str, int], RunView] = {}
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
            view = await self._folded(row)
            if view.sequence >= row.next_sequence:  # the run has grown meanwhile
                return await self.run_object(await self.journal.run(row.run_id) or row, number)
            number = number or await self._number_of(row)
            known = view.run(row, RunDetails(number=number))
            _keep(self._runs, key, known)
        return known

    async def _folded(self, row: RunRow) -> RunView:
        """The state of a run, without its lists; only what is new is read."""
        key = (row.run_id, row.base_sequence)
        view = self._views.get(key)
        if view is None:
            view = RunView(most=1)
        if row.outcome is None:
            _keep(self._views, key, view)
        else:
            self._views.pop(key, None)
        await self._fold(view, row)
        return view

    async def _fold(self, view: RunView, row: RunRow) -> None:
        """Bring a view up to the row's last event."""
        while view.sequence < row.next_sequence - 1:
            page = await self.journal.read(row.run_id, after=view.sequence)
            for stored in page:
                if stored.sequence > view.sequence:  # another request may have been faster
                    view.take(decode(stored.body))
            if not page:
                return
            await asyncio.sleep(0)  # a long run does not keep others waiting

    async def whole_view(self, row: RunRow) -> RunView:
        """The state of a run with all its steps."""
        key = (row.run_id, row.next_sequence)
        view = self._whole.get(key)
        if view is None:
            view = RunView()
            await self._fold(view, row)
            if len(self._whole) >= _KEPT_WHOLE:
                del self._whole[next(iter(self._whole))]
            self._whole[key] = view
        return view

    async def details_of(self, row: RunRow) -> RunDetails:
        """What a run's object shows beyond its row and its events."""
        return RunDetails(number=await self._number_of(row))

    async def _number_of(self, row: RunRow) -> int:
        rows = await prompts_of(self.journal, row.session_id or "")
        return counted(rows).get(row.run_id, 0)

    async def new_task(self, task: TaskCreated) -> Task:
        """Create a task. Its object needs nothing that would have to be read back."""
        session, asked = await self.tasks.create_described(task)
        return task_object(session, asked, None, TaskDetails())

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
