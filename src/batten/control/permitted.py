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
from batten.protocols.hecate.creation import named_source, reference_of
from batten.tools.standing import git_line
from batten.wiring.home import absolute
from batten.wiring.spec import SessionSpec
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
    _check_root(task, base)
    _check_read_only(task, base)
    for server in _servers(task):
        _check_server(server)


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
    named = [named_source(task), *(absolute(path, base.cwd) for path in base.add_dirs)]
    if not is_below(real, [os.path.realpath(path) for path in named if path]):
        raise _refused(
            "sandbox_allowed_root",
            f"{task.sandbox_allowed_root} is neither in the task's own directory nor in one that"
            " the service was started with by --add-dir",
        )


def _check_read_only(task: TaskCreated, base: SessionSpec) -> None:
    if not task.sandbox_read_only:
        return
    if base.sandbox == "none":
        raise _wrong(
            "sandbox_read_only", "needs a sandbox, and the service was started with --sandbox none"
        )
    for server in _servers(task):
        if server.command is not UNSET:
            raise _wrong(
                f"mcp_servers[{server.name}]",
                "is a program outside the sandbox, and sandbox_read_only allows no changes; leave"
                " one of them out",
            )


def _check_server(server: TaskServer) -> None:
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
    # A value that looks like a reference itself must not be read as one.
    return f"${{{name}}}" if "${" in environ[name] else environ[name]


def _servers(task: TaskCreated) -> list[TaskServer]:
    return [] if task.mcp_servers is UNSET else task.mcp_servers


def _wrong(field: str, problem: str) -> CallerError:
    return CallerError(f"{field} {problem}")


def _refused(field: str, problem: str) -> Refused:
    return Refused(f"{field}: {problem}", code="forbidden")
