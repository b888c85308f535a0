"""The settings of one scope, and the merge of two."""

from typing import Any, cast

from msgspec import Struct
from msgspec.structs import asdict, replace

from batten.settings.contract import (
    EntryPoints,
    HookConfig,
    PanelConfig,
    RuleConfig,
    SandboxConfig,
    Scope,
)


class PluginPath(Struct, frozen=True):
    path: str
    scope: Scope


class Layer(Struct, frozen=True, kw_only=True):
    """Unset values are None or empty."""

    sources: tuple[Scope, ...] = ()
    """From the weakest to the strongest."""
    model: str | None = None
    fallback_models: tuple[str, ...] | None = None
    max_retries: int | None = None
    parallel_reads: int | None = None
    require_price: bool | None = None
    permission_mode: str | None = None
    enforce: bool = False
    rules: tuple[RuleConfig, ...] = ()
    """The strongest first."""
    panels: tuple[PanelConfig, ...] = ()
    """The strongest first; of two with one name the first counts."""
    hooks: tuple[HookConfig, ...] = ()
    disable_all_hooks: bool | None = None
    allow_managed_hooks_only: bool | None = None
    http_urls: tuple[str, ...] = ()
    http_env_vars: tuple[str, ...] = ()
    mcp_servers: dict[str, dict[str, Any]] = {}
    env: dict[str, str] = {}
    plugins: tuple[PluginPath, ...] = ()
    entry_points: EntryPoints = EntryPoints()
    sandbox: SandboxConfig = SandboxConfig()
    sinks: dict[str, Any] = {}
    directories: tuple[str, ...] = ()
    blocks: bool = False
    """Whether no scope may override it; managed settings only."""


def merged(weak: Layer, strong: Layer) -> Layer:
    """On conflict the strong layer wins; lists are joined, the strong layer's first.

    Associative if each key has one type in all layers; an empty layer changes nothing.
    """
    return Layer(
        sources=(*weak.sources, *strong.sources),
        model=_first(strong.model, weak.model),
        fallback_models=_first(strong.fallback_models, weak.fallback_models),
        max_retries=_first(strong.max_retries, weak.max_retries),
        parallel_reads=_first(strong.parallel_reads, weak.parallel_reads),
        require_price=_first(strong.require_price, weak.require_price),
        permission_mode=_first(strong.permission_mode, weak.permission_mode),
        # Restrictions always hold: no scope can lift them.
        enforce=strong.enforce or weak.enforce,
        rules=(*strong.rules, *weak.rules),
        panels=(*strong.panels, *weak.panels),
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
        entry_points=EntryPoints(
            models=_joined(strong.entry_points.models, weak.entry_points.models),
            tools=_joined(strong.entry_points.tools, weak.entry_points.tools),
        ),
        sandbox=_merged_sandbox(weak.sandbox, strong.sandbox),
        sinks=deep_merged(weak.sinks, strong.sinks),
        directories=(*strong.directories, *weak.directories),
        blocks=strong.blocks or weak.blocks,
    )


def restrained(layer: Layer) -> Layer:
    """The part that only forbids, which applies without trust."""
    # Without trust a rule may ask a person, and no panel in that person's place.
    rules = tuple(replace(rule, panel="") for rule in layer.rules if rule.action != "allow")
    return Layer(sources=layer.sources, rules=rules, enforce=layer.enforce)


def deep_merged(weak: dict[str, Any], strong: dict[str, Any]) -> dict[str, Any]:
    """Merge nested tables; other values of `strong` replace those of `weak`."""
    both: dict[str, Any] = dict(weak)
    for key, value in strong.items():
        below = both.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            both[key] = deep_merged(cast("dict[str, Any]", below), cast("dict[str, Any]", value))
        else:
            both[key] = value
    return both


def _merged_sandbox(weak: SandboxConfig, strong: SandboxConfig) -> SandboxConfig:
    return replace(weak, **{name: one for name, one in asdict(strong).items() if one is not None})


def _first(strong: Any, weak: Any) -> Any:
    return weak if strong is None else strong


def _joined(strong: tuple[str, ...], weak: tuple[str, ...]) -> tuple[str, ...]:
    """All names, each once."""
    return tuple(dict.fromkeys((*strong, *weak)))
