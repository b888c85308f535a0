"""Restores a session from the manifest of a drained runner."""

import os
from collections.abc import Mapping
from typing import Annotated, Any, cast

import msgspec
from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from batten.contract.depth import DEEPEST, is_too_deep
from batten.contract.errors import CallerError, NotFound
from batten.protocols.maestro import PROTOCOL_VERSION
from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.protocols.maestro.incoming import Init
from batten.protocols.maestro.snapshot import RuntimeState
from batten.runner.config import KEYS, MANIFEST_KEY, UNSIGNED, manifest_keys, takes_unsigned
from batten.runner.evidence import MANIFEST_VERSION, FlushStatus
from batten.runner.export import inside, workspace
from batten.runner.flush import SUFFIX, SessionFile
from batten.runner.manifest import digest, fields_of, is_signed_by
from batten.settings.regular import NotRegular, read_regular
from batten.workspace.root import Root

_DEEPEST = DEEPEST + 8
"""Levels of a state: arguments are some levels inside it."""
LARGEST = 64 * 1024 * 1024
"""Bytes of a manifest."""

_FLUSH: dict[str, FlushStatus] = {
    "completed": "completed",
    "failed": "failed",
    "interrupted": "failed",
    "skipped": "skipped",
}
"""As manifests spell it; `interrupted` is an older word."""
_STATUS: dict[FlushStatus, str] = {
    "completed": "Restored from snapshot",
    "failed": "Restore interrupted before runtime flush completed",
    "skipped": "Restore incomplete: runtime flush skipped",
}
_ERROR: dict[FlushStatus, str] = {
    "failed": "runtime flush failed before restore",
    "skipped": "runtime flush was skipped; no runtime activity was persisted",
}
_GONE = (
    "connections",
    "active_utility_commands",
    "active_file_watches",
    "connection_count",
    "subscriber_count",
    "controller_subscription_id",
    "controller_connection_id",
    "connection_role",
    "client_info",
    "client_protocol_version",
    "capabilities",
    "opt_out_notifications",
)
"""Fields of the state that ended with the drained runner."""


_NULLABLE = ("session_id", "git_branch")


class Restored(Struct, frozen=True, kw_only=True):
    """What a restored runner starts with."""

    session_id: str
    drained_id: str
    """The session's id in the manifest; the runner may have been given another."""
    cursor: int
    """New messages come after it."""
    snapshot: RuntimeSnapshot
    flush_status: FlushStatus
    is_ready: bool
    """Whether clients may attach: only if the drained runtime stopped cleanly."""
    status: str
    error: str | None
    kept: SessionFile | None = None
    """The session itself, where the drained runner left it; it may be gone."""
    is_foreign: bool = False
    """Another implementation wrote the manifest: its session file, if any, is none of ours."""


_Cursor = Annotated[int, Meta(ge=0, le=2**53)]


class _Runtime(Struct, frozen=True):
    flush_status: str
    error: str | None = None
    cursor: _Cursor | None = None
    session_file: str | None = None
    session_file_sha256: str = ""


class _Path(Struct, frozen=True):
    relative_path: str


class _Export(Struct, frozen=True):
    mode: str
    paths: tuple[_Path, ...]


class _Snapshot(Struct, frozen=True):
    cursor: _Cursor = 0
    last_init: Init | None = None
    state: dict[str, Any] = {}


class _Manifest(Struct, frozen=True):
    """The fields needed here; others are ignored."""

    protocol_version: str
    maestro_session_id: str
    runtime: _Runtime
    workspace_export: _Export
    snapshot: _Snapshot | None = None
    workspace_root: str = ""
    manifest_sha256: str | None = None


