"""Values assigned to names of secrets: `password=…`, `"token": "…"`, `API_KEY: …`.

Ordinary source code assigns to such names all the time (`token = next(tokens)`), so the value must
look like a secret too.
"""

import re

from batten.redact.shapes import Family, Shape, compiled

_KEY = (
    r"(?P<key>(?i:(?<![a-z])pass(?:wd|phrase)?|password|passphrase|(?<![a-z])pwd"
    r"|(?<=se)cret|credentials?|(?<=a)(?<![a-z]a)uth(?:orization)?|(?<=to)ken"
    r"|(?:(?<=api)|(?<=api[_-])|(?<=private)|(?<=private[_-])|(?<=access)|(?<=access[_-])"
    r"|(?<=account)|(?<=account[_-])|(?<=secret)|(?<=secret[_-])|(?<=signing[_-]))key)"
    r"(?:_[A-Z0-9_]{1,24})?)"
)
"""Such a name from the place of its trigger (below) to its end."""

_SIGN = r"(?:\\{0,3}[\"'`])?\]?(?P<sign>[ \t]{0,4}(?::=|=>|[:=])[ \t]{0,4})"
_SCHEME = r"(?:(?i:basic|bearer|token|digest|apikey) {1,3})?"
_REACH = 90

_UNCLEAR = (
    r"(?i:pass|token|secret|key|cred|auth|example|placeholder|change|your|redact|undefined"
    r"|string|required|optional|default|environ|test|dummy|fake|sample|config|setting)"
)
_TYPE_NAME = r"(?i:(?:u?int|float|bytes|sha|md|base|utf-?|aes|hs|rs|es|ed|http|ipv?|v)-?[0-9]+)"
_CODE = r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+"


def _quoted(opening: re.Match[str], head: str, _after: str) -> bool:
    if not _could_be(head):
        return False
    if compiled(r"[0-9]").search(head) and compiled(r"[^0-9]").search(head):
        return _is_password(opening["key"]) or len(head) >= 8
    if compiled(_UNCLEAR).search(head):
        return False
    return _is_password(opening["key"]) or (
        head.isalpha() and not head.islower() and not head.isupper() and len(head) >= 16
    )


def _bare(opening: re.Match[str], head: str, after: str) -> bool:
    is_called = after != "" and after in "(["
    if is_called or not _could_be(head) or compiled(_CODE).fullmatch(head):
        return False
    tight = opening["sign"] == "=" and after not in (",", ")", ".")
    if compiled(r"[0-9]").search(head):
        if head.isdigit():
            return _is_password(opening["key"])
        certain = len(head) >= 20 and len(compiled(r"[0-9]").findall(head)) >= 2
        return certain or tight or compiled(_UNCLEAR).search(head) is None
    # No digits: a shell or URL assigns such a value, a program does not.
    if not tight or compiled(_UNCLEAR).search(head):
        return False
    return opening["key"].isupper() or _is_password(opening["key"])


def _could_be(head: str) -> bool:
    if len(head) < 6 or head[0] in "<$%{*/.~&@[(^" or "://" in head or "..." in head:
        return False
    return not compiled(r"\s").search(head) and not compiled(_TYPE_NAME).fullmatch(head)


def _is_password(key: str) -> bool:
    return compiled(r"(?i:pass|pwd|cret)").match(key) is not None


_SHAPES = (
    Shape(_KEY + _SIGN + r"\\{0,3}\"" + _SCHEME, _REACH, r"[^\"\\\r\n]", _quoted),
    Shape(_KEY + _SIGN + r"\\{0,3}'" + _SCHEME, _REACH, r"[^'\\\r\n]", _quoted),
    Shape(_KEY + _SIGN + _SCHEME, _REACH, r"[^\s\"'`,;&<>(){}\[\]|\\]", _bare),
)

FAMILIES = tuple(
    Family(trigger, _SHAPES, needs=trigger[0], folded=True, beginning=_KEY + _SIGN)
    for trigger in (r"p(?:ass|wd)", r"k(?:ey|en)", r"cr(?:et|ed)", r"uth")
)
