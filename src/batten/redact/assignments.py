"""Values assigned to names of secrets: `password=…`, `"token": "…"`, `--api-key …`, `<secret>…`.

Ordinary source code assigns to such names all the time (`token = next(tokens)`), so the value must
look like a secret too.
"""

import re

from batten.redact.guesses import is_user_and_password
from batten.redact.shapes import Family, Shape, before, compiled, is_mixed

_KEY = (
    r"(?P<key>(?i:(?<![a-z])pass(?:wd|phrase|code)?|passwords?|passphrase|(?<![a-z])pwd"
    r"|(?<=se)crets?|credentials?|(?<=a)(?<![a-z]a)uth(?:orization)?|(?<=to)kens?"
    r"|(?<![a-z])jwt|(?<=[_-])bearer|(?<=[a-z0-9_-])(?<!rand)(?<!random_)(?<!random-)(?:seed|salt)"
    r"|(?:(?<=api)|(?<=api[_-])|(?<=private)|(?<=private[_-])|(?<=access)|(?<=access[_-])"
    r"|(?<=account)|(?<=account[_-])|(?<=secret)|(?<=secret[_-])|(?<=signing[_-])|(?<=auth[_-])"
    r"|(?<=subscription[_-])|(?<=encryption)|(?<=encryption[_-])|(?<=master[_-]))keys?)"
    r"(?:_[A-Z0-9_]{1,24}|_base)?)"
)
"""Such a name from the place of its trigger (below) to its end."""

_SIGN = r"(?:\\{0,3}[\"'`])?\]?(?P<sign>[ \t]{0,4}(?::=|=>|[:=]|%3[ADad])[ \t]{0,4})"
_SCHEME = r"(?:(?P<scheme>(?i:basic|bearer|token|digest|apikey|negotiate|ntlm|hmac)) {1,3})?"
_REACH = 96

_UNCLEAR = (
    r"(?i:pass|token|secret|key|cred|auth|example|placeholder|change|your|redact|undefined"
    r"|string|required|optional|default|environ|test|dummy|fake|sample|config|setting)"
)
_TYPE_NAME = r"(?i:(?:u?int|float|bytes|sha|md|base|utf-?|aes|hs|rs|es|ed|http|ipv?|v)-?[0-9]+)"
_CODE = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+"
_PROSE = (
    r"(?i:\b(?:a|an|and|are|as|at|be|by|can|do|does|for|from|has|if|in|into|invalid|is|it|list|may"
    r"|must|new|no|not|of|on|only|or|please|repeat|so|than|that|the|this|to|use|used|user|was|when"
    r"|will|with|without|wrong|enter|confirm|forgot|forgotten|mismatch|length|least|file|name)\b)"
    r"|[.:?%]$|[(){}<>=]"
)
"""Words and signs of a sentence: a phrase with one is an explanation, not a passphrase."""


def _quoted(opening: re.Match[str], head: str, after: str) -> bool:
    if compiled(r"\s").search(head):
        return _phrase(opening, head, after)
    if not _could_be(head, quoted=True):
        return False
    if compiled(r"[0-9]").search(head) and compiled(r"[^0-9]").search(head):
        return _is_password(opening["key"]) or len(head) >= 8
    if opening["key"].lower() == "uth" and len(head) >= 8 and is_user_and_password(head):
        return True
    if compiled(_UNCLEAR).search(head):
        return False
    return _is_password(opening["key"]) or (
        head.isalpha() and not head.islower() and not head.isupper() and len(head) >= 16
    )


def _phrase(opening: re.Match[str], head: str, after: str) -> bool:
    """A passphrase: words of no sentence, assigned to the name of a password."""
    if not _is_password(opening["key"]) or not _could_be(head.replace(" ", "_"), quoted=True):
        return False
    if compiled(_UNCLEAR).search(head) or compiled(_PROSE).search(head):
        return False
    is_closed = after in ("'", '"', "\\")
    return is_closed and (len(head.split()) >= 3 or compiled(r"[0-9]").search(head) is not None)


def _bare(opening: re.Match[str], head: str, after: str) -> bool:
    is_called = after != "" and after in "(["
    if is_called or not _could_be(head) or compiled(_CODE).fullmatch(head):
        return False
    tight = opening["sign"] in ("=", "%3D", "%3d") and after not in (",", ")", ".")
    if compiled(r"[0-9]").search(head):
        if compiled(r"[0-9_.*]+").fullmatch(head):
            return _is_password(opening["key"])
        certain = len(head) >= 20 and len(compiled(r"[0-9]").findall(head)) >= 2
        return certain or tight or compiled(_UNCLEAR).search(head) is None
    if opening["scheme"] and len(head) >= 8 and is_user_and_password(head):
        return True
    # No digits: a shell or URL assigns such a value, a program does not.
    if not tight or compiled(_UNCLEAR).search(head):
        return False
    return opening["key"].isupper() or _is_password(opening["key"])


