"""Drains a runner: writes the manifest from which another one can go on."""

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.contract.errors import BattenError, HandoverFailed
from batten.redact.redactor import Redactor
from batten.runner import export, git, synthetic
from batten.runner.config import manifest_keys
from batten.runner.continuity import continuity_of, counted
from batten.runner.evidence import DrainStatus, PlatformEvidence, references
from batten.runner.flush import Flush, redacted
from batten.runner.identity import Identity
from batten.runner.manifest import (
    FlushedRuntime,
    SnapshotManifest,
    destination,
    encode,
    intended,
    signed,
)
from batten.runner.request import DrainRequest
from batten.workspace import files
from batten.workspace.root import Root

Record = Callable[[PlatformEvidence], None]


class Drained(Struct, frozen=True, kw_only=True):
    protocol_version: Literal["evalops.remote-runner.drain.v1"] = "evalops.remote-runner.drain.v1"
    status: DrainStatus
    """`interrupted`: the manifest was written, but the runtime did not stop cleanly."""
    runner_session_id: str
    requested_by: str | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    manifest_path: str
    manifest: SnapshotManifest


class Scope(Struct, frozen=True):
    """The workspace, and its exported paths."""

    root: Root
    exported: export.WorkspaceExport


async def checked(request: DrainRequest, runner: Identity) -> Scope:
    """Resolve the paths of a request. Raises `CallerError` or `NotReady`."""
    root = await asyncio.to_thread(export.workspace, runner.workspace_root)
    return Scope(root, await asyncio.to_thread(export.resolve, request.export_paths, root))


async def hand_over(
    request: DrainRequest,
    runner: Identity,
    scope: Scope,
    flushed: Flush,
    at: float,
    record: Record | None,
    environ: Mapping[str, str],
) -> Drained:
    """Write the manifest of a stopped runtime, created at `at` (seconds).

    Secrets of `environ` are not written, its key signs the manifest, and git runs in it. `record`
    receives the evidence even if writing fails, which raises `HandoverFailed`.
    """
    redactor = Redactor.from_environment(environ)
    flushed = await asyncio.to_thread(redacted, flushed, redactor)
    request = replace(
        request,
        reason=redactor.text(request.reason or ""),
        requested_by=redactor.text(request.requested_by or ""),
    )
    drafted = _draft(request, runner, scope, flushed, _instant(at))
    drafted = replace(drafted, git=await git.state_of(scope.root.path, environ))
    try:
        manifest = await asyncio.to_thread(_written, drafted, runner, scope.root, environ)
    # Text that is not Unicode raises ValueError.
    except (OSError, ValueError, BattenError) as error:
        evidence = replace(drafted.platform_evidence, status="interrupted")
        if record is not None:
            record(evidence)
        raise HandoverFailed(f"Snapshot manifest cannot be written: {error}") from error
    if record is not None:
        record(manifest.platform_evidence)
    return Drained(
        status=manifest.platform_evidence.status,
        runner_session_id=runner.runner_session_id,
        requested_by=manifest.requested_by,
        reason=manifest.reason,
        manifest_path=manifest.platform_evidence.manifest_path,
        manifest=manifest,
    )


def _draft(
    request: DrainRequest,
    runner: Identity,
    scope: Scope,
    flushed: Flush,
    created_at: str,
) -> SnapshotManifest:
    """The manifest without the fields that are known only on writing."""
    bound = runner.maestro_session_id or runner.runner_session_id
    snapshot = flushed.snapshot or synthetic.snapshot(bound, scope.root.path, flushed)
    session_id = snapshot.session_id
    kept = flushed.session_file
    work = continuity_of(snapshot.state)
    evidence = PlatformEvidence(
        runner_session_id=runner.runner_session_id,
        workspace_id=runner.workspace_id or UNSET,
        agent_run_id=runner.agent_run_id or UNSET,
        maestro_session_id=session_id,
        status="interrupted" if flushed.status == "failed" else "drained",
        runtime_flush_status=flushed.status,
        manifest_path=intended(runner, scope.root, created_at),
        created_at=created_at,
        reason=request.reason or UNSET,
        requested_by=request.requested_by or UNSET,
        work_continuity=counted(work),
        evidence_refs=references(runner, session_id),
    )
    return SnapshotManifest(
        runner_session_id=runner.runner_session_id,
        workspace_id=evidence.workspace_id,
        agent_run_id=evidence.agent_run_id,
        maestro_session_id=session_id,
        reason=evidence.reason,
        requested_by=evidence.requested_by,
        created_at=created_at,
        workspace_root=scope.root.path,
        runtime=FlushedRuntime(
            flush_status=flushed.status,
            error=flushed.error or UNSET,
            session_id=session_id,
            session_file=UNSET if kept is None else kept.path,
            session_file_sha256=UNSET if kept is None else kept.sha256 or UNSET,
            protocol_version=snapshot.protocol_version,
            cursor=flushed.cursor or snapshot.cursor,
        ),
        workspace_export=scope.exported,
        work_continuity=work,
        platform_evidence=evidence,
        snapshot=snapshot,
    )


def _written(
    drafted: SnapshotManifest, runner: Identity, root: Root, environ: Mapping[str, str]
) -> SnapshotManifest:
    place = destination(runner, root, drafted.created_at)
    evidence = replace(drafted.platform_evidence, manifest_path=place.path)
    key = next(iter(manifest_keys(environ)), None)
    manifest = signed(replace(drafted, platform_evidence=evidence), key)
    # It holds prompts: only its owner may read it.
    files.write(place, encode(manifest), mode=0o600)
    return manifest


def _instant(at: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
