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

SHORT_LOOKBEHIND = 16
"""As many as the openings of this module inspect."""

TRIGGER_LENGTH = 16
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


def _exactly(length: int) -> Accept:
    def accept(_opening: re.Match[str], head: str, _after: str) -> bool:
        return len(head) == length and _has_digit(head)

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


_TOKEN = "[A-Za-z0-9_-]"
_ESCAPE = (
    r"(?<=\\[nrtbfv])|(?<=%[0-9A-Fa-f]{2})|(?<=\\x[0-9A-Fa-f]{2})|(?<=\\u[0-9A-Fa-f]{4})"
    r"|(?<=\[[mK])|(?<=[\[;][0-9]m)|(?<=[\[;][0-9]{2}m)|(?<=[\[;][0-9]{3}m)"
)
"""Behind a letter that ends an escape: of a line end in JSON, of a URL, of a terminal's colour."""
_APART = f"(?:(?<![A-Za-z0-9])|{_ESCAPE}|(?<=[A-Za-z0-9]{{6}}))"
"""Also right behind a longer word: that of a token before it, if files without a line end are
shown one after another. No ordinary word of that length ends so and goes on as such a token does.
"""
_ALONE = f"(?:(?<![A-Za-z0-9_-])|{_ESCAPE})"
"""The beginning of a format: no part of a longer word."""

