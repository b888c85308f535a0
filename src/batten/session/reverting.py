"""Reverts the file changes of a run: inverse patches, stored before they are applied, all or none.

The next revert finishes one that was killed: files already restored are left as they are.
"""

import os
from collections.abc import Callable
from contextlib import suppress

from msgspec import UNSET
from msgspec.structs import replace

from batten.contract import facts
from batten.contract.envelope import decode, timestamp
from batten.contract.errors import CallerError, Conflict, NotFound, Refused
from batten.contract.facts import Fact
from batten.contract.facts.artifact import ArtifactStatus
from batten.journal.contract import ArtifactRow, Body, Journal, RunRow, Stored
from batten.journal.keeping import artifact_created, sealed_artifact
from batten.journal.recorder import open_sealed
from batten.journal.workers import is_abandoned
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.session.history import facts_of
from batten.workspace import files, patches
from batten.workspace.root import Root


async def applied_patches(journal: Journal, run_id: str, paths: list[str]) -> list[ArtifactRow]:
    """The patches of a run that are in force, in the order they were applied."""
    rows = [
        row
        for row in await journal.artifacts(run_id, kind="patch")
        if row.status == "applied"
        and row.reverted_at is None
        and "reverted_from_artifact_id" not in row.metadata
    ]
    # By the order of facts: ids and times go backwards when the clock does.
    made = [
        fact async for fact in facts_of(journal, run_id) if isinstance(fact, facts.ArtifactCreated)
    ]
    places = {fact.artifact_id: place for place, fact in enumerate(made)}
    rows.sort(key=lambda row: places.get(row.artifact_id, -1))
    if not paths:
        return rows
    chosen = [row for row in rows if row.metadata["target_path"] in paths]
    missing = set(paths) - {row.metadata["target_path"] for row in chosen}
    if missing:
        raise NotFound(f"the run has no change in force to: {', '.join(sorted(missing))}")
    return chosen


async def patches_left_open(
    journal: Journal, key: Callable[[], SealKey], run: RunRow
) -> list[Fact]:
    """The status of patches that a dead process left as proposed, judged by their files."""
    found: list[Fact] = []
    for row in await journal.artifacts(run.run_id, kind="patch"):
        if row.status == "proposed" and is_unattended(row):
            status = await _became(journal, key, run, row)
            if status is not None:
                found.append(facts.ArtifactUpdated(row.artifact_id, "status", "proposed", status))
    return found


def is_unattended(row: ArtifactRow) -> bool:
    """Whether the run itself applies a patch: it is no inverse, and waits for no review."""
    metadata = row.metadata
    return "reverted_from_artifact_id" not in metadata and metadata.get("auto_apply", True)


def is_proposed(row: ArtifactRow) -> bool:
    """Whether a client is to decide on a patch."""
    return row.status == "proposed" and "reverted_from_artifact_id" not in row.metadata


async def _became(
    journal: Journal, key: Callable[[], SealKey], run: RunRow, row: ArtifactRow
) -> ArtifactStatus | None:
    """None if unknown: the file has neither its old nor its new content."""
    try:
        body = patches.decode(
            await open_sealed(journal, key(), str(row.metadata["sealed_artifact_id"]))
        )
        present = files.read_if_present((await root_of(journal, run)).resolve(body.path))
    except (CallerError, Refused):
        return None
    data = None if present is None else present.data
    if data == body.after:
        return "applied"
    return "rejected" if data == body.before else None


async def root_of(journal: Journal, run: RunRow, *protected: str) -> Root:
    """The directories that the run could write, as far as they still exist."""
    beside: list[str] = []
    async for fact in facts_of(journal, run.run_id):
        if isinstance(fact, facts.RunQueued):
            if fact.additional_directories is not UNSET:
                # A link where the directory was leads to files that the run did not change.
                beside = [
                    each
                    for each in fact.additional_directories
                    if os.path.isdir(each) and os.path.realpath(each) == each
                ]
            break
    return Root(run.workspace_path, writable=tuple(beside), protected=protected)


async def revert_run(
    journal: Journal,
    key: SealKey,
    redactor: Redactor,
    run: RunRow,
    *,
    home: str,
    paths: list[str],
    by: str,
    reason: str,
) -> list[str]:
    """Revert a run's file changes; returns the paths. Raises `BaseChanged` if files differ."""
    over = run.outcome is not None or is_abandoned(run)
    if over and (found := await patches_left_open(journal, lambda: key, run)):
        await journal.append(run.run_id, found, fence=None)
    rows = await applied_patches(journal, run.run_id, paths)
    if not rows:
        raise Conflict(f"{run.run_id} has no change in force to revert")
    return await revert_patches(journal, key, redactor, run, rows, home=home, by=by, reason=reason)


