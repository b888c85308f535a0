"""A session: a conversation whose prompts start runs, one after the other.

A session is opened new, resumed, or branched from a place in another one. One process
at a time holds it.
"""

import time
from collections.abc import Awaitable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any, Self

import msgspec
from msgspec import UNSET

from batten.agent.cancel_request import cancel_request
from batten.agent.conversation import Conversation
from batten.agent.creation import Origin, queue_run
from batten.agent.deps import RunDeps, ToolboxMaker
from batten.agent.execution import Execution
from batten.agent.hooks.points import LAST_WORDS_S, HookOrigin, HookPoints
from batten.agent.live_settings import live_settings_of
from batten.agent.settings import RunSettings
from batten.contract.conversation import File, Image
from batten.contract.errors import CallerError, Conflict, FenceLost, JournalError, NotFound
from batten.contract.facts import (
    Fact,
    RunCheckpointSaved,
    RunResumedFromEvent,
    SessionClosed,
    SessionOpened,
)
from batten.contract.ids import SessionId, from_uuid, new_session_id, new_task_id, session_stream
from batten.contract.outcomes import Outcome
from batten.journal.contract import Journal, Lease, NewRun, RunRow, SessionRow
from batten.journal.recorder import Recorder
from batten.journal.workers import is_abandoned
from batten.session import history
from batten.session.configuring import reconfigured
from batten.session.stored_settings import record_settings, settings_of
from batten.session.takeover import end_abandoned, given_up_on_failure, progress_of, take_over
from batten.tools.contract import Tool
from batten.tools.registry import Toolbox

SESSION_HELD = "session_held"
"""The code of the conflict with another process that works in the session."""


