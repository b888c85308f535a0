"""The row of the audit log."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.serve.http.sinks.service import SinkService
from batten.serve.http.table import Call, Route
from batten.serve.http.validation import instant
from batten.sinks.audit.entry import AuditEntry
from batten.sinks.audit.log import AuditQuery


class AuditParameters(Struct, frozen=True, kw_only=True, rename="camel"):
    actor: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    resource: str | UnsetType = UNSET
    resource_id: str | UnsetType = UNSET
    created_after: str | UnsetType = UNSET
    """Only entries after this ISO 8601 time."""
    created_before: str | UnsetType = UNSET
    """Only entries before this ISO 8601 time."""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    offset: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0


class AuditPage(Struct, frozen=True):
    """Entries, the newest first."""

    data: list[AuditEntry]
    total: int
    limit: int
    offset: int


async def list_entries(call: Call) -> AuditPage:
    service: SinkService = call.service
    asked: AuditParameters = call.query
    await service.audit.catch_up(service.journal)
    query = AuditQuery(
        actor=asked.actor or "",
        action=asked.action or "",
        resource=asked.resource or "",
        resource_id=asked.resource_id or "",
        created_after=instant("createdAfter", asked.created_after, is_down=True),
        created_before=instant("createdBefore", asked.created_before),
        limit=asked.limit,
        offset=asked.offset,
    )
    data, total = service.audit.find(query)
    return AuditPage(data, total, asked.limit, asked.offset)


ROUTES = (
    Route(
        method="GET",
        path="/audit",
        handler=list_entries,
        summary="Who did what: keys, runs, answers, policies, exports and removals",
        tag="audit",
        scope="admin",
        query=AuditParameters,
        reply=AuditPage,
        timeout_s=120.0,
    ),
)
