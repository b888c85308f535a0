"""Finds the files that a command changed: names before it, change times and sizes after it.

Nothing is read but directories and inodes, and a look has a limit in files and time. A change time
cannot be set back by a program, so a file counts as changed if its change time lies within the
command; what others change at the same time counts too.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct

from batten.contract.facts.workspace import ChangeKind
from batten.workspace.programs import is_below
from batten.workspace.root import Root
from batten.workspace.run_later import (
    executed_by,
    files_of_git,
    files_of_tree,
    is_git_folder,
    may_be_later,
)

MOST_FILES = 50_000
LONGEST_S = 2.0
"""Limits of one look at the workspace; a look that reaches one is incomplete."""
MOST_LISTED = 200
QUICK_FILES = 300
"""So many files take about a millisecond: looking at them needs no thread."""
_QUICK_S = 0.02
"""Unless the file system is slow."""

_STAMPING_CLOCK = {"linux": 5}.get(sys.platform)
"""CLOCK_REALTIME_COARSE, by which Linux stamps inodes."""
_TICK_NS = 10_000_000
"""No clock of a kernel ticks slower."""
_SECOND_NS = 1_000_000_000
_SKIPPED_NAMES = frozenset({".git", "node_modules", "__pycache__"})
_SKIPPED_MARKS = frozenset({"CACHEDIR.TAG", "pyvenv.cfg"})
"""A folder that holds one is a cache or a Python environment."""

Signature = tuple[int, int, int, int]
"""Change time, inode, size, number of names."""


class Interval(Struct, frozen=True):
    """When a command ran, by `clock_ns`."""

    began_ns: int
    ended_ns: int


class FileChange(Struct, frozen=True):
    path: str
    change: ChangeKind
    size_bytes: int | None = None
    executed_by: str = ""
    other_names: int = 0
    """Names of the file that were not looked at."""


class Changes(Struct, frozen=True):
    files: tuple[FileChange, ...]
    """The first ones: those that other programs execute, those with more names, then by name."""
    count: int
    incomplete: str = ""


class _Look(Struct):
    """The state of the workspace at one time."""

    files: dict[str, Signature | None]
    """By path; None if only the name is known."""
    folders: dict[str, int]
    """The modification time of each: when a name in it was last added or removed."""
    skipped: set[str]
    later: dict[str, str]
    """Of the files, those that another program executes later, and that program."""
    incomplete: str = ""


class ChangeRecord:
    """The changes of commands in the writable directories of one root."""

    def __init__(
        self, root: Root, *, most_files: int = MOST_FILES, longest_s: float = LONGEST_S
    ) -> None:
        self._root = root
        self._tops = [
            top
            for top in dict.fromkeys(root.writable)
            if not any(top.startswith(other.rstrip("/") + "/") for other in root.writable)
        ]
        self._most_files = most_files
        self._longest_s = longest_s
        self._before: _Look | None = None
        self._own: dict[str, Signature] = {}

    def prepare(self, *, quick: bool = False) -> bool:
        """Learn the names in the workspace, before its first command. Blocks.

        With `quick`, returns False and learns nothing if there are more than `QUICK_FILES`.
        """
        if self._before is None:
            look = self._look(names_only=True, quick=quick)
            if quick and look.incomplete:
                return False
            self._before = look
        return True

    def note_own(self, path: str) -> None:
        """A file tool wrote this real path: it is no change of the next command."""
        signature = _signature(path)
        if signature is not None:
            self._own[path] = signature

    def changes_of(
        self,
        commands: Sequence[Interval],
        *,
        quick: bool = False,
        next_began: Callable[[], int | None] = lambda: None,
    ) -> list[Changes] | None:
        """What each of these commands changed, in their order. Blocks.

        A file that several changed counts for the last of them. With `quick`, returns None and
        learns nothing if there are more than `QUICK_FILES`. `next_began`: when another command
        began after these, which may have changed files before they were looked at.
        """
        before = self._before
        if quick and before is not None and len(before.files) > QUICK_FILES:
            return None
        now = self._look(names_only=False, quick=quick)
        if quick and now.incomplete:
            return None
        self._before = now
        own, self._own = self._own, {}
        if before is None:
            return [Changes((), 0, now.incomplete) for _ in commands]
        found: list[list[FileChange]] = [[] for _ in commands]
        last = commands[-1].ended_ns + _TICK_NS
        began = next_began()
        if began is not None:
            last = min(last, began - 1)
        self._find_changed(before, now, commands, last, own, found)
        self._find_removed(before, now, commands, last, found)
        incomplete = now.incomplete or before.incomplete
        return [_summary(changes, incomplete) for changes in found]

    def _find_changed(
        self,
        before: _Look,
        now: _Look,
        commands: Sequence[Interval],
        last: int,
        own: dict[str, Signature],
        found: list[list[FileChange]],
    ) -> None:
        first = commands[0].began_ns
        later: list[str] = []
        several = Counter(each[1] for each in now.files.values() if each and each[3] > 1)
        for path, signature in now.files.items():
            assert signature is not None
            changed_ns = signature[0]
            if not _is_since(changed_ns, first):
                if path not in now.later or before.files.get(path) == signature:
                    continue
                # Renamed with its folder, which leaves its own time as it was.
                changed_ns = self._moved_ns(path)
                if before.incomplete or not _is_since(changed_ns, first):
                    continue
            if changed_ns > last:
                later.append(path)
            elif signature not in (before.files.get(path), own.get(path)):
                at = _last_at(commands, changed_ns)
                if changed_ns <= commands[at].ended_ns + _TICK_NS:
                    existed = path in before.files or bool(before.incomplete)
                    change: ChangeKind = "modified" if existed else "created"
                    found[at].append(
                        FileChange(
                            self._shown(path),
                            change,
                            signature[2],
                            now.later.get(path, ""),
                            max(0, signature[3] - several[signature[1]]) if signature[3] > 1 else 0,
                        )
                    )
        # Perhaps by a command that still runs: the look after its end must find them again.
        for path in later:
            if path in before.files:
                now.files[path] = before.files[path]
            else:
                del now.files[path]
        for path in now.skipped - before.skipped:
            if path not in before.folders and not before.incomplete:
                found[-1].append(FileChange(self._shown(path) + "/", "created"))

    def _find_removed(
        self,
        before: _Look,
        now: _Look,
        commands: Sequence[Interval],
        last: int,
        found: list[list[FileChange]],
    ) -> None:
        for path in before.files.keys() - now.files.keys():
            if path in before.later and os.path.lexists(path):
                continue  # of a folder of git's that is not this tree's any more
            folder = os.path.dirname(path)
            while folder not in now.folders and folder not in (*self._tops, "/"):
                folder = os.path.dirname(folder)
            removed_ns = now.folders.get(folder, commands[-1].began_ns)
            if not _is_since(removed_ns, commands[0].began_ns):
                continue
            if removed_ns > last:
                now.files[path] = before.files[path]  # as for files that changed later
                continue
            if not (now.incomplete and os.path.lexists(path)):
                at = _last_at(commands, removed_ns)
                by = before.later.get(path, "")
                found[at].append(FileChange(self._shown(path), "deleted", executed_by=by))

    def _moved_ns(self, path: str) -> int:
        """When a folder above a file last changed, up to the top."""
        latest = 0
        folder = os.path.dirname(path)
        while folder != "/":
            with suppress(OSError):
                latest = max(latest, os.stat(folder, follow_symlinks=False).st_ctime_ns)
            if folder in self._tops:
                break
            folder = os.path.dirname(folder)
        return latest

    def _shown(self, path: str) -> str:
        top = self._root.path
        below = path[len(top) :].lstrip("/") if path.startswith(top.rstrip("/") + "/") else path
        return os.fsencode(below).decode("utf-8", "replace")

    def _look(self, *, names_only: bool, quick: bool) -> _Look:
        look = _Look({}, {}, set(), {})
        most = min(QUICK_FILES, self._most_files) if quick else self._most_files
        deadline = time.monotonic() + (_QUICK_S if quick else self._longest_s)
        for top in self._tops:
            for path in files_of_tree(top):
                self._note_of_git(path, look)
        waiting = list(self._tops)
        while waiting:
            self._look_into(waiting.pop(), look, waiting, names_only=names_only)
            known = len(look.files)
            if known > most:
                look.incomplete = f"the workspace has more than {most} files"
            elif waiting and time.monotonic() > deadline:
                look.incomplete = f"only {known} files were looked at in {self._longest_s:g} s"
            if look.incomplete:
                break
        return look

    def _look_into(self, folder: str, look: _Look, waiting: list[str], *, names_only: bool) -> None:
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except OSError:
            return  # gone meanwhile, or not ours to read
        if self._is_skipped(folder, found):
            look.skipped.add(folder)
            return
        if is_git_folder(entry.name for entry in found):
            self._look_into_git(folder, folder, look)
        inside = next((f"{top}/" for top in self._tops if is_below(folder, [top])), "")
        below = f"{folder}/"[len(inside) :]
        is_later = bool(executed_by(below))
        soon: list[str] = []
        for entry in found:
            if entry.path in look.later:
                continue
            if entry.is_dir(follow_symlinks=False):
                if entry.name in _SKIPPED_NAMES:
                    look.skipped.add(entry.path)
                    if entry.name == ".git":
                        self._look_into_git(entry.path, folder, look)
                elif may_be_later(entry.name):
                    soon.append(entry.path)
                elif entry.path not in self._root.protected:
                    waiting.append(entry.path)
            else:
                by = executed_by(below + entry.name) if is_later or may_be_later(entry.name) else ""
                if by:
                    look.later[entry.path] = by
                signature = None if names_only and not by else _signature(entry)
                if names_only or signature is not None:
                    look.files[entry.path] = signature
        waiting += soon  # the last are the next
        # After its files: a name that is missing was removed at this time or before.
        with suppress(OSError):
            look.folders[folder] = os.stat(folder, follow_symlinks=False).st_mtime_ns

    def _look_into_git(self, folder: str, top: str, look: _Look) -> None:
        """Of git's own files only those that decide what it executes."""
        for path in files_of_git(folder, top):
            if is_below(path, self._tops):
                self._note_of_git(path, look)

    def _note_of_git(self, path: str, look: _Look) -> None:
        signature = _signature(path)
        if signature is not None:
            look.files[path] = signature
            look.later[path] = "git"
            inner = os.path.dirname(path)
            if inner not in look.folders:
                with suppress(OSError):
                    look.folders[inner] = os.stat(inner, follow_symlinks=False).st_mtime_ns

    def _is_skipped(self, folder: str, found: list[os.DirEntry[str]]) -> bool:
        """A mark that a command adds later hides nothing: the folder is already known."""
        if self._before is not None and folder in self._before.folders:
            return False
        marked = any(entry.name in _SKIPPED_MARKS for entry in found)
        return marked and folder not in self._tops


