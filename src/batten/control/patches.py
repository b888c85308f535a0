"""Review of patches: apply, reject and revert them, one by one or all of a run, all or none.

A file is written first and the transition recorded then: an apply that was killed in between is
finished by the next one.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from msgspec import UNSET, Struct

from batten.agent.rules.paths import guarded_name
from batten.contract import facts
from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, Conflict, NotFound, Refused
from batten.journal.contract import ArtifactRow, Journal, RunRow
from batten.journal.recorder import open_sealed
from batten.protocols.hecate.artifacts import is_public
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
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


class PatchKeeper(Protocol):
    """What reviewing needs; `Tasks` has it."""

    @property
    def journal(self) -> Journal: ...
    @property
    def home(self) -> str: ...
    @property
    def redactor(self) -> Redactor: ...
    @property
    def seal_key(self) -> Callable[[], SealKey]: ...


class Patches:
    """The patches of one journal's runs."""

    def __init__(self, keeper: PatchKeeper) -> None:
        self._keeper = keeper
        self._journal = keeper.journal
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def _lock(self, run: RunRow) -> asyncio.Lock:
        """Held while files of the run's workspace change."""
        return self._locks.setdefault(run.workspace_path, asyncio.Lock())

    async def all_of(self, run: RunRow) -> list[ArtifactRow]:
        """The patches of a run, in the order in which they were made."""
        return await patches_in_order(self._journal, run.run_id)

    async def find(self, run: RunRow, artifact_id: str) -> ArtifactRow:
        """A patch of this run. Raises `NotFound`."""
        for row in await self.all_of(run):
            if row.artifact_id == artifact_id:
                return row
        raise NotFound(f"run {run.run_id} has no patch {artifact_id}")

    async def apply(self, run: RunRow, choice: Choice, review: Review) -> list[ArtifactRow]:
        """Write the proposed changes to their files.

        Raises `Conflict` unless they are proposed, `BaseChanged` that names the files with other
        content than expected, `CallerError` for a path that must not be written.
        """
        review = self._clean(review)
        async with self._lock(run):
            rows = await self._proposed(run, choice)
            root = await root_of(self._journal, run, self._keeper.home)
            bodies = [await self._exact(row) for row in rows]
            for body in bodies:
                writable(root, body.path)
            names = await _tool_names(self._journal, run.run_id)
            whole = await multi_edits(self._journal, run.run_id, {row.artifact_id for row in rows})
            # From here to the queued facts nothing is awaited, so that no cancel separates them.
            patches.apply(root, _to_write(root, bodies))
            done = [
                fact
                for row, body in zip(rows, bodies, strict=True)
                for fact in _applied(row, body, review, names.get(row.tool_call_id or "", ""))
            ]
            done += [
                facts.ToolMultiEditApplied(
                    call, ids, timestamp(), applied_by=review.by, tool_name=names.get(call, "")
                )
                for call, ids in whole
            ]
            await self._journal.append(run.run_id, done, fence=None)
            return await self._again(rows)

    async def reject(self, run: RunRow, choice: Choice, review: Review) -> list[ArtifactRow]:
        """Decide that proposed changes are not made."""
        review = self._clean(review)
        async with self._lock(run):
            rows = await self._proposed(run, choice)
            await self._journal.append(
                run.run_id, [_status(row, "rejected", review) for row in rows], fence=None
            )
            return await self._again(rows)

    async def revert(self, run: RunRow, choice: Choice, review: Review) -> list[ArtifactRow]:
        """Undo changes in force: each gets an inverse patch, and keeps its status.

        Raises `Conflict` for one that is not in force, `BaseChanged` if a file was changed since.
        """
        async with self._lock(run):
            if run.outcome is not None:
                left = await patches_left_open(self._journal, self._keeper.seal_key, run)
                if left:
                    await self._journal.append(run.run_id, left, fence=None)
            rows = await self._in_force(run, choice)
            try:
                await revert_patches(
                    self._journal,
                    self._keeper.seal_key(),
                    self._keeper.redactor,
                    run,
                    rows,
                    home=self._keeper.home,
                    by=review.by,
                    reason=review.reason,
                )
            except Refused as error:
                raise refused_path(error) from error
            return await self._again(rows)

    async def exact_body(self, run: RunRow, path: str, diff: bytes) -> PatchBody:
        """The change that a client's diff makes to a file of a run's workspace as it is now.

        Raises `BadDiff`, `DiffDiffers`, or `CallerError` for a path that must not be written.
        """
        place = writable(await root_of(self._journal, run, self._keeper.home), path)
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

    def _clean(self, review: Review) -> Review:
        """A decision whose reason has no known secret in it."""
        reason = self._keeper.redactor.authored.text(review.reason)
        return Review(by=review.by, reason=reason)

    async def _proposed(self, run: RunRow, choice: Choice) -> list[ArtifactRow]:
        """Those that wait for a decision. Raises `Conflict` for one that its run applies itself."""
        rows = await self._chosen(run, choice)
        if not choice.artifact_id:
            rows = [row for row in rows if row.status == "proposed"]
            rows = _some(rows, choice, "not_proposed")
        elif rows[0].status != "proposed":
            raise Conflict(
                f"patch {choice.artifact_id} is {rows[0].status}, not proposed",
                code="not_proposed",
            )
        for row in rows:
            if is_unattended(row) and run.outcome is None:
                raise Conflict(f"{run.run_id} applies {row.artifact_id} itself", code="run_active")
        return rows

    async def _in_force(self, run: RunRow, choice: Choice) -> list[ArtifactRow]:
        rows = await self._chosen(run, choice)
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

    async def _chosen(self, run: RunRow, choice: Choice) -> list[ArtifactRow]:
        if choice.artifact_id:
            row = await self.find(run, choice.artifact_id)
            if "reverted_from_artifact_id" in row.metadata:
                raise Conflict(
                    f"patch {row.artifact_id} is a revert: it is not reviewed", code="not_proposed"
                )
            return [row]
        rows = await self.all_of(run)
        return [row for row in rows if "reverted_from_artifact_id" not in row.metadata]

    async def _exact(self, row: ArtifactRow) -> PatchBody:
        sealed = str(row.metadata.get("sealed_artifact_id", ""))
        return patches.decode(await open_sealed(self._journal, self._keeper.seal_key(), sealed))

    async def _again(self, rows: Sequence[ArtifactRow]) -> list[ArtifactRow]:
        found = [await self._journal.artifact(row.artifact_id) for row in rows]
        return [row for row in found if row is not None]


async def patches_in_order(journal: Journal, run_id: str) -> list[ArtifactRow]:
    """The public patches of a run. By the order of facts: ids go backwards when the clock does."""
    rows = [row for row in await journal.artifacts(run_id, kind="patch") if is_public(row)]
    places: dict[str, int] = {}
    async for fact in facts_of(journal, run_id):
        if isinstance(fact, facts.ArtifactCreated):
            places[fact.artifact_id] = len(places)
    return sorted(rows, key=lambda row: places.get(row.artifact_id, -1))


async def _tool_names(journal: Journal, run_id: str) -> dict[str, str]:
    """The tools of a run's calls, by the ids of the calls."""
    return {
        fact.tool_call_id: fact.tool_name
        async for fact in facts_of(journal, run_id)
        if isinstance(fact, facts.ToolInvoked)
    }


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


def _applied(row: ArtifactRow, body: PatchBody, review: Review, tool_name: str) -> list[facts.Fact]:
    applied = facts.ToolFileWriteApplied if body.before is None else facts.ToolEditApplied
    told = applied(
        row.tool_call_id or "",
        row.artifact_id,
        timestamp(),
        applied_by=review.by,
        tool_name=tool_name,
    )
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
