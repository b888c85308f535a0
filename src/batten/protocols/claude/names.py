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
    """What Claude Code calls a tool of ours; a tool of somebody else keeps its name."""
    return _TOOLS.get(tool, tool)


def our_name(tool: str) -> str | None:
    """Our name of a tool of Claude Code's; None if it is one that we do not have."""
    if tool in _TOOLS or tool.startswith("mcp__"):
        return tool
    return _OURS.get(tool)


def claude_model(model: str) -> str:
    """A model as frames name it: one of Anthropic's by its bare name, others with the provider's,
    so that the name can be given back."""
    return model.removeprefix(_BARE)
