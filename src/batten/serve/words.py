"""Texts for people: without secrets, and without what a terminal would obey rather than show."""

import re
from collections.abc import Callable, Mapping

Redact = Callable[[str], str]
"""The text without secrets."""

_OBEYED = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]"
"""Control characters but tab and line feed, and those that turn the direction of writing."""


def plain(text: str) -> str:
    """The text with a mark in place of every character that is obeyed and not shown."""
    return re.sub(_OBEYED, "\ufffd", text)


def one_line(text: str) -> str:
    """The same on one line, so that no text can pass for a line of ours."""
    return plain(text.replace("\n", "⏎"))


def without_tokens(text: str) -> str:
    """The text without tokens of known formats."""
    return redacting({})(text)


def redacting(environ: Mapping[str, str]) -> Redact:
    """Removes the secrets of an environment: providers and servers may echo them.

    The redactor is loaded with the first text.
    """

    def redact(text: str) -> str:
        from batten.redact.redactor import Redactor

        return Redactor.from_environment(environ).text(text)

    return redact
