"""Files that say something: read whole, with the digest of exactly what was read, and parsed.

What a file means is left to others.
"""

import os
from typing import Any, cast

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError

_LARGEST = 256 * 1024
_KINDS = (".toml", ".json")
_DEEPEST_KEY = 16
_TOML_TEXTS = (
    r'"""(?:[^"\\]|\\(?:.|\Z)|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'{3}.*?(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\[^\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+"
)
"""Texts and comments. One that does not end where it must still ends: the parser will object."""


class LeadsOut(CallerError):
    """A link in a workspace that leads out of it. Such a file is left out, not an error."""

    code = "config"


class Document(Struct, frozen=True, kw_only=True):
    path: str
    shown: str
    """How people are told of it: from the workspace on if it is in one."""
    digest: str
    """Of its bytes."""
    content: dict[str, Any]


def wrong(message: str) -> CallerError:
    return CallerError(message, code="config")


def find(stem: str, *, within: str | None = None) -> Document | None:
    """`<stem>.toml` or `<stem>.json`, if there is one; both at once are an error."""
    paths = [path for path in (stem + kind for kind in _KINDS) if os.path.lexists(path)]
    if len(paths) == 2:
        raise wrong(f"{paths[0]} and {paths[1]} say the same things; keep one of them")
    return read(paths[0], within=within) if paths else None


def read(path: str, *, within: str | None = None) -> Document:
    """A file as a table of keys. `within` names the workspace that a link must not leave."""
    data = read_bytes(path, within=within)
    name = shown(path, within)
    return Document(
        path=path,
        shown=name,
        digest=digest(data),
        content=parse(data, name, toml=path.endswith(".toml")),
    )


def read_bytes(path: str, *, within: str | None = None, largest: int = _LARGEST) -> bytes:
    """All bytes of a regular file; an error that names it otherwise."""
    name = shown(path, within)
    real = path if within is None else _inside(path, within)
    try:
        # Without waiting: whatever else stands there may be a pipe that nobody writes to.
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with open(descriptor, "rb") as file:
            data = file.read(largest + 1)
    except OSError as error:
        raise wrong(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > largest:
        raise wrong(f"{name} has more than {largest} bytes")
    return data


def parse(data: bytes, name: str, *, toml: bool = False) -> dict[str, Any]:
    """The keys a text says; an error that names it otherwise."""
    kind = "TOML" if toml else "JSON"
    try:
        content = _parsed_toml(data) if toml else msgspec.json.decode(data)
    # Not DecodeError alone: bad UTF-8 and deep nesting come as these.
    except (ValueError, RecursionError) as error:
        raise wrong(f"{name} is not {kind}: {error}") from error
    if not isinstance(content, dict):
        raise wrong(f"{name} must be a {kind} object of keys, such as {{}}")
    return cast("dict[str, Any]", content)


def _parsed_toml(data: bytes) -> dict[str, Any]:
    import re
    import tomllib

    text = data.decode()
    # The parser needs time by the square of a key's depth: `a.a.a…` would hold us up for hours.
    bare = re.sub(_TOML_TEXTS, "_", text, flags=re.DOTALL)
    if re.search(rf"(?:\.[ \t]*+[\w-]*+[ \t]*+){{{_DEEPEST_KEY},}}", bare):
        raise ValueError(f"a key has more than {_DEEPEST_KEY} parts")
    return tomllib.loads(text)


def digest(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()


def shown(path: str, within: str | None) -> str:
    if within is None or not path.startswith(os.path.join(within, "")):
        return path
    return os.path.relpath(path, within)


def is_inside(path: str, directory: str) -> bool:
    """Whether a path, its links followed, is below a directory that is itself free of links."""
    return os.path.realpath(path).startswith(os.path.join(directory, ""))


def _inside(path: str, within: str) -> str:
    real = os.path.realpath(path)
    if not is_inside(real, within):
        raise LeadsOut(f"{shown(path, within)} is a link that leads out of the workspace")
    return real
