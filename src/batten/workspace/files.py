"""Reads and writes whole files and pages of text, inside the root only.

Writes are atomic: staged beside the file, synced, then renamed over it.
"""

import hashlib
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from msgspec import Struct

from batten.contract.errors import CallerError, NotFound, Refused
from batten.workspace.root import ResolvedPath, open_in, outside, parent_of

DEFAULT_LINES = 400
MAX_LINES = 2000
MAX_TEXT_BYTES = 2 * 1024 * 1024
MAX_PAGE_BYTES = 256 * 1024
MAX_WHOLE_BYTES = 64 * 1024 * 1024

_CHUNK = 256 * 1024
_BINARY_PROBE = 2048
_USUAL_MODE = 0o644


class Content(Struct, frozen=True):
    data: bytes
    mode: int
    """Its permission bits."""


class TextPage(Struct, frozen=True):
    """Some lines of a text file, numbered from 1, both ends included; all 0 for an empty file."""

    content: str
    start_line: int
    end_line: int
    total_lines: int
    truncated: bool
    """Lines remain after `end_line`, or the last one was cut."""
    size_bytes: int
    revision: str
    """The digest of the whole file."""


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@contextmanager
def open_file(place: ResolvedPath) -> Generator[tuple[BinaryIO, os.stat_result], None, None]:
    """Open a regular file for reading; pipes, devices and directories are refused."""
    try:
        with parent_of(place) as directory:
            descriptor = open_in(directory, place)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"File not found: {place.shown}") from None
    except OSError as error:
        raise _failed("read", place, error) from error
    try:
        status = os.fstat(descriptor)
        _check_regular(status, place)
        with open(descriptor, "rb", closefd=False) as file:
            yield file, status
    finally:
        os.close(descriptor)


def _check_regular(status: os.stat_result, place: ResolvedPath) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise CallerError(f"Path is a directory: {place.shown}", code="is_directory")
    if not stat.S_ISREG(status.st_mode):
        raise CallerError(f"Not a regular file: {place.shown}", code="not_a_file")


def read(place: ResolvedPath, *, max_bytes: int = MAX_WHOLE_BYTES) -> Content:
    """The whole file; `NotFound` if there is none, `file_too_large` beyond `max_bytes`."""
    with open_file(place) as (file, status):
        data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise _too_large(place, status.st_size, max_bytes)
        return Content(data, stat.S_IMODE(status.st_mode))


def read_if_present(place: ResolvedPath, *, max_bytes: int = MAX_WHOLE_BYTES) -> Content | None:
    try:
        return read(place, max_bytes=max_bytes)
    except NotFound:
        return None


def mode_of(place: ResolvedPath) -> int:
    """The file's permission bits, or the usual ones if it does not exist."""
    try:
        return stat.S_IMODE(os.lstat(place.path).st_mode)
    except OSError:
        return _USUAL_MODE


def read_text(
    place: ResolvedPath,
    *,
    offset: int = 1,
    limit: int = DEFAULT_LINES,
    max_bytes: int | None = MAX_TEXT_BYTES,
    max_page_bytes: int = MAX_PAGE_BYTES,
    clean: Callable[[Iterable[bytes]], Iterable[bytes]] | None = None,
) -> TextPage:
    """A page of lines starting at `offset`, with LF endings and no final newline.

    `max_bytes` bounds the file, `max_page_bytes` the result; memory grows with the page only, so
    with `max_bytes=None` a file of any size can be paged through. `clean` receives the whole file
    before it is cut into pages, and must not change line numbers.
    """
    with open_file(place) as (file, status):
        size = status.st_size
        if max_bytes is not None and size > max_bytes:
            raise _too_large(place, size, max_bytes)
        return page_of(
            file, size, place, offset=offset, limit=limit, max_bytes=max_page_bytes, clean=clean
        )


def page_of(
    file: BinaryIO,
    size: int,
    place: ResolvedPath,
    *,
    offset: int,
    limit: int,
    max_bytes: int,
    clean: Callable[[Iterable[bytes]], Iterable[bytes]] | None,
) -> TextPage:
    """A page of an open file, or of a text that replaces the file's own."""
    offset = max(1, offset)
    limit = min(max(1, limit), MAX_LINES)
    seen = hashlib.sha256()
    chunks = _chunks(file, place, seen.update)
    shown = chunks if clean is None else clean(chunks)
    gathered, total = _gather(shown, offset, offset + limit, max_bytes)
    revision = "sha256:" + seen.hexdigest()
    if total == 0:
        return TextPage("", 0, 0, 0, False, size, revision)
    if offset > total:
        raise CallerError(
            f"Offset {offset} is beyond end of file ({total} lines total)", code="offset_beyond_end"
        )
    gathered, cut = _whole_lines(gathered, max_bytes)
    text = gathered.replace(b"\r\n", b"\n").removesuffix(b"\n").decode("utf-8", "replace")
    end = min(total, offset + text.count("\n"))
    return TextPage(text, offset, end, total, cut or end < total, size, revision)


