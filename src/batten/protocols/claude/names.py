"""Claude Code's names of our tools and models."""

_TOOLS = {
    "read_file": "Read",
    "write_file": "Write",
    "edit_file": "Edit",
    "multi_edit": "MultiEdit",
    "glob": "Glob",
    "grep": "Grep",
    "bash": "Bash",
    "todo_write": "TodoWrite",
    "web_fetch": "WebFetch",
    "web_search": "WebSearch",
    "ask_user": "AskUserQuestion",
    "agent": "Task",
    "skill": "Skill",
    "http_request": "HttpRequest",
    "save_memory": "SaveMemory",
}
_OURS = {theirs: ours for ours, theirs in _TOOLS.items()} | {"Agent": "agent"}
_BARE = "anthropic/"


def claude_name(tool: str) -> str:
    """Claude Code's name for a tool of ours; other tools keep their names."""
    return _TOOLS.get(tool, tool)


def our_name(tool: str) -> str | None:
    """Our name for a tool of Claude Code; None if we do not have it."""
    if tool in _TOOLS or tool.startswith("mcp__"):
        return tool
    return _OURS.get(tool)


def claude_model(model: str) -> str:
    """The name of a model in frames: Anthropic's without, others with the provider's name, so that
    the name can be sent back."""
    return model.removeprefix(_BARE)
