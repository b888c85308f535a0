"""Review of patches: apply, reject and revert them, one by one or all of a run, all or none.

A file is written first and the transition recorded then: an apply that was killed in between is
finished by the next one.
"""

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from msgspec import UNSET, Struct

from batten.agent.rules.paths import guarded_name
from batten.contract import facts
from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, Conflict, NotFound, Refused
from batten.control.tasks import Tasks
from batten.journal.contract import ArtifactRow, Journal, RunRow
from batten.journal.recorder import open_sealed
from batten.protocols.hecate.artifacts import is_public
from batten.session.history import facts_of
from batten.session.reverting import (
    is_unattended,
    multi_edits,
    patches_left_open,
    revert_patches,
    root_of,
)
from batten.workspace import files, patches
from batten.workspace.patches import PatchBody
from batten.workspace.root import ResolvedPath, Root
from batten.workspace.unified import apply_unified


class Choice(Struct, frozen=True, kw_only=True):
    """Which patches of a run to review: one, those of some files, or all that can be."""

    artifact_id: str = ""
    paths: tuple[str, ...] = ()


class Review(Struct, frozen=True, kw_only=True):
    """A client's decision."""

    by: str
    reason: str = ""


class Patches:
    """The patches of one journal's runs."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._journal = tasks.journal
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, run: RunRow) -> asyncio.Lock:
        """Held while files of the run's workspace change."""
        return self._locks.setdefault(run.workspace_path, asyncio.Lock())

    async def all_of(self, task_id: str, run_id: str) -> tuple[RunRow, list[ArtifactRow]]:
        """A run and its patches, in the order in which they were made."""
        run = await self._tasks.run(task_id, run_id)
        return run, await _in_order(self._journal, run_id)

    async def find(self, task_id: str, run_id: str, artifact_id: str) -> tuple[RunRow, ArtifactRow]:
        """A patch of this run of this task. Raises `NotFound`."""
        run, rows = await self.all_of(task_id, run_id)
        for row in rows:
            if row.artifact_id == artifact_id:
                return run, row
        raise NotFound(f"run {run_id} has no patch {artifact_id}")

    async def apply(
        self, task_id: str, run_id: str, choice: Choice, review: Review
    ) -> tuple[RunRow, list[ArtifactRow]]:
        """Write the proposed changes to their files.

        Raises `Conflict` unless they are proposed, `BaseChanged` that names the files with other
        content than expected, `CallerError` for a path that must not be written.
        """
        run = await self._tasks.run(task_id, run_id)
        async with self._lock(run):
            rows = await self._proposed(task_id, run_id, choice)
            for row in rows:
                if is_unattended(row) and run.outcome is None:
                    raise Conflict(f"{run_id} applies {row.artifact_id} itself", code="run_active")
            root = await root_of(self._journal, run, self._tasks.home)
            bodies = [await self._exact(row) for row in rows]
            for body in bodies:
                writable(root, body.path)
            whole = await multi_edits(self._journal, run_id, {row.artifact_id for row in rows})
            # From here to the queued facts nothing is awaited, so that no cancel separates them.
            patches.apply(root, _to_write(root, bodies))
            done = [
                fact
                for row, body in zip(rows, bodies, strict=True)
                for fact in _applied(row, body, review)
            ]
            done += [
                facts.ToolMultiEditApplied(call, ids, timestamp(), applied_by=review.by)
                for call, ids in whole
            ]
            await self._journal.append(run_id, done, fence=None)
            return run, await self._again(rows)

    async def reject(
        self, task_id: str, run_id: str, choice: Choice, review: Review
    ) -> tuple[RunRow, list[ArtifactRow]]:
        """Decide that proposed changes are not made."""
        run = await self._tasks.run(task_id, run_id)
        async with self._lock(run):
            rows = await self._proposed(task_id, run_id, choice)
            await self._journal.append(
                run_id, [_status(row, "rejected", review) for row in rows], fence=None
            )
            return run, await self._again(rows)

    async def revert(
        self, task_id: str, run_id: str, choice: Choice, review: Review
    ) -> tuple[RunRow, list[ArtifactRow]]:
        """Undo changes in force: each gets an inverse patch, and keeps its status.

        Raises `Conflict` for one that is not in force, `BaseChanged` if a file was changed since.
        """
        run = await self._tasks.run(task_id, run_id)
        async with self._lock(run):
            if run.outcome is not None:
                left = await patches_left_open(self._journal, self._tasks.seal_key, run)
                if left:
                    await self._journal.append(run_id, left, fence=None)
            rows = await self._in_force(task_id, run_id, choice)
            try:
                await revert_patches(
                    self._journal,
                    self._tasks.seal_key(),
                    self._tasks.redactor,
                    run,
                    rows,
                    home=self._tasks.home,
                    by=review.by,
                    reason=review.reason,
                )
            except Refused as error:
                raise refused_path(error) from error
            return run, await self._again(rows)

    async def exact_body(self, run: RunRow, path: str, diff: bytes) -> PatchBody:
        """The change that a client's diff makes to a file of a run's workspace as it is now.

        Raises `BadDiff`, `DiffDiffers`, or `CallerError` for a path that must not be written.
        """
        place = writable(await root_of(self._journal, run, self._tasks.home), path)
        if name := guarded_name(place.shown):
            raise CallerError(
                f"{path} is not changed by a patch of a client: {name} makes other programs run "
                "something",
                code="path_refused",
            )
        present = files.read_if_present(place)
        before = None if present is None else present.data
        after = apply_unified(before, diff)
        mode = None if present is None else present.mode
        return patches.propose(place.shown, before, after, mode=mode)

    async def _proposed(self, task_id: str, run_id: str, choice: Choice) -> list[ArtifactRow]:
        rows = await self._chosen(task_id, run_id, choice)
        if choice.artifact_id:
            if rows[0].status != "proposed":
                raise Conflict(
                    f"patch {choice.artifact_id} is {rows[0].status}, not proposed",
                    code="not_proposed",
                )
            return rows
        return _some([row for row in rows if row.status == "proposed"], choice, "not_proposed")

    async def _in_force(self, task_id: str, run_id: str, choice: Choice) -> list[ArtifactRow]:
        rows = await self._chosen(task_id, run_id, choice)
        if choice.artifact_id:
            [row] = rows
            if row.status != "applied":
                raise Conflict(f"patch {row.artifact_id} is {row.status}", code="not_applied")
            if row.reverted_at is not None:
                raise Conflict(
                    f"patch {row.artifact_id} was reverted at {row.reverted_at}",
                    code="already_reverted",
                )
            return rows
        in_force = [row for row in rows if row.status == "applied" and row.reverted_at is None]
        return _some(in_force, choice, "not_applied")

    async def _chosen(self, task_id: str, run_id: str, choice: Choice) -> list[ArtifactRow]:
        if choice.artifact_id:
            _, row = await self.find(task_id, run_id, choice.artifact_id)
            if "reverted_from_artifact_id" in row.metadata:
                raise Conflict(
                    f"patch {row.artifact_id} is a revert: it is not reviewed", code="not_proposed"
                )
            return [row]
        _, rows = await self.all_of(task_id, run_id)
        return [row for row in rows if "reverted_from_artifact_id" not in row.metadata]

    async def _exact(self, row: ArtifactRow) -> PatchBody:
        sealed = str(row.metadata.get("sealed_artifact_id", ""))
        return patches.decode(await open_sealed(self._journal, self._tasks.seal_key(), sealed))

    async def _again(self, rows: Sequence[ArtifactRow]) -> list[ArtifactRow]:
        found = [await self._journal.artifact(row.artifact_id) for row in rows]
        return [row for row in found if row is not None]


