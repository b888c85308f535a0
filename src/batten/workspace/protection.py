"""Protected paths inside writable ones, and the mounts that keep them read-only.

A mount protects a path's content. The way to it is safe only if every directory on it is a mount
of its own, since any other can be renamed. Mounts cannot protect a link on the way.
"""

import os

from msgspec import Struct

from batten.workspace.programs import is_below


class Protection(Struct, frozen=True):
    paths: tuple[str, ...] = ()
    """Protected paths that a command could otherwise write."""
    ways: tuple[str, ...] = ()
    """The directories between a writable path and a protected one."""
    has_links: bool = False
    """Whether a link that a command could replace leads to a protected path."""


def protection(writable: list[str], protected: tuple[str, ...]) -> Protection:
    """The protected paths that lie below the writable ones, which must be free of links."""
    real = dict.fromkeys(map(os.path.realpath, protected))
    paths = [path for path in real if path not in writable and is_below(path, writable)]
    return Protection(
        paths=tuple(paths),
        ways=tuple(dict.fromkeys(way for path in paths for way in _ways(path, writable, paths))),
        has_links=any(
            os.path.islink(link) and is_below(os.path.realpath(os.path.dirname(link)), writable)
            for path in protected
            for link in _above(os.path.abspath(path))
        ),
    )


def prepare(wanted: Protection) -> bool:
    """Create missing directories as mount points; whether mounts protect every path."""
    try:
        for folder in sorted((*wanted.ways, *wanted.paths), key=len):
            if not os.path.lexists(folder):
                os.mkdir(folder, 0o700)
    except OSError:
        return False
    return not wanted.has_links


def _ways(path: str, writable: list[str], protected: list[str]) -> list[str]:
    """Empty if a protected path above already covers this one."""
    ways: list[str] = []
    above = os.path.dirname(path)
    while above not in writable:
        if above in protected:
            return []
        ways.append(above)
        above = os.path.dirname(above)
    return ways


def _above(path: str) -> list[str]:
    """A path and all its parents."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]
