"""Artifacts and patches: requests, objects, and an artifact from its row and body."""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.errors import CallerError
from batten.contract.facts.artifact import ArtifactStatus
from batten.protocols.hecate.rows import ArtifactLike, RunLike
from batten.protocols.hecate.vocabulary import (
    END,
    Amount,
    ArtifactId,
    Line,
    RunId,
    TaskId,
)

PublicKind = Literal[
    "patch",
    "file_snapshot",
    "command_output",
    "fetched_resource",
    "search_results",
    "image",
    "tool_result_blob",
]
"""Every kind but sealed bodies, which are never served."""

MAX_JSON_BODY = 1 << 20
"""Bytes of a body in JSON; a larger one is sent as a part of a multipart request."""
MAX_INLINE_DIFF = 1 << 20
"""Bytes of a diff that an artifact shows whole."""

CREATED_ONCE = "created_once"
"""In the metadata: the digest of the `Idempotency-Key` that an artifact was created with."""
_HIDDEN_METADATA = frozenset({"sealed_artifact_id", CREATED_ONCE})

_Instant = Annotated[datetime, Meta(tz=True)]
MediaType = Annotated[
    str,
    Meta(
        pattern=rf"^[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *;[ -~]*)?{END}",
        max_length=200,
        extra={"expected": "a media type, as text/plain"},
    ),
]


ANY_BYTES = "application/octet-stream"
_MIME_TYPES = {
    "patch": "text/x-diff",
    "command_output": "text/plain; charset=utf-8",
    "search_results": "application/json",
}


class ArtifactMetadata(Struct, frozen=True, kw_only=True):
    """An artifact to create: the part `metadata` of a multipart request; its body is the part
    `body`."""

    kind: PublicKind
    run_id: RunId
    """The run that it belongs to."""
    mime_type: MediaType | UnsetType = UNSET
    """Without it, that of the part `body`, else that of the kind: `text/x-diff` of a patch,
    `text/plain` of a command's output, JSON of search results, or `application/octet-stream`."""
    metadata: dict[str, Any] = {}
    """Details of the kind. A patch needs `target_path`."""
    task_id: TaskId | UnsetType = UNSET
    """The task of the run; another one is refused."""
    tool_call_id: Line = ""
    summary: Line = ""

    def media_type(self) -> str:
        """The media type of the body: as the client says, or as usual for the kind."""
        return self.mime_type or _MIME_TYPES.get(self.kind, ANY_BYTES)


class CreateArtifact(ArtifactMetadata, frozen=True, kw_only=True):
    """An artifact to create, with its body."""

    body_base64: Annotated[bytes, Meta(max_length=MAX_JSON_BODY)]
    """The body in base64: at most 1 MiB. Send a larger one as multipart."""


class PatchArtifact(Struct, frozen=True, kw_only=True):
    """A change to an artifact by a client."""

    pinned: bool
    """A pinned artifact is neither deleted nor removed by retention."""


class PatchStats(Struct, frozen=True):
    """The size of a patch, in lines and hunks."""

    additions: int = 0
    deletions: int = 0
    hunks: int = 0


