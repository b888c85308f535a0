"""Confines paths to the workspace: resolves any given path to one inside it, or refuses it.

A `ResolvedPath` is proof of that check. Opening one walks down from its root without following
links, so a link swapped in after the check leads nowhere.
"""

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import Literal

from msgspec import Struct

from batten.contract.errors import CallerError, NotFound, Refused

Access = Literal["read", "write"]

MAX_PATH_CHARS = 4096
MAX_NAME_BYTES = 255

# Without O_PATH (macOS) a directory on the way must also be readable.
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)


class ResolvedPath(Struct, frozen=True):
    """A path inside a root, free of links when it was resolved. The file may not exist."""

    base: str
    """The real path of the root that holds it."""
    parts: tuple[str, ...]
    """The names below it; empty for the root itself."""
    shown: str
    """The path as shown to people and models: relative in the first root, absolute elsewhere."""

    @property
    def path(self) -> str:
        return os.path.join(self.base, *self.parts)

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else ""


class Root:
    """The run's working directory, which comes first, and further ones to read and write.

    Relative paths are relative to the first. `~` is not expanded.
    """

    def __init__(
        self,
        path: str,
        *,
        writable: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
        read_only: bool = False,
    ) -> None:
        """`read_only`: nothing may be written anywhere."""
        self._read_only = read_only
        self.path = _existing_directory(path)
        self.writable = (self.path, *(_existing_directory(each) for each in writable))
        self.protected = tuple(map(os.path.realpath, protected))
        """Paths below a writable root that stay read-only."""

    def resolve(self, path: str, access: Access = "read") -> ResolvedPath:
        """The real location of `path`. Raises `Refused` if it is outside.

        For a path that does not exist yet, links are resolved in the longest existing part.
        """
        _check_spelling(path)
        try:
            real = os.path.realpath(os.path.join(self.path, path))
        except OSError:
            # The link changed while it was being read: a swap in progress.
            raise outside(path) from None
        _check_spelling(real)
        refused = outside(path)
        for base in self.writable:
            parts = _below(base, real)
            if parts is None:
                continue
            if access == "read" or not (self._read_only or self._protects(base, real)):
                shown = "/".join(parts) or "." if base == self.path else real
                return ResolvedPath(base, parts, shown)
            message = f"Path may be read but not written: {path}"
            refused = Refused(message, code="workspace_violation")
        raise refused

    def _protects(self, base: str, real: str) -> bool:
        """A root at or below a protected path was made writable on purpose."""
        return any(_below(base, p) and _below(p, real) is not None for p in self.protected)


def outside(path: str) -> Refused:
    return Refused(f"Path is outside workspace root: {path}", code="workspace_violation")


def _existing_directory(path: str) -> str:
    _check_spelling(path)
    real = os.path.realpath(path)
    _check_spelling(real)
    if not os.path.isdir(real):
        raise NotFound(f"Workspace root is not a directory: {path}")
    return real


def _below(base: str, real: str) -> tuple[str, ...] | None:
    if real == base:
        return ()
    prefix = base if base.endswith("/") else base + "/"
    return tuple(real[len(prefix) :].split("/")) if real.startswith(prefix) else None


def _check_spelling(path: str) -> None:
    """Reject paths that no file system can hold or no fact can name."""
    if not path:
        raise CallerError("Path is empty", code="invalid_path")
    if "\0" in path:
        raise CallerError(f"Path holds a NUL byte: {path!r}", code="invalid_path")
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        raise CallerError(f"Path is not valid Unicode: {path!r}", code="invalid_path") from None
    if len(path) > MAX_PATH_CHARS or max(map(len, encoded.split(b"/"))) > MAX_NAME_BYTES:
        raise CallerError(
            f"Path is too long (names up to {MAX_NAME_BYTES} bytes, paths up to "
            f"{MAX_PATH_CHARS} characters): {path[:64]}…",
            code="invalid_path",
        )


@contextmanager
def parent_of(place: ResolvedPath, *, create: bool = False) -> Generator[int, None, None]:
    """A descriptor of the directory that holds `place`; `create` makes missing directories.

    Raises `Refused` if a link has appeared on the way; `FileNotFoundError` and
    `NotADirectoryError` pass through.
    """
    if not place.parts:
        raise CallerError(f"Path is a directory: {place.shown}", code="is_directory")
    directory = _descended(place, place.parts[:-1], create)
    try:
        yield directory
    finally:
        os.close(directory)


@contextmanager
def directory_at(place: ResolvedPath) -> Generator[str, None, None]:
    """A path a child process can use as its directory, stable across renames of `place`."""
    try:
        directory = _descended(place, place.parts, create=False)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"Not a directory: {place.shown}") from None
    try:
        held = f"/proc/self/fd/{directory}"
        yield held if os.path.exists(held) else place.path
    finally:
        os.close(directory)


def _descended(place: ResolvedPath, parts: tuple[str, ...], create: bool) -> int:
    directory = os.open(place.base, _DIRECTORY)
    try:
        for name in parts:
            inner = _step(directory, name, place, create)
            os.close(directory)
            directory = inner
    except BaseException:
        os.close(directory)
        raise
    return directory


def _step(directory: int, name: str, place: ResolvedPath, create: bool) -> int:
    if create:
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except OSError as error:
        raise _link_refused(error, directory, name, place) from error


def open_in(directory: int, place: ResolvedPath) -> int:
    """Open `place` for reading in its parent; never follows a link, never blocks on a pipe."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(place.name, flags, dir_fd=directory)
    except OSError as error:
        raise _link_refused(error, directory, place.name, place) from error


def _link_refused(error: OSError, directory: int, name: str, place: ResolvedPath) -> Exception:
    """A link that appeared after the check is refused, wherever it points."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(directory, name):
        return outside(place.shown)
    return error


def _is_link(directory: int, name: str) -> bool:
    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
