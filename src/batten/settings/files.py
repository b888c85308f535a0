"""Reads and parses configuration files, with the digest of the bytes that were read.

The meaning of the keys is left to others.
"""

import os
from typing import Any, cast

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError
from batten.settings.regular import read_regular

_LARGEST = 256 * 1024
KINDS = (".toml", ".json")
_DEEPEST_KEY = 16
_TOML_TEXTS = (
    r'"""(?:[^"\\]|\\(?:.|\Z)|"(?!""))*+(?:"{3,5}|\Z)'
    r"|'{3}.*?(?:'{3,5}|\Z)"
    r'|"(?:[^"\\\n]|\\[^\n])*+"?'
    r"|'[^'\n]*+'?"
    r"|#[^\n]*+"
)
"""Strings and comments. An unterminated one matches too: the parser will reject it."""


class LeadsOut(CallerError):
    """A link leads out of the workspace. Such a file is left out, not an error."""

    code = "config"


class Document(Struct, frozen=True, kw_only=True):
    path: str
    shown: str
    """The path to show to people: relative inside a workspace."""
    digest: str
    """Of the file's bytes."""
    content: dict[str, Any]


def wrong(message: str) -> CallerError:
    return CallerError(message, code="config")


def find(stem: str, *, within: str | None = None) -> Document | None:
    """`<stem>.toml` or `<stem>.json`, if it exists; having both is an error."""
    paths = [path for path in (stem + kind for kind in KINDS) if os.path.lexists(path)]
    if len(paths) == 2:
        raise wrong(f"{paths[0]} and {paths[1]} both exist; keep one of them")
    return read(paths[0], within=within) if paths else None


def read(path: str, *, within: str | None = None, pipes: bool = False) -> Document:
    """Read and parse a file. `within` is a workspace that links must not leave.

    `pipes`: the path may be that of a pipe, as of `<(command)`, which is read to its end.
    """
    data = read_bytes(path, within=within, pipes=pipes)
    name = shown(path, within)
    return Document(
        path=path,
        shown=name,
        digest=digest(data),
        content=parse(data, name, toml=path.endswith(".toml")),
    )


def read_bytes(
    path: str, *, within: str | None = None, largest: int = _LARGEST, pipes: bool = False
) -> bytes:
    """All bytes of a regular file; otherwise raises an error that names the file."""
    name = shown(path, within)
    real = path if within is None else _inside(path, within)
    try:
        data = read_regular(real, largest + 1, pipes=pipes)
    except OSError as error:
        raise wrong(f"{name} cannot be read: {error.strerror}") from error
    if len(data) > largest:
        raise wrong(f"{name} has more than {largest} bytes")
    return data


def parse(data: bytes, name: str, *, toml: bool = False) -> dict[str, Any]:
    """The keys of a document; raises an error that names it if it cannot be parsed."""
    kind = "TOML" if toml else "JSON"
    try:
        content = _parsed_toml(data) if toml else msgspec.json.decode(data)
    # Not only DecodeError: bad UTF-8 and deep nesting raise these.
    except (ValueError, RecursionError) as error:
        raise wrong(f"{name} is not {kind}: {error}") from error
    if not isinstance(content, dict):
        raise wrong(f"{name} must be a {kind} object of keys, such as {{}}")
    return cast("dict[str, Any]", content)


def _parsed_toml(data: bytes) -> dict[str, Any]:
    import re
    import tomllib

    text = data.decode()
    # The parser is quadratic in the depth of a key: `a.a.a…` could block it for hours.
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
    """Whether a path, after resolving links, is below a directory that is itself free of links."""
    return os.path.realpath(path).startswith(os.path.join(directory, ""))


def _inside(path: str, within: str) -> str:
    real = os.path.realpath(path)
    if not is_inside(real, within):
        raise LeadsOut(f"{shown(path, within)} is a link that leads out of the workspace")
    return real
