"""The rule behind an "always" answer: a pattern no broader than the question."""

from typing import Any
from urllib.parse import urlsplit

_SPECIAL = str.maketrans({char: f"[{char}]" for char in "*?[~=,"})
"""Escapes the characters that are special in a rule's pattern."""
_LONGEST = 500


def grant_of(tool: str, arguments: dict[str, Any]) -> str:
    """The pattern for an "always" answer: this command, this host, or this tool."""
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
