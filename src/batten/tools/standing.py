"""Tools under the names of a service's kinds of runs: `shell_exec`, `git_exec`, `file_write`.

Each stands for a tool of ours. Rules and hooks that are about that tool hold for it.
"""

import shlex
from typing import Any

from batten.contract.errors import BattenError, CallerError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.contract import BoundedTool, Effect, Tool, ToolContext, ToolOutput, failure
from batten.tools.paths import REPORTED_ERRORS, failed
from batten.workspace import files
from batten.workspace.root import Root


class StandingTool:
    """One of our tools under another name."""

    def __init__(self, tool: Tool, name: str) -> None:
        self.stands_for = tool
        self.kind: ToolKind = tool.kind
        self.effect: Effect = tool.effect
        self.spec = ToolSpec(name, tool.spec.description, tool.spec.parameters)

    def subject(self, arguments: dict[str, Any]) -> str:
        return self.stands_for.subject(arguments)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        return await self.stands_for.run(arguments, context)


class FileWrite(StandingTool):
    """Writes a file, or adds to its end with `append`."""

    def __init__(self, tool: Tool, root: Root) -> None:
        super().__init__(tool, "file_write")
        self._root = root
        properties = {**tool.spec.parameters["properties"], "append": {"type": "boolean"}}
        parameters = {**tool.spec.parameters, "properties": properties}
        self.spec = ToolSpec("file_write", tool.spec.description, parameters)

    async def check_bounds(self, arguments: dict[str, Any]) -> None:
        bounded: BoundedTool = self.stands_for  # type: ignore[assignment]
        await bounded.check_bounds(arguments)

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        path, content = arguments["file_path"], arguments["content"]
        if arguments.get("append"):
            try:
                present = files.read_if_present(self._root.resolve(path, "write"))
                content = ("" if present is None else present.data.decode()) + content
            except UnicodeDecodeError:
                return failure(f"{path} is not UTF-8 text; nothing was added to it", "not_text")
            except (*REPORTED_ERRORS, BattenError) as error:
                return failed(error)
        return await self.stands_for.run({"file_path": path, "content": content}, context)


def git_line(command: str) -> str:
    """A git command, with or without the word `git`, as a line for a shell that changes nothing in
    it. Raises `CallerError` for a quote that is not closed.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CallerError(f"git_command: {error}; close every quote") from error
    if words[:1] != ["git"]:
        words.insert(0, "git")
    return shlex.join(words)
