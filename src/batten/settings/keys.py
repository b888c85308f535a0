"""Parses the keys of a settings file into a layer."""

import os
import re
from typing import Any

from batten.settings.contract import Scope
from batten.settings.files import Document
from batten.settings.hooks import read_hooks
from batten.settings.layer import Layer, PluginPath
from batten.settings.permissions import Permissions, read_permissions
from batten.settings.table import Table


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
        permission_mode=permissions.mode,
        enforce=permissions.enforce,
        rules=permissions.rules,
        hooks=read_hooks(hooks, scope, problems) if hooks is not None else (),
        disable_all_hooks=table.switch("disable_all_hooks"),
        allow_managed_hooks_only=table.switch("allow_managed_hooks_only"),
        http_urls=table.texts("allowed_http_hook_urls"),
        http_env_vars=table.texts("http_hook_allowed_env_vars"),
        mcp_servers=read_servers(table, "mcp_servers"),
        env=_env(table),
        plugins=tuple(PluginPath(_absolute(base, path), scope) for path in plugins),
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
        is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and timeout > 0):
            raise server.wrong("timeout", f"must be a number of seconds above 0, not {timeout!r}")
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


def _absolute(base: str, path: str) -> str:
    return path if path.startswith("~/") else os.path.normpath(os.path.join(base, path))


def _blocks(table: Table, scope: Scope, problems: list[str]) -> bool:
    behavior = table.one_of("parent_settings_behavior", ("merge", "block"))
    if behavior == "block" and scope != "managed":
        problems.append(f"{table.file}: parent_settings_behavior counts in managed settings only")
        return False
    return behavior == "block"
