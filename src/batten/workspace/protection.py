"""What commands may not reach or write inside what they may, and the mounts that keep it so.

A mount protects a path's content. The way to it is safe only if every directory on it is a mount
of its own, since any other can be renamed. Mounts cannot protect a link on the way.
"""

import os
from collections.abc import Mapping

from msgspec import Struct

from batten.workspace.programs import is_below


class Protection(Struct, frozen=True):
    hidden: tuple[str, ...] = ()
    """Paths that do not exist for commands."""
    exposed: tuple[str, ...] = ()
    """Those of them that a command could otherwise write, or make."""
    kept: tuple[str, ...] = ()
    """Paths that a command could otherwise write, and must only read."""
    ways: tuple[str, ...] = ()
    """The directories between a writable path and one of these."""
    has_links: bool = False
    """Whether a link that a command could replace leads to a hidden path."""


class Boundary(Struct, frozen=True):
    """All paths that decide what commands reach."""

    root: str
    package: str
    """The folder that Batten is imported from."""
    environ: Mapping[str, str]
    writable: list[str]
    protection: Protection


def protection(
    writable: list[str], hidden: tuple[str, ...], kept: tuple[str, ...] = ()
) -> Protection:
    """How to protect these paths from commands that write to `writable`, which must be free of
    links. A workspace at or below a hidden path stays visible.
    """
    real = [path for path in dict.fromkeys(map(os.path.realpath, hidden)) if path not in writable]
    exposed = [path for path in real if is_below(path, writable)]
    kept = tuple(path for path in kept if not is_below(path, real))
    within = [*exposed, *kept]
    return Protection(
        hidden=tuple(path for path in real if path in exposed or os.path.isdir(path)),
        exposed=tuple(exposed),
        kept=kept,
        ways=tuple(dict.fromkeys(way for path in within for way in _ways(path, writable, exposed))),
        has_links=any(
            os.path.islink(link) and is_below(os.path.realpath(os.path.dirname(link)), writable)
            for path in hidden
            for link in _above(os.path.abspath(path))
        ),
    )


def prepare(wanted: Protection) -> bool:
    """Create missing directories as mount points; whether mounts protect every path."""
    try:
        for folder in sorted((*wanted.ways, *wanted.exposed), key=len):
            if not os.path.lexists(folder):
                os.mkdir(folder, 0o700)
    except OSError:
        return False
    return not wanted.has_links


def _ways(path: str, writable: list[str], hidden: list[str]) -> list[str]:
    """Empty if a hidden path above already covers this one."""
    ways: list[str] = []
    above = os.path.dirname(path)
    while above not in writable:
        if above in hidden:
            return []
        ways.append(above)
        above = os.path.dirname(above)
    return ways


def _above(path: str) -> list[str]:
    """A path and all its parents."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
