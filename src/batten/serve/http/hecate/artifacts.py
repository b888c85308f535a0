"""Rows for artifacts: the bodies that runs made, and those that clients add."""

import re
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec import UNSET, UnsetType

from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, NotFound
from batten.journal.contract import ArtifactRow, Journal, RunRow
from batten.journal.filters import ArtifactFilters
from batten.protocols.hecate.artifacts import (
    Artifact,
    ArtifactList,
    ArtifactMetadata,
    ArtifactQuery,
    ArtifactReply,
    CreateArtifact,
    PatchArtifact,
    RunArtifactReply,
    artifact_object,
)
from batten.protocols.hecate.multipart import is_multipart, read_artifact
from batten.protocols.hecate.vocabulary import LIST_PAGE, MAX_LIST_PAGE, page_size
from batten.serve.http.errors import HttpError
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.tasks import RUN, TASK
from batten.serve.http.ranges import asked_range, is_known
from batten.serve.http.table import Call, Download, Reply, Route
from batten.serve.http.validation import check_content_type, json_reader

_ARTIFACTS = "/hecate/v1/artifacts"
_ARTIFACT = f"{_ARTIFACTS}/{{artifact_id}}"
_PIECE = 256 * 1024
_LARGEST = 10 << 20
"""Bytes of a body that a client may send."""
_SHOWN_DIFF = (1 << 20) + 1
_SAFE_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+( *;[ -~]*)?", re.ASCII)
_read_json = json_reader(CreateArtifact)


async def shown(service: Service, row: ArtifactRow, run: RunRow) -> Artifact:
    """An artifact, with the diff of a patch."""
    body: bytes | None = None
    if row.kind == "patch":
        try:
            body = await service.journal.body(row.sha256, limit=_SHOWN_DIFF)
        except NotFound:
            body = None  # it was pruned
    changed = await service.changed_at(run)
    return artifact_object(row, run, body, changed_at=changed.get(row.artifact_id, ""))


async def listed(service: Service, rows: Sequence[ArtifactRow]) -> list[Artifact]:
    """Artifacts, without the diffs of patches."""
    runs: dict[str, RunRow | None] = {}
    changed: dict[str, str] = {}
    for row in rows:
        if row.run_id not in runs:
            runs[row.run_id] = run = await service.journal.run(row.run_id)
            changed.update({} if run is None else await service.changed_at(run))
    return [
        artifact_object(row, runs[row.run_id], changed_at=changed.get(row.artifact_id, ""))
        for row in rows
    ]


async def create_artifact(call: Call) -> Reply:
    service: Service = call.service
    content_type = call.header("content-type") or ""
    if is_multipart(content_type):
        asked = read_artifact(content_type, call.body)
    else:
        check_content_type(call.headers)
        asked = _read_json(call.body)
    if len(asked.body_base64) > _LARGEST:
        raise HttpError("request_too_large", f"the body is larger than {_LARGEST} bytes")
    key = call.header("idempotency-key") or ""
    if len(key) > 256:
        raise CallerError("Idempotency-Key is longer than 256 characters")
    made = await service.artifacts.create(asked, by=call.principal.name, key=key)
    reply = ArtifactReply(await shown(service, made.row, made.run))
    return Reply(reply, status=201 if made.is_new else 200)


async def get_artifact(call: Call) -> ArtifactReply:
    service: Service = call.service
    row, run = await service.artifacts.find(call.params["artifact_id"])
    return ArtifactReply(await shown(service, row, run))


async def get_run_artifact(call: Call) -> RunArtifactReply:
    service: Service = call.service
    params = call.params
    row, run = await service.artifacts.find_in_run(
        params["task_id"], params["run_id"], params["artifact_id"]
    )
    return RunArtifactReply(await shown(service, row, run))


async def get_raw(call: Call) -> Reply | Download:
    service: Service = call.service
    row, _ = await service.artifacts.find(call.params["artifact_id"])
    etag = f'"sha256:{row.sha256}"'
    headers: tuple[tuple[str, str], ...] = (
        ("etag", etag),
        ("accept-ranges", "bytes"),
        ("cache-control", "private, no-cache"),
        # A body is never shown as a page of this server.
        ("content-disposition", "attachment"),
        ("content-security-policy", "sandbox; default-src 'none'; frame-ancestors 'none'"),
    )
    if is_known(etag, call.header("if-none-match")):
        return Reply(status=304, headers=headers)
    try:
        part = asked_range(row.size_bytes, etag, call.header("range"), call.header("if-range"))
    except ValueError as error:
        raise HttpError(
            "range_not_satisfiable",
            f"the artifact has {row.size_bytes} bytes; ask for a range within them",
            headers=(("content-range", f"bytes */{row.size_bytes}"), *headers),
        ) from error
    if row.size_bytes:
        await service.journal.body(row.sha256, limit=1)  # `NotFound` before the headers
    first, size = (0, row.size_bytes) if part is None else (part.first, part.size)
    if part is not None:
        span = f"bytes {first}-{first + size - 1}/{row.size_bytes}"
        headers = (("content-range", span), *headers)
    return Download(
        source=_pieces(service.journal, row.sha256, first, size),
        size=size,
        status=200 if part is None else 206,
        headers=headers,
        content_type=row.mime_type if _SAFE_TYPE.fullmatch(row.mime_type) else _BINARY,
    )


_BINARY = "application/octet-stream"


async def _pieces(journal: Journal, sha256: str, first: int, size: int) -> AsyncGenerator[bytes]:
    end = first + size
    while first < end:
        piece = await journal.body(sha256, offset=first, limit=min(_PIECE, end - first))
        if not piece:
            raise NotFound(f"the body {sha256} ends early")
        yield piece
        first += len(piece)


