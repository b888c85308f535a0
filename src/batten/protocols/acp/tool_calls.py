"""The display of a tool call in an editor: its kind, its title and its files."""

import os
import re
from typing import Any

from batten.contract.cutting import shortened
from batten.contract.marks import one_line
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
"""Kinds of known tools, for a call that is only proposed."""
_LONGEST_TITLE = 200
_SUBJECTS = ("command", "file_path", "pattern", "url", "query", "description", "prompt", "question")


def kind_of(tool: str, kind: str | None = None) -> ToolKind:
    return _KINDS.get(kind or _TOOLS.get(tool, ""), "other")


def title_of(tool: str, arguments: dict[str, Any]) -> str:
    """A command on one line, its line ends visible; for other tools the name and the subject."""
    subject = next((arguments[name] for name in _SUBJECTS if arguments.get(name)), "")
    line = re.sub(r"[ \t]+", " ", str(subject).strip())
    words = shortened(one_line(line), _LONGEST_TITLE)
    if tool == "bash" and words:
        return words
    return f"{tool}: {words}" if words else tool


def absolute(workspace: str, path: str) -> str:
    """An absolute path, as the protocol requires."""
    return os.path.normpath(os.path.join(workspace, path))


def locations_of(workspace: str, arguments: dict[str, Any]) -> list[Location] | None:
    """The file that a proposed call names, if any."""
    path = arguments.get("file_path")
    if not isinstance(path, str) or not path:
        return None
    line = arguments.get("offset")
    whole = absolute(workspace, path)
    return [Location(path=whole, line=line if isinstance(line, int) and line > 0 else None)]
