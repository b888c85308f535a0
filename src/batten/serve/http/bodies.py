"""Reads request bodies within their limits of size and time."""

from collections.abc import Mapping

from batten.serve.http.errors import HttpError
from batten.serve.http.request import Request

_CLOSE = (("connection", "close"),)


def check_length(headers: Mapping[bytes, bytes], max_bytes: int) -> None:
    """Refuse a body that says it is too large, before any of it is read."""
    length = headers.get(b"content-length")
    if length is None:
        return
    if not length.isdigit() or len(length) > 18:
        raise HttpError("invalid_request", "the Content-Length header must be a number")
    if int(length) > max_bytes:
        raise _too_large(max_bytes)


def check_coding(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that is compressed: it would be taken for what it is not."""
    coding = headers.get(b"content-encoding")
    if coding is not None and coding.strip().lower() not in (b"", b"identity"):
        raise HttpError(
            "unsupported_media_type",
            "the body has a Content-Encoding; send it as it is, without one",
            headers=(("accept-encoding", "identity"),),
        )


async def collect_body(request: Request, max_bytes: int) -> bytes:
    """The whole body. One without a length is counted as it arrives.

    Raises `ClientGone` and `BodyStalled`.
    """
    pieces: list[bytes] = []
    more = True
    while more:
        piece, more = await request.piece()
        pieces.append(piece)
        if request.size > max_bytes:
            raise _too_large(max_bytes)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


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


def stalled_at_stop() -> HttpError:
    return HttpError(
        "request_body_timeout",
        "the server stops and the body has not arrived; send it again when it is back",
        headers=_CLOSE,
    )


def _too_large(max_bytes: int) -> HttpError:
    return HttpError(
        "request_too_large",
        f"the body is larger than the {max_bytes} bytes that this route takes",
        headers=_CLOSE,
        fields={"max_bytes": max_bytes},
    )
