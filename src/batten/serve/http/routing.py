"""Finds the row for a path: a tree of segments, built once from the table."""

from typing import Generic, TypeVar
from urllib.parse import unquote_to_bytes

T = TypeVar("T")


class _Node(Generic[T]):
    __slots__ = ("any", "methods", "segments")

    def __init__(self) -> None:
        self.segments: dict[str, _Node[T]] = {}
        self.any: _Node[T] | None = None
        """The child for a name in braces."""
        self.methods: dict[str, T] = {}


class Router(Generic[T]):
    """Maps paths to the rows that were added under them, by method."""

    def __init__(self) -> None:
        self._root: _Node[T] = _Node()
        self._plain: dict[str, dict[str, T]] = {}
        """Paths without names: most of them are asked for often."""

    def add(self, method: str, path: str, row: T) -> None:
        """Add a row; raises `ValueError` for a second one with the same method and path."""
        node = self._root
        for segment in segments(path):
            if is_name(segment):
                if node.any is None:
                    node.any = _Node()
                node = node.any
            else:
                node = node.segments.setdefault(segment, _Node())
        if method in node.methods:
            raise ValueError(f"the table has two rows for {method} {path}")
        node.methods[method] = row
        if not any(is_name(segment) for segment in segments(path)):
            self._plain[path] = node.methods

    def find(self, path: str, raw_path: bytes) -> tuple[dict[str, T], list[str]] | None:
        """The rows of a path by method, and the values of its names; None if there are none.

        A literal segment comes before a name. A slash written as `%2F` is part of a value. Raises
        `UnicodeDecodeError` if a value is not UTF-8.
        """
        if b"%" in raw_path:
            parts = [unquote_to_bytes(part).decode() for part in raw_path.split(b"/")]
        else:
            plain = self._plain.get(path)
            if plain is not None:
                return plain, []
            parts = path.split("/")
        if parts[0]:
            return None
        values: list[str] = []
        node = self._root
        # Almost every path is found without trying a second way.
        for part in parts[1:]:
            child = node.segments.get(part)
            if child is None:
                child = node.any
                if child is None or not part:
                    break
                values.append(part)
            node = child
        else:
            if node.methods:
                return node.methods, values
        values.clear()
        methods = _find(self._root, parts, 1, values)
        return None if methods is None else (methods, values)


def segments(path: str) -> list[str]:
    return path.split("/")[1:]


def is_name(segment: str) -> bool:
    return segment.startswith("{") and segment.endswith("}")


def names(path: str) -> tuple[str, ...]:
    """The names in braces of a path."""
    return tuple(segment[1:-1] for segment in segments(path) if is_name(segment))


def _find(node: _Node[T], parts: list[str], at: int, values: list[str]) -> dict[str, T] | None:
    if at == len(parts):
        return node.methods or None
    child = node.segments.get(parts[at])
    if child is not None:
        methods = _find(child, parts, at + 1, values)
        if methods is not None:
            return methods
    # An empty segment is no value: `/tasks/` names no task.
    if node.any is not None and parts[at]:
        values.append(parts[at])
        methods = _find(node.any, parts, at + 1, values)
        if methods is not None:
            return methods
        values.pop()
    return None
