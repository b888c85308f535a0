"""Requests to a service over HTTP, with typed errors; and streams that survive a restart of it."""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import httpcore
import msgspec

from batten.client.errors import NoReply, ServerRefused, Unreachable
from batten.client.frames import SILENT_S, Frame, FrameReader, StreamFailed
from batten.contract.errors import BattenError, CallerError, Conflict, NotFound, PeerError

_CONNECT_S = 5.0
_LARGEST = 64 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 2.0

Value = TypeVar("Value")
Query = Mapping[str, object]

_GATEWAY = (502, 503, 504)
"""What a gateway answers while the service behind it is away."""

_ERRORS: dict[int, type[CallerError]] = {
    400: CallerError,
    404: NotFound,
    409: Conflict,
    413: CallerError,
    422: CallerError,
}


class _Told(msgspec.Struct, frozen=True, rename={"type_": "type"}):
    type_: str
    message: str
    code: str = ""
    """More exact than the type."""
    operator_action: str = ""


class _Error(msgspec.Struct, frozen=True):
    error: _Told


class Link:
    """The address of a service and the key for it. Connections are made when needed."""

    def __init__(
        self,
        server: str,
        key: str = "",
        *,
        silent_s: float = SILENT_S,
        patience_s: float = 60.0,
    ) -> None:
        """`server` is `http://HOST:PORT`, `https://…`, or `unix:PATH` for a socket.

        `silent_s` is the longest wait for an answer. A stream waits `patience_s` for a service that
        is gone before it raises `Unreachable`.
        """
        self.server = server.rstrip("/")
        self._base, socket = _address(self.server)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        if key and not (key.isascii() and key.isprintable()):
            raise CallerError("the key of the service is no key: it has odd letters", code="config")
        self._silent_s = silent_s
        self._patience_s = patience_s
        self._pool = httpcore.AsyncConnectionPool(uds=socket, keepalive_expiry=10.0)

    async def close(self) -> None:
        await self._pool.aclose()

    async def get(self, path: str, type_: type[Value], query: Query | None = None) -> Value:
        """The decoded answer."""
        return self._decoded(path, type_, await self.fetch("GET", path, query=query))

    async def post(self, path: str, type_: type[Value], body: Any = None) -> Value:
        return self._decoded(path, type_, await self.fetch("POST", path, body=body))

    async def fetch(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The bytes of an answer. Raises what the service refused, or why it did not answer."""
        content = b"" if body is None else msgspec.json.encode(body)
        sent = {**(headers or {}), "Accept": "application/json"}
        if body is not None:
            sent["Content-Type"] = "application/json"
        async with self._answer(method, path, query, content, sent) as answer:
            return await self._whole(answer)

    def _decoded(self, path: str, type_: type[Value], data: bytes) -> Value:
        try:
            return msgspec.json.decode(data, type=type_)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise self._garbage(f"{path} answers {_beginning(data)}: {error}") from error

    async def frames(
        self, path: str, *, after: int = -1, query: Query | None = None
    ) -> AsyncGenerator[list[Frame], None]:
        """Frames of a stream past the cursor, in the order sent, each once.

        A stream that breaks is opened again after its last frame. Ends when the service says that
        nothing follows. Raises `Unreachable` if the service stays away, `NotFound` if what the
        stream tells of is deleted, and `StreamFailed` if each one fails before its next frame.
        """
        pause_s, gone_since = _FIRST_PAUSE_S, None
        failing_since: float | None = None
        clock = asyncio.get_running_loop().time
        while True:
            has_moved = False
            try:
                async with aclosing(self._connected(path, after, query)) as pages:
                    async for page in pages:
                        pause_s, gone_since = _FIRST_PAUSE_S, None
                        new = [frame for frame in page if frame.cursor > after]
                        if new:
                            has_moved, failing_since = True, None
                            after = new[-1].cursor
                            yield new
                return
            except _Over:  # closed in good order: the next answer says whether anything follows
                if has_moved:
                    continue
            except StreamFailed as error:  # the next answer says whether that may pass
                if error.code == "not_found":
                    raise NotFound(error.message) from error
                failing_since = failing_since or clock()
                if clock() - failing_since > self._patience_s:
                    raise
            except (Unreachable, NoReply, ServerRefused) as error:
                if isinstance(error, ServerRefused) and not error.is_temporary:
                    raise
                gone_since = gone_since or clock()
                if clock() - gone_since > self._patience_s:
                    raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _connected(
        self, path: str, after: int, query: Query | None
    ) -> AsyncGenerator[list[Frame], None]:
        """Frames of one connection; raises `_Over` when it ends, and returns if nothing follows."""
        headers = {"Accept": "text/event-stream"}
        if after >= 0:
            headers["Last-Event-ID"] = str(after)
        async with self._answer("GET", path, query, b"", headers) as answer:
            if answer.status == 204:
                return
            kind = _header(answer, b"content-type")
            if not kind.startswith("text/event-stream"):
                raise self._garbage(f"{path} answers {kind or 'no type'} where a stream should be")
            reader = FrameReader()
            async for piece in answer.aiter_stream():
                page = reader.feed(piece)
                yield page  # an empty one too: the service is there
                if reader.failure is not None:
                    raise reader.failure
        raise _Over

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Query | None,
        content: bytes,
        headers: Mapping[str, str],
    ) -> AsyncGenerator[httpcore.Response, None]:
        """An answer with a status of success; its body is still to be read."""
        given = {name: value for name, value in (query or {}).items() if value is not None}
        url = self._base + quote(path, safe="/:") + (f"?{urlencode(given)}" if given else "")
        silent_s = self._silent_s
        limits = {"connect": _CONNECT_S, "read": silent_s, "write": silent_s, "pool": silent_s}
        try:
            async with self._pool.stream(
                method,
                url,
                headers=list({**self._headers, **headers}.items()),
                content=content,
                extensions={"timeout": limits},
            ) as answer:
                if answer.status >= 300:
                    raise self._refusal(answer.status, await self._whole(answer))
                yield answer
        except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
            raise Unreachable(
                f"no service answers at {self.server}: {_why(error)}; `batten serve` starts one"
            ) from error
        except httpcore.TimeoutException as error:
            raise NoReply(f"the service at {self.server} was silent for {silent_s:g} s") from error
        except httpcore.RemoteProtocolError as error:
            if "without sending" in str(error) or "incomplete" in str(error):
                raise self._broken(error) from error
            raise self._garbage(f"it does not speak HTTP: {error}") from error
        except (httpcore.NetworkError, OSError) as error:
            raise self._broken(error) from error
        except httpcore.UnsupportedProtocol as error:
            raise CallerError(f"{self.server} is no address of a service", code="usage") from error

    def _broken(self, error: Exception) -> Unreachable:
        return Unreachable(f"the service at {self.server} closed the connection: {_why(error)}")

    async def _whole(self, answer: httpcore.Response) -> bytes:
        data = bytearray()
        async for piece in answer.aiter_stream():
            data += piece
            if len(data) > _LARGEST:
                raise self._garbage(f"its answer has more than {_LARGEST} bytes")
        return bytes(data)

    def _refusal(self, status: int, data: bytes) -> BattenError:
        """The error that the service reports, as the class it is raised with locally."""
        try:
            told = msgspec.json.decode(data, type=_Error).error
        except (msgspec.MsgspecError, ValueError, RecursionError):
            if status in _GATEWAY:
                return Unreachable(
                    f"no service answers at {self.server}: a gateway answers for it, with status"
                    f" {status}: {_beginning(data)}"
                )
            return self._garbage(f"it answers with status {status}: {_beginning(data)}")
        kind = _ERRORS.get(status)
        if kind is not None:
            return kind(told.message, code=told.code or told.type_)
        hint = f"; {told.operator_action}" if told.operator_action else ""
        return ServerRefused(
            f"the service at {self.server} refuses: {told.message}{hint}",
            code=told.code or told.type_,
            status=status,
        )

    def _garbage(self, what: str) -> PeerError:
        return PeerError(f"{self.server} is no service of Batten: {what}")


class _Over(Exception):
    """A stream was closed in good order."""


def _address(server: str) -> tuple[str, str | None]:
    """The base of addresses, and the socket to reach it by. Raises `CallerError`."""
    if server.startswith("unix:"):
        return "http://localhost", os.path.expanduser(server.removeprefix("unix:"))
    try:
        parts = urlsplit(server)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_whole, parts = None, None
    if not is_whole or parts is None or parts.query or parts.fragment:
        raise CallerError(
            f"{server!r} is no address of a service; write http://HOST:PORT, https://HOST, or"
            " unix:PATH",
            code="usage",
        )
    return server, None


def _header(answer: httpcore.Response, name: bytes) -> str:
    found = (value for key, value in answer.headers if key.lower() == name)
    return next(found, b"").decode("latin-1").lower()


def _why(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _beginning(data: bytes) -> str:
    return repr(data[:80].decode(errors="replace")) if data else "nothing"
