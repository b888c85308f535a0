"""Watches a directory for created, modified, moved and deleted files, debounced.

Each directory gets its own watch: a recursive one would follow links out of the workspace. Names
that are not UTF-8 cannot be reported, and nothing below such a directory is.
"""

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from batten.contract.errors import NotFound, ProviderError
from batten.workspace.globs import path_glob
from batten.workspace.known_names import KnownNames
from batten.workspace.moves import Moves
from batten.workspace.root import ResolvedPath

if TYPE_CHECKING:
    from watchfiles._rust_notify import RustNotify

ChangeType = Literal["create", "modify", "delete", "rename"]
"""A move is a `delete` of the old path and a `rename` of the new one."""

DEFAULT_DEBOUNCE_MS = 100
_EXCLUDED_NAMES = frozenset(
    (
        "node_modules",
        ".git",
        "dist",
        "build",
        ".next",
        ".nuxt",
        "coverage",
        ".DS_Store",
        "thumbs.db",
    )
)
_EXCLUDED_SUFFIX = ".log"
_ADDED = 1
"""The number `watchfiles` uses for an added path."""
_COARSE_NS = 10_000_000
"""How far file times can lag behind the clock."""


class Change(Struct, frozen=True):
    type: ChangeType
    path: str
    """Relative to the watched directory."""
    is_directory: bool


