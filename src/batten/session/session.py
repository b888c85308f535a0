"""A session: a conversation whose prompts start runs, one after the other.

A session is opened new, resumed, or branched from a place in another one. One process
at a time holds it.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Self

import msgspec
from msgspec import UNSET

from batten.agent.conversation import Conversation
from batten.agent.deps import RunDeps
from batten.agent.execution import Execution, Origin
from batten.agent.hooks.points import LAST_WORDS_S, HookOrigin, HookPoints
from batten.agent.live_settings import live_settings_of
from batten.agent.rules.rule import parse_rule
from batten.agent.settings import RunSettings
from batten.contract.conversation import Image
from batten.contract.errors import CallerError, Conflict, JournalError, NotFound
from batten.contract.facts import (
    Fact,
    RunCheckpointSaved,
    RunResumedFromEvent,
    SessionClosed,
    SessionConfigured,
    SessionOpened,
)
from batten.contract.ids import SessionId, from_uuid, new_session_id, new_task_id, session_stream
from batten.journal.contract import Journal, Lease, NewRun, RunRow, SessionRow
from batten.journal.fitting import fits
from batten.journal.recorder import Recorder, open_sealed
from batten.redact.seal import SealKey
from batten.session.configuring import reconfigured
from batten.session.history import Archive, envelopes_of, facts_of, prompts_of, read_back
from batten.session.takeover import end_abandoned, progress_of, take_over


class Session:
    """A conversation held by this process."""

    def __init__(
        self, deps: RunDeps, session_id: str, task_id: str, lease: Lease, settings: RunSettings
    ) -> None:
        self.deps = deps
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
            observe=_unobserved,
        )
        deps.hooks.session = self._recorder
        self._closing = False
        self._conversation = Conversation(Archive(deps.journal, deps.seal_key))
        self._prior_run_id: str | None = None
        self._last: Execution | None = None
        """The last run that was worked on here."""
        self._branched: RunResumedFromEvent | None = None

    @classmethod
    async def open(
        cls, deps: RunDeps, settings: RunSettings, *, surface: str, session_id: str | None = None
    ) -> Self:
        """A new session."""
        session_id = session_id or new_session_id()
        task_id = new_task_id()
        opened = SessionOpened(workspace_path=deps.workspace_path, task_id=task_id, surface=surface)
        lease = await _create(deps, session_id, task_id, opened, settings)
        return cls(deps, session_id, task_id, lease, settings)

    @classmethod
    async def resume(cls, deps: RunDeps, row: SessionRow, settings: RunSettings) -> Self:
        """An earlier session, with its conversation; `Conflict` while another process holds it."""
        stream = session_stream(SessionId(row.session_id))
        try:
            lease = await deps.journal.take_over(stream, deps.worker_id)
        except Conflict as error:
            raise Conflict(
                f"session {row.session_id} is in use by another process; wait for its end, or "
                f"branch from one of its runs ({error})"
            ) from error
        session = cls(deps, row.session_id, row.task_id, lease, settings)
        deps.hooks.source = "resume"
        if settings != settings_of(row, deps.journal, deps.seal_key):
            await _configure(session._recorder, settings)
        return session

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
        """A new session that shares another one's history up to a checkpoint of one of its runs."""
        until = checkpoint_before(deps.journal, run, until)
        session_id, task_id = session_id or new_session_id(), new_task_id()
        opened = SessionOpened(
            workspace_path=deps.workspace_path,
            task_id=task_id,
            surface=row.surface,
            forked_from=row.session_id,
            forked_at_run_id=run.run_id,
            forked_at_sequence=until,
        )
        lease = await _create(deps, session_id, task_id, opened, settings)
        session = cls(deps, session_id, task_id, lease, settings)
        deps.hooks.source = "resume"
        session._branched = RunResumedFromEvent(
            from_run_id=run.run_id,
            from_sequence=until,
            prior_cost_micros_usd=_spent_before(deps.journal, row.session_id, run, until),
        )
        session._prior_run_id = run.run_id
        session._read_history()
        return session

    def unfinished(self) -> RunRow | None:
        """The last run, if it never got its ending."""
        rows = prompts_of(self.deps.journal, self.session_id)
        return rows[-1] if rows and rows[-1].outcome is None else None

    async def prompt(self, text: str, images: Sequence[Image] = ()) -> Execution:
        """Start a run. A run left open by a process that died gets its ending first."""
        if self._branched is None and not self._remembers():
            left = self.unfinished()
            if left is not None:
                await end_abandoned(self.deps, left)
            self._read_history()
        # Until the run is created nobody knows what the conversation has become.
        self._last = None
        origin = Origin(
            session_id=self.session_id,
            task_id=self.task_id,
            prior_run_id=self._prior_run_id,
            branched=self._branched,
        )
        self._branched = None
        self._live_settings.follow(self.settings)
        execution = await Execution.begin(
            self.deps, self.settings, origin, self._conversation, text, images, self._live_settings
        )
        execution.hold(self._lease)
        self._last, self._prior_run_id = execution, execution.run_id
        return execution

    async def finish_left(self) -> Execution:
        """Go on with the run that was left open."""
        left = self.unfinished()
        if left is None:
            raise CallerError(
                "no prompt, and the session has no unfinished run to go on with", code="usage"
            )
        return await self.go_on(left)

    async def go_on(self, row: RunRow) -> Execution:
        """Take over an unfinished run in place and work on it until it ends."""
        lease = await take_over(self.deps, row, go_on=True)
        self._last = None
        self._read_history()
        execution = Execution.on(
            self.deps,
            self.settings,
            lease,
            self.task_id,
            self._conversation,
            progress_of(self.deps, row),
            self._live_settings,
            self.session_id,
        )
        execution.hold(self._lease)
        if row.cancel_requested:
            await execution.cancel("runtime", "a cancel was requested before the process died")
        return execution

    async def configure(self, changes: dict[str, Any]) -> None:
        """Settings that hold from now on; those not named stay as they are.

        Permissions and the model also change for the run that works now: with its next decision
        and its next turn. What else changes holds from the next run on.
        """
        settings = reconfigured(self.settings, changes, self._first_models)
        for name in settings.models:
            if name not in self.settings.models:
                # What cannot be opened is refused here, and not in the middle of a run.
                await self.deps.open_model(name).aclose()
        await _configure(self._recorder, settings)
        self.settings = settings
        self._live_settings.follow(settings)
        self._hook_points().configured(sorted(changes))

    def record(self, *facts: Fact) -> Awaitable[object]:
        """Facts that belong to the session and to none of its runs."""
        return self._recorder.record(*facts)

    async def grant(self, pattern: str) -> None:
        """Allow what the pattern speaks of from now on, unless a rule denies it."""
        await self.configure({"add_rules": [parse_rule("allow", pattern, "grant")]})

    async def close(self, reason: str = "done", within_s: float | None = None) -> None:
        """Let others hold the session. Its hooks hear of the end first, within their time.

        `within_s` is less time than that, for all of them: somebody waits for the end.
        """
        if not self._closing:
            self._closing = True
            await self._end_hooks(reason, within_s)
        try:
            stream = session_stream(SessionId(self.session_id))
            self.deps.journal.append(
                stream, [SessionClosed(reason=reason)], fence=self._lease.fence
            )
            await self.deps.journal.release(self._lease)
        except JournalError:
            return

    async def _end_hooks(self, reason: str, within_s: float | None) -> None:
        hooks, journal = self.deps.hooks, self.deps.journal
        began = time.monotonic()
        try:
            if hooks.listens("SessionEnd"):
                spend = journal.spend(self.task_id)
                rows = prompts_of(journal, self.session_id)
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
        """Whether the conversation is still what a fold of the journal would give.

        A run that completed here has every fact that was folded stored; one that did not may
        have been refused some. And while the fence is ours nobody else starts a run.
        """
        ended = None if self._last is None else self._last.ended
        if ended is None or not ended.durable or ended.outcome != "completed":
            return False
        row = self.deps.journal.run(session_stream(SessionId(self.session_id)))
        return row is not None and row.fence == self._lease.fence

    def _read_history(self) -> None:
        self._conversation = Conversation(Archive(self.deps.journal, self.deps.seal_key))
        deps = self.deps
        read_back(self._conversation, deps.journal, deps.seal_key, self.session_id)
        rows = prompts_of(self.deps.journal, self.session_id)
        if rows:
            self._prior_run_id = rows[-1].run_id


