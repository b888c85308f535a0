"""Parses the hooks of a settings file: for each event, which calls match and which programs run.

The agent runs them.
"""

import re
from typing import Any, cast

from batten.contract.numbers import LONGEST_TIMEOUT_S
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
    hook = table.within(key, entry)
    matcher = hook.get("matcher")
    if matcher is not None and not isinstance(matcher, str):
        raise hook.wrong("matcher", f"must be a text, not {kind_of(matcher)}")
    if matcher and re.search(r"\.\+|[\^$]", matcher):
        problems.append(
            f"{table.file}: {hook.place('matcher')} {matcher!r} is taken as a glob, "
            "not as a regular expression"
        )
    named = [name for name in ("handlers", "hooks") if name in hook.content]
    if len(named) != 1:
        raise table.wrong(key, "must have one list of handlers, such as handlers = [{...}]")
    handlers = hook.each(named[0], lambda at, key, entry: _handler(at, key, entry, problems))
    condition = hook.text("if")
    hook.note_unknown()
    return HookConfig(
        event=cast("HookEvent", key.partition("[")[0]),
        matcher=matcher or "*",
        condition="" if condition is None else read_pattern(hook, "if", condition),
        handlers=tuple(handler for handler in handlers if handler is not None),
        scope=scope,
    )


def _handler(table: Table, key: str, entry: Any, problems: list[str]) -> HandlerConfig | None:
    fields = table.within(key, entry)
    kind = fields.one_of("type", (*_RUN, *_NOT_RUN))
    if kind is None:
        raise table.wrong(key, f"must have a type: one of {', '.join(_RUN)}")
    if kind in _NOT_RUN:
        problems.append(f"{table.file}: {table.place(key)} is of type {kind} and is not run")
        return None
    command, url = fields.text("command"), fields.text("url")
    if kind == "command" and command is None:
        raise table.wrong(key, "must have a command")
    if kind == "http" and not (url or "").startswith(("http://", "https://")):
        raise table.wrong(key, "must have a url that begins with http:// or https://")
    handler = HandlerConfig(
        type="command" if kind == "command" else "http",
        command=command or "",
        args=fields.texts("args") if fields.get("args") is not None else None,
        env=fields.pairs("env"),
        url=url or "",
        headers=fields.pairs("headers"),
        timeout_s=_seconds(fields, "timeout"),
        is_async=bool(fields.switch("async")),
        on_failure=cast("OnFailure", fields.one_of("on_failure", ("deny", "allow")) or "deny"),
    )
    fields.note_unknown()
    return handler


def _seconds(table: Table, key: str) -> float:
    """`30`, `"30s"` or `"500ms"`."""
    value = table.get(key)
    if value is None:
        return HandlerConfig(type="command").timeout_s
    seconds = -1.0
    if isinstance(value, str):
        found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s)?\s*", value)
        if found is not None:
            seconds = float(found[1]) / (1000 if found[2] == "ms" else 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    if not 0 < seconds <= LONGEST_TIMEOUT_S:
        raise table.wrong(key, f'must be a time such as "30s", "500ms" or 30, not {value!r}')
    return float(seconds)
