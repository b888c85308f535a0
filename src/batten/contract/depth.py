"""The limit on the nesting of JSON from outside: code that walks such values is recursive."""

from collections.abc import Iterable
from typing import Any, cast

DEEPEST = 64
"""Levels of arguments and answers; deeper input is refused at the boundary."""


def is_too_deep(value: object, deepest: int = DEEPEST) -> bool:
    """Whether a JSON-like value nests more than `deepest` levels."""
    level: list[object] = [value]
    for _ in range(deepest + 1):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return cast("dict[Any, object]", value).values()
    return cast("Iterable[object]", value) if isinstance(value, list | tuple) else ()
