"""Cuts facts that are too large for an envelope; the whole fact is an artifact.

The cut fact names the artifact (`Fact.whole_artifact_id`), so folds lose nothing. The recorder
stores it.
"""

from functools import cache
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import astuple, replace

from batten.contract.envelope import MAX_ENVELOPE_BYTES
from batten.contract.facts import Fact

_ROOM = MAX_ENVELOPE_BYTES - 4096
"""Bytes of a payload; the rest of the envelope fits in the difference."""

_WORST_ESCAPE = 6
"""Most bytes of JSON for one character: a control character is written as `\\\\u0000`."""

_LONGEST_TEXTS = (32_000, 8_000, 2_000, 500, 100, 40)
_MOST_ITEMS = (2_000, 500, 100, 20, 4, 1)
_DEEPEST = 6
"""Below this depth only free-form values are nested; a text may replace them."""

AnyFact = TypeVar("AnyFact", bound=Fact)

_encode = msgspec.json.Encoder().encode


def fits(fact: Fact) -> bool:
    """Whether the fact fits an envelope; mostly decided without encoding it."""
    try:
        return _most_bytes(fact) <= _ROOM or len(_encode(fact)) <= _ROOM
    except (TypeError, ValueError, OverflowError, RecursionError):
        return True  # not encodable as JSON: the journal reports it


def _most_bytes(fact: Fact) -> int:
    """An upper bound for the encoded size."""
    total = _most_bytes_of_names(type(fact))
    for value in astuple(fact):
        if isinstance(value, str):
            total += len(value) * _WORST_ESCAPE
        elif isinstance(value, (dict, list, Struct)):
            total += len(_encode(value))
    return total


@cache
def _most_bytes_of_names(kind: type[Fact]) -> int:
    """An upper bound for the encoded names, and for values that are neither texts nor nested."""
    return sum(len(name) + 32 for name in kind.__struct_fields__)


def cut_to_fit(fact: AnyFact, whole_artifact_id: str) -> AnyFact:
    """The fact with its long texts and lists cut just enough to fit.

    Every cut is visible: a cut text, list of texts or mapping names the artifact.
    """
    cut = fact
    for longest, most in zip(_LONGEST_TEXTS, _MOST_ITEMS, strict=True):
        scissors = _Scissors(longest, most, whole_artifact_id)
        fields = {name: scissors.cut(getattr(fact, name)) for name in fact.__struct_fields__}
        cut = replace(fact, **fields | {"whole_artifact_id": whole_artifact_id})
        if fits(cut):
            break
    return cut


class _Scissors:
    def __init__(self, longest: int, most: int, artifact_id: str) -> None:
        self._longest = longest
        self._most = most
        self._whole = f"whole: artifact {artifact_id}"

    def cut(self, value: Any, depth: int = 0) -> Any:
        match value:
            case str() if len(value) > self._longest:
                return f"{value[: self._longest]}… ({len(value)} characters; {self._whole})"
            case Struct():
                fields = {
                    name: self.cut(getattr(value, name), depth + 1)
                    for name in value.__struct_fields__
                }
                return replace(value, **fields)
            case dict() | list() if depth > _DEEPEST and value:
                return f"… ({self._whole})"
            case dict():
                return self._mapping(cast("dict[str, Any]", value), depth)
            case list():
                return self._items(value, depth)  # pyright: ignore[reportUnknownArgumentType]
            case _:
                return value

    def _mapping(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        kept = {
            self.cut(key): self.cut(one, depth + 1)
            for key, one in list(value.items())[: self._most]
        }
        if len(value) > self._most:
            kept["…"] = f"{len(value) - self._most} more; {self._whole}"
        return kept

    def _items(self, value: list[Any], depth: int) -> list[Any]:
        kept = [self.cut(one, depth + 1) for one in value[: self._most]]
        if len(value) > self._most and isinstance(value[0], str):
            kept.append(f"… ({len(value) - self._most} more; {self._whole})")
        return kept
