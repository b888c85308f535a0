"""The file of a bundle: a compressed tar archive of plain members, written and read as a stream.

The reader extracts nothing: it takes only regular members with the names that its caller expects,
and never more bytes than allowed, so that a hostile archive cannot write outside, exhaust memory
or fill the disk.
"""

import gzip
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, Protocol

from msgspec import Struct

from batten.contract.errors import BadBundle

_BLOCK = 512
_CHUNK = 1 << 20
_LEVEL = 6
_LONGEST_END = 64 * 1024


class Member(Struct, frozen=True):
    name: str
    size: int


class Sink(Protocol):
    def write(self, data: bytes, /) -> int: ...

    def flush(self) -> None: ...


class ContainerWriter:
    def __init__(self, file: Sink) -> None:
        # No time in it: equal content gives an equal file.
        self._file = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=_LEVEL, mtime=0)

    def add(self, name: str, size: int, chunks: Iterable[bytes]) -> None:
        """Add a member; `size` is the length of all chunks."""
        from tarfile import GNU_FORMAT, TarInfo

        info = TarInfo(name)
        info.size, info.mode = size, 0o600
        self._file.write(info.tobuf(GNU_FORMAT))  # for sizes of 8 GiB and more
        written = 0
        for chunk in chunks:
            self._file.write(chunk)
            written += len(chunk)
        if written != size:
            raise ValueError(f"{name} has {written} bytes, not {size}")
        self._file.write(bytes(-size % _BLOCK))

    def close(self) -> None:
        self._file.write(bytes(2 * _BLOCK))
        self._file.close()


class ContainerReader:
    """Reads members one after the other. Raises `BadBundle` for anything unexpected."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        """`limit` is the most bytes to unpack, all members together."""
        self._file = gzip.GzipFile(fileobj=file, mode="rb")
        self._limit = limit
        self._unread = 0
        self._padding = 0

    def next(self) -> Member | None:
        """The next member, skipping the rest of the current one; None at the end."""
        from tarfile import REGTYPE, HeaderError, TarInfo

        for _ in self.chunks():
            pass
        self._exactly(self._padding)
        header = self._exactly(_BLOCK)
        if not any(header):
            self._end()
            return None
        try:
            info = TarInfo.frombuf(header, "utf-8", "strict")
        except (HeaderError, ValueError) as error:
            raise BadBundle(f"the bundle is damaged: {error}") from error
        if info.type != REGTYPE or info.linkname:
            raise BadBundle(f"the bundle has a member {info.name!r} that is not a plain file")
        self.allow(info.size)
        self._unread, self._padding = info.size, -info.size % _BLOCK
        return Member(info.name, info.size)

    def _end(self) -> None:
        """Read up to the checksum; only padding may follow."""
        with damage_typed():
            rest = self._file.read(_LONGEST_END)
        if any(rest) or len(rest) == _LONGEST_END:
            raise BadBundle("the bundle has more bytes than its members")

    def allow(self, size: int) -> None:
        """Count bytes against the limit, before they are unpacked."""
        if not 0 <= size <= self._limit:
            raise BadBundle(
                f"the bundle unpacks to more than {self._limit} further bytes: --max-size raises"
                " the limit",
                code="bundle_too_large",
            )
        self._limit -= size

    def chunks(self) -> Iterator[bytes]:
        """The bytes of the current member that were not read yet."""
        while self._unread:
            chunk = self._some(min(_CHUNK, self._unread))
            self._unread -= len(chunk)
            yield chunk

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            data += self._some(size - len(data))
        return data

    def _some(self, size: int) -> bytes:
        with damage_typed():
            data = self._file.read(size)
        if not data:
            raise BadBundle("the bundle is cut: its end is missing")
        return data


@contextmanager
def damage_typed() -> Generator[None]:
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadBundle(f"the bundle is damaged: {error}") from error
