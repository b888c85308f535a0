"""The built-in tools, made for one workspace."""

from collections.abc import Mapping

from batten.redact.redactor import Redactor
from batten.tools.contract import Tool
from batten.tools.memory import SaveMemory
from batten.tools.shell import Bash
from batten.tools.todo import TodoWrite
from batten.workspace.keeper import Keeper


def builtin_tools(
    keeper: Keeper, redactor: Redactor, home: str, workspace: str, environ: Mapping[str, str]
) -> list[Tool]:
    """In the order the model is told of them."""
    return [
        Bash(keeper, redactor),
        TodoWrite(),
        SaveMemory(home, workspace),
    ]
