"""Opens one session: finds the earlier one, reads settings files, assembles the parts."""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.contract.errors import BattenError
from batten.contract.notes import Note
from batten.journal.contract import Journal, SessionRow
from batten.session.history import runs_of, unfinished_run
from batten.session.session import Session
from batten.session.stored_settings import settings_of
from batten.wiring.earlier import Earlier, find_earlier, new_id, workspace_of
from batten.wiring.files import settings_of_files
from batten.wiring.parts import SessionParts
from batten.wiring.settings import run_settings
from batten.wiring.spec import SessionSpec
from batten.workspace.keeper import Keeper

if TYPE_CHECKING:
    from batten.wiring.worktree import SessionWorktree


class OpenedSession:
    """A session with its parts."""

    def __init__(
        self,
        session: Session,
        parts: SessionParts,
        worktree: "SessionWorktree | None",
        spec: SessionSpec,
        sinks: dict[str, Any],
    ) -> None:
        """`sinks`: the receivers that the settings name."""
        self.session = session
        self.sinks = sinks
        self._parts = parts
        self._worktree = worktree
        self._spec = spec

    @property
    def keeper(self) -> Keeper:
        """Starts commands in the session's workspace."""
        return self._parts.keeper

    def describe(self, session_id: str) -> dict[str, Any]:
        """The settings in force: model, tools, servers, mode, directory."""
        return self._parts.describe(self.session.settings, session_id)

    async def started(self) -> None:
        """Wait until the sandbox of commands is known; `describe` tells it from then on."""
        await self._parts.find_sandbox()

    def server_states(self) -> list[Any]:
        """The state of each tool server; secrets in its errors are redacted."""
        return self._parts.server_states()

    def check_rules(self, lent: Iterable[str]) -> None:
        """Raises `CallerError` for a rule about a tool that is neither ours nor `lent`."""
        self._parts.check_rules(lent)

    def redact(self, text: str) -> str:
        """The text without the session's secrets."""
        return self.session.deps.redactor.text(text)

    def show_notes(self, show: Callable[[str, Note], None]) -> None:
        """Call `show` with each note and the id of its run."""
        self._parts.show_notes(show)

    async def settle(self) -> None:
        """Keep or remove the worktree that the session worked in, after its last run."""
        worktree, self._worktree = self._worktree, None
        if worktree is not None:
            await worktree.settle(self._spec, is_awaited=await self._has_proposals())

    async def _has_proposals(self) -> bool:
        """Whether somebody has to decide on patches of the session; also if that is not known."""
        journal = self.session.deps.journal
        try:
            for run in await runs_of(journal, self.session.session_id):
                patches = await journal.artifacts(run.run_id, kind="patch")
                if any(one.status == "proposed" and one.deleted_at is None for one in patches):
                    return True
        except BattenError:
            return True
        return False

    async def close(self) -> None:
        """End the processes of the session's parts. Close the session itself before."""
        try:
            await self._parts.close()
        finally:
            await self.settle()


async def open_session(spec: SessionSpec, journal: Journal, home: str) -> OpenedSession:
    """Open, resume or branch a session as specified."""
    if spec.worktree:
        from batten.wiring.worktree import continued_workspace

        place = continued_workspace(spec, home)
        earlier = await find_earlier(replace(spec, workspace=place), journal)
    else:
        earlier = await find_earlier(spec, journal)
    row = None if earlier is None else earlier.row
    worktree = await _worktree(spec, row, home)
    try:
        return await _open(spec, journal, home, earlier, worktree)
    except BaseException:
        if worktree is not None:
            await worktree.abandon(spec)
        raise


async def _worktree(
    spec: SessionSpec, row: SessionRow | None, home: str
) -> "SessionWorktree | None":
    """The worktree to work in; nothing is loaded for a session without one."""
    if spec.worktree is None:
        ours = os.path.join(os.path.realpath(home), "worktrees", "")
        if row is None or not row.workspace_path.startswith(ours):
            return None
    from batten.wiring.worktree import open_worktree

    return await open_worktree(spec, row, home)


async def _open(
    spec: SessionSpec,
    journal: Journal,
    home: str,
    earlier: Earlier | None,
    worktree: "SessionWorktree | None",
) -> OpenedSession:
    row = None if earlier is None else earlier.row
    parts = SessionParts(spec, journal, home, worktree)
    kept: RunSettings | None = None
    if row is not None and row.settings and spec.inherit:
        kept = await settings_of(row, journal, parts.seal_key)
    workspace = workspace_of(spec, row) if worktree is None else worktree.workspace
    found = settings_of_files(spec, workspace, home)
    if spec.adapt is not None:
        found = spec.adapt(found)
    left = await unfinished_run(journal, row.session_id) if row and spec.goes_on else None
    settings = run_settings(spec, kept, found, goes_on=left is not None)
    budget = None if spec.budget_covers_past else spec.budget_micros_usd
    if earlier is not None and earlier.run is None and budget is not None:
        # The task goes on: the budget is for what this opening spends.
        spent = (await journal.spend(earlier.row.task_id)).cost_micros_usd
        settings = replace(
            settings, budget_micros_usd=spent + budget, spent_before_micros_usd=spent
        )
    try:
        deps = await parts.run_deps(workspace, settings, found)
        if spec.equip is not None:
            deps = spec.equip(deps, settings)
        session = await _session(spec, deps, settings, earlier)
    except BaseException:
        await parts.close()
        raise
    return OpenedSession(session, parts, worktree, spec, found.sinks)


async def _session(
    spec: SessionSpec, deps: RunDeps, settings: RunSettings, earlier: Earlier | None
) -> Session:
    if earlier is not None and earlier.run is None and not spec.fork:
        return await Session.resume(deps, earlier.row, settings, spec.lease, spec.by)
    session_id = await new_id(spec, deps.journal)
    if earlier is None or earlier.run is None:
        return await Session.open(deps, settings, surface=spec.surface, session_id=session_id)
    return await Session.branch(
        deps,
        earlier.row,
        settings,
        run=earlier.run,
        until=earlier.until,
        session_id=session_id,
    )
