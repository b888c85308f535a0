"""The manifest of a drained runner, from which another can go on."""

import hmac
import os
import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.runner.continuity import WorkContinuity
from batten.runner.evidence import FlushStatus, PlatformEvidence
from batten.runner.export import WorkspaceExport
from batten.runner.git import GitState
from batten.runner.identity import Identity
from batten.runner.retention import RetentionPolicy
from batten.workspace.root import ResolvedPath, Root

USUAL_PLACE = ".maestro/runner-snapshots"
_LONGEST_ID = 160
"""Characters of a session id in a file name, which also holds the time and a number."""


class FlushedRuntime(Struct, frozen=True, kw_only=True):
    flush_status: FlushStatus
    error: str | UnsetType = UNSET
    session_id: str
    session_file: str | UnsetType = UNSET
    """The bundle of the session, in the workspace."""
    session_file_sha256: str | UnsetType = UNSET
    protocol_version: str | UnsetType = UNSET
    cursor: int | UnsetType = UNSET


class SnapshotManifest(Struct, frozen=True, kw_only=True):
    protocol_version: Literal["evalops.remote-runner.snapshot-manifest.v1"] = (
        "evalops.remote-runner.snapshot-manifest.v1"
    )
    runner_session_id: str
    workspace_id: str | UnsetType = UNSET
    agent_run_id: str | UnsetType = UNSET
    maestro_session_id: str
    reason: str | UnsetType = UNSET
    requested_by: str | UnsetType = UNSET
    created_at: str
    workspace_root: str
    runtime: FlushedRuntime
    workspace_export: WorkspaceExport
    work_continuity: WorkContinuity
    platform_evidence: PlatformEvidence
    retention_policy: RetentionPolicy = RetentionPolicy()
    snapshot: RuntimeSnapshot
    """The runtime before the stop."""
    git: GitState | UnsetType = UNSET
    manifest_hmac_sha256: str | UnsetType = UNSET
    """By the runner's key, if it has one: of all other fields but the next, in any order and
    layout."""
    manifest_sha256: str | UnsetType = UNSET
    """Of all other fields, in any order and layout."""


def signed(manifest: SnapshotManifest, key: str | None) -> SnapshotManifest:
    """The manifest with its digest, and with a MAC if there is a key."""
    if key is not None:
        code = _mac(fields_of(msgspec.json.encode(manifest)), key)
        manifest = replace(manifest, manifest_hmac_sha256=code)
    content = msgspec.json.encode(manifest)
    return replace(manifest, manifest_sha256=digest(fields_of(content)))


def digest(fields: dict[str, Any]) -> str:
    """The SHA-256 of the fields of a manifest, without its own; order and layout do not count."""
    return sha256(_canonical(fields, "manifest_sha256")).hexdigest()


def is_signed_by(fields: dict[str, Any], keys: Sequence[str]) -> bool:
    """Whether the MAC of a manifest is by one of these keys."""
    given = str(fields.get("manifest_hmac_sha256")).encode(errors="replace")
    # Each is compared: the time says nothing about them.
    matches = [hmac.compare_digest(given, _mac(fields, key).encode()) for key in keys]
    return any(matches)


def _mac(fields: dict[str, Any], key: str) -> str:
    message = _canonical(fields, "manifest_sha256", "manifest_hmac_sha256")
    return hmac.new(key.encode(errors="surrogateescape"), message, sha256).hexdigest()


def _canonical(fields: dict[str, Any], *without: str) -> bytes:
    kept = {name: value for name, value in fields.items() if name not in without}
    return msgspec.json.encode(kept, order="sorted")


def fields_of(content: bytes) -> dict[str, Any]:
    """The fields of a manifest, whoever wrote it or passed it on."""
    return _READER.decode(content)


def _number(text: str) -> float:
    """1.0 as 1: whoever passed the manifest on may not tell them apart."""
    value = float(text)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


_READER = msgspec.json.Decoder(dict[str, Any], float_hook=_number)


def encode(manifest: SnapshotManifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n"


def file_name(runner_session_id: str, created_at: str, number: int = 1) -> str:
    """A safe file name for any id; `number` if the name is taken."""
    stem = f"{_plain(runner_session_id)[:_LONGEST_ID]}-{_plain(created_at)}"
    return f"{stem}.json" if number == 1 else f"{stem}-{number}.json"


def intended(runner: Identity, root: Root, created_at: str) -> str:
    """The path of the manifest if its name is free."""
    name = file_name(runner.runner_session_id, created_at)
    return os.path.join(root.path, runner.snapshot_root or USUAL_PLACE, name)


def destination(runner: Identity, root: Root, created_at: str) -> ResolvedPath:
    """A free name in the directory for manifests.

    The default directory is in the workspace, where links could lead elsewhere: they are refused.
    """
    wanted = runner.snapshot_root or USUAL_PLACE
    if os.path.isabs(wanted):
        os.makedirs(wanted, exist_ok=True)
        directory = Root(wanted).resolve(".", "write")
    else:
        directory = root.resolve(wanted, "write")
    number = 1
    while True:
        name = file_name(runner.runner_session_id, created_at, number)
        place = ResolvedPath(directory.base, (*directory.parts, name), name)
        if not os.path.lexists(place.path):
            return place
        number += 1


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", text)
