"""Rows for webhooks: subscribe, change, delete, and the log of deliveries."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.errors import NotFound
from batten.contract.outcomes import Outcome
from batten.serve.http.sinks.service import SinkService
from batten.serve.http.table import Call, Reply, Route
from batten.sinks.store import Entry, SinkStore, Status
from batten.sinks.webhooks.subscription import Change, Subscription, WebhookEvent, sink_name

_MASK = "********"
_Texts = Annotated[tuple[str, ...], Meta(max_length=100)]
_Events = Annotated[tuple[WebhookEvent, ...], Meta(max_length=100)]


class NewWebhook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A receiver and what it wants to hear."""

    url: str
    events: _Events = ()
    """Empty for all."""
    secret: str | UnsetType = UNSET
    """Signs each request; one is made and returned if it is absent."""
    active: bool = True
    body: Literal["thin", "full"] = "full"
    """`thin`: ids only."""
    tasks: _Texts = ()
    """Only these tasks."""
    workspaces: _Texts = ()
    """Only runs in these directories."""
    outcomes: tuple[Outcome, ...] = ()
    """Only runs that ended so."""


class WebhookChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields that are not given stay. A new `secret` signs at once, the old one too for a day."""

    url: str | UnsetType = UNSET
    events: _Events | UnsetType = UNSET
    secret: str | UnsetType = UNSET
    active: bool | UnsetType = UNSET
    body: Literal["thin", "full"] | UnsetType = UNSET
    tasks: _Texts | UnsetType = UNSET
    workspaces: _Texts | UnsetType = UNSET
    outcomes: tuple[Outcome, ...] | UnsetType = UNSET


class WebhookObject(Struct, frozen=True, kw_only=True, rename="camel"):
    """A subscription. Its secret is shown only in the answer that creates it."""

    id: str
    url: str
    events: tuple[WebhookEvent, ...]
    secret: str
    active: bool
    body: Literal["thin", "full"]
    tasks: tuple[str, ...]
    workspaces: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    created_at: str
    updated_at: str


class Delivery(Struct, frozen=True, kw_only=True, rename="camel"):
    """A message to a receiver, and what became of it."""

    id: int
    message_id: str
    event: str
    run_id: str | None
    status: Literal["pending", "delivered", "failed"]
    attempts: int
    response_status: int | None
    error_message: str | None
    occurred_at: str
    delivered_at: str | None
    payload: Any


class DeliveryList(Struct, frozen=True):
    data: list[Delivery]


class DeliveryQuery(Struct, frozen=True, kw_only=True):
    status: Literal["pending", "delivered", "failed"] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    before: Annotated[int, Meta(ge=0, le=2**62)] | UnsetType = UNSET
    """The id of the last delivery of the page before."""


_SHOWN: dict[Status, Literal["pending", "delivered", "failed"]] = {
    "pending": "pending",
    "delivered": "delivered",
    "dead": "failed",
}
_STORED: dict[str, Status] = {shown: stored for stored, shown in _SHOWN.items()}


async def create(call: Call) -> WebhookObject:
    service: SinkService = call.service
    body: NewWebhook = call.body
    wanted = Change(**msgspec.structs.asdict(body))
    made, secret = service.subscriptions.create(wanted, await service.journal.position())
    service.record(call, "webhook.created", "webhook", made.id, url=made.url)
    return _object(made, secret)


async def list_all(call: Call) -> list[WebhookObject]:
    service: SinkService = call.service
    return [_object(one) for one in service.subscriptions.all()]


async def get(call: Call) -> WebhookObject:
    service: SinkService = call.service
    return _object(service.subscriptions.find(call.params["webhook_id"]))


async def change(call: Call) -> WebhookObject:
    service: SinkService = call.service
    body: WebhookChange = call.body
    wanted = Change(**msgspec.structs.asdict(body))
    before = service.subscriptions.find(call.params["webhook_id"])
    if wanted.active is True and not before.active:
        # What happened while it was off is not told.
        service.store.skip_to(sink_name(before.id), await service.journal.position())
    made = service.subscriptions.change(before.id, wanted)
    named = sorted(
        name for name, value in msgspec.structs.asdict(body).items() if value is not UNSET
    )
    if made != before:
        service.record(call, "webhook.changed", "webhook", made.id, fields=named)
    return _object(made)


async def delete(call: Call) -> Reply:
    service: SinkService = call.service
    webhook_id = call.params["webhook_id"]
    if service.subscriptions.delete(webhook_id):
        service.record(call, "webhook.deleted", "webhook", webhook_id)
    return Reply(status=204)


async def list_deliveries(call: Call) -> DeliveryList:
    service: SinkService = call.service
    query: DeliveryQuery = call.query
    webhook_id = service.subscriptions.find(call.params["webhook_id"]).id
    entries = service.store.entries(
        sink_name(webhook_id),
        None if query.status is UNSET else _STORED[query.status],
        before=None if query.before is UNSET else query.before,
        limit=query.limit,
    )
    return DeliveryList([_delivery(one) for one in entries])


async def replay(call: Call) -> Delivery:
    service: SinkService = call.service
    webhook_id = service.subscriptions.find(call.params["webhook_id"]).id
    number = call.params["delivery_id"]
    entry = _kept(service.store, number)
    if entry is None or entry.sink != sink_name(webhook_id):
        raise NotFound(f"webhook {webhook_id} has no delivery {number}")
    service.store.replay([entry.id])
    service.record(call, "webhook.replayed", "webhook", webhook_id, delivery=entry.id)
    return _delivery(service.store.entry(entry.id))


def _kept(store: SinkStore, number: str) -> Entry | None:
    try:
        return store.entry(int(number[:20])) if number.isdecimal() else None
    except NotFound:
        return None


def _object(one: Subscription, secret: str = _MASK) -> WebhookObject:
    return WebhookObject(
        id=one.id,
        url=one.url,
        events=one.events,
        secret=secret,
        active=one.active,
        body=one.body,
        tasks=one.tasks,
        workspaces=one.workspaces,
        outcomes=one.outcomes,
        created_at=one.created_at,
        updated_at=one.updated_at,
    )


def _delivery(entry: Entry) -> Delivery:
    payload = msgspec.json.decode(entry.message.body)
    return Delivery(
        id=entry.id,
        message_id=entry.message.message_id,
        event=entry.message.type,
        run_id=payload["runId"],
        status=_SHOWN[entry.status],
        attempts=entry.attempts,
        response_status=entry.answer,
        error_message=entry.problem or None,
        occurred_at=entry.message.occurred_at,
        delivered_at=entry.told_at or None,
        payload=payload,
    )


_ONE = "/webhooks/{webhook_id}"
_TAG = "webhooks"

ROUTES = (
    Route(
        method="POST",
        path="/webhooks",
        handler=create,
        summary="Subscribe a receiver to what happens from now on",
        tag=_TAG,
        scope="admin",
        body=NewWebhook,
        reply=WebhookObject,
        status=201,
    ),
    Route(
        method="GET",
        path="/webhooks",
        handler=list_all,
        summary="All subscriptions; settings files may name more",
        tag=_TAG,
        scope="operator",
        reply=list[WebhookObject],
    ),
    Route(
        method="GET",
        path=_ONE,
        handler=get,
        summary="One subscription",
        tag=_TAG,
        scope="operator",
        reply=WebhookObject,
        errors=("not_found",),
    ),
    Route(
        method="PATCH",
        path=_ONE,
        handler=change,
        summary="Change a subscription",
        tag=_TAG,
        scope="admin",
        body=WebhookChange,
        reply=WebhookObject,
        errors=("not_found",),
    ),
    Route(
        method="DELETE",
        path=_ONE,
        handler=delete,
        summary="End a subscription, with its log; of an unknown one there is nothing to end",
        tag=_TAG,
        scope="admin",
        status=204,
    ),
    Route(
        method="GET",
        path=f"{_ONE}/deliveries",
        handler=list_deliveries,
        summary="What was sent to a receiver, the newest first",
        tag=_TAG,
        scope="operator",
        query=DeliveryQuery,
        reply=DeliveryList,
        errors=("not_found",),
    ),
    Route(
        method="POST",
        path=f"{_ONE}/deliveries/{{delivery_id}}/replay",
        handler=replay,
        summary="Send a delivery again",
        tag=_TAG,
        scope="admin",
        reply=Delivery,
        errors=("not_found",),
    ),
)