def _chunks(file: BinaryIO, place: ResolvedPath, see: Callable[[bytes], None]) -> Iterator[bytes]:
    begun = False
    while chunk := file.read(_CHUNK):
        if not begun and b"\0" in chunk[:_BINARY_PROBE]:
            raise CallerError(f"Only text files can be read: {place.shown}", code="binary_file")
        begun = True
        see(chunk)
        yield chunk


def _gather(chunks: Iterable[bytes], start: int, stop: int, max_bytes: int) -> tuple[bytes, int]:
    """The bytes of lines `start` up to `stop`, cut a little past `max_bytes`; the line count."""
    gathered = bytearray()
    line = 1
    last = b""
    for chunk in chunks:
        last = chunk or last
        if line < stop and len(gathered) <= max_bytes:
            pieces = chunk.split(b"\n")
            low, high = max(0, start - line), min(len(pieces), stop - line)
            if low < high:
                gathered += b"\n".join(pieces[low:high])
                if high < len(pieces):
                    gathered += b"\n"
        line += chunk.count(b"\n")
    # A final newline does not start another line.
    return bytes(gathered), line - 1 if not last or last.endswith(b"\n") else line


def _whole_lines(data: bytes, max_bytes: int) -> tuple[bytes, bool]:
    """At most `max_bytes` of whole lines, or of the first line; whether anything was cut."""
    if len(data) <= max_bytes:
        return data, False
    end = data.rfind(b"\n", 0, max_bytes) + 1
    return data[: end or max_bytes], True


def _too_large(place: ResolvedPath, size: int, max_bytes: int) -> CallerError:
    return CallerError(
        f"File is too large: {place.shown} ({size} bytes, at most {max_bytes})",
        code="file_too_large",
    )


def _failed(what: str, place: ResolvedPath, error: OSError) -> CallerError:
    return CallerError(
        f"Could not {what} file: {place.shown}: {error.strerror}", code=f"{what}_failed"
    )


class Staged:
    """New content beside the file it will replace: synced, not yet visible."""

    def __init__(self, place: ResolvedPath, data: bytes, mode: int | None) -> None:
        self._place = place
        self._temporary = f".batten-{os.urandom(8).hex()}.tmp"
        try:
            with parent_of(place, create=True) as directory:
                mode = _replaceable(directory, place, mode)
                self._write(directory, data, mode)
        except OSError as error:
            raise _failed("write", place, error) from error

    def _write(self, directory: int, data: bytes, mode: int | None) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        # Others must not read it before it has its mode.
        first_mode = 0o666 if mode is None else 0o600
        descriptor = os.open(self._temporary, flags, first_mode, dir_fd=directory)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                if mode is not None:
                    os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
        except BaseException:
            os.unlink(self._temporary, dir_fd=directory)
            raise

    def commit(self) -> None:
        """Take the file's place. After this the change survives a crash."""
        try:
            with parent_of(self._place) as directory:
                name = self._place.name
                os.rename(self._temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
                _sync(directory)
        except OSError as error:
            raise _failed("write", self._place, error) from error

    def discard(self) -> None:
        """Remove the staged file; best effort."""
        with suppress(OSError, Refused), parent_of(self._place) as directory:
            os.unlink(self._temporary, dir_fd=directory)


def _replaceable(directory: int, place: ResolvedPath, mode: int | None) -> int | None:
    """The mode the new file gets: that of the one it replaces, else `mode`, else the umask's."""
    try:
        status = os.stat(place.name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return mode
    if stat.S_ISLNK(status.st_mode):
        raise outside(place.shown)
    _check_regular(status, place)
    # The rename would succeed even so: it needs write permission on the directory only.
    if not os.access(place.name, os.W_OK, dir_fd=directory):
        raise CallerError(f"File is read-only: {place.shown}", code="read_only")
    return stat.S_IMODE(status.st_mode)


def _sync(directory: int) -> None:
    """Make a new name durable. A directory that may not be read cannot be synced."""
    try:
        descriptor = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write(place: ResolvedPath, data: bytes, *, mode: int | None = None) -> None:
    """Replace or create the file, with the directories it needs."""
    staged = Staged(place, data, mode)
    try:
        staged.commit()
    except BaseException:
        staged.discard()
        raise


def remove(place: ResolvedPath) -> None:
    try:
        with parent_of(place) as directory:
            os.unlink(place.name, dir_fd=directory)
            _sync(directory)
    except FileNotFoundError:
        raise NotFound(f"File not found: {place.shown}") from None
    except OSError as error:
        raise _failed("write", place, error) from error
