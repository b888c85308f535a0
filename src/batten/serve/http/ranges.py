"""Conditional requests and ranges of a body that never changes, by its digest."""

import re

from msgspec import Struct

_RANGE = re.compile(r"bytes\s*=\s*([0-9]{0,18})\s*-\s*([0-9]{0,18})", re.IGNORECASE | re.ASCII)


class Extent(Struct, frozen=True):
    """Bytes of a body from `first`, `size` of them."""

    first: int
    size: int


def is_known(etag: str, if_none_match: str | None) -> bool:
    """Whether the client has this version: the answer is 304."""
    if if_none_match is None:
        return False
    given = [one.strip().removeprefix("W/") for one in if_none_match.split(",")]
    return etag in given or "*" in given


def asked_range(
    size: int, etag: str, header: str | None, if_range: str | None = None
) -> Extent | None:
    """The range that a request asks for; None for the whole body.

    The whole body too if the header is malformed, asks for several ranges, or belongs to another
    version. Raises `ValueError` for a range outside the body: the answer is 416.
    """
    if header is None or (if_range is not None and if_range.strip() != etag):
        return None
    found = _RANGE.fullmatch(header.strip())
    if found is None or not (found[1] or found[2]):
        return None
    if not found[1]:
        last_bytes = min(int(found[2]), size)
        if not last_bytes:
            raise ValueError(header)
        return Extent(size - last_bytes, last_bytes)
    first = int(found[1])
    last = min(int(found[2]), size - 1) if found[2] else size - 1
    if found[2] and int(found[2]) < first:
        return None
    if first >= size:
        raise ValueError(header)
    return Extent(first, last - first + 1)
