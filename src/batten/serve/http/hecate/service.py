"""What the handlers of Hecate work with, and the objects they answer with."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
from msgspec import UNSET, Struct, UnsetType

from batten.contract.envelope import decode
from batten.contract.facts import ArtifactUpdated, TaskCreated, TaskUpdated
from batten.contract.ids import SessionId, session_stream
from batten.control.artifacts import Artifacts
from batten.control.gating import Gating
from batten.control.patches import Patches
from batten.control.retention import Retention
from batten.control.tasks import Tasks
from batten.journal.contract import Journal, RunRow, SessionRow, Stored
from batten.protocols.hecate.runs import Run, RunDetails, RunReply, counted
from batten.protocols.hecate.tasks import Task, TaskDetails, task_now, task_object
from batten.protocols.hecate.view import RunView
from batten.serve.http.answers import Answers, CurrentVersion
from batten.serve.http.fanout import Fanout
from batten.serve.http.kept import Kept, size_of
from batten.serve.http.table import Call, Reply
from batten.serve.http.waits import Waits
from batten.session.history import envelopes_of, prompts_of, runs_of

_MIB = 1 << 20
_UPDATES = frozenset({ArtifactUpdated.TYPE})
_LARGEST_VIEW = 128 << 10
"""Of a view without lists; what it holds does not grow with the run."""
_Until = tuple[str, str, int]
"""A run up to a fact: its id, its creation (a deleted one may have had the id), and a sequence."""


class Recorder(Protocol):
    """Records what a caller did."""

    async def record_removal(self, call: Call, action: str, resource: str, name: str) -> None: ...


class Service:
    """The tasks and runs of one journal, as a client sees them."""

    def __init__(
        self,
        tasks: Tasks,
        fanout: Fanout,
        retention: Retention,
        count_workers: Callable[[], int] = int,
        waits: Waits | None = None,
    ) -> None:
        """`count_workers`: how many processes of the service execute runs now. `waits` ends when
        the server stops.
        """
        self.tasks = tasks
        self.fanout = fanout
        self.count_workers = count_workers
        self.waits = waits or Waits()
        self.gating = Gating(tasks, count_workers)
        self.patches = Patches(tasks)
        self.artifacts = Artifacts(tasks, self.patches)
        self.retention = retention
        self.recorder: Recorder | None = None
        """Keeps who did what; None where nothing is kept."""
        self._runs: Kept[_Until, Run] = Kept(16 * _MIB)
        self._views: Kept[_Until, _Folding] = Kept(16 * _MIB)
        self._whole: Kept[_Until, RunView] = Kept(16 * _MIB)
        """Views with all steps of a run: a client pages through them."""
        self._current = CurrentVersion(tasks.journal)
        self._answers = Answers(self._current, 8 * _MIB)
        self._replies: Kept[tuple[str, str], _RunAnswer] = Kept(8 * _MIB)
        """The encoded object of a run of a task."""
        self._changed: Kept[str, _Changed] = Kept(4 * _MIB)
        self._asked: Kept[_Until, _Asked] = Kept(16 * _MIB)
        tasks.on_queued = self._take_new

    def _take_new(self, row: RunRow, stored: Sequence[Stored], is_first: bool) -> None:
        """Keep what a new run's object is made from; it is asked for at once."""
        view = RunView(most=1)
        for one in stored:
            view.take(decode(one.body))
        read = sum(len(one.body) for one in stored)
        folding = _Folding(view, read)
        key = (row.run_id, row.created_at, row.base_sequence)
        self._views.keep(key, folding, min(read, _LARGEST_VIEW))
        if is_first:
            run = view.run(row, RunDetails(number=1))
            self._runs.keep(_until(row), run, size_of(run))

    async def cached(self, key: str, make: Callable[[], Awaitable[Struct]]) -> Reply:
        """The answer that `make` gives, made again only when anything in the store has changed."""
        return await self._answers.get(key, make)

    @property
    def journal(self) -> Journal:
        return self.tasks.journal

    async def run_reply(self, task_id: str, run_id: str) -> Reply:
        """A run's object as an answer; made again only when the run has grown."""
        key = (task_id, run_id)
        version = await self._current.version()
        known = self._replies.get(key)
        if known is not None and known.version == version:
            return known.reply
        if known is not None and known.length == await self.journal.length(run_id):
            known.version = version
            return known.reply
        row = await self.tasks.run(task_id, run_id)
        body = msgspec.json.encode(RunReply(await self.run_object(row)))
        known = _RunAnswer(version, row.next_sequence, Reply(body))
        self._replies.keep(key, known, len(body))
        return known.reply

    async def run_object(self, row: RunRow, number: int = 0) -> Run:
        """A run's object; made again only when the run has grown."""
        key = _until(row)
        known = self._runs.get(key)
        if known is None:
            view = await self._folded(row)
            if view.sequence >= row.next_sequence:  # the run has grown meanwhile
                return await self.run_object(await self.journal.run(row.run_id) or row, number)
            known = view.run(row, await self.details_of(row, number))
            self._runs.keep(key, known, size_of(known))
        return known

    async def _folded(self, row: RunRow) -> RunView:
        """The state of a run, without its lists; only what is new is read."""
        key = (row.run_id, row.created_at, row.base_sequence)
        folding = self._views.get(key) or _Folding(RunView(most=1))
        if row.outcome is None:
            self._views.keep(key, folding, min(folding.read, _LARGEST_VIEW))
        else:
            self._views.drop(key)
        await self._fold(folding, row)
        return folding.view

    async def _fold(self, folding: "_Folding", row: RunRow) -> None:
        """Bring a view up to the row's last event."""
        view = folding.view
        while view.sequence < row.next_sequence - 1:
            page = await self.journal.read(row.run_id, after=view.sequence)
            for stored in page:
                if stored.sequence > view.sequence:  # another request may have been faster
                    view.take(decode(stored.body))
                    folding.read += len(stored.body)
            if not page:
                return
            await asyncio.sleep(0)  # a long run does not keep others waiting

    async def whole_view(self, row: RunRow) -> RunView:
        """The state of a run with all its steps."""
        key = _until(row)
        view = self._whole.get(key)
        if view is None:
            folding = _Folding(RunView())
            await self._fold(folding, row)
            view = folding.view
            self._whole.keep(key, view, folding.read)
        return view

    async def details_of(self, row: RunRow, number: int = 0) -> RunDetails:
        """What a run's object shows beyond its row and its events."""
        number = number or await self._number_of(row)
        base = await self.journal.base(row.run_id) if row.base_sequence else None
        if base is None:
            return RunDetails(number=number)
        return RunDetails(
            number=number,
            started_at=base.remains.started_at,
            last_error=base.remains.last_error,
            trace_id=base.remains.trace_id,
            prior_cost_micros_usd=base.remains.prior_cost_micros_usd,
        )

    async def changed_at(self, run: RunRow) -> Mapping[str, str]:
        """When the artifacts of a run were last changed, by their ids; only what is new is read."""
        if run.task_id is None:
            return {}
        known = self._changed.get(run.task_id) or _Changed({}, 0)
        until = await self.journal.position()
        times, after = dict(known.times), known.position
        while after < until and (page := await self._updates(run.task_id, after, until)):
            for stored in page:
                envelope = decode(stored.body)
                if isinstance(envelope.data, ArtifactUpdated):
                    times[envelope.data.artifact_id] = envelope.occurred_at
            after = page[-1].position
        self._changed.keep(run.task_id, _Changed(times, until), 64 * len(times))
        base = await self.journal.base(run.run_id) if run.base_sequence else None
        return times if base is None else {**base.remains.artifacts, **times}

    async def _updates(self, task_id: str, after: int, until: int) -> list[Stored]:
        return await self.journal.feed(after=after, until=until, task_id=task_id, types=_UPDATES)

    async def _number_of(self, row: RunRow) -> int:
        rows = await prompts_of(self.journal, row.session_id or "")
        return counted(rows).get(row.run_id, 0)

    async def new_task(self, task: TaskCreated) -> Task:
        """Create a task. Its object needs nothing that would have to be read back."""
        session, asked = await self.tasks.create_described(task)
        return task_object(session, asked, None, TaskDetails())

    async def task_object(self, session: SessionRow) -> Task:
        every = await runs_of(self.journal, session.session_id)
        rows = [row for row in every if row.parent_run_id is None]
        runs = [await self.run_object(row, number) for number, row in enumerate(rows, 1)]
        children = [await self.run_object(row) for row in every if row.parent_run_id is not None]
        details = TaskDetails()
        if runs:
            details = TaskDetails(
                pending_approval_count=await self._pending(rows[-1]),
                run_count=len(runs),
                step_count=_sum(run.step_count for run in runs),
                artifact_count=_sum(run.artifact_count for run in [*runs, *children]),
                total_cost_micros_usd=sum(row.cost_micros_usd for row in every),
                cost_unknown=any(row.cost_unknown for row in every),
                started_at=_first_start(runs),
                last_error=runs[-1].last_error,
                root_trace_id=runs[0].trace_id,
                latest_trace_id=runs[-1].trace_id,
            )
        asked = await self._described(session)
        return task_object(session, asked, rows[-1] if rows else None, details)

    async def _pending(self, row: RunRow) -> int:
        """Open questions of a task's latest run, and of the child runs that it waits for."""
        if row.outcome is not None:
            return 0
        waiting = await self.journal.runs(task_id=row.task_id, status="awaiting_approval")
        requests = [one for run in waiting for one in await self.journal.requests(run.run_id)]
        return sum(one.status == "pending" for one in requests)

    async def _described(self, session: SessionRow) -> TaskCreated | None:
        """What the client asked for, as it is stored: without secrets."""
        stream = await self.journal.run(session_stream(SessionId(session.session_id)))
        if stream is None:
            return None
        key = _until(stream)
        known = self._asked.get(key)
        if known is None:
            created: TaskCreated | None = None
            updates: list[TaskUpdated] = []
            async for envelope in envelopes_of(self.journal, stream.run_id):
                if isinstance(envelope.data, TaskCreated):
                    created = envelope.data
                elif isinstance(envelope.data, TaskUpdated):
                    updates.append(envelope.data)
            known = _Asked(None if created is None else task_now(created, updates))
            self._asked.keep(key, known, size_of(known))
        return known.task


def _until(row: RunRow) -> _Until:
    return row.run_id, row.created_at, row.next_sequence


class _RunAnswer(Struct):
    version: int
    """Of the store, when it was last compared."""
    length: int
    """Of the run."""
    reply: Reply


class _Changed(Struct, frozen=True):
    """When the artifacts of a task were last changed, up to a position of the store."""

    times: dict[str, str]
    position: int


class _Asked(Struct, frozen=True):
    task: TaskCreated | None


class _Folding(Struct, eq=False):
    """A view, and how many bytes were folded into it."""

    view: RunView
    read: int = 0


def _first_start(runs: Iterable[Run]) -> str:
    """When a task began to be executed; a run that was cancelled in the queue never was.

    Empty if nobody knows, because the run with the first start was pruned.
    """
    for run in runs:
        if run.started_at or run.step_count is UNSET:
            return run.started_at
    return ""


def _sum(counts: Iterable[int | UnsetType]) -> int | UnsetType:
    """The sum; none if a run was pruned, in which nothing can be counted."""
    total = 0
    for count in counts:
        if count is UNSET:
            return UNSET
        total += count
    return total
