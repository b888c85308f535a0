"""Rows for the removal of what the settings no longer keep."""

from batten.protocols.hecate.system import (
    MAX_RETENTION_PAGE,
    RETENTION_PAGE,
    RetentionList,
    RetentionQuery,
    RetentionReply,
    RunRetention,
)
from batten.protocols.hecate.vocabulary import page_size
from batten.serve.http.hecate.service import Service
from batten.serve.http.table import Call, Route

_RETENTION = "/hecate/v1/system/retention"


async def remove_now(call: Call) -> RetentionReply:
    service: Service = call.service
    body: RunRetention = call.body
    if service.recorder is not None:
        named = ",".join(body.subsystems) or "all"
        await service.recorder.record_removal(call, "retention.run", "retention", named)
    done = await service.retention.apply(
        body.subsystems, actor=call.principal.name, request_id=call.request_id
    )
    return RetentionReply(done)


async def list_removals(call: Call) -> RetentionList:
    service: Service = call.service
    query: RetentionQuery = call.query
    size = page_size(query.limit, RETENTION_PAGE, MAX_RETENTION_PAGE)
    return RetentionList(service.retention.log.latest(size))


ROUTES = (
    Route(
        method="POST",
        path=f"{_RETENTION}/run",
        handler=remove_now,
        summary="Remove now what the settings no longer keep; returns when it is done",
        tag="retention",
        scope="admin",
        body=RunRetention,
        body_optional=True,
        reply=RetentionReply,
        errors=("runtime_not_ready",),
        timeout_s=600.0,
    ),
    Route(
        method="GET",
        path=f"{_RETENTION}/runs",
        handler=list_removals,
        summary="List the latest removals, the newest first",
        tag="retention",
        query=RetentionQuery,
        reply=RetentionList,
    ),
)
