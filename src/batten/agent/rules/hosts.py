"""Rules about addresses: the host and the path of a URL as they are parsed, never as text."""

import re
from urllib.parse import urlsplit

from batten.agent.rules import globs
from batten.contract.errors import CallerError

_PATTERN = re.compile(r"(https?|http\*|\*)://([^/?#]*)(.*)", re.DOTALL)


def host_of(url: str) -> str:
    """The host of a URL in lower case; empty if it has none."""
    try:
        host = urlsplit(url).hostname or ""
        return _normal(host)
    except ValueError:
        return ""


def _normal(host: str) -> str:
    host = host.lower().rstrip(".")
    if host.isascii():
        return host
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return host


def check_url_pattern(pattern: str) -> None:
    """Raises `CallerError` for a pattern that no address can match."""
    if pattern.startswith("domain:"):
        domain = pattern.removeprefix("domain:").strip()
        if not domain or re.search(r"[/\s:@]", domain):
            raise CallerError(
                "a domain is a host such as domain:example.com or domain:*.example.com"
            )
    elif set(pattern) != {"*"} and _PATTERN.fullmatch(pattern) is None:
        raise CallerError("write domain:example.com, or an address such as https://example.com/*")


def matches_url(pattern: str, url: str, *, widely: bool) -> bool:
    """Whether a checked pattern is about an address. `widely`: whatever its port is."""
    if set(pattern) == {"*"}:
        return True
    host = host_of(url)
    if not host:
        return False
    if pattern.startswith("domain:"):
        return globs.matches(_normal(pattern.removeprefix("domain:").strip()), host)
    found = _PATTERN.fullmatch(pattern)
    if found is None:
        return False
    scheme, authority, rest = found.groups()
    parts = urlsplit(url)
    wanted, port = _split_authority(authority)
    if not globs.matches(scheme, parts.scheme) or not globs.matches(_normal(wanted), host):
        return False
    if not widely and ("@" in parts.netloc or port != parts.port):
        return False
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return not rest or globs.matches(rest, path)


def _split_authority(authority: str) -> tuple[str, int | None]:
    """The host and the port of a pattern's address; a literal may be one of IPv6."""
    text = globs.literal(authority)
    try:
        parts = urlsplit(f"//{authority if text is None else text}")
        return parts.hostname or authority, parts.port
    except ValueError:
        return authority, None
