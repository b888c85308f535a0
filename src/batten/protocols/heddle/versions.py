"""Negotiates the protocol version: the newest of ours that the client knows.

Versions are semantic versions. Missing parts count as 0; a pre-release comes before its version,
and build metadata does not count.
"""

import re

from msgspec import Struct

BASE = "0.2.0"
"""The version for a client that names none, and the oldest one. The file `PROTOCOL_VERSION` at the
root of the project holds it."""
LATEST = "0.5.0"
VERSIONS = (BASE, "0.3.0", "0.4.0", LATEST)
"""The versions that this server speaks, oldest first."""

_NUMBER = r"(?:0|[1-9]\d{0,8})"
_EARLY = r"(?:0|[1-9]\d*|\d*[A-Za-z-][0-9A-Za-z-]*)"
_BUILD = r"[0-9A-Za-z-]+"
_VERSION = re.compile(
    rf"(?P<core>{_NUMBER}(?:\.{_NUMBER}){{0,2}})"
    rf"(?P<early>-{_EARLY}(?:\.{_EARLY})*)?(?:\+{_BUILD}(?:\.{_BUILD})*)?",
    re.ASCII,
)

Version = tuple[int, int, int]


class Spoken(Struct, frozen=True):
    """The version of ours that both sides know."""

    text: str
    number: Version

    def has(self, minor: str) -> bool:
        """Whether additions of this minor version may be sent."""
        return self.number >= parse(minor)


class Mismatch(Struct, frozen=True):
    """The versions are not compatible."""

    server: str
    message: str


def parse(text: str) -> Version:
    """The numbers of a version. `ValueError` if it is no semantic version."""
    return _read(text)[0]


def _read(text: str) -> tuple[Version, bool]:
    """The numbers, and whether the version is a pre-release of them."""
    found = _VERSION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is not a version: it is MAJOR.MINOR.PATCH")
    parts = [int(part) for part in found["core"].split(".")]
    major, minor, patch = (*parts, 0, 0)[:3]
    return (major, minor, patch), found["early"] is not None


def negotiate(client: str | None, forced: str = "") -> Spoken | Mismatch:
    """`forced` is the operator's version: the newest to speak, and the one to report."""
    server = forced or BASE
    if client is None:
        return Spoken(server, parse(server))
    refusal = Mismatch(server, f"Client requested {client}, server is {server}")
    try:
        version, is_early = _read(client)
    except ValueError:
        return refusal
    # Versions before 0.2 had other shapes and never shipped.
    if version[0] != parse(server)[0] or version < parse(BASE):
        return refusal
    ours = _spoken_here(forced)
    known = [
        one for one in ours if one.number < version or (one.number == version and not is_early)
    ]
    return known[-1] if known else ours[0]


def _spoken_here(forced: str) -> list[Spoken]:
    ours = [Spoken(text, parse(text)) for text in VERSIONS]
    if not forced:
        return ours
    newest = Spoken(forced, parse(forced))
    older = [
        one for one in ours if one.number < newest.number and one.number[0] == newest.number[0]
    ]
    return [*older, newest]
