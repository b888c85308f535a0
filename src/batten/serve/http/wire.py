"""HTTP/1.1 as bytes: targets of requests, heads and chunks of answers. Does no I/O."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

Header = tuple[bytes, bytes]

_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_TARGET = re.compile(rb"(?i:https?)://([^/?#]*)(/[^?#]*)?(?:\?([^#]*))?")
"""An absolute form: its authority, its path and its query."""
ALWAYS = b"x-content-type-options: nosniff\r\nreferrer-policy: no-referrer\r\n"
"""Lines of every answer: browsers take it for nothing but what its type says, and tell no other
site where they have been.
"""
UNSTORED = b"cache-control: no-store\r\n"
"""For answers that do not say how they may be kept."""
ALONE = b"content-security-policy: default-src 'none'; frame-ancestors 'none'\r\n"
"""For answers that are no pages: shown by a browser, they load nothing and stand in no frame."""
_BODILESS = frozenset((204, 304))
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class Target(NamedTuple):
    """What a request asks for."""

    path: str
    """Decoded."""
    raw_path: bytes
    query: bytes
    authority: bytes | None
    """The host and port of an absolute form; it takes the place of `Host`."""


def read_target(target: bytes) -> Target:
    """The parts of a request's target. Raises `ValueError` for an address that cannot be read."""
    authority = None
    if not target.startswith(b"/") and b"://" in target:
        found = _TARGET.fullmatch(target)
        if found is None:
            raise ValueError("the target is no address of HTTP")
        authority, raw, query = found[1], found[2] or b"/", found[3] or b""
    else:
        raw, _, query = target.partition(b"?")
    path = unquote_to_bytes(raw) if b"%" in raw else raw
    return Target(path.decode("utf-8", "replace"), raw, query, authority)


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