_DASHED = Family(
    "-",
    # Two characters reject most places before the alternatives are tried; below too.
    r"----BEGIN |(?<=[abdflmprstuxAKP][abeikloprstxKUX]-)(?:(?<=sk-)|(?<=xai-|pul-)"
    r"|(?<=l(?:pat|ptt|cbt|imt)-|gl[dfr]t-|xox[abeoprs]-|xapp-|pypi-|pplx-|PMAK-|HRKU-|CSPX-))",
    (
        Shape(rf"-(?<={_ALONE}sk-)(?:[a-z]{{2,8}}-){{0,2}}", 20, _TOKEN, mixed(16)),
        Shape(rf"-(?<={_ALONE}gl(?:pat|ptt|cbt|imt)-)", 1, _TOKEN, mixed(16)),
        Shape(rf"-(?<={_ALONE}gl[dfr]t-)", 1, _TOKEN, mixed(16)),
        Shape(rf"-(?<={_ALONE}xox[abeoprs]-)", 1, _TOKEN, mixed(10)),
        Shape(rf"-(?<={_ALONE}xapp-)", 1, _TOKEN, _like(r"[0-9]-[A-Z0-9]{6,}-[0-9]{6,}-")),
        Shape(rf"-(?<={_ALONE}pypi-)", 1, _TOKEN, _like(f"Ag{_TOKEN}{{48}}")),
        Shape(rf"-(?<={_ALONE}xai-)", 1, "[A-Za-z0-9]", mixed(40)),
        Shape(rf"-(?<={_ALONE}pplx-)", 1, "[A-Za-z0-9]", mixed(40)),
        Shape(rf"-(?<={_ALONE}PMAK-)", 1, "[A-Za-z0-9-]", _like("[a-f0-9]{24}-[a-f0-9]")),
        Shape(rf"-(?<={_ALONE}HRKU-)", 1, _TOKEN, mixed(30)),
        Shape(rf"-(?<={_ALONE}GOCSPX-)", 1, _TOKEN, mixed(20)),
        Shape(rf"-(?<={_ALONE}pul-)", 1, "[a-f0-9]", _exactly(40)),
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
    needs=("-",),
)

_UNDERLINED = Family(
    "_",
    r"[altpv](?:at_(?<=(?:thub|dckr)_pat_)|ive_(?<=k_live_)|est_(?<=k_test_)|1_(?<=do[opr]_v1_)"
    r"|pi_(?<=lin_api_)|kn_(?<=ale_tkn_)|w_(?<=ale_pw_))"
    r"|(?<=[abceghlmprsty][8acdfkmnoprstu]_)(?:(?<=(?:hf|r8)_)"
    r"|(?<=gh[pousr]_|npm_|glc_|gsk_|sbp_|ntn_|btn_)"
    r"|(?<=hp(?:at|ca|pa|ss)_|hsec_|glsa_|figd_|try[su]_|gems_))",
    (
        Shape(rf"_(?<={_APART}gh[pousr]_)", 1, "[A-Za-z0-9]", mixed(20)),
        Shape(r"_pat_(?<=github_pat_)", 5, "[A-Za-z0-9_]", mixed(22)),
        Shape(rf"_pat_(?<={_APART}dckr_pat_)", 5, _TOKEN, mixed(20)),
        Shape(r"_(?:live|test)_(?<=[sr]k_(?:live|test)_)", 6, "[A-Za-z0-9]", mixed(16)),
        Shape(r"_v1_(?<=do[opr]_v1_)", 4, "[a-f0-9]", mixed(32)),
        Shape(rf"_(?<={_APART}shp(?:at|ca|pa|ss)_)", 1, "[A-Za-z0-9]", mixed(20)),
        Shape(rf"_(?<={_APART}whsec_)", 1, "[A-Za-z0-9+/=]", mixed(20)),
        Shape(rf"_(?<={_APART}npm_)", 1, "[A-Za-z0-9]", mixed(36)),
        Shape(rf"_(?<={_APART}hf_)", 1, "[A-Za-z0-9]", mixed(30)),
        Shape(rf"_(?<={_APART}glsa_)", 1, "[A-Za-z0-9_]", _like("[A-Za-z0-9]{32}_[a-f0-9]{8}")),
        Shape(rf"_(?<={_APART}glc_)", 1, "[A-Za-z0-9+/=]", mixed(32)),
        Shape(rf"_(?<={_APART}gsk_)", 1, "[A-Za-z0-9]", mixed(40)),
        Shape(rf"_(?<={_APART}r8_)", 1, "[A-Za-z0-9]", mixed(36)),
        Shape(rf"_(?<={_APART}figd_)", 1, _TOKEN, mixed(36)),
        Shape(rf"_(?<={_APART}sbp_)", 1, "[a-f0-9]", _exactly(40)),
        Shape(rf"_(?<={_APART}ntn_)", 1, "[A-Za-z0-9]", mixed(40)),
        Shape(rf"_(?<={_APART}btn_)", 1, _TOKEN, mixed(40)),
        Shape(rf"_(?<={_APART}sntry[su]_)", 1, "[A-Za-z0-9+/=_]", mixed(40)),
        Shape(rf"_(?<={_APART}rubygems_)", 1, "[a-f0-9]", _exactly(48)),
        Shape(rf"_api_(?<={_APART}lin_api_)", 5, "[A-Za-z0-9]", mixed(36)),
        Shape(rf"_tkn_(?<={_APART}pscale_tkn_)", 5, _TOKEN, mixed(30)),
        Shape(rf"_pw_(?<={_APART}pscale_pw_)", 4, _TOKEN, mixed(30)),
    ),
    needs=("_",),
)

_CAPITAL = Family(
    "A",
    r"[KS]IA|Iza|GE-SECRET|TATT3",
    (
        Shape(rf"{_APART}A[KS]IA", 4, "[A-Z0-9]", _exactly(16)),
        Shape(rf"{_ALONE}AIza", 4, _TOKEN, mixed(30)),
        Shape(rf"{_ALONE}AGE-SECRET-KEY-1", 16, "[A-Z0-9]", mixed(40)),
        Shape(rf"{_ALONE}ATATT3", 6, "[A-Za-z0-9_=-]", mixed(40)),
    ),
    needs=("A",),
)

_TWILIO = Family(
    "S",
    r"K[0-9a-f]",
    (Shape(r"(?<![A-Za-z0-9_])SK", 2, "[a-f0-9]", _exactly(32)),),
    needs=("S",),
)

_DOTTED = Family(
    ".",
    r"(?<=SG\.|29\.|v[bs]\.)",
    (
        Shape(
            rf"\.(?<={_ALONE}SG\.)",
            1,
            "[A-Za-z0-9_.-]",
            _like(r"[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16}"),
        ),
        Shape(rf"\.(?<={_ALONE}ya29\.)", 1, "[A-Za-z0-9_.-]", mixed(20)),
        Shape(rf"\.(?<={_ALONE}hv[bs]\.)", 1, _TOKEN, mixed(24)),
    ),
    needs=("SG.", "29.", "hvs.", "hvb."),
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
    ),
    needs=("eyJ",),
)

_HOOKS = Family(
    ":",
    r"//(?:hooks|ptb|canary|discord|api\.t)",
    (
        Shape(
            r"://hooks\.slack\.com/(?:services|workflows)/",
            29,
            "[A-Za-z0-9/]",
            _like("T[A-Z0-9]{6,}/[A-Z0-9]{6,}/[A-Za-z0-9]{10}"),
        ),
        Shape(
            r"://(?:ptb\.|canary\.)?discord(?:app)?\.com/api/webhooks/[0-9]{15,22}/",
            70,
            _TOKEN,
            mixed(40),
        ),
        Shape(r"://api\.telegram\.org/bot[0-9]{6,12}:", 37, _TOKEN, mixed(30)),
    ),
    needs=("://",),
)

FAMILIES = (
    _DASHED,
    _UNDERLINED,
    _CAPITAL,
    _TWILIO,
    _DOTTED,
    _SIGNED,
    _HOOKS,
)
