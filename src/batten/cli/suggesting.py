"""Suggestions for mistyped commands and flags. A mistyped command is never taken for a prompt."""

import os
import re
from collections.abc import Iterable, Sequence

from batten.cli import COMMANDS
from batten.cli.parsing import UsageError

_ID = re.compile(r"last|(run|chat|appr|art)_\w+|[0-9][0-9A-Za-z-]{3,}")
_SHORT_WORD = 5
"""Up to so many letters, one typing error; in longer words, two."""
_PREFIX = 3
"""So many letters of a word suggest it."""


def check_prompt_words(words: Sequence[str], *, is_first: bool) -> None:
    """Raise `UsageError` if the words of a prompt without `-p` look like a command.

    One word near a command; any one word in the place of a command (`is_first`) that a person
    types; several words if the first is near a command and the others read like its arguments.
    """
    if not words or words[0] == "-" or re.search(r"\s", words[0]):
        return
    first = words[0]
    if len(words) > 1:
        near = _command_of_phrase(words)
        if near is not None:
            raise _not_a_command(words, near)
        return
    near = nearest(first, COMMANDS)
    if near is not None:
        raise _not_a_command(words, near)
    if is_first and os.isatty(0) and os.isatty(1):  # elsewhere print mode needs no flag
        raise UsageError(
            f"no command is named {first!r}, and a prompt of one word needs -p: "
            f"batten -p {_quoted(first)}\ntry: batten help"
        )


def mistyped_command(word: str) -> UsageError | None:
    """The error for a word near a command; None for other words."""
    near = nearest(word, COMMANDS)
    return None if near is None else _not_a_command([word], near)


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a typing error or a cut end would turn into this one."""
    word = word.lower()
    names = list(known)
    limit = 1 if len(word.lstrip("-")) <= _SHORT_WORD else 2
    distances = [(_distance(word, name), name) for name in names]
    best = min((one for one in distances if one[0] <= limit), default=None)
    if best is not None:
        return best[1]
    if len(word.lstrip("-")) < _PREFIX:
        return None
    return next((name for name in names if name.startswith(word)), None)


def _command_of_phrase(words: Sequence[str]) -> str | None:
    """The command that the first of several words was meant to be."""
    first = words[0]
    if first in COMMANDS or not first.islower():
        return first if first in COMMANDS else None
    near = next((name for name in COMMANDS if _distance(first, name) <= 1), None)
    is_english = near == f"{first}s" and len(words) > 2 and not _ID.fullmatch(words[1])
    return None if is_english else near


def _not_a_command(words: Sequence[str], near: str) -> UsageError:
    first, prompt = words[0], _quoted(" ".join(words))
    if first == near:
        said = f"the command `{near}` comes before all flags: batten {near} …"
    else:
        said = f"no command is named {first!r}; did you mean `batten {near}`?"
    return UsageError(f"{said}\nfor a prompt: batten -p {prompt}")


def _quoted(text: str) -> str:
    from shlex import quote

    return quote(text)


def _distance(one: str, other: str) -> int:
    """Letters to add, remove, replace or swap with their neighbour."""
    before: list[int] = []
    line = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        before, last, line = line, before, [i]
        for j, b in enumerate(other, 1):
            least = min(before[j] + 1, line[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                least = min(least, last[j - 2] + 1)
            line.append(least)
    return line[-1]
