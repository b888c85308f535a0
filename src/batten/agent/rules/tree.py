"""What is on disk behind the words of a command: names that wildcards stand for, and links.

A look is bounded, in number and in time; `Unseen` is raised where there is more.
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress

from msgspec import Struct

from batten.agent.rules.shell import NAMES, SimpleCommand, name_set

MOST = 50_000
"""Entries of folders in one look."""
LONGEST_S = 0.2

_MAKERS = name_set(
    "ln link mv tar bsdtar unzip 7z 7za cpio pax rsync patch svn hg mount bindfs unsquashfs"
)
_GIT_MAKERS = name_set(
    "checkout switch clone pull merge rebase stash apply am restore reset worktree submodule "
    "read-tree checkout-index cherry-pick revert sparse-checkout bisect"
)
_COPIES_LINKS = re.compile(r"-[a-zA-Z]*[adPrRsl]|--(?:arch|no-d|rec|sym|link|pres)")


_NAMERS = _MAKERS | name_set(
    "cp touch tee mkdir install dd split csplit mktemp truncate rename ed ex vim curl wget scp zip "
    "gzip gunzip bzip2 xz zstd"
)
_READ_FROM = ("<", "<<", "<<<", "<&", ">&")


class Unseen(Exception):
    """There is more than one look takes in."""


class Named(Struct, frozen=True):
    """A path that a word with wildcards stands for."""

    path: str
    is_linked: bool
    """A link is on it, from the first wildcard on."""


class Tree:
    """One look at the files of this machine."""

    def __init__(self, most: int = MOST, longest_s: float = LONGEST_S) -> None:
        self._left = most
        self._until = time.monotonic() + longest_s

    def named(self, path: str, *, widely: bool = False) -> list[Named]:
        """What an absolute path with wildcards stands for. `widely`: also hidden ones, and
        those that are not there yet."""
        start, _, rest = path.partition(NAMES)
        before, _, name = start.rpartition("/")
        found = [Named(before, False)]
        for part in f"{name}{NAMES}{rest}".split("/"):
            ahead: list[Named] = []
            for each in found:
                ahead += self._entered(each, part, widely=widely)
            found = ahead
        return found

    def _entered(self, folder: Named, part: str, *, widely: bool) -> Iterator[Named]:
        if NAMES not in part:
            path = f"{folder.path}/{part}"
            if widely or os.path.lexists(path):
                yield Named(path, folder.is_linked or part == ".." or os.path.islink(path))
            return
        pattern = re.compile(".*".join(map(re.escape, part.split(NAMES))), re.DOTALL)
        for entry in self._entries(folder.path or "/"):
            is_shown = widely or part[0] == "." or entry.name[0] != "."
            if is_shown and pattern.fullmatch(entry.name):
                is_linked = folder.is_linked or entry.is_symlink()
                yield Named(f"{folder.path}/{entry.name}", is_linked)

    def links(self, folder: str, *, follow: bool) -> Iterator[str]:
        """Every link below a folder. `follow`: also behind other links."""
        for entry in self.below(folder, follow=follow):
            if entry.is_symlink():
                yield entry.path

    def below(self, folder: str, *, follow: bool = True) -> Iterator["os.DirEntry[str]"]:
        """Everything below a folder, by default also behind links; each folder once."""
        waiting = [os.path.realpath(folder)]
        known = set(waiting)
        while waiting:
            for entry in self._entries(waiting.pop()):
                yield entry
                with suppress(OSError):
                    if not entry.is_dir(follow_symlinks=follow):
                        continue
                    path = os.path.realpath(entry.path) if entry.is_symlink() else entry.path
                    if path not in known:
                        known.add(path)
                        waiting.append(path)

    def _entries(self, folder: str) -> Iterator["os.DirEntry[str]"]:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                self._left -= 1
                if self._left < 0 or (self._left % 64 == 0 and time.monotonic() > self._until):
                    raise Unseen
                yield entry


def makes_links(command: SimpleCommand) -> bool:
    """Whether a command may make a link that leads elsewhere. Programs that build or run code of a
    project, which may do anything, are not counted."""
    name, second = (*command.words[:2], "", "")[:2]
    name = name.rpartition("/")[2]
    if name == "git":
        return second in _GIT_MAKERS
    if name == "cp":
        return any(map(_COPIES_LINKS.match, command.words[1:]))
    return name in _MAKERS


def makes_names(command: SimpleCommand) -> bool:
    """Whether a command may make a file whose name its words choose, such as one like an option."""
    name = command.words[0].rpartition("/")[2] if command.words else ""
    written = (each for each in command.redirects if each.operator not in _READ_FROM)
    return name in _NAMERS or any(not each.target.startswith("/dev/") for each in written)
