"""What a task may ask for: never more than the operator of the service allows."""

import os
from collections.abc import Callable, Mapping

from msgspec import UNSET
from msgspec.structs import replace

from batten.agent.rules.rule import Rule, check_tools, parse_rule
from batten.agent.rules.verdict import Mode
from batten.contract.errors import CallerError, Refused
from batten.contract.facts import TaskCreated
from batten.contract.facts.task import TaskServer
from batten.control.directories import grants_of, unfit_to_write
from batten.protocols.hecate.creation import named_source, reference_of
from batten.tools.standing import git_line
from batten.wiring.home import absolute
from batten.wiring.spec import ServerKind, SessionSpec, TaskGrants
from batten.workspace.programs import is_below

SOURCE = "task"
"""The source of the rules that a task brings."""
_ASKING: tuple[Mode, ...] = ("plan", "default", "acceptEdits", "auto")
"""Modes in which the service's own rules hold."""


def check_task(task: TaskCreated, base: SessionSpec, mode: Callable[[], Mode]) -> None:
    """Raises `CallerError` for a field that makes no sense, and `Refused` for one that asks for
    more than `base` allows; `mode` finds the service's own permission mode.
    """
    if task.execution_kind == "git":
        git_line(task.git_command or "")
    _check_rules(task)
    if task.permission_mode is not UNSET:
        _check_mode(task.permission_mode, mode())
    if task.sandbox_network and not base.network:
        raise _refused(
            "sandbox_network",
            "the service allows no network; start it with --sandbox-network allow",
        )
    check_reach(task, base)
    _check_read_only(task, base)


def check_reach(task: TaskCreated, base: SessionSpec) -> None:
    """Raises `CallerError` or `Refused` for a directory or a tool server that `base` does not let
    the task have.

    Checked again before each run: a link may lead elsewhere by then, and the service allow less.
    """
    _check_root(task, base)
    for server in _servers(task):
        _check_granted(server, base.tasks)
        _check_written_out(server)


def rules_of(task: TaskCreated) -> tuple[Rule, ...]:
    """The rules that a task brings. Raises `CallerError` for one that could never match."""
    allow = () if task.allow is UNSET else task.allow
    deny = () if task.deny is UNSET else task.deny
    return (
        *(parse_rule("allow", text, SOURCE) for text in allow),
        *(parse_rule("deny", text, SOURCE) for text in deny),
    )


def in_mode(base: SessionSpec, task: TaskCreated) -> SessionSpec:
    """The base in the task's mode, in which what the mode asks about is asked."""
    named = "" if task.permission_mode is UNSET else task.permission_mode
    for mode in (*_ASKING, "dontAsk"):
        if mode == named:
            return replace(base, mode=mode, auto_allow=base.auto_allow and mode == "dontAsk")
    return base


def _check_rules(task: TaskCreated) -> None:
    try:
        check_tools(rules_of(task))
    except CallerError as error:
        raise CallerError(error.message) from error


def _check_mode(wanted: str, mode: Mode) -> None:
    if mode == "plan":
        allowed: tuple[Mode, ...] = ("plan",)
    elif mode in _ASKING:
        allowed = _ASKING
    else:
        allowed = (*_ASKING, "dontAsk")
    if wanted not in allowed:
        reason = f"{wanted} allows more than the mode of the service, {mode}"
        raise _refused("permission_mode", f"{reason}; choose one of {', '.join(allowed)}")


def _check_root(task: TaskCreated, base: SessionSpec) -> None:
    if task.sandbox_allowed_root is UNSET:
        return
    real = os.path.realpath(task.sandbox_allowed_root)
    beside = [os.path.realpath(absolute(path, base.cwd)) for path in base.add_dirs]
    granted = [*beside, *grants_of(base)]
    own = [os.path.realpath(source)] if (source := named_source(task)) else []
    is_granted = not base.tasks.directories or is_below(real, granted)
    if not is_granted or not is_below(real, [*own, *beside]):
        raise _refused(
            "sandbox_allowed_root",
            f"{task.sandbox_allowed_root} is neither in the task's own directory nor in one that"
            " the service was started with by --add-dir",
        )
    if why := unfit_to_write(real, base.environ, granted):
        raise _refused("sandbox_allowed_root", f"{task.sandbox_allowed_root} {why}")


def _check_read_only(task: TaskCreated, base: SessionSpec) -> None:
    if not task.sandbox_read_only:
        return
    if base.sandbox == "none":
        raise _wrong(
            "sandbox_read_only", "needs a sandbox, and the service was started with --sandbox none"
        )


_KINDS: dict[ServerKind, str] = {"sandboxed": "is a program", "remote": "is at a URL"}


def _check_granted(server: TaskServer, grants: TaskGrants) -> None:
    field = f"mcp_servers[{server.name}]"
    kind: ServerKind = "remote" if server.command is UNSET else "sandboxed"
    if kind not in grants.servers:
        raise _refused(
            field,
            f"it {_KINDS[kind]}, and tasks of this service cannot bring such tool servers; the"
            f" service can be started with --allow-mcp-servers {kind}",
        )
    named = server.env if server.headers is UNSET else server.headers
    for value in ({} if named is UNSET else named).values():
        variable = reference_of(value)
        if variable and variable not in grants.variables:
            raise _refused(
                field,
                f"${variable} is not among the variables that tasks may name; the service can be"
                f" started with --allow-mcp-variable {variable}",
            )


def _check_written_out(server: TaskServer) -> None:
    """Only a whole value of `env` or `headers` names a variable of the service."""
    values = [] if server.args is UNSET else list(server.args)
    values += [text for text in (server.command, server.url) if isinstance(text, str)]
    for named in (server.env, server.headers):
        given = {} if named is UNSET else named
        values += [value for value in given.values() if not reference_of(value)]
    if any("${" in value for value in values):
        raise _wrong(
            f"mcp_servers[{server.name}]",
            "holds ${…}; write $NAME as the whole value of a variable or header",
        )


def resolved(server: TaskServer, environ: Mapping[str, str]) -> TaskServer:
    """The server with the values that its references name in the environment of the service.

    Raises `CallerError` for one that is not set.
    """

    def of(values: dict[str, str]) -> dict[str, str]:
        return {key: _resolved(server.name, value, environ) for key, value in values.items()}

    return replace(
        server,
        env=UNSET if server.env is UNSET else of(server.env),
        headers=UNSET if server.headers is UNSET else of(server.headers),
    )


def _resolved(server: str, value: str, environ: Mapping[str, str]) -> str:
    name = reference_of(value)
    if not name:
        return value
    if name not in environ:
        raise CallerError(
            f"the tool server {server} needs the variable {name}, which the service's environment"
            " does not set",
            code="mcp_variable_unset",
        )
    return environ[name]


def _servers(task: TaskCreated) -> list[TaskServer]:
    return [] if task.mcp_servers is UNSET else task.mcp_servers


def _wrong(field: str, problem: str) -> CallerError:
    return CallerError(f"{field} {problem}")


def _refused(field: str, problem: str) -> Refused:
    return Refused(f"{field}: {problem}", code="forbidden")
