"""Describes the effects of content in words, for the user deciding whether to trust it."""

from collections.abc import Iterator
from typing import Any

from batten.settings.contract import HandlerConfig, HookConfig
from batten.settings.layer import Layer
from batten.settings.plugins import PluginContent
from batten.settings.trust import Brought


def by_layer(layer: Layer) -> tuple[Brought, ...]:
    """Everything a layer sets, except restrictions."""
    return tuple(_of_layer(layer))


def by_servers(servers: dict[str, dict[str, Any]]) -> tuple[Brought, ...]:
    return tuple(Brought("MCP server", f"{name}: {_reached(one)}") for name, one in servers.items())


def by_plugin(content: PluginContent) -> tuple[Brought, ...]:
    plugin = content.plugin
    return (
        Brought("plugin", f"{plugin.name} {plugin.version}".strip()),
        *map(_hook, content.hooks),
        *by_servers(content.mcp_servers),
        *(Brought("skill", skill.name) for skill in content.skills),
    )


def _of_layer(layer: Layer) -> Iterator[Brought]:
    yield from map(_hook, layer.hooks)
    yield from by_servers(layer.mcp_servers)
    for rule in layer.rules:
        if rule.action == "allow":
            yield Brought("allow rule", rule.pattern)
    for rule in layer.rules:
        if rule.panel:
            yield Brought("rule that a panel answers", f"{rule.pattern}: {rule.panel}")
    for panel in layer.panels:
        names = ", ".join(agent.name for agent in panel.agents)
        yield Brought("panel", f"{panel.name}: {names} under {panel.policy}")
    if layer.permission_mode is not None:
        yield Brought("permission mode", layer.permission_mode)
    for directory in layer.directories:
        yield Brought("additional directory", directory)
    for name, value in layer.env.items():
        yield Brought("variable", f"{name}={value}")
    for plugin in layer.plugins:
        yield Brought("plugin", plugin.path)
    for name in layer.entry_points.models:
        yield Brought("entry point", f"batten.models: {name}")
    for name in layer.entry_points.tools:
        yield Brought("entry point", f"batten.tools: {name}")
    for model in filter(None, (layer.model, *(layer.fallback_models or ()))):
        yield Brought("model", model)
    switches = {
        "disable_all_hooks": layer.disable_all_hooks,
        "allow_managed_hooks_only": layer.allow_managed_hooks_only,
    }
    for key, switch in switches.items():
        if switch is not None:
            yield Brought("setting", f"{key} = {str(switch).lower()}")
    for key in layer.sandbox.__struct_fields__:
        value = getattr(layer.sandbox, key)
        if value is not None:
            shown = ", ".join(value) if key == "sockets" else value
            yield Brought("sandbox setting", f"{key} = {shown}")
    for url in layer.http_urls:
        yield Brought("address of hooks", url)
    for variable in layer.http_env_vars:
        yield Brought("variable in headers", variable)


def _hook(hook: HookConfig) -> Brought:
    handlers = ", ".join(map(_handler, hook.handlers))
    condition = f" if {hook.condition}" if hook.condition else ""
    return Brought("hook", f"{hook.event} {hook.matcher}{condition}: {handlers}")


def _handler(handler: HandlerConfig) -> str:
    if handler.type == "http":
        return f"POST {handler.url}{_with(handler.headers)}"
    return f"{_line(handler.command, handler.args)}{_with(handler.env)}"


def _reached(server: dict[str, Any]) -> str:
    """How a server is reached, and the variables or headers it receives."""
    line = str(server.get("url") or _line(server.get("command") or "", server.get("args")))
    values: dict[str, str] = {}
    for key in ("env", "headers"):
        values |= server.get(key) or {}
    where = f" in {server['cwd']}" if server.get("cwd") else ""
    return f"{line}{where}{_with(values)}"


def _with(values: dict[str, str]) -> str:
    return (
        f" (with {', '.join(f'{name}={value}' for name, value in values.items())})"
        if values
        else ""
    )


def _line(command: str, args: Any) -> str:
    return " ".join([command, *(args or ())])
