"""SQLite's connection as this package uses it, with untyped values typed as `Any`."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

import apsw


class Answer(Protocol):
    """The rows of a statement. Always fetched whole: a half-read statement pins the log."""

    def fetchall(self) -> list[Any]: ...

    def fetchone(self) -> Any: ...

    @property
    def get(self) -> Any:
        """The only value, or the only row; None if there is none."""
        ...


class Database(Protocol):
    def execute(self, statements: str, bindings: Sequence[Any] = ()) -> Answer: ...

    def executemany(self, statements: str, bindings: Iterable[Sequence[Any]]) -> Answer: ...

    def pragma(self, name: str, value: Any = None) -> Any: ...

    def set_busy_timeout(self, milliseconds: int) -> None: ...

    def changes(self) -> int: ...

    def close(self) -> None: ...

    @property
    def in_transaction(self) -> bool: ...

    @property
    def system_errno(self) -> int: ...

    @property
    def filename(self) -> str: ...


def connection(path: str, flags: int) -> Database:
    return cast(Database, apsw.Connection(path, flags=flags))


def new_connection(path: str) -> Database:
    return connection(path, apsw.SQLITE_OPEN_READWRITE)


def copy_pages(source: Database, target: Database, pages: int) -> Iterator[None]:
    """Copy the whole database, so many pages at a time."""
    from_, to = cast(apsw.Connection, source), cast(apsw.Connection, target)
    with to.backup("main", from_, "main") as copying:
        while not copying.done:
            copying.step(pages)
            yield
