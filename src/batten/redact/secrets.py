"""Known secret values: environment variables with the name of a secret, and others, in every
spelling in which they may recur."""

import re
from binascii import b2a_base64, hexlify
from collections.abc import Iterable, Iterator, Mapping

from msgspec import json

from batten.redact.names import is_secret_name
from batten.redact.shapes import compiled

MIN_LENGTH = 6

URL_PASSWORD = r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@"
_PLAIN_WORDS = frozenset(
    (
        *("false", "default", "required", "enabled", "disabled", "optional", "always", "prompt"),
        *("ssh-agent", "keyring", "keychain", "keyctl", "bearer", "oauth2", "anonymous"),
        *("password", "secret", "unknown", "localhost", "production", "development", "staging"),
        *("testing", "changeme"),
    )
)
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RESERVED = frozenset(b";/?:@&=+$,#!'()*")
WORD = r"[.@+]?[A-Za-z]*(?:[._@+-][A-Za-z]+)*[0-9]{0,4}"
_PATH = (
    r"(?:(?:~|\.{1,2})|/(?:bin|dev|etc|home|lib|media|mnt|opt|private|proc|root|run|sbin|srv|sys"
    rf"|tmp|usr|var|Users|Volumes|Library|data|app|workspace|secrets))(?:/{WORD})+"
    rf"|[A-Za-z]:(?:\\{WORD})+"
)
"""A path of words below a usual folder. Anything else that begins with a slash may be a secret."""
_PLAIN_URL = r"[a-z][a-z0-9+.-]*://[^\s@]*"
_LINE = 76
"""Characters of a line of base64; PEM has 64."""


def known_values(environ: Mapping[str, str], extra: Iterable[str] = ()) -> tuple[str, ...]:
    """Secret values of an environment and explicit ones, with their encodings.

    Longest first: replacing them in order never cuts a longer value at a shorter one inside it.
    """
    values = {value for value in extra if len(value) >= MIN_LENGTH}
    for name, value in environ.items():
        values.update(of_variable(name, value))
    spelled = {spelling for value in values for spelling in _spellings(value)}
    return tuple(sorted(sorted(spelled), key=len, reverse=True))


def of_variable(name: str, value: str) -> Iterator[str]:
    """A password inside a URL counts under any name: DATABASE_URL, SENTRY_DSN. A list of keys
    counts key by key too: AUTH_API_KEYS.
    """
    if "://" in value:
        for found in compiled(URL_PASSWORD).findall(value):
            if not is_plain(found):
                yield found
    value = value.strip()
    if is_secret_name(name) and not is_plain(value):
        yield value
        if name.endswith("S"):
            keys = compiled(r"[\s,;]+").split(value)
            yield from (key for key in keys if len(key) >= MIN_LENGTH and not is_plain(key))


def is_plain(value: str) -> bool:
    """Whether a value is clearly not a secret, or would shred ordinary text if hidden."""
    if len(value) < MIN_LENGTH or "<redacted>" in value or value.lower() in _PLAIN_WORDS:
        return True
    if value.isdigit() and len(value) < 8:
        return True
    if len(set(value)) < 3:
        return True
    # Compiling patterns is most of the cost of a start: only where one can match.
    if "://" in value:
        return compiled(_PLAIN_URL).fullmatch(value) is not None
    has_path = value[0] in "/~." or value[1] == ":"
    return has_path and compiled(_PATH).fullmatch(value) is not None


def _spellings(value: str) -> set[str]:
    """The value unchanged, quoted, escaped and encoded as programs write it."""
    raw = value.encode("utf-8", "surrogateescape")
    spellings = {value, value[::-1], *_hexadecimal(raw), *_base64(raw)}
    if _is_unicode(value):
        wide = _wide(value, raw)
        swapped = bytes(wide[place ^ 1] for place in range(len(wide)))
        spellings |= _base64(wide) | _base64(swapped)
        spellings |= {hexlify(wide).decode(), hexlify(swapped).decode()}
        if not value.isascii():
            # The search itself ignores the case of ASCII letters only.
            spellings |= {value.upper(), value.lower()}
            spellings |= {one.decode("utf-8", "surrogateescape") for one in (wide, swapped)}
    if not _UNRESERVED.issuperset(raw):
        spellings.update(_quoted(raw))
        if _is_unicode(value):
            spellings |= _escaped(value)
    if "%" in value:
        from urllib.parse import unquote

        spellings.add(unquote(value))
    # A PEM key or another multi-line value also occurs line by line.
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        spellings.update(line for line in lines if len(line) >= 24 and line[:5] != "-----")
    return {spelling for spelling in spellings if len(spelling) >= MIN_LENGTH}


