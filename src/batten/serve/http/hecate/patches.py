"""Rows for the review of patches."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from msgspec import UNSET

from batten.control.patches import Choice, Review
from batten.journal.contract import ArtifactRow, RunRow
from batten.protocols.hecate.artifacts import (
    PatchList,
    PatchQuery,
    PatchReply,
    ReviewPatch,
    ReviewPatches,
    patch_object,
)
from batten.serve.http.errors import HttpError
from batten.serve.http.hecate.artifacts import listed, shown
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.tasks import RUN
from batten.serve.http.table import Call, Route
from batten.workspace.patches import BaseChanged

_PATCHES = f"{RUN}/patches"
_PATCH = f"{_PATCHES}/{{artifact_id}}"
_Work: TypeAlias = Callable[[RunRow, Choice, Review], Awaitable[list[ArtifactRow]]]


async def list_patches(call: Call) -> PatchList:
    service: Service = call.service
    query: PatchQuery = call.query
    run = await _run_of(call)
    wanted = [
        row for row in await service.patches.all_of(run) if query.status in (row.status, UNSET)
    ]
    return PatchList([patch_object(one) for one in await listed(service, wanted)])


async def get_patch(call: Call) -> PatchReply:
    service: Service = call.service
    run = await _run_of(call)
    row = await service.patches.find(run, call.params["artifact_id"])
    return PatchReply(patch_object(await shown(service, row, run)))


async def apply_patch(call: Call) -> PatchReply:
    return await _one(call, call.service.patches.apply)


async def reject_patch(call: Call) -> PatchReply:
    return await _one(call, call.service.patches.reject)


async def revert_patch(call: Call) -> PatchReply:
    return await _one(call, call.service.patches.revert)


async def apply_patches(call: Call) -> PatchList:
    return await _all(call, call.service.patches.apply)


async def reject_patches(call: Call) -> PatchList:
    return await _all(call, call.service.patches.reject)


async def revert_patches(call: Call) -> PatchList:
    return await _all(call, call.service.patches.revert)


async def _run_of(call: Call) -> RunRow:
    service: Service = call.service
    return await service.tasks.run(call.params["task_id"], call.params["run_id"])


async def _one(call: Call, work: _Work) -> PatchReply:
    run = await _run_of(call)
    [row] = await _reviewed(call, run, work, Choice(artifact_id=call.params["artifact_id"]))
    return PatchReply(patch_object(await shown(call.service, row, run)))


async def _all(call: Call, work: _Work) -> PatchList:
    run = await _run_of(call)
    rows = await _reviewed(call, run, work, Choice(paths=tuple(call.body.paths)))
    return PatchList([patch_object(one) for one in await listed(call.service, rows)])


async def _reviewed(call: Call, run: RunRow, work: _Work, choice: Choice) -> list[ArtifactRow]:
    review = Review(by=call.principal.name, reason=call.body.reason)
    try:
        return await work(run, choice, review)
    except BaseChanged as error:
        raise HttpError(
            error.code, error.message, status=409, fields={"paths": list(error.paths)}
        ) from error


def _reviewing(name: str, one: bool, summary: str) -> Route:
    handlers = {
        "apply": (apply_patch, apply_patches),
        "reject": (reject_patch, reject_patches),
        "revert": (revert_patch, revert_patches),
    }
    handler = handlers[name][0 if one else 1]
    return Route(
        method="POST",
        path=f"{_PATCH if one else _PATCHES}/{name}",
        handler=handler,
        summary=summary,
        tag="patches",
        scope="operator",
        body=ReviewPatch if one else ReviewPatches,
        body_optional=True,
        reply=PatchReply if one else PatchList,
        errors=("not_found", "conflict"),
    )


ROUTES = (
    Route(
        method="GET",
        path=_PATCHES,
        handler=list_patches,
        summary="List the patches of a run, in the order in which they were made",
        tag="patches",
        query=PatchQuery,
        reply=PatchList,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path=_PATCH,
        handler=get_patch,
        summary="Get a patch, with its diff",
        tag="patches",
        reply=PatchReply,
        errors=("not_found",),
    ),
    _reviewing("apply", True, "Write a proposed change to its file"),
    _reviewing("reject", True, "Decide that a proposed change is not made"),
    _reviewing("revert", True, "Undo a change, by a new inverse patch"),
    _reviewing("apply", False, "Write the proposed changes of a run, all or none"),
    _reviewing("reject", False, "Reject the proposed changes of a run"),
    _reviewing("revert", False, "Undo the changes of a run, all or none"),
)
