"""Builds the settings of one workspace: merges the scopes in order, then plugins and skills."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce

from batten.settings.contract import (
    EntryPoints,
    HookConfig,
    HookLimits,
    PanelConfig,
    Scope,
    Settings,
    Skill,
)
from batten.settings.files import Document, digest, find, parse, read
from batten.settings.folders import at_home
from batten.settings.keys import read_layer
from batten.settings.layer import Layer, PluginPath, merged
from batten.settings.plugins import PluginContent, read_plugin
from batten.settings.problems import bounded
from batten.settings.skills import find_skills
from batten.settings.supplied import Recorded, Supplied

_HOOK_ORDER: tuple[Scope, ...] = ("plugin", "flag", "local", "project", "user", "managed")
"""Managed hooks run last: they see the input as changed by all others."""
_OF_WORKSPACE: tuple[Scope, ...] = ("project", "local")


class SettingsBuilder:
    def __init__(
        self,
        *,
        workspace: str,
        home: str,
        config: str,
        environ: Mapping[str, str],
        wanted: frozenset[Scope],
        without: frozenset[str],
        trust_workspace: bool = False,
    ) -> None:
        self._workspace = workspace
        self._config = config
        self._environ = environ
        self._wanted = wanted
        self._without = without
        self._problems: list[str] = []
        self._judge = Recorded(home, workspace, trust_all=trust_workspace)
        self._supplied = Supplied(workspace, self._judge, self._problems)

    def settings(self, managed_stem: str, flag: str | None, plugin_dirs: Sequence[str]) -> Settings:
        managed = self._managed(managed_stem)
        whole = self._merged(managed, flag)
        environ = {**self._environ, **whole.env}
        plugins = list(self._plugins(whole, plugin_dirs, environ))
        servers = dict(whole.mcp_servers)
        for plugin in plugins:
            for name, server in plugin.mcp_servers.items():
                if servers.setdefault(name, server) is not server:
                    self._left_out(plugin, f"MCP server {name}", "another has that name")
        skills = self._skills(plugins)
        untrusted = self._judge.problem()
        # First, since long lists are cut at the end.
        problems = [untrusted, *self._problems] if untrusted else self._problems
        return Settings(
            sources=whole.sources,
            model=whole.model,
            fallback_models=whole.fallback_models or (),
            max_retries=whole.max_retries,
            parallel_reads=whole.parallel_reads,
            require_price=whole.require_price is True,
            permission_mode=whole.permission_mode,
            may_bypass=not whole.enforce,
            rules=whole.rules,
            panels=_named_once(whole.panels),
            hooks=() if "hooks" in self._without else _hooks(whole, managed, plugins),
            hook_limits=HookLimits(
                http_urls=tuple(dict.fromkeys(whole.http_urls)),
                http_env_vars=tuple(dict.fromkeys(whole.http_env_vars)),
            ),
            mcp_servers={} if "mcp" in self._without else servers,
            env=whole.env,
            skills=skills,
            plugins=tuple(plugin.plugin for plugin in plugins),
            entry_points=EntryPoints() if "plugins" in self._without else whole.entry_points,
            sandbox=whole.sandbox,
            sinks=whole.sinks,
            directories=tuple(at_home(path, environ) for path in dict.fromkeys(whole.directories)),
            problems=bounded(problems),
        )

    def _managed(self, stem: str) -> Layer:
        """The settings of the machine's owner. A variable cannot override a file in /etc."""
        document = find(stem)
        instead = self._environ.get("BATTEN_MANAGED_SETTINGS")
        if document is None and instead and os.path.lexists(instead):
            document = read(instead)
        if document is None:
            return Layer()
        layer = self._layer(document, "managed")
        return layer if layer.blocks or "managed" in self._wanted else Layer()

    def _merged(self, managed: Layer, flag: str | None) -> Layer:
        """All layers merged, the strongest last."""
        layers = [self._user(), *self._of_workspace()]
        if flag is not None:
            layers.append(self._layer(_flag_document(flag), "flag"))
        layers.insert(len(layers) if managed.blocks else 0, managed)
        return reduce(merged, layers, Layer())

    def _user(self) -> Layer:
        document = None
        if "user" in self._wanted:
            document = find(os.path.join(self._config, "settings"))
        return Layer() if document is None else self._layer(document, "user")

    def _of_workspace(self) -> Iterator[Layer]:
        if "project" in self._wanted:
            if "mcp" not in self._without:
                yield Layer(mcp_servers=self._supplied.servers())
            yield self._supplied.layer("project") or Layer()
        if "local" in self._wanted:
            yield self._supplied.layer("local") or Layer()

    def _layer(self, document: Document, scope: Scope) -> Layer:
        base = os.path.dirname(document.path) or self._workspace
        return read_layer(document, scope, base, self._problems)

    def _plugins(
        self, whole: Layer, flag_paths: Sequence[str], environ: Mapping[str, str]
    ) -> Iterator[PluginContent]:
        """Each plugin once, in order of precedence; a second one of the same name is left out."""
        if "plugins" in self._without:
            return
        paths = [PluginPath(os.path.abspath(path), "flag") for path in flag_paths]
        paths += [*whole.plugins, *self._installed()]
        folders: dict[str, PluginPath] = {}
        for named in paths:
            folder = os.path.realpath(at_home(named.path, self._environ))
            # A plugin that the user names too needs no trust, even if the workspace named it
            # first.
            if folder not in folders or folders[folder].scope in _OF_WORKSPACE:
                folders[folder] = PluginPath(at_home(named.path, self._environ), named.scope)
        names: set[str] = set()
        for named in folders.values():
            plugin = self._plugin(named.path, named.scope, environ)
            if plugin is None:
                continue
            if plugin.plugin.name in names:
                self._left_out(plugin, "all of it", "another has that name")
                continue
            names.add(plugin.plugin.name)
            yield plugin

    def _plugin(self, path: str, scope: Scope, environ: Mapping[str, str]) -> PluginContent | None:
        if scope in _OF_WORKSPACE:
            return self._supplied.plugin(path, environ)
        return read_plugin(os.path.realpath(path), environ, self._problems)

    def _installed(self) -> list[PluginPath]:
        """Plugins in the user's configuration folder."""
        folder = os.path.join(self._config, "plugins")
        if "user" not in self._wanted or not os.path.isdir(folder):
            return []
        try:
            with os.scandir(folder) as entries:
                paths = sorted(entry.path for entry in entries if entry.is_dir())
        except OSError as error:
            self._problems.append(f"plugins are left out: {folder}: {error.strerror}")
            return []
        return [PluginPath(path, "user") for path in paths]

    def _skills(self, plugins: list[PluginContent]) -> tuple[Skill, ...]:
        """The user's, then the workspace's, then those of plugins; the first of a name wins."""
        if "skills" in self._without:
            return ()
        found: list[Skill] = []
        if "user" in self._wanted:
            found += find_skills(os.path.join(self._config, "skills"), "user", self._problems)
        if "project" in self._wanted:
            found += self._supplied.skills()
        found += [skill for plugin in plugins for skill in plugin.skills]
        kept: dict[str, Skill] = {}
        for skill in found:
            if kept.setdefault(skill.name, skill) is not skill:
                other = kept[skill.name].path
                self._problems.append(f"a skill is left out: {skill.path} has the name of {other}")
        return tuple(kept.values())

    def _left_out(self, plugin: PluginContent, what: str, why: str) -> None:
        named = plugin.plugin
        self._problems.append(f"plugin {named.name} ({named.path}): {what} is left out: {why}")


