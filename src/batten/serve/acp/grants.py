"""What an "always" is about: a pattern that says no more than what was asked."""

from typing import Any
from urllib.parse import urlsplit

_SPECIAL = str.maketrans({char: f"[{char}]" for char in "*?[~=,"})
"""What a rule's pattern would read as more than itself."""
_LONGEST = 500


def grant_of(tool: str, arguments: dict[str, Any]) -> str:
    """The rule that an answer for later makes: this command, this host, or this tool."""
    command = arguments.get("command")
    if tool == "bash" and isinstance(command, str) and command.strip():
        return f"{tool}({command.translate(_SPECIAL)})"
    url = arguments.get("url")
    if isinstance(url, str) and (origin := _origin(url)):
        return f"{tool}({origin.translate(_SPECIAL)}/*)"
    return tool


def _origin(url: str) -> str:
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    usual = parts.scheme in ("http", "https") and parts.netloc and "@" not in parts.netloc
    return f"{parts.scheme}://{parts.netloc}" if usual and len(url) < _LONGEST else ""
