"""Rows for remote sessions: create, connect, subscribe, send, stream, leave."""

from typing import Any, Literal, Union, get_args

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.errors import CallerError, Refused
from batten.protocols.maestro.connection import VIEWER_REFUSED
from batten.protocols.maestro.hosted import (
    Ask,
    ConnectionClosed,
    ConnectionSnapshot,
    CreateAsk,
    HeartbeatSnapshot,
    RuntimeSnapshot,
    SubscribeAsk,
    SubscriptionSnapshot,
)
from batten.protocols.maestro.incoming import TYPES
from batten.protocols.maestro.vocabulary import ApprovalMode, Notification, Role
from batten.serve.http.errors import HttpError
from batten.serve.http.runner.service import RunnerService
from batten.serve.http.table import Call, Reply, Route, Stream
from batten.serve.maestro.runtime import Reading

SESSIONS = "/api/headless/sessions"
SESSION = f"{SESSIONS}/{{session_id}}"
MOST_BODY = 1_000_000
_FAMILIES = ("x-maestro-headless", "x-composer-headless", "x-evalops-headless")
_TAG = "sessions"
_NOT_FOUND = ("stale_session", "runtime_owned_elsewhere")
_CLOSED = ("runtime_not_ready",)
_LEASE = ("controller_lease_held", "stale_connection", "quota_exceeded")
_CREATE = (*_NOT_FOUND, *_CLOSED, *_LEASE, "invalid_config", "conflict", "runtime_failed")
_MESSAGE: Any = Union[tuple(TYPES.values())]  # noqa: UP007  # of a list that is made at run time
_ROLE = ("x-maestro-headless-role", "`viewer`; anything else is a controller.")
_MODE = ("x-maestro-approval-mode", "`auto`, `prompt` or `fail`, if the body says nothing.")
_CONNECTION = ("x-maestro-headless-connection-id", "The connection that acts.")
_SUBSCRIPTION = ("x-maestro-headless-subscriber-id", "The subscription that acts.")
_OPEN_S = 60.0
"""Time to open a session: tool servers may start slowly."""
_LONGEST_CURSOR = 16
_MOST_AT_ONCE = 1 << 18


class Sent(Struct, frozen=True, kw_only=True):
    """A message was carried out."""

    ok: Literal[True] = True
    success: Literal[True] = True
    accepted: Literal[True] = True
    cursor: int
    """The stream's cursor after its immediate effects."""
    execution: Literal["runtime_handled"] = "runtime_handled"
    published_messages: int


class Success(Struct, frozen=True, kw_only=True):
    success: Literal[True] = True


class Unsubscribe(Struct, frozen=True, kw_only=True, rename="camel"):
    subscription_id: str


class Whose(Struct, frozen=True, kw_only=True, rename="camel"):
    """Who asks; headers may say it too."""

    connection_id: str | None = None
    subscription_id: str | None = None


class StreamQuery(Struct, frozen=True, kw_only=True, rename="camel"):
    cursor: str | None = None
    """Read what came after it; without a number, from the current state on."""
    subscription_id: str | None = None
    opt_out_notifications: str | None = None
    """Names with commas between them."""


async def create(call: Call) -> RuntimeSnapshot:
    service: RunnerService = call.service
    ask = _created(call)
    runtime, is_new = await service.create(ask)
    if is_new:
        await runtime.connect(ask)
    return runtime.state()


async def connect(call: Call) -> ConnectionSnapshot:
    service: RunnerService = call.service
    ask = _created(call)
    runtime, _ = await service.create(ask)
    return await runtime.connect(ask)


async def state(call: Call) -> Reply:
    service: RunnerService = call.service
    return Reply(service.runtime(call.params["session_id"]).encoded_state())


async def subscribe(call: Call) -> SubscriptionSnapshot:
    service: RunnerService = call.service
    service.runner.check_attachable()
    runtime = service.runtime(call.params["session_id"])
    ask: SubscribeAsk = call.body
    return await runtime.subscribe(replace(ask, role=_role(call, ask)))


async def unsubscribe(call: Call) -> Success:
    service: RunnerService = call.service
    body: Unsubscribe = call.body
    await service.runtime(call.params["session_id"]).unsubscribe(body.subscription_id)
    return Success()


async def send(call: Call) -> Sent:
    service: RunnerService = call.service
    runtime = service.open_runtime(call.params["session_id"])
    before = runtime.state().cursor
    try:
        if _role(call) == "viewer" and call.body.get("type") != "hello":
            raise Refused(VIEWER_REFUSED)
        await runtime.message(
            call.body,
            connection_id=_header(call, "connection-id"),
            subscription_id=_subscription(call),
        )
    except Refused as error:
        # Its code says why, and not which status it has.
        raise HttpError("refused", str(error)) from error
    return Sent(cursor=runtime.cursor, published_messages=runtime.cursor - before)


async def events(call: Call) -> Stream:
    service: RunnerService = call.service
    query: StreamQuery = call.query
    runtime = service.runtime(call.params["session_id"])
    reading = runtime.stream(
        query.subscription_id or _subscription(call),
        cursor=_cursor(query.cursor),
        role=_role(call) or "controller",
        opt_out_notifications=_opted_out(query.opt_out_notifications),
    )
    return Stream(_Frames(reading))


