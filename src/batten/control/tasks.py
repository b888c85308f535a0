"""Tasks: what clients want done, each a session whose runs workers execute.

Every function writes facts and returns; nothing here executes a run.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import NotRequired, TypedDict, Unpack

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from batten.agent.creation import record_prompt
from batten.contract.envelope import time_of
from batten.contract.errors import BattenError, CallerError, Conflict, NotFound
from batten.contract.facts import (
    TERMINAL,
    Fact,
    RunCancelRequested,
    RunQueued,
    RunResumedFromEvent,
    SessionOpened,
    TaskCreated,
    TaskUpdated,
    TurnStarted,
)
from batten.contract.ids import (
    RunId,
    SessionId,
    new_run_id,
    new_session_id,
    new_task_id,
    session_stream,
)
from batten.control.chosen_models import ChosenModels
from batten.control.described_task import describe, described_in
from batten.control.directories import grants_of
from batten.control.fresh import FreshTasks
from batten.control.gathering import Gathering
from batten.control.permitted import check_task
from batten.control.specification import SURFACE, least
from batten.control.workspaces import Workspaces
from batten.journal.contract import Journal, NewRun, RunRow, SessionRow, Stored
from batten.journal.created import row_of, state_of_new
from batten.journal.keeping import LARGEST_VALUE
from batten.journal.recorder import Recorder, open_sealed, redact_fact
from batten.journal.workers import LEASE_S, is_gone, this_worker
from batten.protocols.hecate.creation import concealed, raised_budget
from batten.redact.identity import service_identity
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.session.history import chain_cost, envelopes_of, facts_of, prompts_of
from batten.session.takeover import end_idle
from batten.wiring.spec import SessionSpec

PRIORITIES = {"low": -10, "normal": 0, "high": 10, "urgent": 20}
_PAUSES_S = (0.005, 0.02, 0.1, 0.5, 1.0)
MOMENT_S = 3.0
"""How long a request waits for the run that it ends."""
_CONTINUE = "Continue from where you stopped."


class Origin(Struct, frozen=True, kw_only=True):
    """The run that a new run of a task goes on from."""

    run: RunRow
    until: int | None = None
    """The last sequence of it that the new run remembers; None for the whole."""
    reason: str = ""
    """Why a client asked for it."""


class QueuedBy(TypedDict):
    """Who queues a run, and the span that it belongs to, as W3C spells both of its headers."""

    by: str
    traceparent: NotRequired[str]
    tracestate: NotRequired[str]


class Tasks:
    """The tasks of one journal."""

    def __init__(
        self,
        journal: Journal,
        home: str,
        base: SessionSpec,
        gathering: Gathering | None = None,
    ) -> None:
        """`gathering` knows of the requests that may write."""
        self.journal = journal
        self.worker_id = this_worker()
        self.lease_s = LEASE_S
        self.redactor = Redactor.from_environment(base.environ)
        self.identity = service_identity(base.environ, self.redactor)
        self.workspaces = Workspaces(home, base.environ, grants_of(base))
        self._home = home
        self._base = base
        self.gathering = gathering or Gathering()
        self._key: SealKey | None = None
        self._fresh = FreshTasks()
        self.on_queued: Callable[[RunRow, Sequence[Stored], bool], object] = _not_told
        """Called with each new run, its facts, and whether it is the first of its task."""
        self.on_removed: Callable[[list[str]], object] = len
        """Called with the runs of each task that was deleted."""
        self.models = ChosenModels(base, home)

    @property
    def home(self) -> str:
        return self._home

    @property
    def base(self) -> SessionSpec:
        """What the service allows."""
        return self._base

    @property
    def environ(self) -> Mapping[str, str]:
        """The environment of the service."""
        return self._base.environ

    def seal_key(self) -> SealKey:
        if self._key is None:
            self._key = SealKey.load(self._home)
        return self._key

    async def create(self, task: TaskCreated) -> SessionRow:
        """Create a task; nothing runs before it is started."""
        return (await self.create_described(task))[0]

    async def create_described(
        self, task: TaskCreated, session_id: SessionId | None = None
    ) -> tuple[SessionRow, TaskCreated]:
        """The same, with the fact as it is stored: without secrets."""
        check_task(task, self._base, self.models.mode)
        session_id, task_id = session_id or new_session_id(), new_task_id()
        stream = session_stream(session_id)
        new = NewRun(run_id=stream, kind="session", task_id=task_id, session_id=session_id)
        path = self.workspaces.home_of(task, task_id)
        opened = SessionOpened(path, task_id, SURFACE, identity=self.identity or UNSET)

        exact, hidden = msgspec.json.encode(task), concealed(task)
        is_stored_whole = hidden is task and len(exact) <= LARGEST_VALUE and self._is_clean(task)
        if is_stored_whole:
            made = await self._created(new, [opened, task], lambda recorder: None)
        else:
            made = await self._created(
                new, [opened], lambda recorder: describe(recorder, hidden, exact)
            )
            task = described_in(made.first_facts)
        _, changes = state_of_new(new, made.first_facts, time_of(made.created[0].body))
        session = changes.sessions[session_id]
        if is_stored_whole:
            self._fresh.keep(session, task)
        return session, task

    def identity_beside(self, tracestate: str) -> dict[str, str]:
        """The ids to record with a run, and a caller's `tracestate` without known secrets."""
        if not tracestate:
            return self.identity
        return {**self.identity, "tracestate": self.redactor.authored.text(tracestate)}

    def _is_clean(self, task: TaskCreated) -> bool:
        return redact_fact(task, self.redactor) is task

    async def _created(
        self,
        new: NewRun,
        facts: Sequence[Fact],
        first_words: Callable[[Recorder], None],
        of_session: Sequence[TaskUpdated] = (),
    ) -> Recorder:
        return await Recorder.create(
            self.journal,
            new,
            facts,
            first_words,
            redactor=self.redactor,
            seal_key=self.seal_key,
            gather=self.gathering.wait,
            of_session=of_session,
        )

    async def find(self, task_id: str) -> SessionRow:
        """The session of a task. Raises `NotFound`."""
        rows = await self.journal.sessions(task_id=task_id, limit=1)
        if not rows:
            raise NotFound(f"there is no task {task_id}")
        return rows[0]

    async def run(self, task_id: str, run_id: str) -> RunRow:
        """A run of a task. Raises `NotFound`."""
        row = await self.journal.run(run_id)
        if row is None or row.task_id != task_id or row.kind == "session":
            raise NotFound(f"task {task_id} has no run {run_id}")
        return row

    async def _own(self, task_id: str, run_id: str) -> RunRow:
        row = await self.run(task_id, run_id)
        if row.parent_run_id is not None:
            raise Conflict(f"{run_id} is part of {row.parent_run_id}: go on there", code="child")
        return row

    async def described(self, session: SessionRow) -> TaskCreated | None:
        """What the client asked for, whole; None if it did not ask this service."""
        task: TaskCreated | None = None
        async for fact in facts_of(self.journal, session_stream(SessionId(session.session_id))):
            match fact:
                case TaskCreated() if fact.sealed_artifact_id is not UNSET:
                    sealed = await open_sealed(
                        self.journal, self.seal_key(), fact.sealed_artifact_id
                    )
                    task = msgspec.json.decode(sealed, type=TaskCreated)
                case TaskCreated():
                    task = fact
                case TaskUpdated() if task is not None and fact.budget_micros_usd is not UNSET:
                    task = replace(task, budget_micros_usd=fact.budget_micros_usd)
                case _:
                    pass
        return task

    async def budget_of(self, run: RunRow) -> int | None:
        """The budget of a run's task in millionths of a US dollar; None for no limit."""
        session = await self.journal.session(run.session_id or "")
        task = None if session is None else await self.described(session)
        ours = self._base.budget_micros_usd
        return ours if task is None else least(ours, task.budget_micros_usd)

    async def start(self, task_id: str, **asker: Unpack[QueuedBy]) -> RunRow:
        """Queue the first run of a task, or a further one without the history of the others."""
        fresh = self._fresh.take(task_id)
        if fresh is not None:
            session, task = fresh
            # Before its first run nothing about a task can have changed, unless it was deleted.
            with suppress(Conflict, NotFound):
                return await self._queue(session, task, _prompt(task), asker, is_first=True)
        session = await self.find(task_id)
        task = await self._known(session)
        return await self._queue(session, task, _prompt(task), asker)

    async def start_described(
        self,
        task: TaskCreated,
        run_id: RunId,
        session_id: SessionId,
        describe: Callable[[Recorder], None],
        **asker: Unpack[QueuedBy],
    ) -> RunRow:
        """Create a task in a session and queue its first run, both with these ids.

        `describe` records what else the client said of the run. Raises `Conflict` if the session
        or the run exists; then nothing is left of the task.
        """
        try:
            session, _ = await self.create_described(task, session_id)
        except Conflict as error:
            raise Conflict(f"session {session_id} exists already", code="session_used") from error
        self._fresh.take(session.task_id)
        try:
            return await self._queue(
                session, task, _prompt(task), asker, run_id=run_id, describe=describe
            )
        except BattenError:
            await self._remove(session)
            raise

    async def retry(self, task_id: str, run_id: str, **asker: Unpack[QueuedBy]) -> RunRow:
        """Queue a run from the beginning, with nothing of an ended one."""
        await self._ended(task_id, run_id)
        return await self.start(task_id, **asker)

    async def resume(
        self,
        task_id: str,
        run_id: str,
        *,
        budget_micros_usd: int | None = None,
        reason: str = "",
        **asker: Unpack[QueuedBy],
    ) -> RunRow:
        """Go on from the end of a run that failed or was cancelled."""
        row = await self._ended(task_id, run_id)
        if row.status == "completed":
            then = "continue it with a prompt" if row.kind == "agent_loop" else "retry it"
            raise Conflict(f"{run_id} is completed: {then}", code="not_resumable")
        session = await self.find(task_id)
        task = await self._known(session)
        updates: list[TaskUpdated] = []
        if budget_micros_usd is not None:
            raised = raised_budget(task, budget_micros_usd)
            updates.append(TaskUpdated(by=asker["by"], budget_micros_usd=raised))
        prompt = _CONTINUE if task.execution_kind == "agent_loop" else None
        origin = Origin(run=row, reason=reason)
        return await self._queue(session, task, prompt, asker, origin, updates=updates)

    async def go_on(
        self, task_id: str, run_id: str, prompt: str, **asker: Unpack[QueuedBy]
    ) -> RunRow:
        """Continue an ended run with a further prompt."""
        row = await self._ended(task_id, run_id)
        session = await self.find(task_id)
        task = await self._known(session)
        if task.execution_kind != "agent_loop":
            raise CallerError(
                f"{run_id} is of the kind {task.execution_kind}: only an agent's run is continued"
                " with a prompt; retry or resume it"
            )
        return await self._queue(session, task, prompt, asker, Origin(run=row))

    async def retry_from_turn(
        self,
        task_id: str,
        run_id: str,
        turn: int,
        *,
        reason: str = "",
        **asker: Unpack[QueuedBy],
    ) -> RunRow:
        """Begin again before a turn of an ended run."""
        row = await self._own(task_id, run_id)
        if row.outcome is None:
            raise CallerError(f"{run_id} has not ended: it is {row.status}")
        if row.kind != "agent_loop":
            raise CallerError(f"{run_id} is of the kind {row.kind} and has no turns: retry it")
        turns: dict[int, int] = {}
        async for envelope in envelopes_of(self.journal, run_id):
            if isinstance(envelope.data, TurnStarted):
                turns.setdefault(envelope.data.turn_index, envelope.sequence - 1)
        if turn not in turns:
            there = f"name one from {min(turns)} to {max(turns)}" if turns else "retry it"
            raise CallerError(f"{run_id} has no turn {turn}: {there}")
        session = await self.find(task_id)
        origin = Origin(run=row, until=turns[turn], reason=reason)
        task = await self._known(session)
        return await self._queue(session, task, None, asker, origin)

    async def cancel(self, task_id: str, run_id: str, *, by: str, reason: str = "") -> RunRow:
        """End a run: at once if no worker executes it, else as soon as its worker hears of it.

        Waits a moment for that; the run says whether it has ended.
        """
        row = await self.run(task_id, run_id)
        reason = self.redactor.authored.text(reason)
        with suppress(Conflict):  # it has ended, or a worker claims it now and hears of the cancel
            if row.outcome is None and not row.cancel_requested:
                asked = RunCancelRequested(by=by, reason=reason)
                await self.journal.append(run_id, [asked], fence=None)
                # Read again: the worker may have parked the run just before.
                row = await self.run(task_id, run_id)
            if row.outcome is None and (not row.worker_id or is_gone(row)):
                budget = await self.budget_of(row)
                await end_idle(
                    self,
                    row,
                    "cancelled",
                    reason,
                    by,
                    closed_by="system",
                    budget_micros_usd=budget,
                )
        return await self.settled(task_id, run_id)

    async def settled(self, task_id: str, run_id: str, patience_s: float = MOMENT_S) -> RunRow:
        """A run once it has ended, or as it is after a moment."""
        row = await self.run(task_id, run_id)
        if row.outcome is None:
            following = self.journal.follow(run_id, after=row.next_sequence - 1, types=TERMINAL)
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s), aclosing(following) as pages:
                    await anext(pages, None)
        return await self.run(task_id, run_id)

    async def delete(self, task_id: str) -> None:
        """Remove a task with its runs, events, approvals and artifacts, and its workspaces.

        Raises `Conflict` while one of its runs has not ended.
        """
        session = await self.find(task_id)
        rows = await prompts_of(self.journal, session.session_id)
        for row in rows:
            if row.outcome is None:
                raise Conflict(f"{row.run_id} is {row.status}: cancel it first", code="run_active")
        await self._remove(session)
        self.on_removed([row.run_id for row in rows])
        if session.surface == SURFACE:
            paths = {row.workspace_path for row in rows}
            await asyncio.to_thread(self.workspaces.remove, task_id, paths)

    async def _remove(self, session: SessionRow) -> None:
        """Remove a session from the store; the worker of its last run may be about to leave it."""
        for pause_s in _PAUSES_S:
            try:
                await self.journal.delete_session(session.session_id, only_ended=True)
                return
            except Conflict as held:
                if held.code != "session_held":
                    raise
            await asyncio.sleep(pause_s)
        await self.journal.delete_session(session.session_id, only_ended=True)

    async def _ended(self, task_id: str, run_id: str) -> RunRow:
        row = await self._own(task_id, run_id)
        if row.outcome is None:
            raise Conflict(f"{run_id} has not ended: it is {row.status}", code="run_active")
        return row

    async def _known(self, session: SessionRow) -> TaskCreated:
        task = await self.described(session)
        if task is None:
            raise Conflict(
                f"task {session.task_id} was made by {session.surface!r}, not by this service: go "
                "on with it there",
                code="foreign_task",
            )
        return task

    async def _queue(
        self,
        session: SessionRow,
        task: TaskCreated,
        prompt: str | None,
        asker: QueuedBy,
        origin: Origin | None = None,
        *,
        updates: Sequence[TaskUpdated] = (),
        run_id: RunId | None = None,
        describe: Callable[[Recorder], None] | None = None,
        is_first: bool = False,
    ) -> RunRow:
        """`updates` change the task with the run that they are for, or not at all. `is_first`
        refuses a run after another one of the task.
        """
        run_id = run_id or new_run_id()
        if origin is None:
            path, spent = self.workspaces.path_for(task, session.task_id, run_id), 0
        else:
            path = origin.run.workspace_path
            spent = await chain_cost(self.journal, origin.run)
        provider, model = self.models.of(session.workspace_path, task)
        identity = self.identity_beside(asker.get("tracestate", ""))
        queued = RunQueued(
            kind=task.execution_kind,
            model=model,
            provider=provider,
            workspace_path=path,
            workspace_mode=task.workspace_mode,
            prior_run_id=None if origin is None else origin.run.run_id,
            prior_cost_micros_usd=UNSET if origin is None else spent,
            executor_type="replay" if provider == "scripted" else "live",
            priority=PRIORITIES.get(task.priority, 0) or UNSET,
            by=asker["by"],
            traceparent=asker.get("traceparent") or UNSET,
            identity=identity or UNSET,
        )
        facts: list[RunQueued | RunResumedFromEvent] = [queued]
        if origin is not None:
            until = origin.run.next_sequence - 1 if origin.until is None else origin.until
            reason = self.redactor.authored.text(origin.reason)
            facts.insert(
                0, RunResumedFromEvent(origin.run.run_id, until, spent, reason=reason or UNSET)
            )
        new = NewRun(
            run_id=run_id,
            kind=task.execution_kind,
            task_id=session.task_id,
            session_id=session.session_id,
            alone=True,
            first=is_first,
        )

        def say(recorder: Recorder) -> None:
            if describe is not None:
                describe(recorder)
            if prompt is not None:
                record_prompt(recorder, prompt, ())

        made = await self._created(new, facts, say, updates)
        state, _ = state_of_new(new, made.first_facts, time_of(made.created[0].body))
        row = row_of(state)
        self.on_queued(row, made.created, session.last_run_id is None)
        return row


def _not_told(row: RunRow, stored: Sequence[Stored], is_first: bool) -> None:
    """Nobody wants to know of new runs."""


def _prompt(task: TaskCreated) -> str | None:
    return task.prompt if isinstance(task.prompt, str) else None