async def _in_order(journal: Journal, run_id: str) -> list[ArtifactRow]:
    """The public patches of a run. By the order of facts: ids go backwards when the clock does."""
    rows = [row for row in await journal.artifacts(run_id, kind="patch") if is_public(row)]
    places: dict[str, int] = {}
    async for fact in facts_of(journal, run_id):
        if isinstance(fact, facts.ArtifactCreated):
            places[fact.artifact_id] = len(places)
    return sorted(rows, key=lambda row: places.get(row.artifact_id, -1))


def _some(rows: list[ArtifactRow], choice: Choice, code: str) -> list[ArtifactRow]:
    """The rows of the chosen files. Raises with `code` if there are none."""
    state = "proposed" if code == "not_proposed" else "in force"
    if not rows:
        raise Conflict(f"the run has no patch that is {state}", code=code)
    if not choice.paths:
        return rows
    missing = set(choice.paths) - {row.metadata.get("target_path") for row in rows}
    if missing:
        raise NotFound(f"the run has no patch that is {state} of: {', '.join(sorted(missing))}")
    return [row for row in rows if row.metadata.get("target_path") in choice.paths]


def writable(root: Root, path: str) -> ResolvedPath:
    """The place of a patch's file, at this moment. Raises `CallerError` if it must not be written.

    A link that was put in the way would lead to another file than the one that was reviewed.
    """
    if not path:
        raise CallerError("the patch names no file", code="path_refused")
    try:
        place = root.resolve(path, "write")
    except Refused as error:
        raise refused_path(error) from error
    if place.shown != path:
        raise CallerError(f"{path} leads to {place.shown}: name that file", code="path_refused")
    return place


def refused_path(error: Refused) -> CallerError:
    return CallerError(error.message, code="path_refused")


def _to_write(root: Root, bodies: Sequence[PatchBody]) -> list[PatchBody]:
    """The patches of files that do not have their last content already."""
    last = {body.path: body.after for body in bodies}
    done: set[str] = set()
    for path, after in last.items():
        try:
            present = files.read_if_present(root.resolve(path, "write"))
        except CallerError:
            continue  # a directory now, or too large: `apply` tells
        if (None if present is None else present.data) == after:
            done.add(path)
    return [body for body in bodies if body.path not in done]


def _applied(row: ArtifactRow, body: PatchBody, review: Review) -> list[facts.Fact]:
    applied = facts.ToolFileWriteApplied if body.before is None else facts.ToolEditApplied
    told = applied(row.tool_call_id or "", row.artifact_id, timestamp(), applied_by=review.by)
    return [told, _status(row, "applied", review)]


def _status(row: ArtifactRow, status: str, review: Review) -> facts.ArtifactUpdated:
    return facts.ArtifactUpdated(
        row.artifact_id,
        "status",
        "proposed",
        status,
        by=review.by,
        reason=review.reason or UNSET,
    )