def _last_at(commands: Sequence[Interval], time_ns: int) -> int:
    """The last command that had begun at this time."""
    for at in range(len(commands) - 1, 0, -1):
        if _is_since(time_ns, commands[at].began_ns):
            return at
    return 0


def _summary(changes: list[FileChange], incomplete: str) -> Changes:
    changes.sort(key=lambda change: (not change.executed_by, not change.other_names, change.path))
    return Changes(tuple(changes[:MOST_LISTED]), len(changes), incomplete)


def _is_since(time_ns: int, began_ns: int) -> bool:
    # Some file systems keep whole seconds only.
    began_s = began_ns // _SECOND_NS * _SECOND_NS
    return time_ns >= began_ns or (time_ns >= began_s and not time_ns % _SECOND_NS)


def clock_ns() -> int:
    """The current time as inodes are stamped."""
    if _STAMPING_CLOCK is None:
        return time.time_ns() - _TICK_NS
    return time.clock_gettime_ns(_STAMPING_CLOCK)


def _signature(entry: "os.DirEntry[str] | str") -> Signature | None:
    try:
        status = (
            os.stat(entry, follow_symlinks=False)
            if isinstance(entry, str)
            else (entry.stat(follow_symlinks=False))
        )
    except OSError:
        return None
    return status.st_ctime_ns, status.st_ino, status.st_size, status.st_nlink
