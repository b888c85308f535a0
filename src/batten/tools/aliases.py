"""Other agents' names for our tools and arguments: their prompts, rules and scenarios work here."""

from typing import Any

_NAMES = {
    "read_file": ("Read", "read", "file_read", "view"),
    "write_file": ("Write", "write", "file_write", "create_file"),
    "edit_file": ("Edit", "edit", "file_edit", "str_replace"),
    "multi_edit": ("MultiEdit", "multiedit"),
    "glob": ("Glob", "find_files"),
    "grep": ("Grep", "search"),
    "bash": ("Bash", "shell", "shell_exec", "execute", "run_command"),
    "todo_write": ("TodoWrite", "todo"),
    "web_fetch": ("WebFetch", "fetch"),
    "web_search": ("WebSearch", "websearch"),
    "http_request": ("HttpRequest", "http"),
    "ask_user": ("AskUser", "AskUserQuestion"),
    "save_memory": ("SaveMemory", "WriteMemoryTopic"),
    "agent": ("Agent", "AgentTool", "Task", "task", "subagent"),
    "skill": ("Skill",),
}

_CANONICAL = {alias: name for name, aliases in _NAMES.items() for alias in aliases}

_ARGUMENTS: dict[str, dict[str, str]] = {
    "read_file": {"path": "file_path", "filePath": "file_path"},
    "write_file": {"path": "file_path", "filePath": "file_path", "text": "content"},
    "edit_file": {
        "path": "file_path",
        "filePath": "file_path",
        "old_text": "old_string",
        "new_text": "new_string",
        "oldText": "old_string",
        "newText": "new_string",
    },
    "multi_edit": {"path": "file_path", "filePath": "file_path"},
    "grep": {"paths": "path", "query": "pattern"},
    "bash": {"cmd": "command", "script": "command"},
    "agent": {"task": "prompt"},
    "skill": {"skill": "name", "command": "name"},
}


def canonical(name: str) -> str:
    """Our name for a tool; an unknown name stays as it is."""
    return _CANONICAL.get(name, name)


def aliases() -> dict[str, str]:
    """Every alias, with the name it stands for."""
    return dict(_CANONICAL)


def arguments(tool: str, values: dict[str, Any]) -> dict[str, Any]:
    """Arguments under our names; if both spellings occur, ours wins."""
    renames = _ARGUMENTS.get(tool)
    if renames is None:
        return values
    renamed = {renames[key]: value for key, value in values.items() if key in renames}
    if not renamed:
        return values
    kept = {key: value for key, value in values.items() if key not in renames}
    return {**renamed, **kept}
