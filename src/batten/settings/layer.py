"""What one scope says, and how the words of two become one."""

from typing import Any, cast

from msgspec import Struct

from batten.settings.contract import HookConfig, RuleConfig, Scope


class PluginPath(Struct, frozen=True):
    path: str
    scope: Scope


class Layer(Struct, frozen=True, kw_only=True):
    """What was said; what was not is None or empty."""

    sources: tuple[Scope, ...] = ()
    """From the weakest to the strongest."""
    model: str | None = None
    fallback_models: tuple[str, ...] | None = None
    permission_mode: str | None = None
    enforce: bool = False
    rules: tuple[RuleConfig, ...] = ()
    """The strongest first."""
    hooks: tuple[HookConfig, ...] = ()
    disable_all_hooks: bool | None = None
    allow_managed_hooks_only: bool | None = None
    http_urls: tuple[str, ...] = ()
    http_env_vars: tuple[str, ...] = ()
    mcp_servers: dict[str, dict[str, Any]] = {}
    env: dict[str, str] = {}
    plugins: tuple[PluginPath, ...] = ()
    blocks: bool = False
    """Whether nothing may stand above it: only the machine's owner can say so."""


def merged(weak: Layer, strong: Layer) -> Layer:
    """Of two that disagree the strong one wins; lists are joined, the strong one's first.

    As long as a key is of one kind wherever it stands, it does not matter which neighbours
    are merged first; a layer that says nothing changes nothing.
    """
    return Layer(
        sources=(*weak.sources, *strong.sources),
        model=_first(strong.model, weak.model),
        fallback_models=_first(strong.fallback_models, weak.fallback_models),
        permission_mode=_first(strong.permission_mode, weak.permission_mode),
        # What forbids holds, whoever says it: no scope takes it back.
        enforce=strong.enforce or weak.enforce,
        rules=(*strong.rules, *weak.rules),
        hooks=(*strong.hooks, *weak.hooks),
        disable_all_hooks=_first(strong.disable_all_hooks, weak.disable_all_hooks),
        allow_managed_hooks_only=_first(
            strong.allow_managed_hooks_only, weak.allow_managed_hooks_only
        ),
        http_urls=(*strong.http_urls, *weak.http_urls),
        http_env_vars=(*strong.http_env_vars, *weak.http_env_vars),
        mcp_servers=deep_merged(weak.mcp_servers, strong.mcp_servers),
        env={**weak.env, **strong.env},
        plugins=(*strong.plugins, *weak.plugins),
        blocks=strong.blocks or weak.blocks,
    )


def restrained(layer: Layer) -> Layer:
    """The part that only forbids: what somebody may say whom nobody trusts."""
    rules = tuple(rule for rule in layer.rules if rule.action != "allow")
    return Layer(sources=layer.sources, rules=rules, enforce=layer.enforce)


def deep_merged(weak: dict[str, Any], strong: dict[str, Any]) -> dict[str, Any]:
    """Tables within tables are merged too; anything else of the strong one replaces."""
    both: dict[str, Any] = dict(weak)
    for key, value in strong.items():
        below = both.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            both[key] = deep_merged(cast("dict[str, Any]", below), cast("dict[str, Any]", value))
        else:
            both[key] = value
    return both


def _first(strong: Any, weak: Any) -> Any:
    return weak if strong is None else strong
