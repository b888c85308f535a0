"""Reads request bodies within their limits of size and time."""

from collections.abc import Mapping

from batten.serve.http.errors import HttpError
from batten.serve.http.sse import Receive

_CLOSE = (("connection", "close"),)


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
