"""Secrets guessed from where they stand: cookies, credentials in addresses and on command lines,
password files, password hashes.

Only text from outside is searched for these: a model's or a person's own words are not rewritten by
guesses. Values assigned to names of secrets are in `assignments`.
"""

import re
from binascii import a2b_base64

from batten.redact.shapes import Accept, Family, Shape, before, compiled, is_mixed, mixed

_PLACEHOLDERS = frozenset({"pass", "password", "passwd", "secret", "token", "pwd", "xxx", "***"})


def _is_placeholder(head: str) -> bool:
    return head[:1] in "$<{%*" or head.lower() in _PLACEHOLDERS or "..." in head


def _at_least(least: int) -> Accept:
    def accept(_opening: re.Match[str], head: str, _after: str) -> bool:
        return len(head) >= least and not _is_placeholder(head)

    return accept


def is_user_and_password(text: str) -> bool:
    """Whether base64 text decodes to `user:password`."""
    try:
        plain = a2b_base64(text[: len(text) // 4 * 4])
    except ValueError:  # not base64, or not even ASCII
        return False
    return compiled(r"[\x20-\x7e]+:[\x20-\x7e]+").fullmatch(plain.decode("latin-1")) is not None


def _basic(_opening: re.Match[str], head: str, _after: str) -> bool:
    return len(head) >= 8 and is_user_and_password(head)


def _before_at(_opening: re.Match[str], head: str, after: str) -> bool:
    # `user:pass@` in an explanation, or `${NAME}`, is not a credential.
    return after == "@" and head[:1] not in "$<{" and head.lower() not in ("pass", "password")


def _user_before_at(_opening: re.Match[str], head: str, after: str) -> bool:
    return after == "@" and len(head) >= 16 and is_mixed(head)


def _cookie(_opening: re.Match[str], head: str, _after: str) -> bool:
    found = compiled(r"[^\s=;,:()\[\]{}]{1,50}=([^;\s]{6,})").match(head)
    if found is None or _is_placeholder(found[1]):
        return False
    return compiled(r"[0-9%]").search(found[1]) is not None or len(found[1]) >= 16


def _cookie_flag(opening: re.Match[str], head: str, after: str) -> bool:
    return before(opening)[-5:-3] == "--" and _cookie(opening, head, after)


def _user_flag(opening: re.Match[str], head: str, _after: str) -> bool:
    if len(head) < 4 or head.isdigit() or _is_placeholder(head):
        return False
    # `docker run -u node:node` names a group.
    return "curl" in before(opening) or (is_mixed(head) or not head.isalnum())


_CLIENTS = (
    r"\b(?:(?P<tight>mysql|mariadb)[a-z]*|sshpass|(?:docker|podman|helm|az|oc) login"
    r"|mongo[a-z]*|redis-cli)\b[^|;&\n]*$"
)


def _short_flag(opening: re.Match[str], head: str, _after: str) -> bool:
    client = compiled(_CLIENTS).search(before(opening))
    if client is None or len(head) < 4 or head.isdigit() or _is_placeholder(head):
        return False
    # After a blank these clients expect the name of a database.
    return head[0] != "-" and not (client["tight"] and opening[0][2:3] == " ")


def _after_words(words: str, end: str, shape: Shape) -> Family:
    """A shape behind some words, in capitals or not. The shape begins at the end of the words."""
    return Family(end[0], f"{end[1:]}(?<={words})", (shape,), needs=(words,), folded=True)


_SCHEMES = (
    _after_words(
        "bearer ", "bearer ", Shape(r"(?i:bearer) {1,3}", 9, r"[A-Za-z0-9._~+/=-]", mixed(8))
    ),
    _after_words("basic ", "basic ", Shape(r"(?i:basic) {1,3}", 8, r"[A-Za-z0-9+/=]", _basic)),
)

_QUERY = Family(
    "=",
    r"(?<=[?&]sig=|ture=)",
    (
        Shape(r"=(?<=[?&]sig=)", 1, "[A-Za-z0-9%+/=_-]", mixed(30)),
        Shape(r"=(?<=[Ss]ignature=)", 1, "[A-Za-z0-9%+/=_-]", mixed(30)),
    ),
    needs=("sig=", "ture="),
)

_ADDRESS = Family(
    ":",
    r"//",
    (
        Shape(r"://[^\s/:@\"'<>?#\\]{0,100}:", 104, r"[^\s/@\"'<>?#\\]", _before_at, head=200),
        Shape(r"://", 3, r"[^\s/:@\"'<>?#\\]", _user_before_at, head=100),
    ),
    needs=("://",),
)

_COOKIES = Family(
    "k",
    r"ie(?<=cookie)",
    (
        Shape(
            r"(?i:kie)2?(?:\\{0,3}[\"'`])?[ \t]{0,4}[:=][ \t]{0,4}\[?(?:\\{0,3}[\"'`])?",
            21,
            r"[^\r\n\"'`\\]",
            _cookie,
        ),
        Shape(r"(?i:kie)[ \t=]{1,4}[\"']?", 9, r"[^\r\n\"'\\]", _cookie_flag),
    ),
    needs=("cookie",),
    folded=True,
)

_COOKIE_FILE = Family(
    "\t",
    r"(?:TRUE|FALSE)\t[0-9]",
    (Shape(r"\t(?:TRUE|FALSE)\t[0-9]{1,12}\t[^\t\s]{1,60}\t", 84, r"[^\s]", _at_least(6)),),
    needs=("E\t",),
)

_FLAGS = Family(
    "-",
    r"[upab](?<=[\s\"']-[upab])|user(?<=--user|y-user)",
    (
        Shape(
            r"-u(?:ser)?(?:[\"'], ?|[ =]{1,3})?[\"']?[^\s:\"'@/=,()?`]{1,60}:",
            75,
            r"[^\s\"'`()]",
            _user_flag,
        ),
        Shape(r"-[pa][ =]{0,3}[\"']?", 6, r"[^\s\"']", _short_flag),
        Shape(r"-b[ =]{1,3}[\"']?", 6, r"[^\r\n\"']", _cookie),
    ),
    needs=("-u", "-p", "-a", "-b"),
)

_HASHES = Family(
    "$",
    r"(?:apr1|2[abxy]|[156y]|argon2i?d?)\$",
    (Shape(r"\$(?:apr1|2[abxy]|[156y]|argon2i?d?)\$", 10, r"[A-Za-z0-9./$+=,]", _at_least(20)),),
    needs=("$",),
)

_PASSWORD_FILE = Family(
    ":",
    r"5432:",
    (Shape(r":5432:[^\s:]{1,40}:[^\s:]{1,40}:", 90, r"[^\s\"'`\[]", _at_least(4)),),
    needs=(":5432:",),
)

_STATEMENTS = (
    _after_words(
        "identified by ",
        "by ",
        Shape(r"(?i:by(?: password)?) {1,2}[\"']", 14, r"[^\"'\r\n]", _at_least(4)),
    ),
    _after_words(
        "requirepass ", "pass ", Shape(r"(?i:pass) {1,4}[\"']?", 9, r"[^\s\"']", _at_least(6))
    ),
    _after_words(
        "securestring ",
        "curestring ",
        Shape(r"(?i:curestring)(?: -[Ss]tring)? [\"']", 20, r"[^\"'\r\n]", _at_least(4)),
    ),
)

FAMILIES = (
    *_SCHEMES,
    _QUERY,
    _ADDRESS,
    _COOKIES,
    _COOKIE_FILE,
    _FLAGS,
    _HASHES,
    _PASSWORD_FILE,
    *_STATEMENTS,
)
