"""Numbers in text from outside: ASCII digits only, where Python takes digits of every script."""

import re
from collections.abc import Mapping

from batten.contract.errors import CallerError

_MOST_SECONDS = 1e9
"""More than anybody waits, and less than a timer of the system takes."""
LONGEST_TIMEOUT_S = 86_400
"""The most seconds that settings may let something outside take: a wait has an end."""
_NUMBER = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"


def is_number(text: str) -> bool:
    return re.fullmatch(_NUMBER, text) is not None


def parse_number(text: str) -> float | None:
    """The finite number that a text is, or None; blanks around it do not count."""
    text = text.strip()
    if not is_number(text):
        return None
    value = float(text)
    return value if value not in (float("inf"), float("-inf")) else None


def seconds_of(environ: Mapping[str, str], variable: str, default: float) -> float:
    """The seconds, above 0, that a variable of the environment sets; an empty one sets none."""
    text = environ.get(variable)
    if not text:
        return default
    seconds = parse_number(text) or 0.0
    if not 0 < seconds <= _MOST_SECONDS:
        raise CallerError(f"{variable} is {text!r}; it is seconds", code="config")
    return seconds