def _quoted(raw: bytes) -> Iterator[str]:
    """For URLs: as strictly or loosely as libraries quote, once and twice."""
    for kept in (
        _UNRESERVED,
        _UNRESERVED | frozenset(b"/"),
        _UNRESERVED | _RESERVED,
        _UNRESERVED | frozenset(b"!'()*"),
    ):
        quoted = _percent(raw, kept)
        yield quoted
        yield quoted.replace("%20", "+")
        yield quoted.replace("%", "%25")
        yield compiled("%..").sub(lambda found: found[0].lower(), quoted)


def _hexadecimal(raw: bytes) -> Iterator[str]:
    """Plain, in pairs, and as the escapes of strings and URLs."""
    digits, pairs = hexlify(raw).decode(), hexlify(raw, ":").decode()
    yield from (digits, digits.upper(), pairs, pairs.upper())
    yield pairs.replace(":", " ")
    yield "\\x" + pairs.replace(":", "\\x")
    yield "%" + pairs.replace(":", "%")
    yield "%" + pairs.replace(":", "%").upper()
    yield hexlify(raw, " ", -2).decode()


def _base64(raw: bytes) -> set[str]:
    """Alone and inside a longer text, such as `user:secret`: at each of the three offsets the
    characters that no neighbour can change. Lines of long values on their own too."""
    found: set[str] = set()
    for offset in range(3):
        encoded = b2a_base64(bytes(offset) + raw, newline=False).decode()
        part = encoded[(offset * 8 + 5) // 6 : (offset + len(raw)) * 8 // 6]
        found |= {part, part.replace("+", "-").replace("/", "_")}
    whole = b2a_base64(raw, newline=False).decode()
    found.add(whole.rstrip("="))
    for width in (_LINE, 64):
        if len(whole) > width:
            lines = (whole[place : place + width] for place in range(0, len(whole), width))
            found.update(line for line in lines if len(line) >= 24)
    found.add(_double(whole))
    return found


def _wide(value: str, raw: bytes) -> bytes:
    """The value in UTF-16, as Windows programs encode it."""
    if not value.isascii():
        return value.encode("utf-16-le")
    wide = bytearray(2 * len(raw))  # without the codec, which is a module to load
    wide[::2] = raw
    return bytes(wide)


def _double(encoded: str) -> str:
    """The beginning of base64 of base64 that does not depend on what follows."""
    inner = encoded.rstrip("=").encode()
    return b2a_base64(inner, newline=False).decode()[: len(inner) * 8 // 6]


def _escaped(value: str) -> set[str]:
    """For JSON, HTML and shells."""
    once = json.encode(value).decode()[1:-1]
    twice = json.encode(once).decode()[1:-1]
    ascii_once = compiled(r"[^\x00-\x7f]").sub(_unicode_escape, once)
    careful = compiled("[<>&]").sub(_unicode_escape, once)
    html = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {
        once,
        twice,
        ascii_once,
        compiled(r"[^\x00-\x7f]").sub(_unicode_escape, twice),
        json.encode(ascii_once).decode()[1:-1],
        careful,
        json.encode(careful).decode()[1:-1],
        json.encode(twice).decode()[1:-1],
        once.replace("/", "\\/"),
        json.encode(once.replace("/", "\\/")).decode()[1:-1],
        repr(value)[1:-1],
        html,
        html.replace('"', "&quot;").replace("'", "&#39;"),
        html.replace('"', "&quot;").replace("'", "&#x27;"),
        html.replace('"', "&#34;").replace("'", "&#39;"),
        html.replace('"', "&quot;").replace("'", "&apos;"),
        value.replace("'", "'\\''"),
        value.replace("'", "'\"'\"'"),
        compiled(r"[^\w@%+=:,./-]").sub(r"\\\g<0>", value),
        compiled(r"[\"$`\\!]").sub(r"\\\g<0>", value),
        compiled(r"[\"$`\\]").sub(r"\\\g<0>", value),
        compiled(r"[\s'\"\\|&;()<>!{}*\[\]?^$`,]").sub(r"\\\g<0>", value),
        compiled(r"['\\]").sub(r"\\\g<0>", value),
    }


def _unicode_escape(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(
        "\\u%02x%02x" % (units[place], units[place + 1]) for place in range(0, len(units), 2)
    )


def _percent(raw: bytes, kept: frozenset[int]) -> str:
    """URL quoting. `urllib` does the same, but its import costs 3 ms at every start."""
    return "".join(chr(byte) if byte in kept else "%%%02X" % byte for byte in raw)


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
