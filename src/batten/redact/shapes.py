"""Secrets known by their looks: vendors' keys, signed tokens, private keys, credentials in
addresses and headers, and values assigned to names that say what they hold.

Every shape is an opening, which stays readable, and a value, which does not. Whether the
value is one is decided from its first characters, so that a stream holds back no more than
those. A shape is tried only where its family's cheap trigger is found.
"""

import re
from collections.abc import Callable
from functools import cache

from msgspec import Struct

LOOKBEHIND = 16
"""How many characters before a trigger an opening may look at."""

TRIGGER_LENGTH = 16
"""The longest trigger."""

Accept = Callable[[re.Match[str], str, str], bool]
"""Whether a value is a secret: its opening, its first characters, and the one after them."""


class Shape(Struct, frozen=True):
    opening: str
    """Matched at the trigger. Every part is bounded, and none can begin with what may end the
    part before it: more text then never changes a match that ended before the text did."""
    reach: int
    """The longest opening."""
    value: str
    """The class of characters the value is made of."""
    accept: Accept
    head: int = 64
    """How many characters of the value the decision needs."""
    settled_late: bool = False
    """A refused value may still turn out to be part of the opening."""


class Family(Struct, frozen=True):
    """Shapes found by one trigger.

    A trigger begins with a plain character, the rarer the better: such patterns are searched
    at memory speed, several times faster than any that may begin with one of many.
    """

    trigger: str
    shapes: tuple[Shape, ...]
    needs: str
    """The trigger's first character: whether it is there at all is the cheapest question."""
    folded: bool = False
    """The trigger is searched in the lower-cased text."""
    beginning: str = ""
    """How the openings of all its shapes begin, where asking that once spares asking for each."""


@cache
def compiled(source: str) -> re.Pattern[str]:
    return re.compile(source)


def _mixed(least: int) -> Accept:
    """Letters and digits, at least so many characters."""

    def accept(_opening: re.Match[str], head: str, _after: str) -> bool:
        return len(head) >= least and _has_digit(head) and _has_letter(head)

    return accept


def _exactly(length: int) -> Accept:
    def accept(_opening: re.Match[str], head: str, _after: str) -> bool:
        return len(head) == length and _has_digit(head)

    return accept


def _has_digit(text: str) -> bool:
    return compiled(r"[0-9]").search(text) is not None


def _has_letter(text: str) -> bool:
    return compiled(r"[A-Za-z]").search(text) is not None


def _before_at(_opening: re.Match[str], head: str, after: str) -> bool:
    # `user:pass@` in an explanation, and `${NAME}`, are not credentials.
    return after == "@" and head[:1] not in "$<{" and head not in ("pass", "password", "PASSWORD")


def _key_body(_opening: re.Match[str], head: str, _after: str) -> bool:
    return compiled(r"[A-Za-z0-9+/=]{24}").search(head) is not None


_TOKEN = "[A-Za-z0-9_-]"

_DASHED = Family(
    r"-(?:(?<=sk-)|(?<=glpat-)|(?<=xox[a-z]-)|----BEGIN )",
    (
        Shape(r"-(?<=(?<![A-Za-z0-9_-])sk-)(?:[a-z]{2,8}-){0,2}", 20, _TOKEN, _mixed(16)),
        Shape(r"-(?<=(?<![A-Za-z0-9_-])glpat-)", 1, _TOKEN, _mixed(16)),
        Shape(r"-(?<=(?<![A-Za-z0-9_-])xox[abeoprs]-)", 1, _TOKEN, _mixed(10)),
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
    needs="-",
)

_UNDERLINED = Family(
    r"_(?:(?<=gh[a-z]_)|pat_(?<=github_pat_)|(?:live|test)_(?<=k_(?:live|test)_)|v1_(?<=dop_v1_)|(?<=shpat_)|(?<=whsec_)|(?<=npm_)|(?<=hf_))",
    (
        Shape(r"_(?<=(?<![A-Za-z0-9])gh[pousr]_)", 1, "[A-Za-z0-9]", _mixed(20)),
        Shape(r"_pat_(?<=github_pat_)", 5, "[A-Za-z0-9_]", _mixed(22)),
        Shape(r"_(?:live|test)_(?<=[sr]k_(?:live|test)_)", 6, "[A-Za-z0-9]", _mixed(16)),
        Shape(r"_v1_(?<=dop_v1_)", 4, "[a-f0-9]", _mixed(32)),
        Shape(r"_(?<=(?<![A-Za-z0-9])shpat_)", 1, "[A-Za-z0-9]", _mixed(20)),
        Shape(r"_(?<=(?<![A-Za-z0-9])whsec_)", 1, "[A-Za-z0-9+/=]", _mixed(20)),
        Shape(r"_(?<=(?<![A-Za-z0-9])npm_)", 1, "[A-Za-z0-9]", _mixed(36)),
        Shape(r"_(?<=(?<![A-Za-z0-9])hf_)", 1, "[A-Za-z0-9]", _mixed(30)),
    ),
    needs="_",
)

_CAPITAL = Family(
    r"A(?:[KS]IA|Iza)",
    (
        Shape(r"(?<![A-Za-z0-9])A[KS]IA", 4, "[A-Z0-9]", _exactly(16)),
        Shape(r"(?<![A-Za-z0-9_-])AIza", 4, _TOKEN, _mixed(30)),
    ),
    needs="A",
)

_SIGNED = Family(
    r"J(?<=eyJ)",
    (
        Shape(
            r"J(?<=(?<![A-Za-z0-9_-])eyJ)[A-Za-z0-9_-]{8,1000}\.",
            1010,
            "[A-Za-z0-9_.-]",
            _mixed(16),
        ),
    ),
    needs="J",
)

_BEARER = Family(
    r"B(?:earer|EARER) ",
    (Shape(r"B(?:earer|EARER) {1,3}", 9, r"[A-Za-z0-9._~+/=-]", _mixed(8)),),
    needs="B",
)

_ADDRESS = Family(
    r":(?://)",
    (
        Shape(
            r"://[^\s/:@\"'<>?#\\]{0,100}:",
            104,
            r"[^\s/@\"'<>?#\\]",
            _before_at,
            head=200,
        ),
    ),
    needs=":",
)

FAMILIES = (_DASHED, _UNDERLINED, _CAPITAL, _SIGNED, _BEARER, _ADDRESS)
