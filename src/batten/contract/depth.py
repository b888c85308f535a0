"""How deeply values from outside may be nested: whoever walks through one does so by recursion."""

from collections.abc import Iterable
from typing import Any, cast

DEEPEST = 64
"""Levels of arguments and answers; what is deeper is refused where it comes in."""


def is_too_deep(value: object, deepest: int = DEEPEST) -> bool:
    """Whether something lies more than `deepest` levels inside a JSON-like value."""
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