def load(
    path: str,
    workspace_root: str,
    session_id: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Restored:
    """Read the manifest at `path`, relative to the workspace.

    `session_id` overrides the manifest's. If `environ` has a key of manifests, one without a MAC by
    that key is refused: a command in the workspace could have written it. Raises `CallerError` with
    the code `invalid_snapshot_manifest` if the session cannot be restored.
    """
    root = workspace(workspace_root)
    place = os.path.join(root.path, path)
    manifest = _decoded(_read(place), place, environ or {})
    _check(manifest, root, place)
    flush = _FLUSH[manifest.runtime.flush_status]
    session = session_id or manifest.maestro_session_id
    held = manifest.snapshot or _Snapshot()
    cursor = held.cursor if manifest.runtime.cursor is None else manifest.runtime.cursor
    error = None if flush == "completed" else manifest.runtime.error or _ERROR[flush]
    state = replace(
        _state(held.state, place),
        session_id=session,
        cwd=root.path,
        last_status=_STATUS[flush],
        last_error=UNSET if error is None else error,
        last_error_type=UNSET if error is None else "protocol",
        is_ready=flush == "completed",
        is_responding=False,
    )
    snapshot = RuntimeSnapshot(
        protocol_version=PROTOCOL_VERSION,
        session_id=session,
        cursor=cursor,
        last_init=_init(held.last_init),
        state=state,
    )
    return Restored(
        session_id=session,
        drained_id=manifest.maestro_session_id,
        cursor=cursor,
        snapshot=snapshot,
        flush_status=flush,
        is_ready=state.is_ready,
        status=_STATUS[flush],
        error=error,
        kept=_kept(manifest, root),
        is_foreign=_is_foreign(manifest),
    )


def _is_foreign(manifest: _Manifest) -> bool:
    runtime = manifest.runtime
    is_ours = manifest.manifest_sha256 or runtime.session_file_sha256
    return not (is_ours or (runtime.session_file or "").endswith(SUFFIX))


def _kept(manifest: _Manifest, root: Root) -> SessionFile | None:
    """The session file at its place below this workspace; None if it was outside of it."""
    named = manifest.runtime.session_file
    if not named:
        return None
    before = manifest.workspace_root.rstrip("/") + "/"
    if named.startswith(before):
        named = named[len(before) :]
    try:
        path = inside(named, root).path
    except CallerError:
        return None
    return SessionFile(path=path, sha256=manifest.runtime.session_file_sha256)


def _read(place: str) -> bytes:
    try:
        content = read_regular(place, LARGEST + 1)
    except NotRegular:
        raise _invalid(place, "it is not a file") from None
    except (OSError, ValueError) as error:
        raise NotFound(
            f"Snapshot manifest cannot be read: {place}: {error}", code="invalid_snapshot_manifest"
        ) from None
    if len(content) > LARGEST:
        raise _invalid(place, f"it has more bytes than allowed; {LARGEST} are the most")
    return content


def _decoded(content: bytes, place: str, environ: Mapping[str, str]) -> _Manifest:
    try:
        fields = fields_of(content)
        _check_signed(fields, place, environ)
        manifest = msgspec.convert(fields, _Manifest)
        said = manifest.manifest_sha256
        found = said and digest(fields)
    # Bad UTF-8 and deep nesting raise other errors than msgspec's own.
    except (ValueError, RecursionError) as error:
        raise _invalid(place, str(error)) from None
    if said != found:
        raise _invalid(
            place,
            f"it was changed after the drain: its SHA-256 is {found}, and manifest_sha256 says"
            f" {said}; remove that field from a manifest that you change yourself",
        )
    return manifest


def _check_signed(fields: dict[str, Any], place: str, environ: Mapping[str, str]) -> None:
    keys = manifest_keys(environ)
    if not keys or is_signed_by(fields, keys):
        return
    which = f"{MANIFEST_KEY}, or {' or '.join(KEYS)},"
    if fields.get("manifest_hmac_sha256") is not None:
        raise _invalid(
            place,
            "its manifest_hmac_sha256 is by another key, or it was changed after the drain; set"
            f" {which} to the key of the runner that was drained",
        )
    if not takes_unsigned(environ):
        raise _invalid(
            place,
            "it has no manifest_hmac_sha256, so that a command could have written it; set"
            f" {UNSIGNED}=1 to restore a manifest of an older version or of another make, once you"
            " know where it comes from",
        )


def _check(manifest: _Manifest, root: Root, place: str) -> None:
    if manifest.protocol_version != MANIFEST_VERSION:
        raise _invalid(
            place,
            f"its protocol_version is {manifest.protocol_version!r}, not {MANIFEST_VERSION!r}",
        )
    if manifest.workspace_export.mode != "local_path_contract":
        mode = manifest.workspace_export.mode
        raise _invalid(place, f"its workspace_export.mode is {mode!r}, not 'local_path_contract'")
    if manifest.runtime.flush_status not in _FLUSH:
        status = manifest.runtime.flush_status
        raise _invalid(place, f"its runtime.flush_status is {status!r}, none of {[*_FLUSH]}")
    if not manifest.maestro_session_id.strip():
        raise _invalid(place, "its maestro_session_id is empty")
    for path in manifest.workspace_export.paths:
        try:
            inside(path.relative_path, root)
        except CallerError as error:
            raise _invalid(place, str(error)) from None


def _state(fields: dict[str, Any], place: str) -> RuntimeState:
    if is_too_deep(fields, _DEEPEST):
        raise _invalid(place, f"its snapshot.state is nested more than {_DEEPEST} levels deep")
    kept = {name: value for name, value in fields.items() if name not in _GONE}
    try:
        return msgspec.convert(_ours(kept), RuntimeState)
    except (ValueError, RecursionError) as error:
        raise _invalid(place, f"its snapshot.state is none: {error}") from None


def _ours(value: Any) -> Any:
    """A value of the state as we write it: some implementations write null for what is not set, and
    parts of milliseconds. The arguments of calls are left as they are."""
    if isinstance(value, list):
        return [_ours(one) for one in cast(list[object], value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Any] = {}
    for name, one in cast(dict[str, Any], value).items():
        if name == "args":
            kept[name] = one
        elif isinstance(one, float) and name.endswith("_ms"):
            kept[name] = round(one)
        elif one is not None or name in _NULLABLE:
            kept[name] = _ours(one)
    return kept


def _init(init: Init | None) -> Init | None:
    """Client tools belonged to the former client."""
    return None if init is None else replace(init, client_tools=None)


def _invalid(place: str, problem: str) -> CallerError:
    return CallerError(
        f"Snapshot manifest is not valid: {place}: {problem}", code="invalid_snapshot_manifest"
    )
