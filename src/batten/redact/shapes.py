"""Secrets of known formats: vendors' keys, signed tokens, private keys. A text that has one is
certainly not ordinary, whoever wrote it.

Every shape is an opening, which stays readable, and a value, which does not. The first characters
of a value decide whether it is a secret, so that a stream holds back no more than those. A shape is
tried only where its family's cheap trigger matches.
"""

import re
from collections.abc import Callable
from functools import cache

from msgspec import Struct

LOOKBEHIND = 48
"""Characters before a trigger that an opening or its decision may inspect."""

SHORT_LOOKBEHIND = 40
"""As many as the openings of known formats inspect."""

TRIGGER_LENGTH = 24
"""The longest trigger."""

Accept = Callable[[re.Match[str], str, str], bool]
"""Whether a value is a secret, from its opening, its first characters, and the one after them."""


class Shape(Struct, frozen=True):
    opening: str
    """Matched at the trigger. Every part is bounded, and no part can begin with a character that
    may end the part before it: more text then never changes a match that ended before the text did.
    """
    reach: int
    """The longest opening."""
    value: str
    """The class of characters the value is made of."""
    accept: Accept
    head: int = 64
    """Characters of the value that the decision needs."""
    settled_late: bool = False
    """A rejected value may still turn out to be part of the opening."""


class Family(Struct, frozen=True):
    """Shapes with a common trigger: a literal character, the rarer the better, and a pattern for
    what follows it. The pattern looks back over `SHORT_LOOKBEHIND` characters at most."""

    first: str
    rest: str
    shapes: tuple[Shape, ...]
    needs: tuple[str, ...]
    """Literals, one of which is in every match: the cheapest test is whether a short text has one
    at all, and a pattern that is not needed is not compiled."""
    folded: bool = False
    """The trigger is searched in lower-cased text."""
    beginning: str = ""
    """The common beginning of the openings, where testing it once saves testing each shape."""
    beginning_reach: int = 0
    """The longest beginning: text that is cut short of it is not tested."""


@cache
def compiled(source: str) -> re.Pattern[str]:
    return re.compile(source)


def before(opening: re.Match[str]) -> str:
    """The text before an opening that its decision may inspect."""
    place = opening.start()
    return opening.string[max(0, place - LOOKBEHIND) : place]


def is_mixed(text: str) -> bool:
    """Whether a text has letters and digits."""
    return _has_digit(text) and _has_letter(text)


def mixed(least: int) -> Accept:
    """Letters and digits, at least this many characters."""

    def accept(_opening: re.Match[str], head: str, _after: str) -> bool:
        return len(head) >= least and is_mixed(head)

    return accept


def _like(pattern: str) -> Accept:
    """The beginning matches this pattern and is not a word."""

    def accept(_opening: re.Match[str], head: str, _after: str) -> bool:
        return compiled(pattern).match(head) is not None and _has_digit(head)

    return accept


def _has_digit(text: str) -> bool:
    return compiled(r"[0-9]").search(text) is not None


def _has_letter(text: str) -> bool:
    return compiled(r"[A-Za-z]").search(text) is not None


def _key_body(_opening: re.Match[str], head: str, _after: str) -> bool:
    return compiled(r"[A-Za-z0-9+/=]{24}").search(head) is not None


_ID = "[A-Za-z0-9_-]"
_ESCAPE = (
    r"(?<=\\[nrtbfv])|(?<=%[0-9A-Fa-f]{2})|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=\[[mK])|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)|(?<=[\[;][0-9]{3}m)"
)
"""Behind a letter that ends an escape: of a line end in JSON, of a URL, of a terminal's colour."""
_ALONE = f"(?:(?<![A-Za-z0-9_-])|{_ESCAPE})"
"""The beginning of a format: no part of a longer word."""

_PRIVATE_KEY = Family(
    "-",
    r"----BEGIN ",
    (
        Shape(
            r"-----BEGIN [A-Z0-9 ]{0,30}(?<=[ ])PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?:\s|\\[nr]){1,4}[A-Z][A-Za-z-]{2,20}: [^\r\n\\]{0,80}){0,4}",
            520,
            r"[A-Za-z0-9+/=\s\\\"',]",
            _key_body,
            head=100,
            settled_late=True,
        ),
    ),
    needs=("-----BEGIN ",),
)

_SIGNED = Family(
    "J",
    r"(?<=eyJ)",
    (
        Shape(
            rf"J(?<={_ALONE}eyJ)[A-Za-z0-9_-]{{8,1000}}\.",
            1010,
            "[A-Za-z0-9_.-]",
            mixed(16),
        ),
        Shape(rf"J(?<={_ALONE}eyJ)(?=rIjoi)", 6, "[A-Za-z0-9+/=]", mixed(60)),
    ),
    needs=("eyJ",),
)
"""Signed tokens, and keys of Grafana, which are JSON too."""

_DOTTED = Family(
    ".",
    # Of lengths that a bot's number has.
    rf"(?<={_ID}{{22}}\.)(?:{'|'.join(rf'(?<={_ID}{{{n}}}[.])' for n in range(24, 29))})"
    r"|(?<=pat[A-Za-z0-9]{14}\.)",
    (
        Shape(r"\.", 1, "[A-Za-z0-9_.-]", _like(f"{_ID}{{6}}\\.{_ID}{{27}}")),
        Shape(r"\.(?<=pat[A-Za-z0-9]{14}\.)", 1, "[a-f0-9]", mixed(64)),
    ),
    needs=(".",),
)
"""Tokens of bots of Discord and of Airtable, whose marks are too common to search for."""

FAMILIES = (_PRIVATE_KEY, _SIGNED, _DOTTED)
