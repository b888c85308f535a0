"""Reads request bodies within their limits of size and time."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from batten.serve.http.errors import HttpError
from batten.serve.http.sse import Receive

_CLOSE = (("connection", "close"),)
_MOST_DISCARDED = 64 << 20
_DISCARD_S = 5.0
_PAUSE_S = 0.25
"""A client that sends nothing for so long is waiting for its answer."""


class ClientGone(Exception):
    """The client left before its request was complete; nobody reads an answer."""


def check_length(headers: Mapping[bytes, bytes], max_bytes: int) -> None:
    """Refuse a body that says it is too large, before any of it is read."""
    length = headers.get(b"content-length")
    if length is None:
        return
    if not length.isdigit() or len(length) > 18:
        raise HttpError("invalid_request", "the Content-Length header must be a number")
    if int(length) > max_bytes:
        raise _too_large(max_bytes)


async def collect_body(receive: Receive, max_bytes: int) -> bytes:
    """The whole body. One without a length is counted as it arrives."""
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def discard_rest(headers: Mapping[bytes, bytes], receive: Receive) -> None:
    """Read what is still coming of a body that is too large, up to a bound, and keep none of it.

    If the connection were closed while its client sends, most clients would report a broken
    connection in place of the answer. One that waits for permission to send gets its answer.
    """
    if b"expect" in headers:
        return
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_DISCARD_S):
            while size < _MOST_DISCARDED:
                async with asyncio.timeout(_PAUSE_S):
                    message = await receive()
                size += len(message.get("body", b""))
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return


def broken_body() -> HttpError:
    return HttpError(
        "invalid_request",
        "the body broke off, or is not as its headers say; send it again",
        headers=_CLOSE,
    )


def too_slow(timeout_s: float) -> HttpError:
    return HttpError(
        "request_body_timeout",
        f"the body did not arrive within {timeout_s:g} s; send it without pauses",
        headers=_CLOSE,
    )


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(
        "request_too_large",
        f"the body is larger than the {max_bytes} bytes that this route takes",
        headers=_CLOSE,
        fields={"max_bytes": max_bytes},
    )
