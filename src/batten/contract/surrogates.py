"""Surrogates in JSON from outside: halves of a pair are joined, lone ones replaced by U+FFFD.

Programs that cut their text between the halves of an escaped pair send JSON that a strict decoder
refuses. Such a payload is decoded here, on a path that no other payload takes.
"""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

_PIECES = frozenset(
    {
        *("text", "thinking", "partial_json", "content", "arguments", "delta", "refusal"),
        *("reasoning", "reasoning_content"),
    }
)
"""Keys of streamed pieces: a half at their edge may belong to the next piece."""


def paired(text: str) -> str:
    """The text with pairs joined and lone surrogates replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def decode_lone(payload: bytes, *, pieces: bool = False) -> Any:
    """The value of JSON that contains lone surrogates; None if it is invalid anyway.

    With `pieces`, a half at the edge of a streamed piece is kept.
    """
    import json

    if b"\\u" not in payload and b"\xed" not in payload:
        return None
    try:
        value = json.loads(
            payload.decode("utf-8", "surrogatepass"),
            parse_int=_number,
            parse_float=_number,
            parse_constant=_refuse,
        )
        return _mended(value, "", pieces)
    except (ValueError, RecursionError):
        return None


def _number(text: str) -> Any:
    """As the strict decoder reads it, which refuses one that is too large."""
    return msgspec.json.decode(text)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _mended(value: Any, key: str, pieces: bool) -> Any:
    if isinstance(value, str):
        return _edged(value) if pieces and key in _PIECES else paired(value)
    if isinstance(value, list):
        return [_mended(one, key, pieces) for one in cast("Iterable[Any]", value)]
    if isinstance(value, dict):
        given = cast("Mapping[str, Any]", value)
        return {paired(name): _mended(one, name, pieces) for name, one in given.items()}
    return value


def _edged(text: str) -> str:
    """The text mended inside, with a half at either edge kept."""
    first = text[:1] if "\udc00" <= text[:1] <= "\udfff" else ""
    rest = text.removeprefix(first) if first else text
    last = rest[-1:] if "\ud800" <= rest[-1:] <= "\udbff" else ""
    return first + paired(rest.removesuffix(last) if last else rest) + last
