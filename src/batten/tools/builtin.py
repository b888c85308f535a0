"""The built-in tools of one workspace."""

from collections.abc import Mapping

from batten.redact.redactor import Redactor
from batten.tools.command_changes import CommandChanges
from batten.tools.contract import GRACE_S, Tool
from batten.tools.editing import EditFile, MultiEdit, WriteFile
from batten.tools.lent import Lent
from batten.tools.memory import SaveMemory
from batten.tools.reading import ReadFile
from batten.tools.searching import Glob, Grep
from batten.tools.shell import Bash
from batten.tools.todo import TodoWrite
from batten.tools.web import web_tools
from batten.workspace.keeper import Keeper
from batten.workspace.root import Root


def builtin_tools(
    keeper: Keeper,
    redactor: Redactor,
    home: str,
    workspace: str,
    environ: Mapping[str, str],
    lent: Lent | None = None,
    grace_s: float = GRACE_S,
    directories: tuple[str, ...] = (),
    longest_s: float | None = None,
) -> list[Tool]:
    """In the order they are offered to the model. `longest_s` bounds each command."""
    root = Root(
        workspace,
        writable=directories,
        protected=keeper.policy.hidden,
        read_only=keeper.policy.read_only,
    )
    changes = CommandChanges(root)
    lent = lent or Lent()
    return [
        ReadFile(root, redactor, lent.documents),
        WriteFile(root, lent.documents, changes),
        EditFile(root, lent.documents, changes),
        MultiEdit(root, lent.documents, changes),
        Glob(root),
        Grep(root),
        Bash(keeper, redactor, lent.terminals, grace_s, changes, longest_s),
        TodoWrite(),
        *web_tools(environ),
        SaveMemory(home, workspace),
    ]