def checkpoint_before(journal: Journal, run: RunRow, until: int) -> int:
    """The last place at or before `until` where a run can be branched: a checkpoint, or its end."""
    if run.outcome is None:
        raise Conflict(f"{run.run_id} has not ended; a branch starts from a run that has")
    if until >= run.next_sequence - 1:
        return until
    found: int | None = None
    for envelope in envelopes_of(journal, run.run_id):
        if envelope.sequence > until:
            break
        if isinstance(envelope.data, RunCheckpointSaved):
            found = envelope.sequence
    if found is None:
        raise CallerError(
            f"{run.run_id} has no checkpoint at or before {until}; name a later place"
        )
    return found


def _spent_before(journal: Journal, session_id: str, run: RunRow, until: int) -> int:
    """What the history that a branch shares has cost."""
    spent = 0
    for row in prompts_of(journal, session_id):
        costs = [
            call.cost_micros_usd or 0
            for call in journal.ledger(row.run_id)
            if row.run_id != run.run_id or call.sequence <= until
        ]
        spent += sum(costs)
        if row.run_id == run.run_id:
            break
    return spent


def settings_of(row: SessionRow, journal: Journal, key: Callable[[], SealKey]) -> RunSettings:
    """The settings a session was last given; `Refused` if they are sealed and the key is gone."""
    settings: object = row.settings
    stream = session_stream(SessionId(row.session_id))
    given = [fact for fact in facts_of(journal, stream) if isinstance(fact, SessionConfigured)]
    if given and given[-1].sealed_artifact_id is not UNSET:
        sealed = open_sealed(journal, key(), given[-1].sealed_artifact_id)
        settings = msgspec.json.decode(sealed)
    try:
        return msgspec.convert(settings, RunSettings)
    except msgspec.ValidationError as error:
        raise CallerError(
            f"the settings of session {row.session_id} do not fit this version: {error}",
            code="config",
        ) from error