class _Frames:
    """A stream as server-sent events: all that is queued at once, up to a limit."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __aiter__(self) -> "_Frames":
        return self

    async def __anext__(self) -> bytes:
        posted = await self._reading.next()
        if posted is None:
            raise StopAsyncIteration
        frames: list[bytes] = []
        size = 0
        while posted is not None:
            frames.append(b"data: %b\n\n" % posted.encoded)
            size += len(frames[-1])
            posted = self._reading.queued() if size < _MOST_AT_ONCE else None
        return b"".join(frames)

    async def aclose(self) -> None:
        self._reading.close()


async def heartbeat(call: Call) -> HeartbeatSnapshot:
    service: RunnerService = call.service
    runtime = service.runtime(call.params["session_id"])
    return runtime.heartbeat(*_whose(call))


async def disconnect(call: Call) -> ConnectionClosed:
    service: RunnerService = call.service
    runtime = service.runtime(call.params["session_id"])
    return await runtime.disconnect(*_whose(call))


def _created(call: Call) -> CreateAsk:
    ask: CreateAsk = call.body
    mode = ask.approval_mode or _approval_mode(call)
    return replace(ask, role=_role(call, ask), approval_mode=mode)


def _approval_mode(call: Call) -> ApprovalMode | None:
    names = ("x-maestro-approval-mode", "x-composer-approval-mode")
    given = next((value for name in names if (value := call.header(name))), None)
    known: dict[str, ApprovalMode] = {mode: mode for mode in get_args(ApprovalMode)}
    if given is not None and given not in known:
        raise CallerError(f"{names[0]} is {given[:40]!r}; it must be one of {', '.join(known)}")
    return None if given is None else known[given]


def _role(call: Call, ask: Ask | None = None) -> Role | None:
    """The role in the body, else in a header."""
    if ask is not None and ask.role is not None:
        return ask.role
    return "viewer" if _header(call, "role") == "viewer" else None


def _header(call: Call, name: str) -> str | None:
    found = (call.header(f"{family}-{name}") for family in _FAMILIES)
    return next((value.strip() for value in found if value and value.strip()), None)


def _subscription(call: Call) -> str | None:
    return _header(call, "subscriber-id") or _header(call, "subscription-id")


def _whose(call: Call) -> tuple[str | None, str | None]:
    body: Whose = call.body
    connection_id = body.connection_id or _header(call, "connection-id")
    return connection_id, body.subscription_id or _subscription(call)


def _cursor(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.strip().removeprefix("-")
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= _LONGEST_CURSOR
    return int(text) if is_number else None


def _opted_out(text: str | None) -> tuple[Notification, ...] | None:
    if text is None:
        return None
    known: dict[str, Notification] = {name: name for name in get_args(Notification)}
    given = [name for part in text.split(",") if (name := part.strip())]
    wrong = next((name for name in given if name not in known), None)
    if wrong is not None:
        raise CallerError(f"optOutNotifications has {wrong[:40]!r}; it takes {', '.join(known)}")
    return tuple(known[name] for name in given)


def _row(method: str, path: str, handler: Any, summary: str, **more: Any) -> Route:
    given: dict[str, Any] = {"max_body": MOST_BODY, "scope": "operator", **more}
    return Route(method=method, path=path, handler=handler, summary=summary, tag=_TAG, **given)


ROUTES = (
    _row(
        "POST",
        "/api/headless/connections",
        connect,
        "Create or find the session, and connect to it",
        body=CreateAsk,
        body_optional=True,
        headers=(_ROLE, _MODE),
        reply=ConnectionSnapshot,
        errors=_CREATE,
        timeout_s=_OPEN_S,
    ),
    _row(
        "POST",
        SESSIONS,
        create,
        "Create or find the session",
        body=CreateAsk,
        body_optional=True,
        headers=(_ROLE, _MODE),
        reply=RuntimeSnapshot,
        errors=_CREATE,
        timeout_s=_OPEN_S,
    ),
    *(
        _row(
            "GET",
            f"{SESSION}{name}",
            state,
            "The state of the session",
            reply=RuntimeSnapshot,
            errors=_NOT_FOUND,
        )
        for name in ("", "/state")
    ),
    _row(
        "POST",
        f"{SESSION}/subscribe",
        subscribe,
        "Open a subscription",
        body=SubscribeAsk,
        body_optional=True,
        headers=(_ROLE,),
        reply=SubscriptionSnapshot,
        errors=(*_NOT_FOUND, *_CLOSED, *_LEASE),
    ),
    _row(
        "POST",
        f"{SESSION}/unsubscribe",
        unsubscribe,
        "Close a subscription, and its connection with the last one",
        body=Unsubscribe,
        reply=Success,
        errors=(*_NOT_FOUND, "stale_connection"),
    ),
    _row(
        "GET",
        f"{SESSION}/events",
        events,
        "The messages of the session as a stream",
        query=StreamQuery,
        headers=(_ROLE, _SUBSCRIPTION),
        streams=True,
        errors=(*_NOT_FOUND, "stale_connection", "quota_exceeded"),
    ),
    *(
        _row(
            "POST",
            f"{SESSION}/{name}",
            send,
            "Carry out a message of the client",
            body=dict[str, Any],
            body_type=_MESSAGE,
            replaces_lone=True,
            headers=(_ROLE, _CONNECTION, _SUBSCRIPTION),
            reply=Sent,
            errors=(*_NOT_FOUND, *_CLOSED, *_LEASE, "refused"),
        )
        for name in ("messages", "message")
    ),
    _row(
        "POST",
        f"{SESSION}/heartbeat",
        heartbeat,
        "Keep a connection and its lease",
        body=Whose,
        body_optional=True,
        headers=(_CONNECTION, _SUBSCRIPTION),
        reply=HeartbeatSnapshot,
        errors=(*_NOT_FOUND, "stale_connection"),
    ),
    _row(
        "POST",
        f"{SESSION}/disconnect",
        disconnect,
        "Close a connection",
        body=Whose,
        body_optional=True,
        headers=(_CONNECTION, _SUBSCRIPTION),
        reply=ConnectionClosed,
        errors=(*_NOT_FOUND, "stale_connection"),
    ),
)
