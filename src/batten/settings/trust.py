"""Records which content of a workspace the user trusts: digests in a private file in the home.

Content is a file or folder of a workspace that would turn something on; others parse it.
"""

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from batten.settings.files import wrong

_NAME = "trust.json"
_LARGEST = 16 * 1024 * 1024


class Brought(Struct, frozen=True):
    """One thing that content would turn on."""

    kind: str
    what: str


class Content(Struct, frozen=True, kw_only=True):
    name: str
    """The path relative to the workspace."""
    digest: str
    brings: tuple[Brought, ...]


class _Book(Struct, kw_only=True):
    version: int = 1
    workspaces: dict[str, dict[str, str]] = {}
    """For each workspace, the digest of each trusted content, by name."""


def trusted_in(home: str, workspace: str) -> dict[str, str]:
    """The trusted digests of a workspace, by name."""
    return _load(book_of(home)).workspaces.get(workspace, {})


def every_trusted(home: str) -> dict[str, dict[str, str]]:
    """The trusted digests of every workspace, by its path."""
    return _load(book_of(home)).workspaces


def record_trust(home: str, workspace: str, digests: Mapping[str, str]) -> None:
    """Trust this content too. A new digest replaces an older one of the same name."""
    with _changed(home) as book:
        book.workspaces[workspace] = {**book.workspaces.get(workspace, {}), **digests}


def revoke_trust(home: str, workspace: str) -> list[str]:
    """Remove all trust in a workspace; returns the names of the content."""
    if not os.path.exists(book_of(home)):
        return []
    with _changed(home) as book:
        return list(book.workspaces.pop(workspace, {}))


def book_of(home: str) -> str:
    """The file of what is trusted."""
    return os.path.join(home, _NAME)


def _load(path: str) -> _Book:
    """The trust file, refused if other users can write to it."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            data = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return _Book()
    except OSError as error:
        raise wrong(f"{path} cannot be read: {error.strerror}") from error
    if status.st_mode & 0o022 or status.st_uid not in (0, os.geteuid()):
        raise wrong(f"{path} can be written by others; make it yours alone: chmod 600 {path}")
    try:
        book = msgspec.json.decode(data, type=_Book)
    except (ValueError, RecursionError) as error:
        message = f"{path} is damaged ({error}); remove it and give `batten trust` again"
        raise wrong(message) from error
    if book.version != 1:
        raise wrong(f"{path} was written by a newer version (format {book.version}, not 1)")
    return book


@contextmanager
def _changed(home: str) -> Generator[_Book, None, None]:
    """The trust file for changing, locked across processes; replaced atomically."""
    os.makedirs(home, mode=0o700, exist_ok=True)
    path = book_of(home)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        book = _load(path)
        yield book
        _replace(path, msgspec.json.format(msgspec.json.encode(book)))
    finally:
        os.close(lock)


def _replace(path: str, data: bytes) -> None:
    aside = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.rename(aside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(aside)
        raise
    directory = os.open(os.path.dirname(path), os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
