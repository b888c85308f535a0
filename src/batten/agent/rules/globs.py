"""Wildcards of rules, held against texts that may have holes.

`*` is any text, `?` one character, `[…]` one of a set; `[*]` is the character itself.
"""

import re
from functools import lru_cache

from batten.agent.rules.shell import HOLE, NAMES

_TOKEN = r"(?s:\[!?\]?[^\]]*\]|.)"
_PLAIN_TEXT = r"[A-Za-z0-9_./:=@%+, -]*"
"""What a wildcard stands for in a rule with operators of the shell: nothing that could be one."""
_LONGEST = 4096
"""Characters of a text that is compared step by step."""


def tokens(glob: str) -> list[str]:
    """The parts of a pattern, each one character of text, or a wildcard."""
    return re.findall(_TOKEN, glob)


def literal(glob: str) -> str | None:
    """The only text that a pattern matches; None if there are more."""
    parts: list[str] = []
    for token in tokens(glob):
        if token in ("*", "?") or (len(token) > 1 and len(token) != 3):
            return None
        parts.append(token if len(token) == 1 else token[1])
    return "".join(parts)


def literal_start(glob: str) -> str:
    """The text that everything matched begins with."""
    parts: list[str] = []
    for token in tokens(glob):
        if token in ("*", "?") or (len(token) > 1 and len(token) != 3):
            break
        parts.append(token if len(token) == 1 else token[1])
    return "".join(parts)


def matches(glob: str, text: str) -> bool:
    """Whether a text matches, whatever its holes are filled with. Takes linear time for each
    wildcard, whatever the text is."""
    first, *rest = _segments(glob)
    if not rest:
        return first.fullmatch(text) is not None
    begin = first.match(text)
    if begin is None:
        return False
    at = begin.end()
    for segment in rest[:-1]:
        found = segment.search(text, at)
        if found is None:
            return False
        at = found.end()
    last, length = rest[-1], _length(glob)
    return len(text) - length >= at and last.fullmatch(text, len(text) - length) is not None


@lru_cache(maxsize=1024)
def _segments(glob: str) -> tuple[re.Pattern[str], ...]:
    """What stands between the wildcards `*` of a pattern."""
    parts = [""]
    for token in tokens(glob):
        if token == "*":
            parts.append("")
        else:
            parts[-1] += _one(token)
    return tuple(re.compile(part, re.DOTALL) for part in parts)


@lru_cache(maxsize=1024)
def _length(glob: str) -> int:
    """How many characters stand behind the last `*`."""
    every = tokens(glob)
    return every[::-1].index("*")


def matches_plainly(glob: str, text: str) -> bool:
    """Whether a text matches where no wildcard stands for an operator of the shell."""
    if len(text) > _LONGEST:
        return False
    parts = (_PLAIN_TEXT if token == "*" else _one(token) for token in tokens(glob))
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _one(token: str) -> str:
    if token == "?":
        return f"[^{HOLE}{NAMES}]"
    if len(token) == 1:
        return re.escape(token)
    inner = token[1:-1]
    negated = inner.startswith("!")
    inner = (inner[1:] if negated else inner).replace("\\", "\\\\").replace("^", "\\^")
    inner = inner.replace("[", "\\[")
    try:
        re.compile(f"[{inner}]")
    except re.error:
        # A set such as `[z-a]` has nothing in it.
        return "(?!)."
    return f"(?![{HOLE}{NAMES}])[{'^' if negated else ''}{inner}]"


@lru_cache(maxsize=1024)
def may_match(glob: str, text: str) -> bool:
    """Whether a text matches with some filling of its holes."""
    if HOLE not in text and NAMES not in text:
        return matches(glob, text)
    if len(text) > _LONGEST:
        return True
    pattern = tokens(glob)
    # The places of the pattern that are reached after each character of the text.
    places = _closure({0}, pattern)
    for character in text:
        if character in (HOLE, NAMES):
            # Any text: every later place can be reached.
            places = set(range(min(places, default=len(pattern) + 1), len(pattern) + 1))
        else:
            ahead = {
                at + (0 if pattern[at] == "*" else 1)
                for at in places
                if at < len(pattern)
                and (pattern[at] == "*" or re.fullmatch(_one(pattern[at]), character, re.DOTALL))
            }
            places = _closure(ahead, pattern)
    return len(pattern) in places


def _closure(places: set[int], pattern: list[str]) -> set[int]:
    """With the places behind wildcards that stand for nothing."""
    found = set(places)
    for at in sorted(places):
        while at < len(pattern) and pattern[at] == "*":
            at += 1
            found.add(at)
    return found
