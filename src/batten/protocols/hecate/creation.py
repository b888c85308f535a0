"""Turns a request into a task: defaults, and one error that names the field and what is right."""

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

from msgspec import UNSET
from msgspec.structs import replace

from batten.contract.errors import CallerError
from batten.contract.facts.run import WorkspaceMode
from batten.contract.facts.task import TaskCreated, TaskKind, TaskServer
from batten.protocols.hecate.tasks import CreateTask, McpServer

TITLE_BYTES = 80
REDACTED = "[redacted]"

_FIELDS_OF_KIND: dict[TaskKind, tuple[str, ...]] = {
    "agent_loop": ("system_prompt", "execution_profile", "mcp_servers"),
    "shell": ("shell_command",),
    "git": ("git_command",),
    "file": ("file_path", "file_content", "file_operation"),
}
_NEEDED: dict[TaskKind, tuple[str, str]] = {
    "agent_loop": ("prompt", "the instructions for the agent"),
    "shell": ("shell_command", "the command for `sh`"),
    "git": ("git_command", "the git command, such as `status --short`"),
    "file": ("file_path", "the path of the file in the workspace"),
}
_PROFILE_TIMEOUTS_MS = {"repo_local": 120_000, "coding_agent": 300_000}
_COPIED = (
    *("prompt", "system_prompt", "execution_profile", "shell_command", "git_command"),
    *("file_path", "file_content", "working_directory", "repo", "base_branch"),
    *("sandbox_allowed_root", "requested_model", "requested_provider"),
    *("budget_micros_usd", "permission_mode", "allow", "deny", "max_turns"),
    *("approval_timeout_s", "origin_kind", "origin_id"),
)
"""Fields that go into the fact as they are, unless they are empty."""
_REFERENCE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|\{[A-Za-z_][A-Za-z0-9_]*\})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


def new_task(request: CreateTask, *, by: str) -> TaskCreated:
    """The task that a request describes. Secrets in it are still in clear: see `concealed`.

    Raises `CallerError` for a field that is missing, or does not fit the others.
    """
    kind: TaskKind = request.execution_kind or "agent_loop"
    _check_fields(request, kind)
    _check_workspace(request)
    given = {name: value for name in _COPIED if (value := getattr(request, name))}
    if given.get("working_directory") == ".":
        del given["working_directory"]
    if kind == "file":
        given["file_content"] = request.file_content
        given["file_operation"] = request.file_operation or "write"
    timeout_ms = request.timeout_ms or _PROFILE_TIMEOUTS_MS.get(request.execution_profile, 0)
    return TaskCreated(
        title=request.title.strip() or title_of(request.prompt),
        execution_kind=kind,
        workspace_mode=mode_of(request.workspace_mode),
        priority=request.priority or "normal",
        by=by,
        sandbox_read_only=request.sandbox_read_only,
        sandbox_network=request.sandbox_network,
        timeout_ms=timeout_ms or UNSET,
        mcp_servers=_servers(request.mcp_servers) or UNSET,
        auto_apply=request.auto_apply,
        **given,
    )


def title_of(prompt: str) -> str:
    """The beginning of a prompt on one line, cut between characters; `New task` without one."""
    line = " ".join(prompt[: 4 * TITLE_BYTES].split())
    if not line:
        return "New task"
    head = line.encode(errors="replace")
    if len(head) <= TITLE_BYTES:
        return line
    return head[:TITLE_BYTES].decode(errors="ignore").rstrip() + "..."


def mode_of(name: str) -> WorkspaceMode:
    """The workspace mode of this name; the protocol's older names mean a copy."""
    match name:
        case "in_place" | "worktree":
            return name
        case _:
            return "clone"


def named_source(task: TaskCreated) -> str:
    """The directory that a task names to work in or to copy; empty if it names none."""
    return task.working_directory or task.repo or ""


def source_of(task: TaskCreated) -> str:
    """The directory that a task works in or copies; empty for an empty workspace.

    Raises `CallerError` if the mode needs one. Whether it exists is for the caller to see.
    """
    source = named_source(task)
    if not source and task.workspace_mode != "clone":
        raise CallerError(
            f"workspace_mode {task.workspace_mode} needs a working_directory: the absolute path of"
            " an existing directory",
            code="workspace_invalid",
        )
    return source


def raised_budget(task: TaskCreated, wanted: int) -> int:
    """The new budget of a task. Raises `CallerError` if it is lower than the present one."""
    present = task.budget_micros_usd or 0
    if wanted < present:
        raise _wrong("budget_micros_usd", f"can only be raised: it is {present}, not {wanted}")
    return wanted


