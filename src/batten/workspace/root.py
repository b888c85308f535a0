"""One confined directory: turns any path somebody names into a place inside it, or refuses.

A `ResolvedPath` is proof of that check. Opening one walks down from its root without following
links, so a link swapped in after the check leads nowhere.
"""

import errno
import os
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
    """How people and models are told of it: relative in the first root, else absolute."""

    @property
    def path(self) -> str:
        return os.path.join(self.base, *self.parts)

    @property
    def name(self) -> str:
        return self.parts[-1] if self.parts else ""


class Root:
    """The directory a run works in, and any others it was given. The first one comes first.

    Relative paths belong to the first. `~` is a name like any other.
    """

    def __init__(
        self,
        path: str,
        *,
        readable: tuple[str, ...] = (),
        writable: tuple[str, ...] = (),
        protected: tuple[str, ...] = (),
    ) -> None:
        self.path = _existing_directory(path)
        self.writable = (self.path, *(_existing_directory(each) for each in writable))
        self.readable = (*self.writable, *(_existing_directory(each) for each in readable))
        self.protected = tuple(map(os.path.realpath, protected))
        """Below a writable root and yet not to be written."""

    def resolve(self, path: str, access: Access = "read") -> ResolvedPath:
        """Where `path` really is. Raises `Refused` if that is outside, before any work is done.

        Of a path that does not exist yet, the longest existing part is followed and the
        rest is put behind it.
        """
        _check_spelling(path)
        try:
            real = os.path.realpath(os.path.join(self.path, path))
        except OSError:
            # A link that stopped being one while it was read: somebody is swapping them.
            raise outside(path) from None
        _check_spelling(real)
        for base in self.writable if access == "write" else self.readable:
            parts = _below(base, real)
            if parts is not None and not (access == "write" and self._protects(base, real)):
                shown = "/".join(parts) or "." if base == self.path else real
                return ResolvedPath(base, parts, shown)
        if access == "write" and any(_below(base, real) is not None for base in self.readable):
            raise Refused(f"Path may be read but not written: {path}", code="workspace_violation")
        raise outside(path)

    def _protects(self, base: str, real: str) -> bool:
        """A root that is itself protected, or lies below such a path, was given to be written."""
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
    """What no file system here can hold, or no fact can name, is the caller's mistake."""
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
    """A descriptor of the directory that holds `place`; `create` makes what is missing.

    Raises `Refused` if a link now stands in the way, `FileNotFoundError` or
    `NotADirectoryError` as the system does.
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
    """A path by which a child can start in the directory `place`, whatever is renamed meanwhile."""
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


def open_in(directory: int, place: ResolvedPath, flags: int, mode: int = 0o666) -> int:
    """Open `place` in its parent's descriptor, never through a link and never waiting on a pipe."""
    flags |= os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        return os.open(place.name, flags, mode, dir_fd=directory)
    except OSError as error:
        raise _link_refused(error, directory, place.name, place) from error


def _link_refused(error: OSError, directory: int, name: str, place: ResolvedPath) -> Exception:
    """A link where there was none is an attempt to lead us out, whatever it points to."""
    if error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(directory, name):
        return outside(place.shown)
    return error


def _is_link(directory: int, name: str) -> bool:
    import stat

    try:
        return stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    except OSError:
        return False
