"""Request bodies and query strings become values of the types that a route names.

Every refusal is an `invalid_request` that names the field and what it should be.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import unquote_plus

import msgspec
from msgspec import UNSET, Struct, UnsetType, inspect

from batten.contract.envelope import timestamp
from batten.contract.expectations import expectation
from batten.contract.leniency import read_leniently
from batten.contract.surrogates import decode_lone
from batten.serve.http.errors import HttpError

_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_PLACE = re.compile(r" - at `(?:key in )?\$\.?(.*)`$")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_UNTOLD = re.compile(r"^Invalid enum value ('.{0,40})|matching regex", re.DOTALL)
"""Messages that do not tell a person what would be right."""
_NAMES = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "object": "an object",
    "array": "an array",
    "null": "null",
}
_HALF = (
    "the body is not JSON: a string has half of a surrogate pair, such as \\ud83d without its"
    " other half; send both, or the character itself"
)
_MOST_PARAMETERS = 100
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999: later ones have another spelling, which does not compare."""


def invalid(message: str, field: str = "") -> HttpError:
    """A refusal of the request, with the name of the wrong field where there is one."""
    return HttpError("invalid_request", message, fields={"field": field} if field else {})


def instant(name: str, given: str | UnsetType, *, is_down: bool = False) -> str:
    """A parameter that is a time, as events spell it; empty for none. Parts of a millisecond are
    rounded up, or down. The plus of an offset may have come as it is, which a query reads as a
    space.
    """
    if given is UNSET:
        return ""
    try:
        read = datetime.fromisoformat(given.replace(" ", "+") if "T" in given else given)
        moment = (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        example = "2026-01-31T12:00:00Z"
        raise invalid(f"`{name}` must be an ISO 8601 time, such as {example}", name) from error
    seconds = int(moment.replace(microsecond=0).timestamp())
    whole = (math.floor if is_down else math.ceil)(moment.microsecond / 1000)
    return timestamp(min(seconds * 1000 + whole, _LAST_MS) * 1_000_000)


def json_reader(type_: Any, *, replaces_lone: bool = False) -> Callable[[bytes], Any]:
    """Decodes bodies of this type, leniently. Unknown keys are ignored. With `replaces_lone`,
    escaped halves of a character become U+FFFD.
    """
    decode = msgspec.json.Decoder(type_).decode

    def read(data: bytes) -> Any:
        try:
            return read_leniently(data, decode)
        except msgspec.ValidationError as error:
            raise _explained(str(error), "the body", type_) from error
        # Bad UTF-8 and deep nesting raise these.
        except (ValueError, RecursionError) as error:
            mended = None if isinstance(error, RecursionError) else decode_lone(data)
            if mended is None:
                raise invalid(f"the body is not JSON: {error}") from error
            if not replaces_lone:
                raise invalid(_HALF) from error
        return read(msgspec.json.encode(mended))

    return read


def query_reader(type_: type[Struct]) -> Callable[[bytes], Any]:
    """Decodes query strings. A field that is a list takes each value of its parameter; an empty
    value counts as left out, as forms send it.
    """
    fields = {field.encode_name: field.type for field in _fields(type_)}
    lists = {name for name, kind in fields.items() if _is(kind, inspect.ListType)}
    integers = {name for name, kind in fields.items() if _is(kind, inspect.IntType)}
    default = _default(type_)

    def read(query: bytes) -> Any:
        if not query and default is not None:
            return default
        values: dict[str, Any] = {}
        for name, value in parameters(query):
            if name not in fields or not value:
                continue
            if name in lists:
                values.setdefault(name, []).append(value)
            elif name in values:
                raise invalid(f"the parameter `{name}` is given twice; give it once", name)
            elif name in integers and not _INTEGER.fullmatch(value):
                raise invalid(f"the parameter `{name}` must be an integer, such as 10", name)
            else:
                values[name] = value
        try:
            return msgspec.convert(values, type_, strict=False)
        except msgspec.ValidationError as error:
            raise _explained(str(error), "the query", type_) from error

    return read


def parameters(query: bytes) -> list[tuple[str, str]]:
    """The names and values of a query string, decoded."""
    try:
        text = query.decode()
        parts = text.split("&", _MOST_PARAMETERS) if text else []
        if len(parts) > _MOST_PARAMETERS:
            raise invalid(f"the query has more than {_MOST_PARAMETERS} parameters")
        pairs = (part.partition("=") for part in parts)
        return [(_decoded(name), _decoded(value)) for name, _, value in pairs if name]
    except UnicodeDecodeError as error:
        raise invalid("the query is not UTF-8 text; encode other bytes as %XX of UTF-8") from error


def _decoded(text: str) -> str:
    return unquote_plus(text, errors="strict") if "%" in text or "+" in text else text


def _fields(type_: type[Struct]) -> tuple[inspect.Field, ...]:
    info = inspect.type_info(type_)
    assert isinstance(info, inspect.StructType)
    return info.fields


def _is(kind: inspect.Type, wanted: type[inspect.Type]) -> bool:
    """Whether a field takes nothing but this kind, or nothing at all."""
    if isinstance(kind, inspect.Metadata):
        return _is(kind.type, wanted)
    if isinstance(kind, inspect.UnionType):
        return all(isinstance(one, inspect.NoneType) or _is(one, wanted) for one in kind.types)
    return isinstance(kind, wanted)


def _default(type_: type[Struct]) -> Any:
    """The value of an empty query, shared if it cannot change; None if a field is required."""
    if not type_.__struct_config__.frozen:
        return None
    try:
        return type_()
    except (TypeError, ValueError):
        return None


def _explained(message: str, whole: str, type_: Any) -> HttpError:
    """A refusal in words, from what msgspec says and the type expects."""
    found = _PLACE.search(message)
    place = found[1] if found else ""
    text = message[: found.start()] if found else message
    missing = _MISSING.fullmatch(text)
    if missing:
        name = f"{place}.{missing[1]}" if place else missing[1]
        return invalid(f"`{name}` is missing in {whole}", name)
    untold = _UNTOLD.search(text)
    words = expectation(type_, place) if untold else ""
    if untold and words:
        text = f"expected {words}" + (f", got {untold[1]}" if untold[1] else "")
    else:
        text = _in_words(text)
    return invalid(f"`{place}` in {whole}: {text}" if place else f"{whole}: {text}", place)


def _in_words(text: str) -> str:
    """`Expected `int`, got `str`` as "expected an integer, got a string"."""

    def named(match: re.Match[str]) -> str:
        kinds = [_NAMES.get(kind.strip(), kind.strip()) for kind in match[1].split("|")]
        return " or ".join(kinds)

    text = re.sub(r"`([^`]*)`", named, text)
    return text[:1].lower() + text[1:]


def check_content_type(headers: Mapping[bytes, bytes]) -> None:
    """Refuse a body that says it is not JSON; one that says nothing is tried."""
    kind = headers.get(b"content-type")
    if kind is None or kind == b"application/json":
        return
    name = kind.partition(b";")[0].strip().lower()
    if name != b"application/json" and not name.endswith(b"+json"):
        raise HttpError(
            "unsupported_media_type",
            "the body must be JSON: send it with Content-Type: application/json",
        )
