"""Protected paths inside of what commands may write, and what it takes to keep them.

Mounts keep a path as it is. They keep the way to it only where every folder of it is a mount of
its own, since no other can be renamed; a link on the way they cannot keep.
"""

import os

from msgspec import Struct


class Protection(Struct, frozen=True):
    paths: tuple[str, ...] = ()
    """Those that a command could write if nothing else were done."""
    ways: tuple[str, ...] = ()
    """The folders between a writable path and a protected one."""
    has_links: bool = False
    """Whether a link leads to one of them that a command could replace."""


def protection(writable: list[str], protected: tuple[str, ...]) -> Protection:
    """What of the protected lies below the writable paths, which are free of links."""
    real = dict.fromkeys(map(os.path.realpath, protected))
    paths = [path for path in real if path not in writable and _is_below(path, writable)]
    return Protection(
        paths=tuple(paths),
        ways=tuple(dict.fromkeys(way for path in paths for way in _ways(path, writable, paths))),
        has_links=any(
            os.path.islink(link) and _is_writable(os.path.dirname(link), writable)
            for path in protected
            for link in _above(os.path.abspath(path))
        ),
    )


def prepare(wanted: Protection) -> bool:
    """Make what is missing, since nothing can be mounted on it; whether mounts keep it all."""
    try:
        for folder in sorted((*wanted.ways, *wanted.paths), key=len):
            if not os.path.lexists(folder):
                os.mkdir(folder, 0o700)
    except OSError:
        return False
    return not wanted.has_links


def _ways(path: str, writable: list[str], protected: list[str]) -> list[str]:
    """None if the path is protected by another above it."""
    ways: list[str] = []
    above = os.path.dirname(path)
    while above not in writable:
        if above in protected:
            return []
        ways.append(above)
        above = os.path.dirname(above)
    return ways


def _above(path: str) -> list[str]:
    """A path and the folders it is in."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]


def _is_writable(folder: str, writable: list[str]) -> bool:
    real = os.path.realpath(folder)
    return real in writable or _is_below(real, writable)


def _is_below(path: str, folders: list[str]) -> bool:
    return any(path.startswith(folder.rstrip("/") + "/") for folder in folders)
