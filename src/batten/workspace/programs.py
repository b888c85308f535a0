"""Finds the programs that Batten itself starts, never where a command could have put them."""

import os
from collections.abc import Iterable, Sequence

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""Where a system keeps its own programs."""


def find_program(name: str, search_path: str, writable: Sequence[str]) -> str | None:
    """The real path of the first program of that name outside all writable paths.

    Execute the returned path: a link on the way to it may change, the path itself cannot. In a
    workspace that holds the system itself, such as `/`, its own programs count as outside: there
    are no others.
    """
    for folder in search_path.split(":"):
        if not os.access(os.path.join(folder, name), os.X_OK) or not _is_safe(folder, writable):
            continue
        real = os.path.realpath(os.path.join(folder, name))
        if not _may_write(real, writable) and os.path.isfile(real) and os.access(real, os.X_OK):
            return real
    return None


def safe_path(search_path: str, writable: Sequence[str]) -> str:
    """A search path without relative folders and without those that a command can write."""
    return ":".join(safe_folders(search_path, writable))


def safe_folders(search_path: str, writable: Sequence[str]) -> list[str]:
    return [folder for folder in search_path.split(":") if _is_safe(folder, writable)]


def _is_safe(folder: str, writable: Sequence[str]) -> bool:
    # Both spellings: a link inside a writable path can be replaced.
    return (
        os.path.isabs(folder)
        and not _may_write(os.path.normpath(folder), writable)
        and not _may_write(os.path.realpath(folder), writable)
    )


def holds_system(folder: str) -> bool:
    return is_below(SYSTEM[0], [folder])


def _may_write(path: str, writable: Sequence[str]) -> bool:
    """Whether a path lies in a writable one, except where the system's programs do too."""
    if is_below(path, SYSTEM):
        writable = [folder for folder in writable if not holds_system(folder)]
    return is_below(path, writable)


def is_below(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of the folders or lies in one."""
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)
