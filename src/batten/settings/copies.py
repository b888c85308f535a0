"""Private copies of trusted folders, in the home: held while used, removed when trusted no more."""

import fcntl
import os
import time
from contextlib import suppress
from shutil import rmtree

from batten.settings.tree import Tree, private_copy
from batten.settings.trust import every_trusted

_NAME = "trusted"
_HALF_WRITTEN_S = 3600
"""How old a copy without its final name must be: whoever wrote it is gone."""
_held: dict[str, int] = {}
"""Descriptors with a shared lock on each copy that this process uses, to its end."""


def hold_copy(tree: Tree, home: str) -> str:
    """The path of the private copy of a folder. It stays there as long as this process."""
    copies = os.path.join(home, _NAME)
    place = os.path.join(copies, tree.digest)
    is_new = not os.path.isdir(place)
    while True:
        path = private_copy(tree, copies)
        if _hold(path):
            break
    if is_new:
        remove_unused(home)
    return path


def remove_unused(home: str) -> None:
    """Remove the copies that no workspace trusts any more and no process uses."""
    copies = os.path.join(home, _NAME)
    trusted = {digest for known in every_trusted(home).values() for digest in known.values()}
    with suppress(FileNotFoundError), os.scandir(copies) as entries:
        for entry in list(entries):
            if entry.name not in trusted:
                with suppress(OSError):
                    _remove(entry)


def _hold(path: str) -> bool:
    """Lock a copy against removal; False if it was removed or replaced meanwhile."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if not _is_at(descriptor, path):
        os.close(descriptor)
        return False
    earlier = _held.get(path)
    _held[path] = descriptor
    if earlier is not None:
        os.close(earlier)
    return True


def _remove(entry: "os.DirEntry[str]") -> None:
    is_whole = "." not in entry.name
    if not is_whole and time.time() - entry.stat().st_mtime < _HALF_WRITTEN_S:
        return
    descriptor = os.open(entry.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if is_whole:
            # Out of its place first: nobody takes it while it is being removed.
            gone = f"{entry.path}.{os.getpid()}.{os.urandom(4).hex()}"
            os.rename(entry.path, gone)
            rmtree(gone)
        else:
            rmtree(entry.path)
    finally:
        os.close(descriptor)


def _is_at(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