async def pin_artifact(call: Call) -> ArtifactReply:
    service: Service = call.service
    body: PatchArtifact = call.body
    row, run = await service.artifacts.pin(
        call.params["artifact_id"], pinned=body.pinned, by=call.principal.name
    )
    return ArtifactReply(await shown(service, row, run))


async def delete_artifact(call: Call) -> Reply:
    service: Service = call.service
    await service.artifacts.delete(call.params["artifact_id"], by=call.principal.name)
    return Reply(status=204)


async def list_artifacts(call: Call) -> ArtifactList:
    return await _listed(call, {})


async def list_task_artifacts(call: Call) -> ArtifactList:
    service: Service = call.service
    session = await service.tasks.find(call.params["task_id"])
    return await _listed(call, {"task_id": session.task_id})


async def list_run_artifacts(call: Call) -> ArtifactList:
    service: Service = call.service
    run = await service.tasks.run(call.params["task_id"], call.params["run_id"])
    return await _listed(call, {"run_id": run.run_id})


async def _listed(call: Call, place: ArtifactFilters) -> ArtifactList:
    service: Service = call.service
    query: ArtifactQuery = call.query
    size = page_size(query.limit, LIST_PAGE, MAX_LIST_PAGE)
    filters: ArtifactFilters = {
        "kind": query.kind or None,
        "status": query.status or None,
        "task_id": query.task_id or None,
        "run_id": query.run_id or None,
        "session_id": query.session_id or None,
        "pinned": None if query.pinned is UNSET else query.pinned,
        # Facts have whole milliseconds: what is after one is at the next, or later.
        "since": _instant(query.created_after, plus_ms=1),
        "until": _instant(query.created_before),
        **place,
    }
    rows = await service.journal.public_artifacts(
        after=query.cursor or None, limit=size + 1, **filters
    )
    has_more = len(rows) > size
    rows = rows[:size]
    return ArtifactList(
        data=await listed(service, rows),
        has_more=has_more,
        next_cursor=rows[-1].artifact_id if has_more else "",
    )


def _instant(given: datetime | UnsetType, plus_ms: int = 0) -> str | None:
    """A time as facts spell it."""
    if given is UNSET:
        return None
    try:
        since = given.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    except OverflowError as error:
        raise CallerError(f"{given.isoformat()} is not in the years 1 to 9999 of UTC") from error
    return timestamp((since // timedelta(milliseconds=1) + plus_ms) * 1_000_000)


ROUTES = (
    Route(
        method="POST",
        path=_ARTIFACTS,
        handler=create_artifact,
        summary="Add an artifact to a run",
        tag="artifacts",
        scope="operator",
        body=bytes,
        body_type=CreateArtifact,
        parts=(("metadata", ArtifactMetadata), ("body", bytes)),
        headers=(("Idempotency-Key", "Names this request: its repetition creates nothing."),),
        reply=ArtifactReply,
        status=201,
        other_replies=((200, ArtifactReply),),
        errors=("not_found", "conflict", "quota_exceeded", "unsupported_media_type"),
        max_body=_LARGEST + (64 << 10),
        description="JSON with the body in `body_base64` (at most 1 MiB), or multipart/form-data"
        " with a part `metadata` and a part `body`. 200 with the artifact that is there if the run"
        " has an equal body of this kind, or if `Idempotency-Key` was used before.",
    ),
    Route(
        method="GET",
        path=_ARTIFACTS,
        handler=list_artifacts,
        summary="List artifacts of all runs, the newest first",
        tag="artifacts",
        query=ArtifactQuery,
        reply=ArtifactList,
    ),
    Route(
        method="GET",
        path=_ARTIFACT,
        handler=get_artifact,
        summary="Get an artifact; of a patch, with its diff",
        tag="artifacts",
        reply=ArtifactReply,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path=f"{_ARTIFACT}/raw",
        handler=get_raw,
        summary="Get the bytes of an artifact, or a range of them",
        tag="artifacts",
        reply=bytes,
        content_type="*/*",  # the artifact's own
        headers=(
            ("Range", "A single range of bytes, as `bytes=0-99`."),
            ("If-Range", "The `ETag` that the range belongs to."),
            ("If-None-Match", "`ETag`s that the client has."),
        ),
        other_replies=((206, bytes), (304, None)),
        errors=("not_found", "range_not_satisfiable"),
    ),
    Route(
        method="PATCH",
        path=_ARTIFACT,
        handler=pin_artifact,
        summary="Pin an artifact, or take its pin away",
        tag="artifacts",
        scope="operator",
        body=PatchArtifact,
        reply=ArtifactReply,
        errors=("not_found", "conflict"),
    ),
    Route(
        method="DELETE",
        path=_ARTIFACT,
        handler=delete_artifact,
        summary="Delete an artifact",
        tag="artifacts",
        scope="operator",
        status=204,
        errors=("not_found", "conflict"),
    ),
    Route(
        method="GET",
        path=f"{TASK}/artifacts",
        handler=list_task_artifacts,
        summary="List the artifacts of a task, the newest first",
        tag="artifacts",
        query=ArtifactQuery,
        reply=ArtifactList,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path=f"{RUN}/artifacts",
        handler=list_run_artifacts,
        summary="List the artifacts of a run, the newest first",
        tag="artifacts",
        query=ArtifactQuery,
        reply=ArtifactList,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path=f"{RUN}/artifacts/{{artifact_id}}",
        handler=get_run_artifact,
        summary="Get an artifact of a run",
        tag="artifacts",
        reply=RunArtifactReply,
        errors=("not_found",),
    ),
)