def _hooks(whole: Layer, managed: Layer, plugins: list[PluginContent]) -> tuple[HookConfig, ...]:
    """The active hooks. Only managed settings can turn off managed hooks."""
    if whole.disable_all_hooks and managed.disable_all_hooks:
        return ()
    only_managed = (
        whole.disable_all_hooks
        or whole.allow_managed_hooks_only
        or managed.allow_managed_hooks_only
    )
    hooks = [*(hook for plugin in plugins for hook in plugin.hooks), *whole.hooks]
    kept = [hook for hook in hooks if hook.scope == "managed" or not only_managed]
    return tuple(sorted(kept, key=lambda hook: _HOOK_ORDER.index(hook.scope)))


def _flag_document(flag: str) -> Document:
    """Settings given inline as JSON, or as a file."""
    if not flag.lstrip().startswith("{"):
        return read(os.path.abspath(flag), pipes=True)
    data = flag.encode()
    content = parse(data, "--settings")
    return Document(path="", shown="--settings", digest=digest(data), content=content)


def _named_once(panels: tuple[PanelConfig, ...]) -> tuple[PanelConfig, ...]:
    """Panels by name; the strongest scope's counts."""
    named: dict[str, PanelConfig] = {}
    for panel in panels:
        named.setdefault(panel.name, panel)
    return tuple(named.values())
