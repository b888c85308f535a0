"""Memory that outlives a session: one global file, and one per workspace."""

import os
from typing import Any

from batten.contract.envelope import timestamp
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, ToolContext, ToolOutput, failure, object_schema

_LARGEST_FILE = 256 * 1024


def memory_path(home: str, workspace: str | None) -> str:
    """The memory file of a workspace, or the global one."""
    if workspace is None:
        return os.path.join(home, "memory", "global.md")
    from hashlib import sha256

    return os.path.join(home, "memory", sha256(workspace.encode()).hexdigest()[:16] + ".md")


class SaveMemory:
    """Appends a section that later sessions see."""

    kind: ToolKind = "memory"
    effect: Effect = "write"
    spec = ToolSpec(
        name="save_memory",
        description="Remember something for later sessions, for this project or for all.",
        parameters=object_schema(
            ["content"],
            content={"type": "string"},
            scope={"type": "string", "enum": ["project", "global"]},
        ),
    )

    def __init__(self, home: str, workspace: str) -> None:
        self._home = home
        self._workspace = workspace

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("scope", "project"))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        scope = arguments.get("scope", "project")
        path = memory_path(self._home, None if scope == "global" else self._workspace)
        section = (
            f"## {timestamp()}\n\n{context.redact_authored(arguments['content'])}\n\n".encode()
        )
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        if os.path.exists(path) and os.path.getsize(path) + len(section) > _LARGEST_FILE:
            full = f"memory is full ({_LARGEST_FILE} bytes); shorten {path} first"
            return failure(full, "memory_full")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, section)
        finally:
            os.close(descriptor)
        return ToolOutput(text=f"Saved memory to {scope} MEMORY.md")
