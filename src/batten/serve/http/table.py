"""The vocabulary of the table: routes, what a handler gets, and what it may answer."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from batten.serve.http.errors import ErrorShape, HecateErrorReply, hecate_error

if TYPE_CHECKING:
    from batten.serve.http.access import Door

Scope = Literal["public", "viewer", "operator", "admin"]
"""What a caller must be allowed to do; each scope includes those before it."""

RANKS: dict[Scope, int] = {"public": 0, "viewer": 1, "operator": 2, "admin": 3}

_MIB = 1 << 20


class Principal(Struct, frozen=True):
    """Who calls. The name goes into each fact that the call causes."""

    name: str
    scope: Scope
    key_id: str = ""
    """The API key used; empty without one."""


class Call:
    """One request, as its handler sees it."""

    __slots__ = (
        "body",
        "headers",
        "method",
        "params",
        "path",
        "principal",
        "query",
        "request_id",
        "route",
        "service",
    )

    def __init__(
        self,
        route: "Route",
        service: Any,
        params: dict[str, str],
        headers: Mapping[bytes, bytes],
        principal: Principal,
        request_id: str,
        path: str,
    ) -> None:
        self.route = route
        self.service = service
        """The object that the surface was built with."""
        self.params = params
        """The names in braces of the path, decoded."""
        self.headers = headers
        """Lower-case names; of a repeated header, the last value."""
        self.principal = principal
        self.request_id = request_id
        self.path = path
        self.method = route.method
        self.query: Any = None
        """A value of the route's `query` type."""
        self.body: Any = None
        """A value of the route's `body` type."""

    def header(self, name: str) -> str | None:
        """A header's value; bytes beyond ASCII as Latin-1."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    @property
    def last_event_id(self) -> str | None:
        """The last `id` that a reader of a stream has seen; None if it sent none."""
        return self.header("last-event-id") or None

    def accepts(self, media_type: str) -> bool:
        """Whether `Accept` names this type itself; wildcards do not count."""
        offered = (self.header("accept") or "").lower().split(",")
        return any(part.partition(";")[0].strip() == media_type for part in offered)


class Reply(Struct, frozen=True):
    """An answer with its own status, headers or bytes."""

    body: Any = None
    """Bytes are sent as they are, None as no body, anything else as JSON."""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/json"


class SharedSource(Protocol):
    """A source with many readers."""

    async def send_to(self, reader: Any, /) -> None:
        """Send complete frames to this reader (`sse.OpenStream`), until the source ends."""
        ...


class Download(Struct, frozen=True, kw_only=True):
    """An answer whose body is sent in pieces, so that it is never whole in memory."""

    source: AsyncIterator[bytes]
    """Closed when the reader leaves; exactly `size` bytes."""
    size: int | None
    """None if it is not known before the end."""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "application/octet-stream"


class Stream(Struct, frozen=True):
    """An answer by server-sent events: complete frames from `source`, until it ends.

    The source is closed when the reader leaves or stalls, and at shutdown. One that raises ends the
    stream with an error frame.
    """

    source: AsyncIterator[bytes] | SharedSource
    headers: tuple[tuple[str, str], ...] = ()
    first: bytes = b""
    """Sent at once, with the headers: a comment such as `: ok`."""
    heartbeat: bytes | Callable[[], bytes] = b": heartbeat\n\n"
    heartbeat_s: float = 0.0
    """Time without a frame before a heartbeat; 0 for the server's own."""


Handler = Callable[[Call], Awaitable[Any]]
"""Returns a Struct (JSON, with the route's status), a `Reply`, a `Download` or a `Stream`.

Errors are raised.
"""


class Route(Struct, frozen=True, kw_only=True):
    """One row of the table."""

    method: str
    path: str
    """Names in braces match one segment: `/hecate/v1/tasks/{task_id}`."""
    handler: Handler
    summary: str
    tag: str
    scope: Scope = "viewer"
    body: Any = None
    """The type of the JSON body; `bytes` for a body of any kind, None to ignore it."""
    body_optional: bool = False
    """Whether an empty body counts as `{}`."""
    replaces_lone: bool = False
    """Whether escaped halves of a character in a JSON body become U+FFFD; else it is refused."""
    body_type: Any = None
    """The type of a body that the handler checks itself, for the documentation."""
    parts: tuple[tuple[str, Any], ...] = ()
    """The parts of a body that may come as `multipart/form-data` too, for the documentation."""
    query: type[Struct] | None = None
    """Parameters that are not fields of it are ignored."""
    headers: tuple[tuple[str, str], ...] = ()
    """Headers that the handler reads, and what they say, for the documentation."""
    reply: Any = None
    """The type of the answer, for the documentation; `bytes` for one that is not JSON."""
    content_type: str = "application/json"
    """Of the answer, for the documentation; a `Reply` has its own."""
    other_content: tuple[str, ...] = ()
    """Types of text that the answer may have instead, for the documentation."""
    status: int = 200
    other_replies: tuple[tuple[int, Any], ...] = ()
    """The types of answers that have another status, for the documentation."""
    is_page: bool = False
    """Whether links of other sites may lead here: a page for people, who only look at it."""
    streams: bool = False
    """Whether the answer may be a stream, for the documentation."""
    errors: tuple[str, ...] = ()
    """Codes, beyond those that every route may answer with."""
    max_body: int = _MIB
    timeout_s: float = 30.0
    """Time for the handler after the body has arrived; a stream is not limited by it."""
    description: str = ""


class Surface(Struct, frozen=True, kw_only=True):
    """Rows with one service object and one shape of errors."""

    name: str
    prefix: str
    """Unknown paths below it are answered in this surface's shape; `/` for all others."""
    routes: tuple[Route, ...]
    service: Any = None
    error: ErrorShape = hecate_error
    error_reply: Any = HecateErrorReply
    """The type of those errors, for the documentation."""
    error_names: Mapping[str, str] = {}
    """The codes that this surface tells under another name."""
    authenticate: "Authenticate | None" = None
    """Instead of API keys."""
    edge: "Edge | None" = None
    """Instead of the rules that the service has for who may call, and how often."""


Authenticate = Callable[[Mapping[bytes, bytes]], Principal | None]
"""From lower-case headers to who calls; None if they prove nothing."""

SentHeaders = Sequence[tuple[bytes, bytes]]


class Edge(Protocol):
    """The rules of a surface for who may call, and how often."""

    def admit(
        self,
        route: Route,
        door: "Door",
        authenticate: Authenticate,
        headers: Mapping[bytes, bytes],
        address: str,
    ) -> tuple[Principal, SentHeaders]:
        """Who calls, and headers for the answer; raises if it may not. `address`: of the peer."""
        ...

    def shared_with(self, origin: bytes) -> SentHeaders:
        """Headers for the answer to a page of this other site; none if it may not call."""
        ...
