"""The strings below the fields of types, as descriptions in their schemas."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
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
        if not issubclass(each, Struct) or each is Struct:
            continue
        try:
            source = inspect.getsource(each)
        except (OSError, TypeError):
            continue
        (definition,) = ast.parse(textwrap.dedent(source)).body
        assert isinstance(definition, ast.ClassDef)
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
