"""The redactor: one frozen value that removes secrets from texts, bytes and JSON-like values.

Text from outside (tool output, headers, errors) is searched for known values, shapes and names.
`Redactor.authored` is for text that a model or a person wrote: it makes no guesses.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from batten.contract.depth import DEEPEST
from batten.redact.known import KnownValues
from batten.redact.names import is_secret_name
from batten.redact.scan import MARK, Scanner
from batten.redact.secrets import known_values

_SHORT = 128
_MOST_REMEMBERED = 1024
_DEEPEST = 2 * DEEPEST
"""Levels of a value that are searched."""
TOO_DEEP = "<nested too deeply>"
_REMOVED = (MARK, "[redacted]")


class Redactor:
    """Removes known values and anything with the shape of a secret. Immutable, except for a cache
    of short clean texts: names and ids recur."""

    __slots__ = ("_authored", "_clean", "_guesses", "_known", "scanner")

    def __init__(self, values: Iterable[str] | KnownValues = (), *, guesses: bool = True) -> None:
        self._known = values if isinstance(values, KnownValues) else KnownValues(values)
        self.scanner = Scanner(self._known, guesses=guesses)
        self._guesses = guesses
        self._authored: Redactor | None = None if guesses else self
        self._clean: set[str] = set()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], extra: Iterable[str] = ()) -> "Redactor":
        return cls(known_values(environ, extra))

    @property
    def authored(self) -> "Redactor":
        """The redactor for what a model or a person wrote: it removes known values, tokens of
        known formats, private keys, and credentials in the `headers` beside a `url`. It ignores
        other names, and assignments."""
        if self._authored is None:
            self._authored = Redactor(self._known, guesses=False)
        return self._authored

    def text(self, text: str) -> str:
        """The text with `<redacted>` in place of every secret."""
        is_short = len(text) <= _SHORT
        if is_short and text in self._clean:
            return text
        spans = self.scanner.look(text, final=True).spans
        if not spans:
            if is_short:
                self._remember(text)
            return text
        pieces: list[str] = []
        place = 0
        for begin, end in union(spans):
            pieces += text[place:begin], MARK
            place = end
        pieces.append(text[place:])
        return "".join(pieces)

    def _remember(self, clean: str) -> None:
        if len(self._clean) >= _MOST_REMEMBERED:
            self._clean.clear()
        self._clean.add(clean)

    def contains(self, text: str) -> bool:
        return bool(self.scanner.look(text, final=True).spans)

    def value(self, value: Any) -> tuple[Any, list[str]]:
        """A JSON-like value without its secrets, and the paths at which they were.

        A path names keys and list indices: `input.headers.Authorization`, `args[2]`. The argument
        is not modified, and is returned as it is if it holds no secret. Values nested too deeply to
        search are removed like secrets.
        """
        paths: list[str] = []
        return self._value(value, "", paths, _DEEPEST), paths

    def _value(self, value: Any, path: str, paths: list[str], deepest: int) -> Any:
        if isinstance(value, str):
            redacted = self.text(value)
            if redacted is not value and redacted != value:
                paths.append(path)
                return redacted
            return value
        if deepest < 0 and isinstance(value, Mapping | list | tuple) and value:
            paths.append(path)
            return TOO_DEEP
        if isinstance(value, Mapping):
            return self._mapping(
                value,  # pyright: ignore[reportUnknownArgumentType]
                path,
                paths,
                deepest,
            )
        if isinstance(value, list | tuple):
            return self._items(
                value,  # pyright: ignore[reportUnknownArgumentType]
                path,
                paths,
                deepest,
            )
        return value

    def _mapping(self, value: Mapping[Any, Any], path: str, paths: list[str], deepest: int) -> Any:
        before = len(paths)
        changed: dict[Any, Any] = {}
        for key, item in value.items():
            shown = self._key(key, changed)
            place = f"{path}.{shown}" if path else str(shown)
            if shown != key:
                paths.append(place)
            if key == "headers" and isinstance(item, Mapping) and "url" in value:
                item = _without_credentials(
                    item,  # pyright: ignore[reportUnknownArgumentType]
                    place,
                    paths,
                )
            changed[shown] = self._field(key, item, place, paths, deepest - 1)
        return changed if len(paths) > before else value

    def _key(self, key: Any, taken: Mapping[Any, Any]) -> Any:
        if not isinstance(key, str):
            return key
        redacted = self.text(key)
        if redacted == key:
            return key
        # Two redacted keys must stay distinct, or a value would be lost.
        shown, count = redacted, 2
        while shown in taken:
            shown, count = f"{redacted} ({count})", count + 1
        return shown

    def _items(self, value: Sequence[Any], path: str, paths: list[str], deepest: int) -> Any:
        before = len(paths)
        changed = [
            self._value(item, f"{path}[{i}]", paths, deepest - 1) for i, item in enumerate(value)
        ]
        return changed if len(paths) > before else value

    def _field(self, key: Any, item: Any, path: str, paths: list[str], deepest: int) -> Any:
        is_named = self._guesses and isinstance(key, str) and is_secret_name(key)
        if is_named and isinstance(item, str) and item:
            if item != MARK:
                paths.append(path)
            return MARK
        return self._value(item, path, paths, deepest)


def _without_credentials(
    headers: Mapping[Any, Any], path: str, paths: list[str]
) -> Mapping[Any, Any]:
    """The headers of a request without its credentials. They are known by their place, which is no
    guess; a reference such as `$NAME` is none of them."""
    found = [
        name
        for name, value in headers.items()
        if isinstance(name, str) and is_secret_name(name) and _is_literal(value)
    ]
    paths += (f"{path}.{name}" for name in found)
    return {**headers, **dict.fromkeys(found, MARK)} if found else headers


def _is_literal(value: Any) -> bool:
    return isinstance(value, str) and value[:1] not in ("", "$") and value not in _REMOVED


def redacted_bytes(data: bytes, redact: Callable[[str], str]) -> bytes:
    """Bytes that are not UTF-8 pass unchanged; secrets in the rest are redacted."""
    return redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def union(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The spans in order; those that overlap or touch are merged."""
    if len(spans) < 2:
        return spans
    joined: list[tuple[int, int]] = []
    first, last = -1, -1
    for begin, end in sorted(spans):
        if begin <= last:
            last = max(last, end)
            continue
        if first >= 0:
            joined.append((first, last))
        first, last = begin, end
    joined.append((first, last))
    return joined