class Session:
    """A conversation held by this process."""

    def __init__(
        self, deps: RunDeps, session_id: str, task_id: str, lease: Lease, settings: RunSettings
    ) -> None:
        self.lent_tools: tuple[Tool, ...] = ()
        """Tools that the client runs, offered to each new run."""
        self.deps = deps = msgspec.structs.replace(
            deps, toolbox=partial(self._toolbox, deps.toolbox)
        )
        self.session_id = session_id
        self.task_id = task_id
        self.settings = settings
        self._lease = lease
        self._first_models = settings.models
        self._live_settings = live_settings_of(settings)
        self._recorder = Recorder(
            deps.journal,
            lease,
            task_id=task_id,
            redactor=deps.redactor,
            seal_key=deps.seal_key,
        )
        deps.hooks.session = self._recorder
        self._closing = False
        self._conversation = Conversation()
        self._prior_run_id: str | None = None
        self._last: Execution | None = None
        """The last run executed here."""
        self._branched: RunResumedFromEvent | None = None
        self.opened_at = -1
        """The last sequence of the session's own stream when it was opened."""

    @classmethod
    async def open(
        cls, deps: RunDeps, settings: RunSettings, *, surface: str, session_id: str | None = None
    ) -> Self:
        """Create a session."""
        session_id = session_id or new_session_id()
        task_id = new_task_id()
        opened = SessionOpened(
            workspace_path=deps.workspace_path,
            task_id=task_id,
            surface=surface,
            identity=deps.identity or UNSET,
        )
        lease = await _create(deps, session_id, task_id, opened, settings)
        return await cls(deps, session_id, task_id, lease, settings)._located()

    @classmethod
    async def resume(
        cls,
        deps: RunDeps,
        row: SessionRow,
        settings: RunSettings,
        lease: Lease | None = None,
        by: str = "",
    ) -> Self:
        """Resume a session. Raises `Conflict` while another process holds it.

        `lease` is that of a worker that has claimed it already: it waits for the facts of its run,
        which are written after those of the session. `by` asked for it.
        """
        is_held = lease is not None
        if lease is None:
            lease = await _claim(deps, row)
        session = cls(deps, row.session_id, row.task_id, lease, settings)
        deps.hooks.source = "resume"
        with nullcontext() if is_held else given_up_on_failure(deps.journal, lease):
            known = await settings_of(row, deps.journal, deps.seal_key) if row.settings else None
            if settings != known:
                written = record_settings(session._recorder, settings, known, by)
                if not is_held:
                    await written
            return session if is_held else await session._located()

    @classmethod
    async def branch(
        cls,
        deps: RunDeps,
        row: SessionRow,
        settings: RunSettings,
        *,
        run: RunRow,
        until: int,
        session_id: str | None = None,
    ) -> Self:
        """Create a session that shares another one's history up to a checkpoint of `run`."""
        until = await checkpoint_before(deps.journal, run, until)
        session_id, task_id = session_id or new_session_id(), new_task_id()
        opened = SessionOpened(
            workspace_path=deps.workspace_path,
            task_id=task_id,
            surface=row.surface,
            forked_from=row.session_id,
            forked_at_run_id=run.run_id,
            forked_at_sequence=until,
            identity=deps.identity or UNSET,
        )
        lease = await _create(deps, session_id, task_id, opened, settings)
        session = cls(deps, session_id, task_id, lease, settings)
        deps.hooks.source = "resume"
        session._branched = RunResumedFromEvent(
            from_run_id=run.run_id,
            from_sequence=until,
            prior_cost_micros_usd=await _spent_before(deps.journal, row.session_id, run, until),
        )
        session._prior_run_id = run.run_id
        await session._read_history()
        return await session._located()

    async def _located(self) -> Self:
        row = await self.deps.journal.run(session_stream(SessionId(self.session_id)))
        self.opened_at = -1 if row is None else row.next_sequence - 1
        return self

    def _toolbox(
        self, ours: ToolboxMaker, deps: RunDeps, settings: RunSettings, depth: int
    ) -> Toolbox:
        toolbox = ours(deps, settings, depth)
        return Toolbox([*toolbox, *self.lent_tools]) if self.lent_tools else toolbox

    async def unfinished(self) -> RunRow | None:
        """The last run, if it has no ending."""
        return await history.unfinished_run(self.deps.journal, self.session_id)

    async def prompt(self, text: str, attachments: Sequence[Image | File] = ()) -> Execution:
        """Start a run. A run left open by a dead process gets its ending first."""
        if self._branched is None and not self._remembers():
            left = await self.unfinished()
            if left is not None and left.status == "queued" and not left.worker_id:
                raise Conflict(f"{left.run_id} waits for a worker; a prompt can follow its end")
            if left is not None:
                await end_abandoned(self.deps, left)
            await self._read_history()
        # If creating the run fails, the conversation must be read back.
        self._last = None
        origin = await self._origin(self._prior_run_id)
        self._live_settings.follow(self.settings)
        execution = await Execution.begin(
            self.deps,
            self.settings,
            origin,
            self._conversation,
            text,
            attachments,
            self._live_settings,
        )
        self._branched = None
        self._last, self._prior_run_id = execution, execution.run_id
        return execution

    async def _origin(self, prior_run_id: str | None) -> Origin:
        """The place of the next run, with the cost of the session's earlier runs; in a new branch,
        of the history it shares.
        """
        cost = 0
        if self._branched is not None:
            cost = self._branched.prior_cost_micros_usd
        elif prior_run_id is not None:
            cost = (await self.deps.journal.spend(self.task_id)).cost_micros_usd
        return Origin(
            session_id=self.session_id,
            task_id=self.task_id,
            prior_run_id=prior_run_id,
            prior_cost_micros_usd=cost,
            branched=self._branched,
            under=self._lease,
        )

    async def queue(self, text: str, attachments: Sequence[Image | File] = ()) -> str:
        """Create a run that a worker claims later, after the runs before it. Returns its id."""
        rows = await history.prompts_of(self.deps.journal, self.session_id)
        origin = await self._origin(rows[-1].run_id if rows else self._prior_run_id)
        self._last = None
        run_id = await queue_run(self.deps, self.settings, origin, text, attachments)
        self._branched = None
        return run_id

    async def claim(self, row: RunRow, lease: Lease | None = None) -> Execution:
        """Claim a run of this session that has no worker: queued, parked or abandoned.

        Raises `Conflict` if it has a worker, or if the run before it has not ended. A caller that
        has claimed it already gives its `lease`.
        """
        prior = None if row.prior_run_id is None else await self.deps.journal.run(row.prior_run_id)
        if prior is not None and prior.outcome is None and prior.session_id == self.session_id:
            if not is_abandoned(prior):
                raise Conflict(f"{row.run_id} follows {prior.run_id}, which has not ended")
            await end_abandoned(self.deps, prior)
        return await self.go_on(row, lease)

    async def finish_left(self) -> Execution:
        """Continue the run that was left open."""
        left = await self.unfinished()
        if left is None:
            raise CallerError(
                "no prompt, and the session has no unfinished run to go on with", code="usage"
            )
        return await self.go_on(left)

    async def go_on(self, row: RunRow, lease: Lease | None = None) -> Execution:
        """Claim an unfinished run, to execute it to its end."""
        lease = await take_over(self.deps, row, "go on", lease)
        self._last = None
        await self._read_history(row.run_id)
        execution = Execution.on(
            self.deps,
            self.settings,
            lease,
            self.task_id,
            self._conversation,
            await progress_of(self.deps.journal, row),
            self._live_settings,
            self.session_id,
            self._lease,
        )
        if row.cancel_requested:
            asked = await cancel_request(self.deps.journal, row.run_id)
            execution.heed_cancel(asked.by, asked.reason)
        return execution

    async def renew(self) -> None:
        """Renew the session's lease. Raises `FenceLost` if another process has claimed it."""
        try:
            self._lease = await self.deps.journal.renew(self._lease, self.deps.lease_s)
        except FenceLost as error:
            raise FenceLost(
                f"session {self.session_id} is in use by another process now, which took it over "
                f"while this one did not answer ({error})"
            ) from error

    async def configure(self, changes: dict[str, Any], by: str = "") -> None:
        """Change settings; those not named stay as they are.

        Permissions and models change for the current run too, with its next decision and its next
        turn. All other changes take effect with the next run.
        """
        settings = reconfigured(self.settings, changes, self._first_models)
        known = {*self.settings.models, *self._first_models, self.settings.compact_model}
        for name in {*settings.models, settings.compact_model} - known:
            if name is not None:
                # A model that cannot be opened is refused here, not in the middle of a run.
                await self.deps.open_model(name).aclose()
        await record_settings(self._recorder, settings, self.settings, by)
        self.settings = settings
        self._live_settings.follow(settings)
        self._hook_points().configured(sorted(changes))

    def record(self, *facts: Fact) -> Awaitable[object]:
        """Record facts that belong to the session and to none of its runs."""
        return self._recorder.record(*facts)

    async def close(
        self, reason: str = "done", within_s: float | None = None, outcome: Outcome | None = None
    ) -> None:
        """Run the last hooks, close the session's stream and give up its lease.

        `within_s` shortens the time for all hooks together; `outcome` is that of the last run.
        """
        try:
            if not self._closing:
                self._closing = True
                await self._end_hooks(reason, within_s)
        finally:  # who is cancelled meanwhile has left all the same
            with suppress(JournalError):
                stream = session_stream(SessionId(self.session_id))
                told = UNSET if outcome is None or outcome == "completed" else outcome
                closed = SessionClosed(reason=reason, outcome=told)
                self.deps.journal.append(stream, [closed], fence=self._lease.fence)
                await self.deps.journal.release(self._lease)

    async def leave(self) -> None:
        """Give up the lease; the session stays open for the next worker."""
        await self.deps.hooks.close(None)
        with suppress(JournalError):
            await self.deps.journal.release(self._lease)

    async def _end_hooks(self, reason: str, within_s: float | None) -> None:
        hooks, journal = self.deps.hooks, self.deps.journal
        began = time.monotonic()
        try:
            if hooks.listens("SessionEnd"):
                spend = await journal.spend(self.task_id)
                rows = await history.prompts_of(journal, self.session_id)
                totals = {
                    "turn_count": sum(row.turns for row in rows),
                    "input_tokens": spend.input_tokens,
                    "output_tokens": spend.output_tokens,
                }
                given_s = LAST_WORDS_S if within_s is None else min(within_s, LAST_WORDS_S)
                await self._hook_points().session_ended(reason, totals, given_s)
        except JournalError:
            pass
        finally:
            left_s = None if within_s is None else within_s - (time.monotonic() - began)
            await hooks.close(left_s)

    def _hook_points(self) -> HookPoints:
        place = HookOrigin(session_id=self.session_id, cwd=self.deps.workspace_path)
        return HookPoints(self.deps.hooks, self._recorder, self._live_settings, place)

    def _remembers(self) -> bool:
        """Whether the conversation still equals a fold of the journal.

        All facts of a run that completed here are stored; any other run may have lost some. No
        other process starts a run meanwhile: the next one needs the session's fence.
        """
        ended = None if self._last is None else self._last.ended
        return ended is not None and ended.durable and ended.outcome == "completed"

    async def _read_history(self, run_id: str | None = None) -> None:
        """Read the conversation that ends with this run, or with the last one."""
        self._conversation = Conversation()
        deps = self.deps
        until = None if run_id is None else history.Until(run_id)
        await history.read_back(
            self._conversation, deps.journal, deps.seal_key, self.session_id, until
        )
        rows = await history.prompts_of(self.deps.journal, self.session_id)
        if rows:
            self._prior_run_id = rows[-1].run_id


