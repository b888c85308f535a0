"""The built-in tools, made for one workspace."""

from collections.abc import Mapping

from batten.redact.redactor import Redactor
from batten.tools.contract import Tool
from batten.tools.editing import EditFile, MultiEdit, WriteFile
from batten.tools.memory import SaveMemory
from batten.tools.reading import ReadFile
from batten.tools.searching import Glob, Grep
from batten.tools.shell import Bash
from batten.tools.todo import TodoWrite
from batten.tools.web import web_tools
from batten.workspace.keeper import Keeper
from batten.workspace.root import Root


def builtin_tools(
    keeper: Keeper, redactor: Redactor, home: str, workspace: str, environ: Mapping[str, str]
) -> list[Tool]:
    """In the order the model is told of them."""
    root = Root(workspace, protected=keeper.policy.protected)
    return [
        ReadFile(root, redactor),
        WriteFile(root),
        EditFile(root),
        MultiEdit(root),
        Glob(root),
        Grep(root),
        Bash(keeper, redactor),
        TodoWrite(),
        *web_tools(environ),
        SaveMemory(home, workspace),
    ]
