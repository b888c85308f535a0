"""Tasks: requests, objects, and a task's object from its facts and rows."""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from batten.contract.facts import TaskCreated, TaskUpdated
from batten.contract.facts.run import WorkspaceMode
from batten.contract.facts.task import TaskKind
from batten.protocols.hecate.rows import RunLike, SessionLike
from batten.protocols.hecate.vocabulary import (
    END,
    MAX_MCP_SERVERS,
    Amount,
    Line,
    Long,
    Priority,
    Short,
    TaskStatus,
)

ApprovalPolicy = Literal["auto", "require_approval", "block"]
Profile = Literal["repo_local", "coding_agent"]

_Rules = Annotated[list[Annotated[Line, Meta(min_length=1)]], Meta(max_length=200)]
_Variables = Annotated[dict[Line, Long], Meta(max_length=200)]


class McpServer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A tool server that the agent of a task may use: either `command` or `url` is given. Refused
    unless the service allows tasks to bring such servers (`--allow-mcp-servers`)."""

    name: Annotated[
        str,
        Meta(
            pattern=f"^[A-Za-z0-9](_?[A-Za-z0-9-])*{END}",
            max_length=32,
            extra={"expected": "letters, digits, hyphens and single underscores"},
        ),
    ]
    """Unique in the task; its tools are named `mcp__NAME__TOOL`. Up to 32 letters, digits, hyphens
    and single underscores."""
    command: Line = ""
    """The program to start in the sandbox; it speaks MCP on standard input and output."""
    args: Annotated[list[Line], Meta(max_length=200)] = []
    env: _Variables = {}
    """Variables for the program. `$NAME` takes the value of a variable that the service lists for
    tool servers; any other value is stored encrypted and shown as `[redacted]`."""
    url: Line = ""
    """The URL of a remote server, at a public address."""
    headers: _Variables = {}
    """Headers for the remote server, with values as in `env`."""
    approval_policy: ApprovalPolicy = "auto"
    """`auto` follows the rules of the service, `require_approval` asks before each call, `block`
    refuses every call."""


class CreateTask(Struct, frozen=True, kw_only=True):
    """A task to create. It does not run before it is started."""

    title: Short = ""
    """Left out: the beginning of the prompt, or `New task`."""
    prompt: Long = ""
    """The instructions for the agent; required for the kind `agent_loop`."""
    system_prompt: Long = ""
    """Added to the agent's system prompt."""
    execution_kind: TaskKind | Literal[""] = ""
    """`agent_loop` (the default) runs an agent, `shell` and `git` one command, `file` one write."""
    execution_profile: Profile | Literal[""] = ""
    """Defaults for a task in a repository: `repo_local` gives tools 2 minutes, `coding_agent` 5 and
    a system prompt about work on code."""
    shell_command: Long = ""
    """The command of the kind `shell`, for `sh`."""
    git_command: Long = ""
    """The command of the kind `git`, with or without the word `git` in front."""
    file_path: Line = ""
    """The file of the kind `file`, relative to the workspace."""
    file_content: Long = ""
    file_operation: Literal["", "write", "append"] = ""
    """`write` (the default) replaces the file, `append` adds to its end."""
    working_directory: Line = ""
    """The absolute path of the directory to work in or to copy. To work in, no home directory and
    none of its hidden folders."""
    repo: Line = ""
    """The absolute path of a repository, if `working_directory` is not given."""
    base_branch: Line = ""
    """The branch to start from in a clone or a worktree."""
    workspace_mode: WorkspaceMode | Literal["", "ephemeral", "persistent"] = ""
    """`clone` (the default) works in a copy, `worktree` in a git worktree, `in_place` in the
    directory itself. `ephemeral` and `persistent` mean `clone`."""
    sandbox_allowed_root: Line = ""
    """A directory that tools and commands may write beside the workspace: in the task's own, or in
    one that the service was started with."""
    sandbox_read_only: bool = False
    """No tool and no command may change anything in the workspace."""
    sandbox_network: bool = False
    """Commands may use the network; refused if the service does not allow it."""
    timeout_ms: Annotated[int, Meta(ge=0, le=86_400_000)] = 0
    """The longest that one command may take; 0 for the default, 2 minutes."""
    priority: Priority | Literal[""] = ""
    """Among waiting runs, higher priorities start first; `normal` is the default."""
    requested_model: Line = ""
    """Left out: the default model of the service."""
    requested_provider: Line = ""
    """The provider of `requested_model`; left out if that names it, as `anthropic/NAME`."""
    budget_micros_usd: Amount = 0
    """The most that all runs of the task may cost together, in millionths of a US dollar; 0 for no
    limit."""
    mcp_servers: Annotated[list[McpServer], Meta(max_length=MAX_MCP_SERVERS)] = []
    """Tool servers for the agent; only for the kind `agent_loop`."""
    permission_mode: Literal["", "plan", "default", "acceptEdits", "auto", "dontAsk"] = ""
    """What is asked about: at most as much is allowed as the service allows."""
    allow: _Rules = []
    """Calls to allow without a question, such as `Bash(make *)`. What a rule of the service denies
    or asks about stays denied or asked."""
    deny: _Rules = []
    """Calls to refuse."""
    max_turns: Annotated[int, Meta(ge=0, le=100_000)] = 0
    """The most model calls of one run; 0 for the default of the service."""
    approval_timeout_s: Annotated[int, Meta(ge=0, le=31_536_000)] = 0
    """How long each question waits for its answer; 0 for the default of the service."""
    auto_apply: bool = True
    """`false`: edits stay proposed until they are applied or rejected as patches."""
    origin_kind: Short = ""
    """Your own reference to what the task was created for: its kind."""
    origin_id: Short = ""
    """Your own reference to what the task was created for: its id."""


