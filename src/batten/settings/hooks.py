"""Parses the hooks of a settings file: for each event, which calls match and which programs run.

The agent runs them.
"""

import re
from typing import Any, cast

from batten.settings.contract import (
    HOOK_EVENTS,
    RESERVED_EVENTS,
    HandlerConfig,
    HookConfig,
    HookEvent,
    OnFailure,
    Scope,
)
from batten.settings.permissions import read_pattern
from batten.settings.table import Table, kind_of

_RUN = ("command", "http")
_NOT_RUN = ("mcp", "prompt", "agent")
_LONGEST_S = 24 * 3600.0


def read_hooks(table: Table, scope: Scope, problems: list[str]) -> tuple[HookConfig, ...]:
    """The hooks of a table of events; adds those that are accepted but never run to `problems`."""
    hooks: list[HookConfig] = []
    for event in table.content:
        if event in RESERVED_EVENTS:
            problems.append(
                f"{table.file}: {table.place(event)} never fires: the event is reserved"
            )
        elif event not in HOOK_EVENTS:
            known = ", ".join(HOOK_EVENTS)
            raise table.wrong(event, f"is not an event; events are: {known}")
        read = table.each(event, lambda at, key, entry: _hook(at, key, entry, scope, problems))
        if event not in RESERVED_EVENTS:
            hooks += [hook for hook in read if hook.handlers]
    return tuple(hooks)


def _hook(table: Table, key: str, entry: Any, scope: Scope, problems: list[str]) -> HookConfig:
    given = table.within(key, entry)
    matcher = given.get("matcher")
    if matcher is not None and not isinstance(matcher, str):
        raise given.wrong("matcher", f"must be a text, not {kind_of(matcher)}")
    if matcher and re.search(r"\.\+|[\^$]", matcher):
        problems.append(
            f"{table.file}: {given.place('matcher')} {matcher!r} is taken as a glob, "
            "not as a regular expression"
        )
    named = [name for name in ("handlers", "hooks") if name in given.content]
    if len(named) != 1:
        raise table.wrong(key, "must have one list of handlers, such as handlers = [{...}]")
    handlers = given.each(named[0], lambda at, key, entry: _handler(at, key, entry, problems))
    condition = given.text("if")
    given.note_unknown()
    return HookConfig(
        event=cast("HookEvent", key.partition("[")[0]),
        matcher=matcher or "*",
        condition="" if condition is None else read_pattern(given, "if", condition),
        handlers=tuple(handler for handler in handlers if handler is not None),
        scope=scope,
    )


def _handler(table: Table, key: str, entry: Any, problems: list[str]) -> HandlerConfig | None:
    given = table.within(key, entry)
    kind = given.one_of("type", (*_RUN, *_NOT_RUN))
    if kind is None:
        raise table.wrong(key, f"must have a type: one of {', '.join(_RUN)}")
    if kind in _NOT_RUN:
        problems.append(f"{table.file}: {table.place(key)} is of type {kind} and is not run")
        return None
    command, url = given.text("command"), given.text("url")
    if kind == "command" and command is None:
        raise table.wrong(key, "must have a command")
    if kind == "http" and not (url or "").startswith(("http://", "https://")):
        raise table.wrong(key, "must have a url that begins with http:// or https://")
    handler = HandlerConfig(
        type="command" if kind == "command" else "http",
        command=command or "",
        args=given.texts("args") if given.get("args") is not None else None,
        env=given.pairs("env"),
        url=url or "",
        headers=given.pairs("headers"),
        timeout_s=_seconds(given, "timeout"),
        is_async=bool(given.switch("async")),
        on_failure=cast("OnFailure", given.one_of("on_failure", ("deny", "allow")) or "deny"),
    )
    given.note_unknown()
    return handler


def _seconds(table: Table, key: str) -> float:
    """`30`, `"30s"` or `"500ms"`."""
    given = table.get(key)
    if given is None:
        return HandlerConfig(type="command").timeout_s
    seconds = -1.0
    if isinstance(given, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s)?\s*", given)
        if found is not None:
            seconds = float(found[1]) / (1000 if found[2] == "ms" else 1)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = given
    if not 0 < seconds <= _LONGEST_S:
        raise table.wrong(key, f'must be a time such as "30s", "500ms" or 30, not {given!r}')
    return float(seconds)
