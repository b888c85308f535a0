"""Parses the keys of a settings file into a layer."""

import os
import re
from typing import Any, cast

from batten.contract.numbers import LONGEST_TIMEOUT_S
from batten.settings.contract import EntryPoints, SandboxConfig, Scope
from batten.settings.files import Document
from batten.settings.hooks import read_hooks
from batten.settings.layer import Layer, PluginPath
from batten.settings.panels import read_panels
from batten.settings.permissions import Permissions, read_permissions
from batten.settings.table import Table

_LONGEST_GRACE_S = 60
_MOST_RETRIES = 1000
_MOST_READS = 64


def read_layer(document: Document, scope: Scope, base: str, problems: list[str]) -> Layer:
    """The layer of one file. Relative paths start at `base`; omissions go to `problems`.

    A value of the wrong type raises a `CallerError` that names the file and the key.
    """
    table = Table(document.content, document.shown)
    table.get("$schema")
    permissions = _permissions(table, scope)
    hooks = table.table("hooks")
    plugins = table.texts("plugins")
    layer = Layer(
        sources=(scope,),
        model=table.text("model"),
        fallback_models=_fallbacks(table),
        max_retries=_between(table, "max_retries", 0, _MOST_RETRIES),
        parallel_reads=_between(table, "parallel_reads", 1, _MOST_READS),
        require_price=table.switch("require_price"),
        permission_mode=permissions.mode,
        enforce=permissions.enforce,
        rules=permissions.rules,
        panels=read_panels(table, "panels", base),
        hooks=read_hooks(hooks, scope, problems) if hooks is not None else (),
        disable_all_hooks=table.switch("disable_all_hooks"),
        allow_managed_hooks_only=table.switch("allow_managed_hooks_only"),
        http_urls=table.texts("allowed_http_hook_urls"),
        http_env_vars=table.texts("http_hook_allowed_env_vars"),
        mcp_servers=read_servers(table, "mcp_servers"),
        env=_env(table),
        plugins=tuple(PluginPath(_absolute(base, path), scope) for path in plugins),
        entry_points=_entry_points(table),
        sandbox=_sandbox(table),
        sinks=_sinks(table, scope, problems),
        directories=tuple(_absolute(base, path) for path in permissions.directories),
        blocks=_blocks(table, scope, problems),
    )
    table.note_unknown()
    table.tell_unknown(problems)
    return layer


def read_servers(table: Table, key: str) -> dict[str, dict[str, Any]]:
    """MCP servers by name. Required keys are checked after the scopes are merged."""
    servers = table.table(key)
    if servers is None:
        return {}
    for name, entry in servers.content.items():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", name) or "__" in name:
            raise servers.wrong(name, "must be a name of up to 32 letters, digits, - and single _")
        server = servers.within(name, entry)
        for text in ("type", "command", "url", "cwd"):
            server.text(text)
        server.texts("args")
        for pairs in ("env", "headers"):
            server.pairs(pairs)
        for switch in ("required", "disabled"):
            server.switch(switch)
        timeout = server.get("timeout")
        if timeout is not None and not (_is_number(timeout) and 0 < timeout <= LONGEST_TIMEOUT_S):
            must = f"must be a number of seconds above 0, {LONGEST_TIMEOUT_S} at most"
            raise server.wrong("timeout", f"{must}, not {timeout!r}")
    return dict(servers.content)


def _permissions(table: Table, scope: Scope) -> Permissions:
    section = table.table("permissions")
    if section is None:
        return Permissions()
    permissions = read_permissions(section, scope)
    section.note_unknown()
    return permissions


def _fallbacks(table: Table) -> tuple[str, ...] | None:
    """One name or several, under either key."""
    one, several = table.get("fallback_model"), table.get("fallback_models")
    if one is not None and several is not None:
        raise table.wrong("fallback_model", "says the same as fallback_models; keep one of them")
    key = "fallback_models" if one is None else "fallback_model"
    value = several if one is None else one
    if value is None:
        return None
    return table.texts(key) if isinstance(value, list) else (table.text(key) or "",)


def _env(table: Table) -> dict[str, str]:
    env = table.pairs("env")
    for name, value in env.items():
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) or "\0" in value:
            raise table.wrong("env", f"has no variable for {name!r}: letters, digits and _")
    return env


def _entry_points(table: Table) -> EntryPoints:
    section = table.table("entry_points")
    if section is None:
        return EntryPoints()
    for key in ("models", "tools"):
        for name in section.texts(key):
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", name):
                raise section.wrong(key, f"must be names of entry points, not {name!r}")
    named = EntryPoints(models=section.texts("models"), tools=section.texts("tools"))
    section.note_unknown()
    return named


def _sandbox(table: Table) -> SandboxConfig:
    section = table.table("sandbox")
    if section is None:
        return SandboxConfig()
    sockets = section.texts("sockets")
    for path in sockets:
        if not path.startswith("/"):
            raise section.wrong("sockets", f"must be absolute paths, not {path!r}")
    grace = section.get("grace_s")
    if grace is not None and not (_is_number(grace) and 0 <= grace <= _LONGEST_GRACE_S):
        raise section.wrong("grace_s", f"must be seconds, 0 to {_LONGEST_GRACE_S}, not {grace!r}")
    config = SandboxConfig(
        grace_s=None if grace is None else float(grace),
        processes=_count(section, "processes", 1),
        memory_mib=_count(section, "memory_mib", 64),
        open_files=_count(section, "open_files", 32),
        file_mib=_count(section, "file_mib", 1),
        sockets=sockets or None,
    )
    section.note_unknown()
    return config


def _sinks(table: Table, scope: Scope, problems: list[str]) -> dict[str, Any]:
    """A workspace cannot name receivers: it would be told of runs everywhere."""
    section = table.table("sinks")
    if section is None:
        return {}
    if scope in ("project", "local", "plugin"):
        problems.append(f"{table.file}: sinks count in user and managed settings only")
        return {}
    return dict(section.content)


def _count(table: Table, key: str, least: int) -> int | None:
    """A whole number; 0 sets no limit."""
    value = table.get(key)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if value is None or (is_count and (value == 0 or least <= value < 2**31)):
        return cast("int | None", value)
    raise table.wrong(key, f"must be 0 for no limit, or a whole number from {least}, not {value!r}")


def _between(table: Table, key: str, least: int, most: int) -> int | None:
    value = table.get(key)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    if value is None or (is_count and least <= value <= most):
        return cast("int | None", value)
    raise table.wrong(key, f"must be a whole number from {least} to {most}, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _absolute(base: str, path: str) -> str:
    return path if path.startswith("~/") else os.path.normpath(os.path.join(base, path))


def _blocks(table: Table, scope: Scope, problems: list[str]) -> bool:
    behavior = table.one_of("parent_settings_behavior", ("merge", "block"))
    if behavior == "block" and scope != "managed":
        problems.append(f"{table.file}: parent_settings_behavior counts in managed settings only")
        return False
    return behavior == "block"