def find_session(journal: Journal, name: str) -> SessionRow:
    """A session by its id, or by the id of one of its runs."""
    row = journal.session(_spelled(name))
    if row is None:
        run = journal.run(name)
        if run is not None and run.session_id is not None:
            row = journal.session(run.session_id)
    if row is None:
        raise NotFound(f"no session or run is named {name}; `batten runs` lists them")
    return row


def _spelled(name: str) -> str:
    """A session's id as it is stored, also if it was given as a UUID."""
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
        task_id=task_id,
        session_id=session_id,
    )

    def first_words(recorder: Recorder) -> None:
        _configure(recorder, settings)

    recorder = await Recorder.create(
        deps.journal,
        new,
        [opened],
        first_words,
        redactor=deps.redactor,
        seal_key=deps.seal_key,
        observe=_unobserved,
    )
    return recorder.lease


def _configure(recorder: Recorder, settings: RunSettings) -> Awaitable[object]:
    """The settings as a fact; a secret in them is sealed beside it, so that a resume finds it."""
    plain = msgspec.to_builtins(settings)
    fact = SessionConfigured(settings=plain)
    if recorder.redactor.value(plain)[1] or not fits(fact):
        sealed = recorder.seal(msgspec.json.encode(plain), summary="settings")
        fact = SessionConfigured(settings=plain, sealed_artifact_id=sealed)
    return recorder.record(fact)


def _unobserved(fact: Fact) -> None:
    """Nobody folds a session's own facts while they are written."""
