"""A table of keys that knows its file and place, so that every error names both."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from batten.contract.errors import CallerError
from batten.settings.files import wrong
from batten.settings.problems import named

T = TypeVar("T")


class Table:
    """The keys of one table, in either spelling: `mcp_servers` or `mcpServers`.

    Reading a key makes it known; `unknown` lists the others.
    """

    def __init__(self, content: dict[str, Any], file: str, place: str = "") -> None:
        self.content = content
        self.file = file
        self._place = place
        self._read_keys: set[str] = set()
        self._noted: list[str] = []
        self._spellings: dict[str, list[str]] = {}
        for key in content:
            for name in {key, _snake(key)}:
                self._spellings.setdefault(name, []).append(key)

    def wrong(self, key: str, what: str) -> CallerError:
        return wrong(f"{self.file}: {self.place(key)} {what}")

    def place(self, key: str) -> str:
        """The path of a key in the file, in the file's spelling."""
        name, bracket, index = key.partition("[")
        spelled = next(iter(self._spelled(name)), name)
        return f"{self._place}.{spelled}{bracket}{index}".lstrip(".")

    def note_unknown(self) -> None:
        """Collect the keys that were not read, for `tell_unknown`."""
        self._noted += self.unknown()

    def tell_unknown(self, problems: list[str]) -> None:
        """Report all keys collected in this table and its inner tables, on one line."""
        if self._noted:
            verbs = "is not known and does" if len(self._noted) == 1 else "are not known and do"
            problems.append(f"{self.file}: {named(self._noted)} {verbs} nothing")

    def unknown(self) -> list[str]:
        """Paths of the keys that were not read."""
        known = {spelled for key in self._read_keys for spelled in self._spelled(key)}
        return [self.place(key) for key in self.content if key not in known]

    def get(self, key: str) -> Any:
        """The value of any type; None if unset."""
        self._read_keys.add(key)
        spelled = self._spelled(key)
        if len(spelled) > 1:
            raise self.wrong(key, f"is said twice, as {' and '.join(spelled)}; keep one of them")
        return self.content[spelled[0]] if spelled else None

    def _spelled(self, key: str) -> list[str]:
        return self._spellings.get(key, [])

    def text(self, key: str) -> str | None:
        """A text that is not empty."""
        value = self.get(key)
        if value is None or _text(self, key, value).strip():
            return cast("str | None", value)
        raise self.wrong(key, "must not be empty")

    def switch(self, key: str) -> bool | None:
        value = self.get(key)
        if value is None or isinstance(value, bool):
            return value
        raise self.wrong(key, f"must be true or false, not {kind_of(value)}")

    def one_of(self, key: str, choices: tuple[str, ...]) -> str | None:
        value = self.get(key)
        if value is None or value in choices:
            return cast("str | None", value)
        raise self.wrong(key, f"must be one of {', '.join(choices)}, not {value!r}")

    def texts(self, key: str) -> tuple[str, ...]:
        return tuple(self.each(key, _text))

    def each(self, key: str, read: Callable[["Table", str, Any], T]) -> list[T]:
        """Every entry of a list, parsed by `read`, which receives the entry's key."""
        value = self.get(key)
        if value is None:
            return []
        if kind_of(value) != "a list":
            raise self.wrong(key, f"must be a list, not {kind_of(value)}")
        return [read(self, f"{key}[{index}]", entry) for index, entry in enumerate(value)]

    def pairs(self, key: str) -> dict[str, str]:
        """A table of texts under any names."""
        table = self.table(key)
        if table is None:
            return {}
        return {name: _text(table, name, value) for name, value in table.content.items()}

    def table(self, key: str) -> "Table | None":
        value = self.get(key)
        return None if value is None else self.within(key, value)

    def within(self, key: str, value: Any) -> "Table":
        if not isinstance(value, dict):
            raise self.wrong(key, f"must be a table of keys, not {kind_of(value)}")
        inner = Table(cast("dict[str, Any]", value), self.file, self.place(key))
        inner._noted = self._noted
        return inner


def kind_of(value: object) -> str:
    """The type of a value, in words."""
    match value:
        case bool():
            return "true or false"
        case str():
            return "a text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"


def _text(table: Table, key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    raise table.wrong(key, f"must be a text, not {kind_of(value)}")


def _snake(key: str) -> str:
    """`mcpServers` as `mcp_servers`."""
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key)