class Artifact(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A body that a run produced or used. The fields from `target_path` to `reverted_at` belong to
    patches."""

    id: str
    kind: PublicKind
    status: ArtifactStatus
    """`created`; of a patch `proposed`, `applied` or `rejected`. A reverted patch stays `applied`
    and has `reverted_at`."""
    target_path: str = ""
    """The file that the patch changes."""
    base_revision: str | UnsetType | None = UNSET
    """`sha256:` and the digest of the file before the change; null for a new file."""
    diff: str = ""
    """The change as a unified diff; not in lists."""
    diff_truncated: bool = False
    """The diff is longer than 1 MiB: this is its beginning, and `/raw` returns all of it."""
    stats: PatchStats | UnsetType = UNSET
    reverted_from_artifact_id: str = ""
    """The patch that this one undoes."""
    created_at: str
    applied_at: str | UnsetType | None = UNSET
    reverted_at: str | UnsetType | None = UNSET
    updated_at: str
    summary: str = ""
    size_bytes: int
    sha256: str
    mime_type: str
    metadata: dict[str, Any] = {}
    """Details of the kind: the exit code of a command, the address of a resource."""
    pinned: bool
    run_id: str
    task_id: str = ""
    session_id: str = ""
    tool_call_id: str = ""
    produced_by_run_id: str
    produced_by_tool_call_id: str = ""


class ArtifactReply(Struct, frozen=True, tag_field="object", tag="artifact"):
    data: Artifact


class RunArtifactReply(Struct, frozen=True, tag_field="object", tag="task_artifact"):
    data: Artifact


class ArtifactList(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="object", tag="list"
):
    """Artifacts, the newest first, without their bodies."""

    data: list[Artifact]
    has_more: bool
    next_cursor: str = ""
    """The last id here: pass it as `cursor` to get the next page; missing on the last one."""


class ArtifactQuery(Struct, frozen=True, kw_only=True):
    """Which artifacts to list."""

    kind: PublicKind | UnsetType = UNSET
    status: ArtifactStatus | UnsetType = UNSET
    task_id: Line | UnsetType = UNSET
    run_id: Line | UnsetType = UNSET
    session_id: Line | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    created_after: _Instant | UnsetType = UNSET
    """Only artifacts created after this time, in RFC 3339 with a zone."""
    created_before: _Instant | UnsetType = UNSET
    limit: Amount | UnsetType = UNSET
    """Artifacts on a page: 50 if left out, at most 200; 0 for the most."""
    cursor: ArtifactId | UnsetType = UNSET
    """`next_cursor` of the page before."""


class Patch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change to one file, for review."""

    artifact: Artifact
    diff: str = ""
    """The change as a unified diff; not in lists."""
    status: ArtifactStatus
    path: str
    before_existed: bool
    """Whether the file was there before the change."""


class PatchReply(Struct, frozen=True, tag_field="object", tag="task_patch"):
    data: Patch


class PatchList(Struct, frozen=True, tag_field="object", tag="task_patches"):
    """Patches of a run, in the order in which they were made."""

    data: list[Patch]


class PatchQuery(Struct, frozen=True, kw_only=True):
    """Which patches to list."""

    status: ArtifactStatus | UnsetType = UNSET


class ReviewPatch(Struct, frozen=True, kw_only=True):
    """Why a patch is applied, rejected or reverted; the body may be left out."""

    reason: Annotated[str, Meta(max_length=16_384)] = ""


class ReviewPatches(ReviewPatch, frozen=True, kw_only=True):
    """Which patches of a run are applied, rejected or reverted; the body may be left out."""

    paths: Annotated[list[Line], Meta(max_length=10_000)] = []
    """Only the patches of these files; all if empty."""


def is_public(row: ArtifactLike) -> bool:
    """Whether an artifact may be listed and read: sealed and deleted ones may not."""
    return row.kind != "sealed" and row.deleted_at is None


def artifact_object(
    row: ArtifactLike, run: RunLike | None, body: bytes | None = None, *, changed_at: str = ""
) -> Artifact:
    """An artifact. `body` is a patch's diff, shown inline; None leaves it out. `changed_at` is when
    it was last changed, if it was.

    Raises `CallerError` for a sealed one.
    """
    if row.kind == "sealed":
        raise CallerError(f"artifact {row.artifact_id} is sealed: it is never shown")
    of_patch: dict[str, Any] = {}
    metadata = {name: row.metadata[name] for name in row.metadata if name not in _HIDDEN_METADATA}
    if row.kind == "patch":
        of_patch = {
            "target_path": str(metadata.get("target_path", "")),
            "base_revision": metadata.get("base_revision"),
            "stats": _stats(metadata.get("stats")),
            "reverted_from_artifact_id": str(metadata.get("reverted_from_artifact_id", "")),
            "applied_at": row.applied_at,
            "reverted_at": row.reverted_at,
        }
        if body is not None:
            of_patch["diff"], of_patch["diff_truncated"] = _shown_diff(body)
    return Artifact(
        id=row.artifact_id,
        kind=row.kind,
        status=row.status,
        created_at=row.created_at,
        updated_at=changed_at or row.reverted_at or row.applied_at or row.created_at,
        summary=row.summary,
        size_bytes=row.size_bytes,
        sha256=row.sha256,
        mime_type=row.mime_type,
        metadata=metadata,
        pinned=row.pinned,
        run_id=row.run_id,
        task_id=(run.task_id if run else None) or "",
        session_id=(run.session_id if run else None) or "",
        tool_call_id=row.tool_call_id or "",
        produced_by_run_id=row.run_id,
        produced_by_tool_call_id=row.tool_call_id or "",
        **of_patch,
    )


def _stats(value: Any) -> PatchStats:
    try:
        return msgspec.convert(value, PatchStats)
    except msgspec.ValidationError:
        return PatchStats()


def _shown_diff(body: bytes) -> tuple[str, bool]:
    """A diff as text; a long one ends at a line."""
    if len(body) <= MAX_INLINE_DIFF:
        return body.decode(errors="replace"), False
    head = body[: body.rfind(b"\n", 0, MAX_INLINE_DIFF) + 1] or body[:MAX_INLINE_DIFF]
    return head.decode(errors="replace"), True


def patch_object(artifact: Artifact) -> Patch:
    """A patch for review, from its artifact."""
    return Patch(
        artifact=msgspec.structs.replace(artifact, diff="", diff_truncated=False),
        diff=artifact.diff,
        status=artifact.status,
        path=artifact.target_path,
        before_existed=isinstance(artifact.base_revision, str),
    )
