"""Plugins: folders that provide hooks, MCP servers and skills, with a manifest.

A broken plugin is left out and reported as a problem; it never raises.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.errors import CallerError
from batten.settings.contract import HandlerConfig, HookConfig, Plugin, Skill
from batten.settings.files import read, wrong
from batten.settings.hooks import read_hooks
from batten.settings.keys import read_servers
from batten.settings.skills import find_skills
from batten.settings.table import Table

_MANIFESTS = ("plugin.json", ".claude-plugin/plugin.json")
_ROOTS = ("BATTEN_PLUGIN_ROOT", "CLAUDE_PLUGIN_ROOT")


class PluginContent(Struct, frozen=True, kw_only=True):
    """A plugin and everything it provides."""

    plugin: Plugin
    hooks: tuple[HookConfig, ...] = ()
    mcp_servers: dict[str, dict[str, Any]] = {}
    skills: tuple[Skill, ...] = ()


def read_plugin(
    folder: str,
    environ: Mapping[str, str],
    problems: list[str],
    *,
    within: str | None = None,
    root: str | None = None,
) -> PluginContent | None:
    """The content of a folder; None, and a line in `problems`, if it cannot be used.

    `root` is the folder in which its programs are run, if that is another.
    """
    try:
        return _read(folder, environ, problems, within, root or folder)
    except (CallerError, OSError) as error:
        problems.append(f"a plugin is left out: {error}")
        return None


def _read(
    folder: str, environ: Mapping[str, str], problems: list[str], within: str | None, root: str
) -> PluginContent:
    if not os.path.isdir(folder):
        raise wrong(f"{folder} is not a folder")
    manifest = _file(folder, _MANIFESTS, within)
    if manifest is None:
        raise wrong(f"{folder} has no plugin.json that says its name")
    name = manifest.text("name")
    if name is None or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", name):
        raise manifest.wrong("name", "must be up to 64 letters, digits, ., - and _")
    manifest.text("description")

    def expand(text: str) -> str:
        for variable in _ROOTS:
            text = text.replace(f"${{{variable}}}", root)
        return text

    skills = find_skills(os.path.join(folder, "skills"), "plugin", problems, within=within)
    servers = _expanded(_servers(folder, within), expand)
    for server, entry in list(servers.items()):
        if unfit := _unfit(entry, environ):
            problems.append(f"plugin {name}: MCP server {server} is left out: {unfit}")
            del servers[server]
    return PluginContent(
        plugin=Plugin(name=name, version=manifest.text("version") or "", path=folder),
        hooks=tuple(
            replace(hook, handlers=tuple(_rooted(one, root, expand) for one in hook.handlers))
            for hook in _hooks(folder, problems, within)
        ),
        mcp_servers=servers,
        skills=tuple(skills),
    )


def _file(folder: str, names: tuple[str, ...], within: str | None) -> Table | None:
    """The first of these files that exists."""
    for name in names:
        path = os.path.join(folder, name)
        if os.path.lexists(path):
            document = read(path, within=within)
            return Table(document.content, document.shown)
    return None


def _hooks(folder: str, problems: list[str], within: str | None) -> tuple[HookConfig, ...]:
    file = _file(folder, ("hooks/hooks.json",), within)
    if file is None:
        return ()
    events = file.table("hooks")
    if events is None:
        raise file.wrong("hooks", "must be there: a table of events")
    hooks = read_hooks(events, "plugin", problems)
    file.tell_unknown(problems)
    return hooks


def _servers(folder: str, within: str | None) -> dict[str, dict[str, Any]]:
    file = _file(folder, (".mcp.json",), within)
    if file is None:
        return {}
    if file.get("mcp_servers") is None:  # the file lists the servers at its top level
        file = Table({"mcpServers": file.content}, file.file)
    return read_servers(file, "mcp_servers")


def _unfit(server: dict[str, Any], environ: Mapping[str, str]) -> str:
    """Why a server cannot be used; empty if it can."""
    if ("command" in server) == ("url" in server):
        return "it needs either a command or a url"
    fitting = ("stdio",) if "command" in server else ("http", "sse")
    if server.get("type") not in (None, *fitting):
        return f"its type {server['type']!r} is not {' or '.join(fitting)}"
    for found in re.finditer(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", repr(server)):
        if found[1] not in environ:
            return f"the variable {found[1]} is not set"
    return ""


def _rooted(handler: HandlerConfig, folder: str, expand: Callable[[str], str]) -> HandlerConfig:
    """The handler with the plugin's folder expanded in its strings and set in its environment."""
    return replace(
        handler,
        command=expand(handler.command),
        args=None if handler.args is None else tuple(map(expand, handler.args)),
        env={**dict.fromkeys(_ROOTS, folder), **_expanded(handler.env, expand)},
        url=expand(handler.url),
        headers=_expanded(handler.headers, expand),
    )


def _expanded(value: Any, expand: Callable[[str], str]) -> Any:
    match value:
        case str():
            return expand(value)
        case dict():
            pairs = cast("dict[str, Any]", value)
            return {key: _expanded(inner, expand) for key, inner in pairs.items()}
        case list():
            return [_expanded(inner, expand) for inner in cast("Sequence[Any]", value)]
        case _:
            return value
