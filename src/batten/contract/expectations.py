"""What a field of a type takes, in words for a client that sent something else.

The words stand with the type: `Meta(extra={"expected": "the id of a task"})`. Those of a choice
are its values.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

from msgspec import inspect

_STEP = re.compile(r"([^.\[\]]+)|\[[^\]]*\]")


def expectation(type_: Any, place: str) -> str:
    """What the field at a place such as `servers[0].name` takes; empty if no words say it."""
    found: list[inspect.Type] = [inspect.type_info(type_)]
    for step in _STEP.finditer(place):
        found = [one for kind in found for one in _below(kind, step[1])]
    for kind in found:
        if words := _words(kind):
            return words
    values = [str(value) for kind in found for value in _values(kind) if value != ""]
    return f"one of {', '.join(values)}" if values else ""


def _below(kind: inspect.Type, name: str | None) -> Iterator[inspect.Type]:
    """The types at a field of this name, or at an item."""
    match kind:
        case inspect.Metadata():
            yield from _below(kind.type, name)
        case inspect.UnionType():
            for one in kind.types:
                yield from _below(one, name)
        case inspect.StructType() if name is not None:
            yield from (field.type for field in kind.fields if field.encode_name == name)
        case inspect.CollectionType() if name is None:
            yield kind.item_type
        case inspect.DictType() if name is None:
            yield kind.value_type
        case _:
            pass


def _words(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata():
            extra = cast("dict[str, object]", kind.extra or {})  # pyright: ignore[reportUnknownMemberType]
            return str(extra.get("expected", "")) or _words(kind.type)
        case inspect.UnionType():
            found: list[str] = [_words(one) for one in kind.types]
            return next(filter(None, found), "")
        case _:
            return ""


def _values(kind: inspect.Type) -> Iterator[object]:
    match kind:
        case inspect.Metadata():
            yield from _values(kind.type)
        case inspect.UnionType():
            for one in kind.types:
                yield from _values(one)
        case inspect.LiteralType():
            yield from kind.values
        case _:
            pass
