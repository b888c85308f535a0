"""Checks and converts the arguments of `Worker.start` before anything starts."""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast, get_args

import msgspec

from batten.client.tools import ClientTool
from batten.client.transport import Start
from batten.contract.errors import CallerError
from batten.protocols.maestro.incoming import Init
from batten.protocols.maestro.vocabulary import ApprovalMode, RequestType, ThinkingLevel

Approvals = Literal["ask", "allow", "deny"]
PermissionMode = Literal["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"]
Resolved = Literal["user_input", "mcp_elicitation", "tool_retry"]
"""Classes of requests that an embedder may answer beside approvals and its own tools."""

_MODES: dict[Approvals, ApprovalMode] = {"ask": "prompt", "allow": "auto", "deny": "fail"}
_ASKING_NOBODY = ("dontAsk", "bypassPermissions")
_PATIENCE = ("APPROVAL", "RETRY", "CLIENT")


def start_of(
    model: str,
    workspace: str | os.PathLike[str] | None,
    resume: str,
    flags: Sequence[str],
    env: Mapping[str, str],
    command: Sequence[str],
    own_flags: Sequence[str] = (),
) -> Start:
    """Flags, environment and command of the worker's process. `own_flags` come before `flags`."""
    _check("model", model, str, "provider/model")
    _check("resume", resume, str, "the id of a session or a run")
    _check("workspace", workspace, (str, os.PathLike, type(None)), "the path of a directory")
    _check("env", env, Mapping, "variables by name")
    for name, value in env.items():
        _check(f"env[{name!r}]", value, str, "text")
    more = _words("flags", flags)
    if any(flag.partition("=")[0] == "--protocol" for flag in more):
        raise CallerError("flags has --protocol; the client chooses the protocol itself")
    return Start(
        model=model,
        workspace="" if workspace is None else os.path.abspath(workspace),
        resume=resume,
        flags=(*own_flags, *more),
        environ={**os.environ, **env},
        command=_words("command", command),
    )


def approvals_of(approvals: Approvals | None, mode: PermissionMode | None) -> Approvals:
    """Who decides where no rule does; some permission modes have decided already."""
    if mode is not None:
        _one_of("permission_mode", mode, get_args(PermissionMode))
    if mode not in _ASKING_NOBODY:
        return approvals or "deny"
    if approvals not in (None, "allow"):
        raise CallerError(
            f"permission_mode {mode} asks nobody, and approvals is {approvals!r}; leave one out"
        )
    return "allow"


class Limits(NamedTuple):
    """Of each run; the budget is for all runs of a worker together."""

    max_turns: int | None
    max_budget_usd: float | None
    max_seconds: float | None
    max_output_tokens: int | None
    temperature: float | None


class Rules(NamedTuple):
    allow: Sequence[str]
    deny: Sequence[str]
    ask: Sequence[str]
    permission_mode: PermissionMode | None


def flags_of(
    limits: Limits,
    rules: Rules,
    only_tools: Sequence[str] | None,
    settings: Mapping[str, Any] | None,
) -> list[str]:
    """All of these as flags of `batten headless`, which checks the rules."""
    flags = [
        _flag("max_turns", limits.max_turns, 0, kinds=int),
        _flag("max_budget_usd", limits.max_budget_usd, 0),
        _flag("max_seconds", limits.max_seconds, 0.001),
        _flag("max_output_tokens", limits.max_output_tokens, 1, kinds=int),
        _flag("temperature", limits.temperature, 0, most=2),
    ]
    if rules.permission_mode is not None:
        flags.append(f"--permission-mode={rules.permission_mode}")
    for action in ("allow", "deny", "ask"):
        flags += [f"--{action}={rule}" for rule in _words(action, getattr(rules, action))]
    if only_tools is not None:
        names = _words("only_tools", only_tools)
        if any("," in name or not name.strip() for name in names):
            raise CallerError(f"only_tools is {only_tools!r}; it must be a list of names of tools")
        flags.append(f"--tools={','.join(names)}" if names else "--no-tools")
    if settings is not None:
        flags.append(f"--settings={_json('settings', settings)}")
    return [flag for flag in flags if flag]


def classes_of(
    approvals: Approvals, resolves: Collection[Resolved], tools: Sequence[ClientTool]
) -> tuple[RequestType, ...]:
    """The classes of requests that this embedder answers."""
    classes: list[RequestType] = [*dict.fromkeys(resolves)] if _is_list(resolves) else []
    if not _is_list(resolves) or not set(classes) <= set(get_args(Resolved)):
        right = ", ".join(get_args(Resolved))
        raise CallerError(f"resolves is {resolves!r}; it must be a list of some of {right}")
    if approvals == "ask":
        classes.append("approval")
    if tools:
        classes.append("client_tool")
    return tuple(classes)


def init_of(
    approvals: Approvals,
    system_prompt: str | None,
    append_system_prompt: str | None,
    thinking: ThinkingLevel | None,
    tools: Sequence[ClientTool],
) -> Init:
    """The `init` message sent to the worker once it is up."""
    _one_of("approvals", approvals, get_args(Approvals))
    if thinking is not None:
        _one_of("thinking", thinking, get_args(ThinkingLevel))
    right = "a list of `ClientTool`s, which `@client_tool(description)` makes of functions"
    if not _is_list(tools):
        raise CallerError(f"tools is {tools!r}; it must be {right}")
    for tool in tools:
        _check("one of tools", tool, ClientTool, right)
    return Init(
        approval_mode=_MODES[approvals],
        system_prompt=system_prompt,
        append_system_prompt=append_system_prompt,
        thinking_level=thinking,
        client_tools=tuple(tool.lent() for tool in tools) if tools else None,
    )


def waits_of(seconds: float | None) -> dict[str, str]:
    """Environment variables that bound how long a run waits for each answer."""
    if seconds is None:
        return {}
    _check("answers_within_s", seconds, (int, float), "a number of seconds")
    if not 0 < seconds < float("inf"):
        raise CallerError(f"answers_within_s is {seconds}; it must be a number of seconds")
    waits = str(max(1, round(seconds * 1000)))
    return {f"MAESTRO_HEADLESS_{name}_TIMEOUT_MS": waits for name in _PATIENCE}


def _flag(
    name: str,
    value: object,
    least: float,
    most: float = 1_000_000_000,
    kinds: type | tuple[type, ...] = (int, float),
) -> str:
    """A flag with a number; empty without a value."""
    if value is None:
        return ""
    what = "a whole number" if kinds is int else "a number"
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not is_number or not least <= cast("float", value) <= most:
        raise CallerError(f"{name} is {value!r}; it must be {what} from {least:g} to {most:g}")
    shown = f"{value}" if isinstance(value, int) else f"{value:f}"
    return f"--{name.replace('_', '-')}={shown}"


def _json(name: str, value: object) -> str:
    try:
        _check(name, value, Mapping, "settings by name")
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError) as error:
        raise CallerError(f"{name} cannot be written as JSON: {error}") from error


def _check(name: str, value: object, kinds: type | tuple[type, ...], right: str) -> None:
    if not isinstance(value, kinds):
        raise CallerError(f"{name} is {value!r}; it must be {right}")


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise CallerError(f"{name} is {value!r}; it must be one of {', '.join(known)}")


def _is_list(value: object) -> bool:
    """Text is a sequence of letters, which is never meant here."""
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def _words(name: str, words: Sequence[str]) -> tuple[str, ...]:
    values = cast("Sequence[object]", words)
    if not _is_list(values) or not all(isinstance(word, str) for word in values):
        raise CallerError(f"{name} is {words!r}; it must be a list of words")
    return tuple(words)
