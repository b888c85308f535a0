"""Undoing what a run changed: inverse patches, kept before they are applied, all or nothing."""

from msgspec import UNSET

from batten.contract.envelope import timestamp
from batten.contract.errors import Conflict, NotFound
from batten.contract.facts import ArtifactCreated, ArtifactUpdated, Fact, ToolEditReverted
from batten.contract.ids import new_artifact_id
from batten.journal.contract import ArtifactRow, Body, Journal, RunRow
from batten.journal.recorder import open_sealed
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.workspace import patches
from batten.workspace.root import Root


def applied_patches(journal: Journal, run_id: str, paths: list[str]) -> list[ArtifactRow]:
    """The patches of a run that are in force, in the order they were applied."""
    rows = [
        row
        for row in journal.artifacts(run_id, kind="patch")
        if row.status == "applied"
        and row.reverted_at is None
        and "reverted_from_artifact_id" not in row.metadata
    ]
    rows.sort(key=lambda row: row.artifact_id)
    if not paths:
        return rows
    chosen = [row for row in rows if row.metadata["target_path"] in paths]
    missing = set(paths) - {row.metadata["target_path"] for row in chosen}
    if missing:
        raise NotFound(f"the run has no change in force to: {', '.join(sorted(missing))}")
    return chosen


async def revert_run(
    journal: Journal,
    key: SealKey,
    redactor: Redactor,
    run: RunRow,
    *,
    paths: list[str],
    by: str,
    reason: str,
) -> list[str]:
    """Undo a run's changes to files; the paths restored. `BaseChanged` names what differs."""
    rows = applied_patches(journal, run.run_id, paths)
    if not rows:
        raise Conflict(f"{run.run_id} has no change in force to revert")
    root = Root(run.workspace_path)
    bodies = [
        patches.decode(open_sealed(journal, key, str(row.metadata["sealed_artifact_id"])))
        for row in rows
    ]
    inverses = patches.revert(root, bodies)
    kept: list[tuple[ArtifactRow, str]] = []
    proposed: list[Fact] = []
    stored: list[Body] = []
    for row, body in zip(reversed(rows), inverses, strict=True):
        facts, new = _inverse_artifact(journal, key, redactor, run.run_id, row, body)
        kept.append((row, facts[-1].artifact_id))
        proposed += facts
        stored += new
    await journal.append(run.run_id, proposed, fence=None, bodies=stored)
    patches.apply(root, inverses)
    done = [fact for row, inverse in kept for fact in _reverted(row, inverse, by, reason)]
    await journal.append(run.run_id, done, fence=None)
    return [body.path for body in inverses]


def _inverse_artifact(
    journal: Journal,
    key: SealKey,
    redactor: Redactor,
    run_id: str,
    row: ArtifactRow,
    body: patches.PatchBody,
) -> tuple[list[ArtifactCreated], list[Body]]:
    """The inverse patch as artifacts: what it is exactly, sealed, and what people may read."""
    sealed = journal.inline(key.seal(patches.encode(body), run_id.encode()))
    readable = patches.readable(body)
    shown = journal.inline(redactor.text(readable.text).encode())
    sealed_fact = ArtifactCreated(
        artifact_id=new_artifact_id(),
        kind="sealed",
        size_bytes=sealed.size,
        summary=f"inverse of {row.artifact_id}",
        sha256=sealed.sha256,
        mime_type="application/octet-stream",
        status="created",
        metadata={"run_id": run_id},
    )
    metadata = {
        **patches.metadata(body, readable.stats),
        "sealed_artifact_id": sealed_fact.artifact_id,
        "reverted_from_artifact_id": row.artifact_id,
    }
    fact = ArtifactCreated(
        artifact_id=new_artifact_id(),
        kind="patch",
        size_bytes=shown.size,
        summary=f"revert {body.path}",
        sha256=shown.sha256,
        mime_type="text/x-diff",
        status="proposed",
        tool_call_id=row.tool_call_id or UNSET,
        metadata=metadata,
    )
    return [sealed_fact, fact], [sealed, shown]


def _reverted(row: ArtifactRow, inverse_id: str, by: str, reason: str) -> list[Fact]:
    return [
        ArtifactUpdated(
            artifact_id=inverse_id, field="status", old_value="proposed", new_value="applied"
        ),
        ArtifactUpdated(
            artifact_id=row.artifact_id,
            field="reverted_at",
            old_value=None,
            new_value=timestamp(),
        ),
        ToolEditReverted(
            patch_artifact_id=row.artifact_id,
            reverted_by=by,
            reason=reason,
            inverse_artifact_id=inverse_id,
        ),
    ]