def concealed(task: TaskCreated) -> TaskCreated:
    """The task as it may be stored and shown: literal values of servers are replaced.

    The same object if there are none; otherwise the original must be sealed.
    """
    if task.mcp_servers is UNSET:
        return task
    servers = [_concealed_server(server) for server in task.mcp_servers]
    return task if servers == task.mcp_servers else replace(task, mcp_servers=servers)


def _concealed_server(server: TaskServer) -> TaskServer:
    return replace(server, env=_references(server.env), headers=_references(server.headers))


def _references(values: Any) -> Any:
    if values is UNSET:
        return values
    return {name: value if reference_of(value) else REDACTED for name, value in values.items()}


def reference_of(value: str) -> str:
    """The variable that a value of a server's `env` or `headers` names; empty if it is literal."""
    found = _REFERENCE.fullmatch(value)
    return found[1].strip("{}") if found else ""


def _check_fields(request: CreateTask, kind: TaskKind) -> None:
    name, meaning = _NEEDED[kind]
    if not getattr(request, name).strip():
        raise _wrong(name, f"is missing: a task of the kind {kind} needs {meaning}")
    for other, fields in _FIELDS_OF_KIND.items():
        for field in fields:
            if other != kind and getattr(request, field):
                raise _wrong(field, f"belongs to the kind {other}, and execution_kind is {kind}")
    for field in ("prompt", "shell_command", "git_command", "file_path"):
        if "\0" in getattr(request, field):
            raise _wrong(field, "contains a NUL character; leave it out")
    if kind == "file":
        _check_inside(request.file_path)


def _check_inside(path: str) -> None:
    if path.startswith(("/", "~")) or ".." in path.split("/"):
        raise _wrong("file_path", f"{path!r} leaves the workspace; use a path relative to it")
    if path.endswith("/") or path.strip("./") == "":
        raise _wrong("file_path", f"{path!r} names a directory; name a file")


def _check_workspace(request: CreateTask) -> None:
    mode = mode_of(request.workspace_mode)
    for field in ("working_directory", "repo", "sandbox_allowed_root"):
        path: str = getattr(request, field)
        is_root = field == "working_directory" and path == "."
        if path and not is_root and (not path.startswith("/") or "\0" in path):
            raise _wrong(
                field, f"{path!r} is not an absolute path on the machine of the service, as /srv/x"
            )
    if request.base_branch:
        if mode == "in_place":
            raise _wrong("base_branch", "needs workspace_mode clone or worktree")
        if not re.fullmatch(r"[^\s\0~^:?*\[\\-][^\s\0~^:?*\[\\]*", request.base_branch):
            raise _wrong("base_branch", f"{request.base_branch!r} is no name of a branch")


def _servers(servers: Iterable[McpServer]) -> list[TaskServer]:
    found: dict[str, TaskServer] = {}
    for place, server in enumerate(servers):
        field = f"mcp_servers[{place}]"
        if server.name in found:
            raise _wrong(f"{field}.name", f"{server.name!r} is used twice; names must differ")
        _check_server(field, server)
        found[server.name] = TaskServer(
            name=server.name,
            approval_policy=server.approval_policy,
            command=server.command or UNSET,
            args=server.args or UNSET,
            env=server.env or UNSET,
            url=server.url or UNSET,
            headers=server.headers or UNSET,
        )
    return list(found.values())


def _check_server(field: str, server: McpServer) -> None:
    if bool(server.command.strip()) == bool(server.url.strip()):
        raise _wrong(field, "needs either a command or a url")
    if server.url:
        if not _is_web_address(server.url):
            raise _wrong(f"{field}.url", f"{server.url!r} is not an http or https address")
        if server.args or server.env:
            raise _wrong(field, "has a url: args and env belong to a command; use headers")
    elif server.headers:
        raise _wrong(f"{field}.headers", "belongs to a url; a command takes env")
    for name in server.env:
        if not _VARIABLE.fullmatch(name):
            raise _wrong(f"{field}.env", f"{name!r} is no name of a variable")
    for name, value in server.headers.items():
        if not _HEADER.fullmatch(name) or "\n" in value or "\r" in value:
            raise _wrong(f"{field}.headers", f"{name!r} is no header")


def _is_web_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # no address, or a port beyond 65535
        return False


def _wrong(field: str, problem: str) -> CallerError:
    return CallerError(f"{field} {problem}")