async def revert_patches(
    journal: Journal,
    key: SealKey,
    redactor: Redactor,
    run: RunRow,
    rows: list[ArtifactRow],
    *,
    home: str,
    by: str,
    reason: str,
) -> list[str]:
    """Revert these patches of a run, given in the order they were applied; all or none."""
    root = await root_of(journal, run, home)
    bodies = [
        patches.decode(await open_sealed(journal, key, str(row.metadata["sealed_artifact_id"])))
        for row in rows
    ]
    to_undo = _in_force(root, bodies)
    inverses = patches.revert(root, to_undo)
    kept = await _keep(journal, key, redactor, run.run_id, rows, bodies, by)
    patches.apply(root, inverses)
    reason = redactor.authored.text(reason)
    done = [fact for row, inverse in kept for fact in _reverted(row, inverse, by, reason)]
    done += [
        facts.ToolMultiEditReverted(patch_artifact_ids=ids, reverted_by=by, reason=reason)
        for _, ids in await multi_edits(journal, run.run_id, {row.artifact_id for row in rows})
    ]
    told = await journal.append(run.run_id, done, fence=None)
    await journal.append(run.run_id, _references(told), fence=None)
    return [body.path for body in reversed(bodies)]


def _in_force(root: Root, bodies: list[patches.PatchBody]) -> list[patches.PatchBody]:
    """The patches of files that do not yet have their content from before the first patch."""
    first: dict[str, patches.PatchBody] = {}
    for body in bodies:
        first.setdefault(body.path, body)
    undone: set[str] = set()
    for path, body in first.items():
        with suppress(CallerError):  # a directory now, or too large: not restored yet
            present = files.read_if_present(root.resolve(path, "write"))
            if (None if present is None else present.data) == body.before:
                undone.add(path)
    return [body for body in bodies if body.path not in undone]


async def _keep(
    journal: Journal,
    key: SealKey,
    redactor: Redactor,
    run_id: str,
    rows: list[ArtifactRow],
    bodies: list[patches.PatchBody],
    by: str,
) -> list[tuple[ArtifactRow, str]]:
    """Each patch with the id of its inverse, stored now unless an unfinished revert did."""
    left = {
        row.metadata["reverted_from_artifact_id"]: row.artifact_id
        for row in await journal.artifacts(run_id, kind="patch")
        if row.status == "proposed" and "reverted_from_artifact_id" in row.metadata
    }
    kept: list[tuple[ArtifactRow, str]] = []
    proposed: list[Fact] = []
    stored: list[Body] = []
    for row, body in zip(reversed(rows), reversed(bodies), strict=True):
        inverse_id = left.get(row.artifact_id)
        if inverse_id is None:
            inverse = patches.inverse(body)
            facts, new = _inverse_artifact(journal, key, redactor, run_id, row, inverse, by)
            inverse_id = facts[-1].artifact_id
            proposed += facts
            stored += new
        kept.append((row, inverse_id))
    if proposed:
        await journal.append(run_id, proposed, fence=None, bodies=stored)
    return kept


async def multi_edits(
    journal: Journal, run_id: str, changed: set[str]
) -> list[tuple[str, list[str]]]:
    """The call and the patches of each multi-file edit that is among these patches completely."""
    return [
        (fact.tool_call_id, fact.patch_artifact_ids)
        async for fact in facts_of(journal, run_id)
        if isinstance(fact, facts.ToolMultiEditProposed)
        and changed.issuperset(fact.patch_artifact_ids)
    ]


def _references(told: list[Stored]) -> list[Fact]:
    """References from each revert to the patch it reverted."""
    envelopes = [decode(stored.body) for stored in told]
    return [
        facts.ArtifactReferenced(
            artifact_id=envelope.data.patch_artifact_id,
            by_event_id=envelope.event_id,
            relation="reverted",
        )
        for envelope in envelopes
        if isinstance(envelope.data, facts.ToolEditReverted)
    ]


def _inverse_artifact(
    journal: Journal,
    key: SealKey,
    redactor: Redactor,
    run_id: str,
    row: ArtifactRow,
    body: patches.PatchBody,
    by: str,
) -> tuple[list[facts.ArtifactCreated], list[Body]]:
    """The inverse patch as artifacts: the exact one, sealed, and a redacted one to read.

    Both name who reverts: no event of the run created them.
    """
    exact = patches.encode(body)
    sealed_fact, sealed = sealed_artifact(
        journal, key, run_id, exact, summary=f"inverse of {row.artifact_id}"
    )
    readable = patches.readable(body)
    shown = journal.inline(redactor.text(readable.text).encode())
    metadata = {
        **patches.metadata(body, readable.stats),
        "sealed_artifact_id": sealed_fact.artifact_id,
        "reverted_from_artifact_id": row.artifact_id,
    }
    fact = artifact_created(
        "patch",
        shown,
        mime_type="text/x-diff",
        summary=f"revert {body.path}",
        status="proposed",
        tool_call_id=row.tool_call_id,
        metadata=metadata,
    )
    return [replace(made, by=by) for made in (sealed_fact, fact)], [sealed, shown]


def _reverted(row: ArtifactRow, inverse_id: str, by: str, reason: str) -> list[Fact]:
    return [
        facts.ArtifactUpdated(
            artifact_id=inverse_id,
            field="status",
            old_value="proposed",
            new_value="applied",
            by=by,
            reason=reason or UNSET,
        ),
        facts.ArtifactUpdated(
            artifact_id=row.artifact_id,
            field="reverted_at",
            old_value=None,
            new_value=timestamp(),
            by=by,
            reason=reason or UNSET,
        ),
        facts.ToolEditReverted(
            patch_artifact_id=row.artifact_id,
            reverted_by=by,
            reason=reason,
            inverse_artifact_id=inverse_id,
        ),
    ]
