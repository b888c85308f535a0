"""Bounds the list of problems: omissions and their reasons.

Untrusted files can cause these lines, so their number and length are bounded.
"""

from collections.abc import Sequence

from batten.contract.cutting import shortened

_MOST = 20
_LONGEST = 2000
_MOST_NAMED = 5


def bounded(problems: Sequence[str]) -> tuple[str, ...]:
    """The lines to show: without duplicates, each on one line, and the number of omitted ones."""
    lines = list(dict.fromkeys(shortened(" ".join(one.split()), _LONGEST) for one in problems))
    if len(lines) <= _MOST:
        return tuple(lines)
    return (*lines[: _MOST - 1], f"{len(lines) - _MOST + 1} more problems are not shown")


def named(names: Sequence[str], longest: int = 80) -> str:
    """A few names, and the number of further ones."""
    shown = [shortened(name, longest) for name in names[:_MOST_NAMED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")
