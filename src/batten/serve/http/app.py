"""The table as an application: routing, checks, limits, and answers in each surface's shape.

There is no framework on the path of a request: one with 40 routes served less than half as many
small requests as a bare endpoint, this serves more than 0.7 of them.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Iterable
from contextlib import asynccontextmanager
from itertools import count
from time import perf_counter
from typing import Any, Protocol

import msgspec

from batten.contract.errors import BattenError, JournalError
from batten.serve.http.access import Door, authorized
from batten.serve.http.bodies import (
    broken_body,
    check_coding,
    check_length,
    collect_body,
    stalled_at_stop,
    too_slow,
)
from batten.serve.http.deadlines import Deadlines, Late
from batten.serve.http.errors import HttpError, problem
from batten.serve.http.guard import TLS_ALONE, check_host, check_repeated, wants_tls_alone
from batten.serve.http.keys import KeyExpired, presents_key
from batten.serve.http.limits import Limits, RateLimit, WrongKeys
from batten.serve.http.logs import log_request, request_id_of_log
from batten.serve.http.metrics import Metrics, RouteTimes
from batten.serve.http.request import BodyStalled, ClientGone, Request, Respond
from batten.serve.http.routing import Router, names
from batten.serve.http.sse import HEADERS, Streams, close_source
from batten.serve.http.table import (
    Call,
    Download,
    Principal,
    Reply,
    Route,
    SentHeaders,
    Stream,
    Surface,
)
from batten.serve.http.validation import check_content_type, json_reader, query_reader
from batten.serve.http.waits import Waits

_log = logging.getLogger("batten.http")
_encode = msgspec.json.Encoder().encode
_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_JSON = (b"content-type", b"application/json")
_READS = frozenset(("GET", "HEAD", "OPTIONS"))
_GONE = 499
"""Counted for a client that left before its request was complete."""


class Writing(Protocol):
    """Counts requests that may change something."""

    def begin(self) -> None: ...

    def end(self) -> None: ...


class _Row:
    """A route of the table with what was computed from it once."""

    __slots__ = ("authenticate", "names", "read_body", "read_query", "route", "surface", "times")

    def __init__(self, route: Route, surface: Surface, times: RouteTimes) -> None:
        self.route = route
        self.surface = surface
        self.times = times
        self.authenticate = surface.authenticate
        self.names = names(route.path)
        self.read_query = None if route.query is None else query_reader(route.query)
        is_json = route.body is not None and route.body is not bytes
        lone = route.replaces_lone
        self.read_body = json_reader(route.body, replaces_lone=lone) if is_json else None


class _Exchange:
    """One request with what is known of it."""

    __slots__ = ("also", "door", "params", "principal", "request", "request_id", "row")

    def __init__(self, request: Request, request_id: str, door: Door) -> None:
        self.request = request
        self.door = door
        self.request_id = request_id
        self.also: SentHeaders = ()
        """Headers that the answer has besides its own."""
        self.row: _Row | None = None
        self.params: dict[str, str] = {}
        self.principal: Principal | None = None

    def is_admitted(self) -> bool:
        """Whether its client would be let in again."""
        if self.row is None or self.row.authenticate is not None or self.principal is None:
            return True
        return self.door.still_admits(self.principal)


class App:
    """Surfaces behind one address."""

    def __init__(
        self,
        surfaces: Iterable[Surface],
        *,
        limits: Limits | None = None,
        metrics: Metrics | None = None,
        writing: Writing | None = None,
        waits: Waits | None = None,
    ) -> None:
        """`writing` is told of each request that may change something. `waits` are ended when the
        server stops."""
        self.surfaces = tuple(surfaces)
        self.limits = limits or Limits()
        self.metrics = metrics or Metrics()
        self.streams = Streams(self.limits)
        self._waits = waits or Waits()
        self._deadlines = Deadlines()
        self._rate = RateLimit(self.limits)
        self._wrong_keys = WrongKeys(self.limits.wrong_keys_per_minute)
        self._router: Router[_Row] = Router()
        prefix = f"req_{secrets.token_hex(8)}"
        self._request_ids = (f"{prefix}{number:08x}" for number in count())
        self._active = 0
        self._writing = writing
        # The longest prefix first: the most special surface answers for an unknown path.
        self._shapes = sorted(self.surfaces, key=lambda surface: -len(surface.prefix))
        self._elsewhere = self.metrics.route("other", "other")
        for surface in self.surfaces:
            for route in surface.routes:
                times = self.metrics.route(route.method, route.path)
                self._router.add(route.method, route.path, _Row(route, surface, times))
        self._add_metrics()

    def _add_metrics(self) -> None:
        self.metrics.gauge(
            "batten_http_requests_active",
            "Requests in work, without streams.",
            lambda: self._active,
        )
        self.metrics.gauge("batten_http_streams", "Open streams.", lambda: len(self.streams))
        self.metrics.counter_of(
            "batten_http_streams_stalled_total",
            "Readers cut off because they took nothing.",
            lambda: self.streams.stalled,
        )

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """While this is open, time limits hold and streams have heartbeats."""
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(work) for work in (self.streams.tick(), self._deadlines.sweep())
            ]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    def close(self) -> None:
        """End all streams and waits, and begin no others. Requests go on."""
        self.streams.close()
        self._waits.end()

    def abort(self) -> int:
        """Cancel the requests in work; returns how many there were."""
        return self._deadlines.cancel_all()

    def endpoint(self, door: Door) -> Respond:
        """The application for the requests that come through this door."""

        def respond(request: Request) -> Awaitable[None]:
            return self._handle(request, door)

        return respond

    async def _handle(self, request: Request, door: Door) -> None:
        began = perf_counter()
        given = request.headers.get(b"x-request-id")
        if given is not None and _SANE_ID.fullmatch(given):
            request_id = given.decode()
        else:
            request_id = next(self._request_ids)
        exchange = _Exchange(request, request_id, door)
        request_id_of_log.set(request_id)
        self._active += 1
        writing = None if request.method in _READS else self._writing
        if writing is not None:
            writing.begin()
        try:
            try:
                answer = await self._answer(exchange)
            finally:
                self._active -= 1
                if writing is not None:
                    writing.end()
            status = await self._send(exchange, answer)
        except ClientGone:
            # A client whose body is malformed may still read; without an answer it would get a 500.
            await self._refuse(exchange, broken_body())
            status = _GONE
        except Exception as error:
            status = await self._refuse(exchange, error)
        row = exchange.row
        times = self._elsewhere if row is None else row.times
        times.observe(status, perf_counter() - began)
        # What changed something or failed; reads that succeeded only for debugging.
        level = logging.DEBUG if request.method in _READS and status < 500 else logging.INFO
        if _log.isEnabledFor(level):
            _record(level, exchange, status, perf_counter() - began)

    async def _answer(self, exchange: _Exchange) -> Any:
        """What the handler returns, after all checks."""
        request, door = exchange.request, exchange.door
        if door.refusal:
            raise HttpError("forbidden", door.refusal)
        headers = request.headers
        if request.repeated:
            check_repeated(request.repeated)
        check_host(request)
        if self._active > self.limits.max_requests:
            most = self.limits.max_requests
            raise HttpError("overloaded", f"the server works on {most} requests, its limit")
        if door.guard is not None:
            origin = headers.get(b"origin")
            if origin is not None:
                edge = self._surface(exchange).edge
                exchange.also = () if edge is None else edge.shared_with(origin)
            door.guard.check(headers, is_shared=bool(exchange.also))
        row, params = self._find(exchange)
        if row is None:
            return Reply(status=204, headers=(("allow", self._allowed(exchange)),))
        exchange.row = row
        route = row.route
        if door.guard is not None and not exchange.also:
            door.guard.check_site(headers, route)
        principal = exchange.principal = self._admit(exchange, row)
        if params:
            exchange.params = dict(zip(row.names, params, strict=True))
        call = Call(
            route,
            row.surface.service,
            exchange.params,
            headers,
            principal,
            exchange.request_id,
            request.path,
        )
        if row.read_query is not None:
            call.query = row.read_query(request.query)
        if route.body is not None:
            call.body = await self._body(exchange, row)
        try:
            return await self._deadlines.within(route.handler(call), route.timeout_s)
        except Late as error:
            raise HttpError(
                "request_timeout", f"the server took longer than {route.timeout_s:g} s"
            ) from error

    def _admit(self, exchange: _Exchange, row: _Row) -> Principal:
        """Who calls. Guesses of keys are counted, whatever the path."""
        request = exchange.request
        try:
            return self._principal(exchange, row)
        except HttpError as error:
            is_guess = error.code == "unauthorized" and not isinstance(error, KeyExpired)
            if is_guess and exchange.door.is_counted and presents_key(request.headers):
                self._wrong_keys.count(request.client)
            raise

    def _principal(self, exchange: _Exchange, row: _Row) -> Principal:
        door = exchange.door
        authenticate = row.authenticate or door.authenticate
        if row.surface.edge is None:
            principal = authorized(row.route, authenticate, exchange.request.headers)
            self._rate.check(principal.name)
            return principal
        request = exchange.request
        principal, told = row.surface.edge.admit(
            row.route, door, authenticate, request.headers, request.client
        )
        if told:
            exchange.also = (*exchange.also, *told) if exchange.also else told
        return principal

    def _find(self, exchange: _Exchange) -> tuple[_Row | None, list[str]]:
        """The row and the values of its names; no row if OPTIONS asks for methods."""
        request = exchange.request
        try:
            found = self._router.find(request.path, request.raw_path)
        except UnicodeDecodeError as error:
            raise HttpError("invalid_request", "the path is not UTF-8 text") from error
        if found is None and request.method == "OPTIONS" and request.path in ("*", "/"):
            return None, []  # it asks for the server as a whole, as HAProxy does to check it
        if found is None:
            raise HttpError("not_found", f"there is no {request.path[:200]} here; see /docs")
        method = request.method
        row = found[0].get("GET" if method == "HEAD" else method)
        if row is None and method != "OPTIONS":
            allowed = self._allowed(exchange)
            raise HttpError(
                "method_not_allowed",
                f"{method[:20]} is not possible here; use {allowed}",
                headers=(("allow", allowed),),
            )
        return row, found[1]

    def _allowed(self, exchange: _Exchange) -> str:
        found = self._router.find(exchange.request.path, exchange.request.raw_path)
        methods = sorted(found[0]) if found else []
        return ", ".join([*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"])

    async def _body(self, exchange: _Exchange, row: _Row) -> Any:
        route, headers = row.route, exchange.request.headers
        check_coding(headers)
        check_length(headers, route.max_body)
        timeout_s = self.limits.body_timeout_s
        try:
            arriving = collect_body(exchange.request, route.max_body)
            data = await self._deadlines.within(arriving, timeout_s)
        except Late as error:
            raise too_slow(timeout_s) from error
        except BodyStalled as error:
            raise stalled_at_stop() from error
        if row.read_body is None:
            return data
        if not data:
            if route.body_optional:
                return row.read_body(b"{}")
            raise HttpError("invalid_request", "the body is empty; send a JSON object")
        check_content_type(headers)
        return row.read_body(data)

    async def _send(self, exchange: _Exchange, answer: Any) -> int:
        """Send what a handler returned; returns the status."""
        headers = [(b"x-request-id", exchange.request_id.encode()), *exchange.also]
        request = exchange.request
        if request.is_tls and wants_tls_alone(request.headers.get(b"host", b"")):
            headers.append(TLS_ALONE)
        if isinstance(answer, Stream):
            return await self._stream(exchange, answer, headers)
        if isinstance(answer, Download):
            return await self._download(exchange, answer, headers)
        if isinstance(answer, Reply):
            status, body = answer.status, answer.body
            if body is None:
                body = b""
            else:
                if not isinstance(body, bytes):
                    body = _encode(body)
                headers.append((b"content-type", answer.content_type.encode()))
            if answer.headers:
                headers += _as_bytes(answer.headers)
        else:
            status = 200 if exchange.row is None else exchange.row.route.status
            if answer is None:
                body = b""
            else:
                body = _encode(answer)
                headers.append(_JSON)
        await request.answer(status, headers, body)
        return status

    async def _stream(
        self, exchange: _Exchange, stream: Stream, headers: list[tuple[bytes, bytes]]
    ) -> int:
        row = exchange.row
        assert row is not None
        headers += _as_bytes(stream.headers)
        if exchange.request.method == "HEAD":
            await close_source(stream.source)
            await exchange.request.begin(200, [*HEADERS, *headers])
            await exchange.request.finish()
            return 200
        try:
            self.streams.admit()
        except BattenError:
            await close_source(stream.source)
            raise
        request, request_id, shape = exchange.request, exchange.request_id, row.surface.error
        await self.streams.serve(
            stream, request, headers, request_id, shape, is_admitted=exchange.is_admitted
        )
        return 200

    async def _download(
        self, exchange: _Exchange, download: Download, headers: list[tuple[bytes, bytes]]
    ) -> int:
        """Send a body piece by piece. A reader that takes nothing for long is cut off."""
        headers += [
            (b"content-type", download.content_type.encode("latin-1")),
            *_as_bytes(download.headers),
        ]
        request = exchange.request
        try:
            await request.begin(download.status, headers, download.size)
            if request.method != "HEAD":
                async for piece in download.source:
                    await self._write(request, piece)
            await request.finish()
        finally:
            await close_source(download.source)
        return download.status

    async def _write(self, request: Request, piece: bytes) -> None:
        try:
            async with asyncio.timeout(self.limits.stall_s):
                await request.write(piece)
        except TimeoutError as error:
            raise ClientGone from error

    async def _refuse(self, exchange: _Exchange, error: Exception) -> int:
        """Answer with an error; returns its status."""
        if isinstance(error, JournalError) or not isinstance(error, BattenError):
            _log.error("a request failed: %s", exchange.request.path, exc_info=error)
        if exchange.request.is_begun:
            return 500
        told = problem(error, exchange.request_id)
        body = self._surface(exchange).error(told)
        try:
            return await self._send(exchange, Reply(body, status=told.status, headers=told.headers))
        except ClientGone:
            return _GONE

    def _surface(self, exchange: _Exchange) -> Surface:
        """The one that answers: of the route, else of the path."""
        if exchange.row is not None:
            return exchange.row.surface
        path = exchange.request.path
        for surface in self._shapes:
            if path.startswith(surface.prefix):
                return surface
        return self._shapes[-1]


def _record(level: int, exchange: _Exchange, status: int, duration_s: float) -> None:
    fields: dict[str, Any] = {
        "method": exchange.request.method,
        "path": exchange.request.path,
        "status": status,
        "duration_ms": round(duration_s * 1000, 1),
        "request_id": exchange.request_id,
    }
    fields |= {name: value for name, value in exchange.params.items() if name.endswith("_id")}
    if exchange.principal is not None:
        fields["principal"] = exchange.principal.name
    log_request(_log, level, fields)


def _as_bytes(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers]
