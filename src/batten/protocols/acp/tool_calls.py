"""A tool call as an editor shows it: what kind it is, its title, and the files it is about."""

import os
from typing import Any

from batten.protocols.acp.content import Location, ToolKind

_KINDS: dict[str, ToolKind] = {
    "shell": "execute",
    "edit": "edit",
    "multi_edit": "edit",
    "file_write": "edit",
    "file_read": "read",
    "glob": "search",
    "grep": "search",
    "http": "fetch",
    "web_fetch": "fetch",
    "web_search": "search",
    "todo_write": "think",
    "agent": "think",
    "memory": "other",
}
_TOOLS: dict[str, str] = {
    "bash": "shell",
    "edit_file": "edit",
    "multi_edit": "multi_edit",
    "write_file": "file_write",
    "read_file": "file_read",
    "glob": "glob",
    "grep": "grep",
    "http_request": "http",
    "web_fetch": "web_fetch",
    "web_search": "web_search",
    "todo_write": "todo_write",
    "agent": "agent",
}
"""Kinds of the tools we know, for a call that is only proposed."""
_LONGEST_TITLE = 200
_SUBJECTS = ("command", "file_path", "pattern", "url", "query", "description", "prompt", "question")


def kind_of(tool: str, kind: str | None = None) -> ToolKind:
    return _KINDS.get(kind or _TOOLS.get(tool, ""), "other")


def title_of(tool: str, arguments: dict[str, Any]) -> str:
    """A command as it is; of everything else its tool and what it is about."""
    subject = next((arguments[name] for name in _SUBJECTS if arguments.get(name)), "")
    words = " ".join(str(subject).split())[:_LONGEST_TITLE]
    if tool == "bash" and words:
        return words
    return f"{tool}: {words}" if words else tool


def absolute(workspace: str, path: str) -> str:
    """A path as the protocol wants it, however the run names it."""
    return os.path.normpath(os.path.join(workspace, path))


def locations_of(workspace: str, arguments: dict[str, Any]) -> list[Location] | None:
    """The file that a proposed call names, if it names one."""
    path = arguments.get("file_path")
    if not isinstance(path, str) or not path:
        return None
    line = arguments.get("offset")
    whole = absolute(workspace, path)
    return [Location(path=whole, line=line if isinstance(line, int) and line > 0 else None)]