def _could_be(head: str, *, quoted: bool = False) -> bool:
    if len(head) < 6 or "://" in head or "..." in head:
        return False
    if head[0] in ("<$%{[" if quoted and is_mixed(head) else "<$%{*/.~&@[(^"):
        return False
    return not compiled(r"\s").search(head) and not compiled(_TYPE_NAME).fullmatch(head)


def _is_password(key: str) -> bool:
    return compiled(r"(?i:pass|pwd|cret)").match(key) is not None


_FLAG = r"(?:^|[^A-Za-z0-9_-])--?(?:[A-Za-z0-9]+[_-])*[A-Za-z0-9]*$"
_NETRC = r"\b(?:login|account|user)\s+\S+\s+$"
_DIRECTIVE = r"(?:^|\n)[ \t]*(?:ENV|ARG|setx?|SETX?)[ \t]+[A-Za-z_]*$"


def _after_blank(opening: re.Match[str], head: str, after: str) -> bool:
    """The argument of `--password`, an entry of netrc, an SQL statement, a line of a Dockerfile."""
    if len(head) < 4 or head[0] in "-$<{[%*" or compiled(_UNCLEAR).search(head):
        return False
    earlier, key = before(opening), opening["key"]
    if compiled(_NETRC).search(earlier) and key.lower() in ("password", "passwd"):
        return True
    if compiled(_DIRECTIVE).search(earlier):
        return len(head) >= 6
    clear = is_mixed(head) or after in ("", "\n", "\r", "'", '"')
    if compiled(_FLAG).search(earlier):
        if key.lower() in ("seed", "salt") and head.rstrip("`.,;:)").isdigit():
            return False  # of a test runner's chance
        # In a help text the first word of an explanation follows.
        return clear and not compiled(r"[A-Z_]+").fullmatch(head)
    return key.lower() == "password" and opening["quote"] == "'" and after == "'"


def _element(opening: re.Match[str], head: str, after: str) -> bool:
    if after not in ("<", "") and len(head) < 64:
        return False
    if len(head) < 4 or head[0] in "${%<" or compiled(_UNCLEAR).search(head):
        return False
    return is_mixed(head) or (_is_password(opening["key"]) and opening[0][-2] not in "\"'")


def _told(opening: re.Match[str], head: str, _after: str) -> bool:
    """In the next column of a table, or in a sentence (`the password is …`)."""
    if len(head) < 6 or not is_mixed(head) or compiled(_UNCLEAR).search(head):
        return False
    return _could_be(head) and (_is_password(opening["key"]) or len(head) >= 16)


_SHAPES = (
    Shape(_KEY + _SIGN + r"\\{0,3}\"" + _SCHEME, _REACH, r"[^\"\\\r\n]", _quoted),
    Shape(_KEY + _SIGN + r"\\{0,3}'" + _SCHEME, _REACH, r"[^'\\\r\n]", _quoted),
    Shape(_KEY + _SIGN + _SCHEME, _REACH, r"[^\s\"'`,;&<>(){}\[\]|\\]", _bare),
    Shape(
        _KEY + r"(?:[ \t]{1,4}(?P<quote>[\"']?)|[\"'], ?[\"'])", _REACH, r"[^\s\"'\\]", _after_blank
    ),
    Shape(_KEY + r"[\"']?>", _REACH, r"[^<\s]", _element),
    Shape(_KEY + r"</key>\s{0,12}<string>", _REACH, r"[^<\s]", _element),
    Shape(_KEY + r"[\"'][ \t]{1,4}value=[\"']", _REACH, r"[^\"'<>\r\n]", _quoted),
    Shape(_KEY + r"\"\r?\n\r?\n", _REACH, r"[^\r\n]", _told),
    Shape(_KEY + r"[`*]{0,2}[ \t]{1,24}\|[ \t]{1,4}[`*]{0,2}", _REACH, r"[^\s|`*]", _told),
    Shape(_KEY + r" (?:is|was):? {1,2}[\"'`]?", _REACH, r"[^\s\"'`,;]", _told),
)

_BEGINNING = _KEY + r"[ \t\"'`:=\]>|*<%\\]"

FAMILIES = tuple(
    Family(
        first,
        rest,
        _SHAPES,
        needs=needs,
        folded=True,
        beginning=_BEGINNING,
        beginning_reach=_REACH,
    )
    for first, rest, needs in (
        ("p", "ass|wd", ("pass", "pwd")),
        ("k", "ey|en", ("key", "ken")),
        ("c", "r(?:et|ed)", ("cret", "cred")),
        ("u", "th", ("uth",)),
        ("j", "wt", ("jwt",)),
        ("b", "earer", ("bearer",)),
        ("s", "eed|alt", ("seed", "salt")),
    )
)
