"""Negotiates the protocol version: the lower of both sides', if they are compatible."""

import re

from msgspec import Struct

BASE = "0.2.0"
"""The version for a client that names none, and the oldest one."""
LATEST = "0.5.0"

_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9}){0,2}", re.ASCII)

Version = tuple[int, int, int]


class Spoken(Struct, frozen=True):
    """A version that both sides know."""

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
    """The numbers of a version; missing ones are 0. `ValueError` if it is invalid."""
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a version: it is MAJOR.MINOR.PATCH")
    parts = [int(part) for part in text.split(".")]
    major, minor, patch = (*parts, 0, 0)[:3]
    return major, minor, patch


def negotiate(client: str | None, forced: str = "") -> Spoken | Mismatch:
    """`forced` is the operator's version, in place of the latest that we know."""
    server = forced or LATEST
    if client is None:
        text = forced or BASE
        return Spoken(text, parse(text))
    refusal = Mismatch(forced or BASE, f"Client requested {client}, server is {forced or BASE}")
    try:
        version = parse(client)
    except ValueError:
        return refusal
    # Versions before 0.2 had other shapes and never shipped.
    if version[0] != parse(server)[0] or version < parse(BASE):
        return refusal
    number = min(version, parse(server))
    return Spoken(".".join(map(str, number)), number)
