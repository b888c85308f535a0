"""The strings below the fields of types, as descriptions in their schemas."""

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct


def describe_fields(components: dict[str, Any], types: Iterable[Any]) -> None:
    """Add a description to each property whose field has a string below it.

    Properties that have one already keep it. A type without source, as in an archive, has none.
    """
    for cls in _structs(types):
        properties = components.get(cls.__name__, {}).get("properties", {})
        names = dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))
        for name, note in notes_of(cls).items():
            property_ = properties.get(names.get(name, name))
            if property_ is not None:
                property_.setdefault("description", note)


def notes_of(cls: type[Struct]) -> dict[str, str]:
    """The string below each field, parsed from source: Python drops it at run time."""
    notes: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        if issubclass(each, Struct) and each is not Struct:
            notes |= _notes_in(each.__module__).get(each.__qualname__, {})
    return notes


@cache
def _notes_in(module: str) -> dict[str, dict[str, str]]:
    """The notes of all classes of a module, by their qualified names.

    Read at once: `inspect.getsource` searches the whole module again for each class.
    """
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError, TypeError):
        return {}
    return {name: _notes(definition) for name, definition in _classes(ast.parse(source).body)}


def _classes(body: list[ast.stmt], within: str = "") -> Iterator[tuple[str, ast.ClassDef]]:
    for each in body:
        if isinstance(each, ast.ClassDef):
            yield f"{within}{each.name}", each
            yield from _classes(each.body, f"{within}{each.name}.")


def _notes(definition: ast.ClassDef) -> dict[str, str]:
    notes: dict[str, str] = {}
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(note))),
            ):
                notes[name] = " ".join(note.split())
            case _:
                pass
    return notes


def _structs(types: Iterable[Any]) -> Iterator[type[Struct]]:
    """The structs among the types, and those inside them, each once."""
    seen: set[Any] = set()
    left: list[Any] = list(msgspec.inspect.multi_type_info(types))
    while left:
        info = left.pop()
        if isinstance(info, msgspec.inspect.StructType):
            if info.cls in seen:
                continue
            seen.add(info.cls)
            yield info.cls
            left += [field.type for field in info.fields]
        elif isinstance(info, msgspec.inspect.Metadata):
            left.append(info.type)
        elif isinstance(info, msgspec.inspect.UnionType):
            left += info.types
        elif isinstance(info, msgspec.inspect.DictType):
            left += [info.key_type, info.value_type]
        elif isinstance(info, msgspec.inspect.CollectionType):
            left.append(info.item_type)
        elif isinstance(info, msgspec.inspect.TupleType):
            left += info.item_types