class Task(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A task: what was asked for, and the state of its runs. Empty values are left out."""

    id: str
    session_id: str
    """The conversation of the task's runs."""
    status: TaskStatus
    """That of the latest run; `queued` without `latest_run_id` if the task was never started."""
    title: str
    execution_kind: str
    workspace_mode: str = ""
    priority: str = ""
    prompt: str = ""
    system_prompt: str = ""
    execution_profile: str = ""
    shell_command: str = ""
    git_command: str = ""
    file_path: str = ""
    file_content: str = ""
    file_operation: str = ""
    working_directory: str = ""
    repo: str = ""
    base_branch: str = ""
    sandbox_allowed_root: str = ""
    sandbox_read_only: bool = False
    sandbox_network: bool = False
    timeout_ms: int = 0
    requested_model: str = ""
    requested_provider: str = ""
    budget_micros_usd: int = 0
    mcp_servers: list[McpServer] = []
    """Values of `env` and `headers` are `[redacted]` unless they name a variable."""
    permission_mode: str = ""
    allow: list[str] = []
    deny: list[str] = []
    max_turns: int = 0
    approval_timeout_s: int = 0
    auto_apply: bool = True
    origin_kind: str = ""
    """Where the task comes from: its creator's own word, or the command that made its session."""
    origin_id: str = ""
    created_by: str = ""
    latest_run_id: str = ""
    latest_model: str = ""
    latest_provider: str = ""
    pending_approval_count: int | UnsetType = UNSET
    run_count: int | UnsetType = UNSET
    step_count: int | UnsetType = UNSET
    artifact_count: int | UnsetType = UNSET
    total_cost_micros_usd: int | UnsetType = UNSET
    """The cost of all runs of the task, child runs included."""
    cost_unknown: bool = False
    """A model call had no known cost: the total is a lower bound."""
    last_error: str = ""
    created_at: str
    updated_at: str
    started_at: str = ""
    """When the first run began to execute."""
    finished_at: str = ""
    """When the latest run ended; missing while one is queued, runs or waits."""
    root_trace_id: str = ""
    """The trace of its first run."""
    latest_trace_id: str = ""


class TaskReply(Struct, frozen=True, tag_field="object", tag="task"):
    data: Task


class TaskList(
    Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="object", tag="tasks"
):
    """Tasks, the most recently updated first."""

    data: list[Task]
    has_more: bool = False
    next_cursor: str = ""
    """Pass it as `cursor` to get the next page; missing on the last one."""


TaskCursor = Annotated[
    str,
    Meta(
        pattern=rf"^[0-9T:.Z-]{{1,40}}_[!-~]{{1,200}}{END}",
        extra={"expected": "the next_cursor of a page"},
    ),
]
"""When the last task of a page was updated, and its session; no character needs an escape in an
address."""


class TaskQuery(Struct, frozen=True, kw_only=True):
    """Which tasks to list."""

    status: TaskStatus | UnsetType = UNSET
    limit: Amount | UnsetType = UNSET
    """Tasks on a page: 50 if left out, at most 200; 0 for the most."""
    cursor: TaskCursor | UnsetType = UNSET
    """`next_cursor` of the page before."""


class TaskDetails(Struct, frozen=True, kw_only=True):
    """What a task's object shows beyond its rows. Counts that nobody made are left out."""

    pending_approval_count: int | UnsetType = UNSET
    run_count: int | UnsetType = UNSET
    step_count: int | UnsetType = UNSET
    artifact_count: int | UnsetType = UNSET
    total_cost_micros_usd: int | UnsetType = UNSET
    cost_unknown: bool = False
    started_at: str = ""
    last_error: str = ""
    root_trace_id: str = ""
    latest_trace_id: str = ""


_NO_TASK_DETAILS = TaskDetails()


def task_now(created: TaskCreated, updates: Iterable[TaskUpdated] = ()) -> TaskCreated:
    """The task after its updates."""
    changes: dict[str, Any] = {}
    for update in updates:
        for name in ("title", "budget_micros_usd"):
            if (value := getattr(update, name)) is not UNSET:
                changes[name] = value
    return replace(created, **changes) if changes else created


def task_object(
    session: SessionLike,
    task: TaskCreated | None,
    latest: RunLike | None,
    details: TaskDetails = _NO_TASK_DETAILS,
) -> Task:
    """A task. One that was not made here, but by a command in a session, has no `task` facts: its
    runs say what it is.
    """
    state: dict[str, Any] = {
        "id": session.task_id,
        "session_id": session.session_id,
        "status": "queued" if latest is None else latest.status,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "started_at": details.started_at,
        "last_error": details.last_error,
        "root_trace_id": details.root_trace_id,
        "latest_trace_id": details.latest_trace_id,
        "pending_approval_count": details.pending_approval_count,
        "run_count": details.run_count,
        "step_count": details.step_count,
        "artifact_count": details.artifact_count,
        "total_cost_micros_usd": details.total_cost_micros_usd,
        "cost_unknown": details.cost_unknown,
    }
    if latest is not None:
        state |= {
            "latest_run_id": latest.run_id,
            "latest_model": latest.model or "",
            "latest_provider": latest.provider or "",
            "finished_at": latest.ended_at or "",
            "updated_at": max(session.updated_at, latest.ended_at or latest.created_at),
        }
    if task is not None:
        return Task(**_asked_fields(task), **state)
    return Task(
        title=_line(latest.prompt) if latest else "New task",
        execution_kind=latest.kind if latest else "agent_loop",
        workspace_mode=latest.workspace_mode if latest else "in_place",
        working_directory=session.workspace_path,
        prompt=latest.prompt if latest else "",
        origin_kind=session.surface,
        **state,
    )


_NAMES = tuple(
    name
    for name in TaskCreated.__struct_fields__
    if name in Task.__struct_fields__ and name != "mcp_servers"
)


def _asked_fields(task: TaskCreated) -> dict[str, Any]:
    fields = {name: value for name in _NAMES if (value := getattr(task, name)) is not UNSET}
    if task.mcp_servers is not UNSET:
        fields["mcp_servers"] = [
            McpServer(
                **{
                    name: value
                    for name in server.__struct_fields__
                    if (value := getattr(server, name)) is not UNSET
                }
            )
            for server in task.mcp_servers
        ]
    return {**fields, "created_by": task.by}


def _line(text: str) -> str:
    return " ".join(text.split()) or "New task"