class FileWatcher:
    """A watched directory. Iterate over it for lists of changes, each path at most once per list.

    Unread changes are merged by path, so a slow reader needs memory for each file only once.
    """

    def __init__(
        self, place: ResolvedPath, wanted: Callable[[str], bool], debounce_ms: int
    ) -> None:
        self._base = place.path
        self._wanted = wanted
        self._debounce_ms = max(1, debounce_ms)
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._something = asyncio.Event()
        self._pending: dict[str, ChangeType] = {}
        """Relative paths in order of arrival, with the kind of change."""
        self._moves = Moves()
        self._known = KnownNames()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="batten-watch", daemon=True)
        self._started: asyncio.Future[None] = self._loop.create_future()

    async def start(self) -> None:
        """Return once the watch is active."""
        try:
            self._thread.start()
        except RuntimeError as error:  # the machine has no room for another
            raise _typed(error, self._base) from error
        await self._started

    async def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)

    def __aiter__(self) -> "FileWatcher":
        return self

    async def __anext__(self) -> list[Change]:
        while True:
            if self._failure is None:
                await self._something.wait()
                self._something.clear()
            pending, self._pending = self._pending, {}
            changes = [self._classified(path, kind) for path, kind in pending.items()]
            if changes:
                return changes
            if self._failure is not None:
                raise self._failure

    def _classified(self, path: str, kind: ChangeType) -> Change:
        full = os.path.join(self._base, path)
        if not os.path.lexists(full):
            return Change("delete", path, is_directory=False)
        return Change(kind, path, _is_directory(full))

    def _run(self) -> None:
        """The thread that makes the blocking calls."""
        notify = None
        try:
            from watchfiles._rust_notify import WatchfilesRustInternalError

            watched = _identity(self._base)
            # Only now: later, what is there may be yet to be reported as new.
            for directory in _directories(self._base):
                self._known.learn(directory)
            notify = self._watching()
            self._tell(self._mark_started)
            while not self._stopping.is_set():
                waits_since = time.time_ns()
                try:
                    seen = notify.watch(4 * self._debounce_ms, self._debounce_ms, 0, self._stopping)
                except WatchfilesRustInternalError:  # a name is not UTF-8: it reports no more
                    notify = self._renewed(notify, waits_since)
                    continue
                if not isinstance(seen, set):
                    break
                notify = self._followed(notify, seen)
                if _identity(self._base) != watched:
                    raise NotFound(f"Watched directory is gone: {self._base}")
        except BaseException as error:  # every failure goes to the reader
            failure = _typed(error, self._base)
            self._tell(lambda: self._mark_failed(failure))
        finally:
            if notify is not None:
                notify.close()

    def _watching(self) -> "RustNotify":
        from watchfiles._rust_notify import RustNotify

        while True:
            directories = list(_directories(self._base))
            for directory in directories:
                self._moves.learn(directory)
            try:
                return RustNotify(directories, False, False, 300, False, True)
            except FileNotFoundError:
                if not os.path.isdir(self._base):
                    raise
                # A subdirectory was deleted meanwhile: list them again.

    def _renewed(self, notify: "RustNotify", waits_since: int) -> "RustNotify":
        """Watch again, and report files that were written since: they count as new."""
        self._stopping.wait(self._debounce_ms / 1000)
        fresh = self._watching()
        notify.close()
        self._report((path, True) for path in _written_since(self._base, waits_since - _COARSE_NS))
        return fresh

    def _followed(self, notify: "RustNotify", seen: set[tuple[int, str]]) -> "RustNotify":
        """Report the changes; watch new directories and report their contents. The old watch is
        drained before it is closed, so no change is lost between the two."""
        self._report((path, kind == _ADDED) for kind, path in seen)
        new_directories = [
            path
            for kind, path in sorted(seen)
            if kind == _ADDED and _is_directory(path) and self._is_watched(path)
        ]
        if not new_directories:
            return notify
        fresh = self._watching()
        rest = notify.watch(1, 1, 1, None)
        notify.close()
        if isinstance(rest, set):
            self._report((path, kind == _ADDED) for kind, path in rest)
        for directory in new_directories:
            for inner in _directories(directory):
                with suppress(OSError):
                    self._report((os.path.join(inner, name), True) for name in os.listdir(inner))
        return fresh

    def _is_watched(self, path: str) -> bool:
        return _EXCLUDED_NAMES.isdisjoint(os.path.relpath(path, self._base).split("/"))

    def _report(self, seen: Iterable[tuple[str, bool]]) -> None:
        found: dict[str, bool] = {}
        for full, new in seen:
            found[full] = new or found.get(full, False)
        wanted: list[tuple[str, ChangeType]] = []
        for full, new in sorted(found.items()):
            path = os.path.relpath(full, self._base)
            moved, was_there = self._moves.is_moved(full), self._known.was_there(full)
            if path != "." and _is_utf8(path) and self._wanted(path):
                kind: ChangeType = "modify" if not new or was_there else "create"
                wanted.append((path, "rename" if new and moved else kind))
        if wanted:
            self._tell(lambda: self._mark_seen(wanted))

    def _tell(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            self._stopping.set()  # the loop is closed, and no reader is left

    def _mark_started(self) -> None:
        if not self._started.done():
            self._started.set_result(None)

    def _mark_seen(self, seen: list[tuple[str, ChangeType]]) -> None:
        for path, kind in seen:
            # A path that was created stays `create`, however often it was modified since.
            if kind != "modify" or path not in self._pending:
                self._pending[path] = kind
        self._something.set()

    def _mark_failed(self, error: BaseException) -> None:
        if not self._started.done():
            self._started.set_exception(error)
        self._failure = error
        self._something.set()


def _identity(path: str) -> tuple[int, int] | None:
    """Identifies a directory independently of its path."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_directory(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _directories(top: str) -> Iterable[str]:
    """`top` and every watched directory below it; does not follow links."""
    yield top
    for path, names, _ in os.walk(top):
        names[:] = [
            name
            for name in names
            if name not in _EXCLUDED_NAMES
            and _is_utf8(name)
            and not os.path.islink(os.path.join(path, name))
        ]
        yield from (os.path.join(path, name) for name in names)


def _written_since(top: str, at_ns: int) -> Iterable[str]:
    for directory in _directories(top):
        with suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if entry.stat(follow_symlinks=False).st_ctime_ns >= at_ns:
                        yield entry.path


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _typed(error: BaseException, path: str) -> BaseException:
    if isinstance(error, OSError | ImportError | RuntimeError):
        return ProviderError(f"Cannot watch {path}: {error}", code="watch_failed")
    return error


@asynccontextmanager
async def watching(
    place: ResolvedPath,
    *,
    include: tuple[str, ...] = (),
    exclude: tuple[str, ...] = (),
    debounce_ms: int = DEFAULT_DEBOUNCE_MS,
) -> AsyncGenerator[FileWatcher, None]:
    """Watch a directory for the duration of the block, from entry on.

    Patterns are globs on the whole relative path. Without `include` every path matches; `exclude`
    and the built-in list win over it.
    """
    if not os.path.isdir(place.path):
        raise NotFound(f"Watched directory does not exist: {place.shown}")
    watch = FileWatcher(place, wanted_by(include, exclude), debounce_ms)
    try:
        await watch.start()
        yield watch
    finally:
        await asyncio.shield(watch.stop())


def wanted_by(include: tuple[str, ...], exclude: tuple[str, ...]) -> Callable[[str], bool]:
    """A predicate on relative paths."""
    included = [path_glob(pattern) for pattern in include]
    excluded = [path_glob(pattern) for pattern in exclude]

    def wanted(path: str) -> bool:
        names = path.split("/")
        if path.endswith(_EXCLUDED_SUFFIX) or not _EXCLUDED_NAMES.isdisjoint(names):
            return False
        if any(pattern.fullmatch(path) for pattern in excluded):
            return False
        return not included or any(pattern.fullmatch(path) for pattern in included)

    return wanted
