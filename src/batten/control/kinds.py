"""Runs of the kinds `shell`, `git` and `file`: each makes one call that its task describes."""

from collections.abc import Callable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.contract.conversation import ToolCall
from batten.contract.errors import CallerError
from batten.contract.facts import TaskCreated
from batten.tools.contract import Tool
from batten.tools.editing import WriteFile
from batten.tools.registry import Toolbox
from batten.tools.standing import FileWrite, StandingTool, git_line

_STANDS_FOR = {"shell_exec": "bash", "git_exec": "bash", "file_write": "write_file"}


def call_of(task: TaskCreated, run_id: str) -> ToolCall | None:
    """The one call of a run of this task; None for an agent's. Its id is the same in each worker.

    Raises `CallerError` for a git command that cannot be read.
    """
    call_id = f"call_{run_id.partition('_')[2]}"
    timeout = {} if task.timeout_ms is UNSET else {"timeout": task.timeout_ms / 1000}
    match task.execution_kind:
        case "shell":
            return ToolCall(call_id, "shell_exec", {"command": task.shell_command, **timeout})
        case "git":
            line = git_line(task.git_command or "")
            return ToolCall(call_id, "git_exec", {"command": line, **timeout})
        case "file":
            written: dict[str, Any] = {
                "file_path": task.file_path,
                "content": task.file_content or "",
            }
            if task.file_operation == "append":
                written["append"] = True
            return ToolCall(call_id, "file_write", written)
        case _:
            return None


def only(call: ToolCall) -> Callable[[RunDeps, RunSettings], RunDeps]:
    """Lets runs make this call and nothing else."""

    def equip(deps: RunDeps, settings: RunSettings) -> RunDeps:
        ours = deps.toolbox

        def toolbox(deps: RunDeps, settings: RunSettings, depth: int) -> Toolbox:
            return Toolbox([_standing(ours(deps, settings, depth), call.name)])

        return replace(deps, only_call=call, toolbox=toolbox)

    return equip


def _standing(toolbox: Toolbox, name: str) -> Tool:
    tool = toolbox.find(_STANDS_FOR[name])
    if tool is None:
        raise CallerError(
            f"the tools of this service do not include {_STANDS_FOR[name]}, which {name} needs",
            code="config",
        )
    return FileWrite(tool, tool.root) if isinstance(tool, WriteFile) else StandingTool(tool, name)
