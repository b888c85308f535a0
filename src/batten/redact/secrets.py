"""Known secret values: environment variables with the name of a secret, in every spelling in which
their values may recur."""

from binascii import b2a_base64
from collections.abc import Iterable, Mapping

from batten.redact.names import is_secret_name
from batten.redact.shapes import compiled

MIN_LENGTH = 6

_URL_PASSWORD = r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@]*:([^/\s@]+)@"
_PLAIN_WORDS = frozenset(
    (
        *("false", "default", "required", "enabled", "disabled", "optional", "always", "prompt"),
        *("ssh-agent", "keyring", "keychain", "keyctl", "bearer", "oauth2", "anonymous"),
        *("password", "secret", "unknown", "localhost", "production", "development", "staging"),
        *("testing", "changeme"),
    )
)
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PATH = r"(?:~|\.{1,2})?/[\w.+-]+(?:/[\w.+@-]*)+|[A-Za-z]:\\.*|/[\w.-]+"
_PLAIN_URL = r"[a-z][a-z0-9+.-]*://[^\s@]*"


def known_values(environ: Mapping[str, str], extra: Iterable[str] = ()) -> tuple[str, ...]:
    """Secret values of an environment and explicit ones, with their encodings.

    Longest first: replacing them in order never cuts a longer value at a shorter one inside it.
    """
    values = {value for value in extra if len(value) >= MIN_LENGTH}
    for name, value in environ.items():
        # A password inside a URL counts under any name: DATABASE_URL, SENTRY_DSN.
        if "://" in value:
            values.update(
                found for found in compiled(_URL_PASSWORD).findall(value) if not _is_plain(found)
            )
        if is_secret_name(name) and not _is_plain(value.strip()):
            values.add(value.strip())
    spelled = {spelling for value in values for spelling in _spellings(value)}
    return tuple(sorted(spelled, key=lambda value: (-len(value), value)))


def _is_plain(value: str) -> bool:
    """Whether a value is clearly not a secret, or would shred ordinary text if hidden."""
    if len(value) < MIN_LENGTH or "<redacted>" in value or value.lower() in _PLAIN_WORDS:
        return True
    if value.isdigit() and len(value) < 8:
        return True
    if len(set(value)) < 3:
        return True
    return bool(compiled(_PATH).fullmatch(value) or compiled(_PLAIN_URL).fullmatch(value))


def _spellings(value: str) -> set[str]:
    """The value unchanged, quoted for URLs, escaped for JSON, and in base64."""
    from msgspec import json

    raw = value.encode("utf-8", "surrogateescape")
    encoded = b2a_base64(raw, newline=False).decode()
    spellings = {
        value,
        _percent(raw),
        _percent(raw).replace("%20", "+"),
        compiled("%..").sub(lambda found: found[0].lower(), _percent(raw)),
        encoded.rstrip("="),
        encoded.rstrip("=").translate({ord("+"): "-", ord("/"): "_"}),
        # With text after it only the whole groups of three bytes encode the same.
        encoded[: len(raw) // 3 * 4],
    }
    if _is_unicode(value):
        spellings.add(json.encode(value).decode()[1:-1])
    if "%" in value:
        from urllib.parse import unquote

        spellings.add(unquote(value))
    # A PEM key or another multi-line value also occurs line by line.
    if "\n" in value:
        lines = (line.strip() for line in value.splitlines())
        spellings.update(line for line in lines if len(line) >= 24 and line[:5] != "-----")
    return {spelling for spelling in spellings if len(spelling) >= MIN_LENGTH}


def _percent(raw: bytes) -> str:
    """URL quoting. `urllib` does the same, but its import costs 3 ms at every start."""
    return "".join(chr(byte) if byte in _UNRESERVED else "%%%02X" % byte for byte in raw)


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