async def _claim(deps: RunDeps, row: SessionRow) -> Lease:
    stream = session_stream(SessionId(row.session_id))
    try:
        return await deps.journal.claim(stream, deps.worker_id, deps.lease_s)
    except Conflict as error:
        held = await deps.journal.run(stream)
        by = f" ({held.worker_id})" if held and held.worker_id else ""
        raise Conflict(
            f"session {row.session_id} is in use by another process{by}; wait for its end, or"
            " branch from one of its runs",
            code=SESSION_HELD,
        ) from error


async def checkpoint_before(journal: Journal, run: RunRow, until: int) -> int:
    """The last place at or before `until` to branch from: a checkpoint, or the run's end."""
    if run.outcome is None:
        raise Conflict(f"{run.run_id} has not ended; a branch starts from a run that has")
    if until >= run.next_sequence - 1:
        return until
    found: int | None = None
    async for envelope in history.envelopes_of(journal, run.run_id):
        if envelope.sequence > until:
            break
        if isinstance(envelope.data, RunCheckpointSaved):
            found = envelope.sequence
    if found is None:
        raise CallerError(
            f"{run.run_id} has no checkpoint at or before {until}; name a later place",
            code="usage",
        )
    return found


async def _spent_before(journal: Journal, session_id: str, run: RunRow, until: int) -> int:
    """The cost of the history that a branch shares."""
    spent = 0
    for row in await history.prompts_of(journal, session_id):
        costs = [
            call.cost_micros_usd or 0
            for call in await journal.ledger(row.run_id)
            if row.run_id != run.run_id or call.sequence <= until
        ]
        spent += sum(costs)
        if row.run_id == run.run_id:
            break
    return spent


async def find_session(journal: Journal, name: str) -> SessionRow:
    """A session by its id, or by the id of one of its runs."""
    row = await journal.session(_spelled(name))
    if row is None:
        run = await journal.run(name)
        if run is not None and run.session_id is not None:
            row = await journal.session(run.session_id)
    if row is None:
        raise NotFound(f"no session or run is named {name}; `batten runs` lists them")
    return row


def _spelled(name: str) -> str:
    """A session's id as it is stored; accepts a UUID."""
    try:
        return from_uuid(name, "chat")
    except ValueError:
        return name


async def _create(
    deps: RunDeps, session_id: str, task_id: str, opened: SessionOpened, settings: RunSettings
) -> Lease:
    new = NewRun(
        run_id=session_stream(SessionId(session_id)),
        kind="session",
        worker_id=deps.worker_id,
        lease_s=deps.lease_s,
        task_id=task_id,
        session_id=session_id,
    )
    recorder = await Recorder.create(
        deps.journal,
        new,
        [opened],
        partial(record_settings, settings=settings),
        redactor=deps.redactor,
        seal_key=deps.seal_key,
    )
    return recorder.lease
