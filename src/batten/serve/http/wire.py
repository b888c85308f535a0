"""HTTP/1.1 as bytes: targets of requests, heads and chunks of answers. Does no I/O."""

from collections.abc import Sequence
from http import HTTPStatus
from urllib.parse import unquote_to_bytes

import httptools

Header = tuple[bytes, bytes]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_BODILESS = frozenset((204, 304))
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def path_and_query(target: bytes) -> tuple[str, bytes, bytes]:
    """The decoded path of a request's target, the path as it was sent, and the query.

    Raises `ValueError` for an address that cannot be read.
    """
    if not target.startswith(b"/") and b"://" in target:
        try:
            url = httptools.parse_url(target)
        except httptools.HttpParserInvalidURLError as error:
            raise ValueError(str(error)) from error
        raw, query = url.path or b"/", url.query or b""
    else:
        raw, _, query = target.partition(b"?")
    path = unquote_to_bytes(raw) if b"%" in raw else raw
    return path.decode("utf-8", "replace"), raw, query


def has_body(status: int) -> bool:
    """Whether an answer with this status may have a body."""
    return status >= 200 and status not in _BODILESS


def head(status: int, headers: Sequence[Header], more: bytes) -> bytes:
    """The head of an answer; `more` are further lines of it.

    Raises `ValueError` if a header holds the end of a line: it would be read as another header.
    """
    lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
    lines += [b"%b: %b\r\n" % header for header in headers]
    joined = b"".join(lines)
    if joined.count(b"\n") != len(lines) or joined.count(b"\r") != len(lines):
        raise ValueError("a header of the answer contains the end of a line")
    return b"%b%b\r\n" % (joined, more)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)
