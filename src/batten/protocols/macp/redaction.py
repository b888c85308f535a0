"""Patterns of texts that canonical events do not show."""

import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from batten.protocols.macp.json_values import list_of, object_of
from batten.protocols.macp.payloads import text_of

REDACTED = "[REDACTED]"
_JS_GROUP = re.compile(r"(?<!\\)\(\?<([A-Za-z_]\w*)>")
_JS_REFERENCE = re.compile(r"(?<!\\)\\k<([A-Za-z_]\w*)>")
_SHORTEST_BYTES = 24
"""Characters of a text that may be bytes in base64; shorter ones are words."""


def broken_patterns(patterns: Sequence[str]) -> list[str]:
    """Those that are no regular expression, and hide nothing."""
    return [one for one in patterns if not any(map(_compile, _spellings(one)))]


def _spellings(text: str) -> list[str]:
    """A pattern whose backslashes are doubled, as in a quoted text, counts as written and with
    single ones.
    """
    return [text, text.replace("\\\\", "\\")] if "\\\\" in text else [text]


def _compile(text: str) -> re.Pattern[str] | None:
    """Named groups may be spelled as in JavaScript."""
    text = _JS_GROUP.sub(r"(?P<\1>", text)
    try:
        return re.compile(_JS_REFERENCE.sub(r"(?P=\1)", text))
    except (re.error, RecursionError, OverflowError):
        return None


@lru_cache(maxsize=64)
def _compiled(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...]:
    """Those that are regular expressions: a run may have been pinned to others."""
    spelled = dict.fromkeys(one for text in patterns for one in _spellings(text))
    return tuple(filter(None, map(_compile, spelled)))


def redact(value: Any, patterns: Sequence[str]) -> Any:
    """The value with every match in every text replaced, also in texts that bytes hold.

    Names of members stay: they are the shape of the value.
    """
    if not patterns:
        return value
    return _redact(value, _compiled(tuple(patterns)))


def _redact(value: Any, patterns: tuple[re.Pattern[str], ...]) -> Any:
    if isinstance(value, str):
        return _text(value, patterns)
    if (members := object_of(value)) is not None:
        return {
            key: _bytes(one, patterns) if key == "payloadBase64" else _redact(one, patterns)
            for key, one in members.items()
        }
    if (entries := list_of(value)) is not None:
        return [_redact(one, patterns) for one in entries]
    return value


def _bytes(encoded: Any, patterns: tuple[re.Pattern[str], ...], *, is_certain: bool = True) -> Any:
    """Bytes that are no text may hold one: every byte counts as a character."""
    try:
        text = b64decode(encoded, validate=True).decode("latin-1")
    except (TypeError, ValueError):
        return _redact(encoded, patterns) if is_certain else encoded
    hidden = _replace(text, patterns)
    return encoded if hidden == text else b64encode(hidden.encode("latin-1")).decode()


def _text(text: str, patterns: tuple[re.Pattern[str], ...]) -> str:
    inner = text_of(text)
    if inner is not None:
        hidden = _replace(inner, patterns)
        if hidden != inner:
            return b64encode(hidden.encode()).decode()
    elif len(text) >= _SHORTEST_BYTES:
        text = _bytes(text, patterns, is_certain=False)
    return _replace(text, patterns)


def _replace(text: str, patterns: tuple[re.Pattern[str], ...]) -> str:
    for pattern in patterns:
        text = pattern.sub(REDACTED, text)
    return text
