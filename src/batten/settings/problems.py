"""What was left out and why, in as many words as somebody will read.

The files that cause these lines may be anybody's: neither their number nor their length is theirs
to choose.
"""

from collections.abc import Sequence

_MOST = 20
_LONGEST = 2000
_MOST_NAMED = 5


def bounded(problems: Sequence[str]) -> tuple[str, ...]:
    """The lines that are told: each once, on one line, and the number of those that are not."""
    lines = list(dict.fromkeys(_clipped(" ".join(one.split()), _LONGEST) for one in problems))
    if len(lines) <= _MOST:
        return tuple(lines)
    return (*lines[: _MOST - 1], f"{len(lines) - _MOST + 1} more problems are not shown")


def named(names: Sequence[str], longest: int = 80) -> str:
    """A few names, and how many there are beside them."""
    shown = [_clipped(name, longest) for name in names[:_MOST_NAMED]]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _clipped(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
