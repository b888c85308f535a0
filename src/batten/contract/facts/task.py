"""`task.*`: the request behind a chain of runs, in the stream of its session."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.facts.base import Fact
from batten.contract.facts.run import WorkspaceMode

TaskKind = Literal["agent_loop", "shell", "git", "file"]


class TaskServer(Struct, frozen=True, kw_only=True):
    """A tool server of a task: a command to start, or the URL of a remote one."""

    name: str
    approval_policy: str
    """`auto`, `require_approval` or `block`."""
    command: str | UnsetType = UNSET
    args: list[str] | UnsetType = UNSET
    env: dict[str, str] | UnsetType = UNSET
    url: str | UnsetType = UNSET
    headers: dict[str, str] | UnsetType = UNSET


class TaskCreated(Fact, frozen=True):
    """A client described a task. Values of a server's `env` and `headers` are `[redacted]` unless
    they name a variable, as `$NAME`."""

    TYPE = "task.created"
    title: str
    execution_kind: TaskKind
    workspace_mode: WorkspaceMode
    priority: str
    by: str
    """Who created it."""
    prompt: str | UnsetType = UNSET
    system_prompt: str | UnsetType = UNSET
    execution_profile: str | UnsetType = UNSET
    shell_command: str | UnsetType = UNSET
    git_command: str | UnsetType = UNSET
    file_path: str | UnsetType = UNSET
    file_content: str | UnsetType = UNSET
    file_operation: str | UnsetType = UNSET
    working_directory: str | UnsetType = UNSET
    repo: str | UnsetType = UNSET
    base_branch: str | UnsetType = UNSET
    sandbox_allowed_root: str | UnsetType = UNSET
    sandbox_read_only: bool = False
    sandbox_network: bool = False
    timeout_ms: int | UnsetType = UNSET
    requested_model: str | UnsetType = UNSET
    requested_provider: str | UnsetType = UNSET
    budget_micros_usd: int | UnsetType = UNSET
    """The most that all runs of the task may cost together."""
    mcp_servers: list[TaskServer] | UnsetType = UNSET
    permission_mode: str | UnsetType = UNSET
    allow: list[str] | UnsetType = UNSET
    """Permission rules of the task, beside those of the service."""
    deny: list[str] | UnsetType = UNSET
    max_turns: int | UnsetType = UNSET
    approval_timeout_s: int | UnsetType = UNSET
    """How long each question waits for its answer."""
    lifetime_ms: int | UnsetType = UNSET
    """How long each run may take, from when it was queued and waits for answers included."""
    auto_apply: bool = True
    """False: edits stay proposed until they are applied or rejected."""
    origin_kind: str | UnsetType = UNSET
    """The kind of thing that the task was created for, by its creator's own word."""
    origin_id: str | UnsetType = UNSET
    sealed_artifact_id: str | UnsetType = UNSET
    """This payload unchanged and encrypted; present if redaction or size altered it."""


class TaskUpdated(Fact, frozen=True):
    """Fields of a task changed. Those not named keep their values."""

    TYPE = "task.updated"
    by: str
    title: str | UnsetType = UNSET
    budget_micros_usd: int | UnsetType = UNSET
    reason: str | UnsetType = UNSET
