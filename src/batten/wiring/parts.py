"""Assembles the parts that a session's runs work with, and closes them."""

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from batten.agent.ask import AskUser
from batten.agent.child import AgentTool
from batten.agent.deps import Observer, RunDeps
from batten.agent.hooks.hooks import Hooks
from batten.agent.rules.rule import Rule, check_tools, editable_by
from batten.agent.settings import RunSettings
from batten.contract.errors import BattenError, CallerError
from batten.contract.facts.error import SERVER_UNAVAILABLE, ErrorToolUnavailable
from batten.contract.notes import Note
from batten.contract.numbers import seconds_of
from batten.journal.contract import Journal
from batten.journal.workers import lease_seconds, this_worker
from batten.models.contract import Model
from batten.models.pricing import check_own_prices, price, prices_as_of
from batten.models.registry import open_model, split_name
from batten.redact.identity import recorded_identity
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.session.requests import JournalRequests
from batten.settings.contract import SandboxConfig, Settings
from batten.settings.folders import config_folder
from batten.tools.contract import GRACE_S, Tool
from batten.tools.registry import Toolbox
from batten.wiring.directories import additional_directories
from batten.wiring.spec import SessionSpec
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import HALF_OF_FREE, Limits, Policy

if TYPE_CHECKING:
    from batten.tools.mcp import McpServers
    from batten.wiring.entry_points import Extensions
    from batten.wiring.worktree import SessionWorktree

_LONGEST_REASON = 500
_MIB = 1024 * 1024
_PROCESSES = 4096
_OPEN_FILES = 65536


class SessionParts:
    """The parts of one session. Closing them ends their processes."""

    def __init__(
        self,
        spec: SessionSpec,
        journal: Journal,
        home: str,
        worktree: "SessionWorktree | None" = None,
    ) -> None:
        self._worktree = worktree
        self.journal = journal
        self._spec = spec
        self._home = home
        self._environ = spec.environ
        self._found = Settings()
        self._extensions: Extensions | None = None
        self._own_tools = spec.own_tools
        self._first_models: set[str | None] = set()
        self._seal_key: SealKey | None = None
        self._keeper: Keeper | None = None
        self._servers: McpServers | None = None
        self._deps: RunDeps | None = None
        self._show_note: Callable[[str, Note], None] | None = None
        self._sandbox: dict[str, Any] = {"layer": "unknown"}
        self._unpriced: set[str] = set()
        """Models without a known price that a warning named."""
        self._refuses_unpriced = False
        """Whether a budget is set and must be kept, which needs a known price of each model."""

    @property
    def deps(self) -> RunDeps:
        assert self._deps is not None
        return self._deps

    @property
    def keeper(self) -> Keeper:
        assert self._keeper is not None
        return self._keeper

    async def close(self) -> None:
        try:
            if self._servers is not None:
                await self._servers.close()
        finally:
            if self._keeper is not None:
                await self._keeper.close()

    async def run_deps(self, workspace: str, settings: RunSettings, found: Settings) -> RunDeps:
        """The dependencies of the runs of a session in this workspace."""
        spec, self._found = self._spec, found
        self._first_models = {*settings.models, settings.compact_model}
        if found.env:
            self._environ = {**spec.environ, **found.env}
        check_own_prices(self._environ)
        self._load_extensions(workspace)
        if not spec.lends_tools:
            self.check_rules()
        if settings.budget_micros_usd is not None and self._wants_prices():
            self._refuses_unpriced = True
            self._check_prices(settings)
        # The folder that the next start reads: variables of settings files do not move it.
        protected = (self._home, config_folder(spec.environ))
        directories = additional_directories(spec, found, workspace=workspace, protected=protected)
        policy = self._policy(settings, workspace, directories, protected)
        self._keeper = Keeper(workspace, policy, self._environ)
        # Starting the keeper takes longer than opening the session and making the first call. It
        # begins now: commits hold the event loop of a process of our own.
        self._keeper.start()
        await asyncio.sleep(0)
        redactor = Redactor.from_environment(self._environ, self._configured_secrets())
        await self._connect_servers(workspace, redactor)
        identity = recorded_identity(self._environ, redactor)
        self._deps = RunDeps(
            journal=self.journal,
            redactor=redactor,
            seal_key=self.seal_key,
            open_model=self._open_model,
            toolbox=self._toolbox,
            requests=JournalRequests(settings.resolvers, settings.request_seconds),
            worker_id=this_worker(),
            lease_s=lease_seconds(self._environ),
            workspace_path=workspace,
            directories=directories,
            workspace_mode="in_place" if self._worktree is None else "worktree",
            identity=identity,
            is_traced=_is_traced(identity, self._environ, found),
            home=self._home,
            grace_s=GRACE_S if found.sandbox.grace_s is None else found.sandbox.grace_s,
            hooks=Hooks(
                found.hooks,
                found.hook_limits,
                workspace=workspace,
                environ=self._environ,
                observed=spec.observe_hooks,
            ),
            observer=self._recorder(redactor, settings, workspace),
            note=self._note if spec.notes else None,
            alert=spec.alert,
            unavailable=self._unavailable,
            before_effects=self._warm_up,
        )
        if settings.tools is not None or self._extensions is not None:
            self._check_tools(settings)
        self._deps = self._with_panels(self._deps, settings)
        return self._deps

    def _policy(
        self,
        settings: RunSettings,
        workspace: str,
        directories: tuple[str, ...],
        hidden: tuple[str, ...],
    ) -> Policy:
        spec, found = self._spec, self._found
        # Outside the workspace, git writes these for a commit in a worktree.
        git_paths = () if self._worktree is None else self._worktree.tree.git_paths
        return Policy(
            writable=(*directories, *git_paths),
            hidden=hidden,
            readable=self._readable(),
            editable=editable_by(settings.rules, workspace),
            added=found.env,
            network=spec.network,
            read_only=spec.read_only,
            mode=spec.sandbox,
            limits=_limits(found.sandbox),
            sockets=found.sandbox.sockets or (),
        )

    def _readable(self) -> tuple[str, ...]:
        """What commands must read wherever it is: files of plugins and skills, and the repository
        of a worktree.
        """
        folders = [plugin.path for plugin in self._found.plugins]
        folders += [os.path.dirname(skill.path) for skill in self._found.skills]
        if self._worktree is not None:
            folders.append(self._worktree.tree.common)
        return tuple(folders)

    def _with_panels(self, deps: RunDeps, settings: RunSettings) -> RunDeps:
        """With the panels that answer for people, if a rule names one."""
        named = {rule.panel: rule for rule in settings.rules if rule.panel}
        if not named or self._spec.convene is None:
            return deps
        known = [panel.name for panel in self._found.panels]
        for name, rule in named.items():
            if name not in known:
                raise CallerError(
                    f"permission rule {rule.pattern!r} ({rule.source}) names the panel {name!r}; "
                    f"the settings have {', '.join(known) or 'none'}",
                    code="config",
                )
        return replace(deps, panels=self._spec.convene(self._spec, deps, settings, self._found))

    def _load_extensions(self, workspace: str) -> None:
        """Load the models and tools of other packages that the settings name."""
        named = self._found.entry_points
        if not named.models and not named.tools:
            return
        from batten.wiring.entry_points import Extensions

        self._extensions = Extensions(named, workspace, self._environ)
        self._own_tools = (*self._spec.own_tools, *self._extensions.tools)

    def _mcp_servers(self) -> dict[str, dict[str, Any]]:
        spec = self._spec
        servers = {**self._found.mcp_servers, **spec.client_servers, **spec.mcp_servers}
        is_named = any(name.startswith("MAESTRO_") and "_MCP_" in name for name in spec.environ)
        if is_named and not spec.bare and "mcp" not in spec.without:
            from batten.wiring.platform_server import platform_server

            session_id = spec.session_id or ""
            if spec.resume:  # perhaps by the name of a run
                session_id = spec.resume if spec.resume.startswith("chat_") else ""
            servers = {**platform_server(spec.environ, session_id), **servers}
        return servers

    def _configured_secrets(self) -> set[str]:
        """Literal secrets in the entries of tool servers and hooks."""
        handlers = [handler for hook in self._found.hooks for handler in hook.handlers]
        servers, confined = self._mcp_servers(), self._spec.confined_servers
        if not handlers and not servers and not confined:
            return set()
        from batten.redact.configured import configured_values
        from batten.wiring.platform_server import without_ids

        entries = map(without_ids, servers.values())
        return configured_values([*entries, *map(to_builtins, (*handlers, *confined))])

    def check_rules(self, lent: Iterable[str] = ()) -> None:
        """Raises `CallerError` for a rule about a tool that is neither ours nor `lent`."""
        check_tools(self._read_rules(), [*(tool.spec.name for tool in self._own_tools), *lent])

    def _read_rules(self) -> Iterator[Rule]:
        """The rules of the specification and of files; a resumed session's were checked before."""
        yield from self._spec.rules
        for rule in self._found.rules:
            yield Rule(rule.action, rule.pattern, rule.scope)
        for hook in self._found.hooks:
            if hook.condition:
                yield Rule("deny", hook.condition, f"{hook.scope} hook")

    def show_notes(self, show: Callable[[str, Note], None]) -> None:
        self._show_note = show

    def _note(self, run_id: str, note: Note) -> None:
        if self._show_note is not None:
            self._show_note(run_id, note)

    def _check_tools(self, settings: RunSettings) -> None:
        try:
            self._toolbox(self.deps, settings, 0)
        except CallerError as error:
            if settings.tools is None:
                raise CallerError(
                    f"entry points of batten.tools: {error}", code="config"
                ) from error
            raise CallerError(f"--tools: {error}", code="usage") from error

    def describe(self, settings: RunSettings, session_id: str) -> dict[str, Any]:
        """The fields of a first frame."""
        toolbox = self._toolbox(self.deps, settings, 0)
        beside = list(self.deps.directories)
        return {
            "session_id": session_id,
            "model": settings.models[0],
            "tools": sorted(toolbox.names()),
            "mcp_servers": self.server_states(),
            "plugins": [
                {"name": plugin.name, "version": plugin.version, "source": plugin.path}
                for plugin in self._found.plugins
            ],
            "settingSources": list(self._found.sources),
            "bare_mode": self._spec.bare,
            "cwd": self.deps.workspace_path,
            **({"additional_directories": beside} if beside else {}),
            "permission_mode": settings.mode,
            "sandbox": self._sandbox,
            "pricing": {"as_of": prices_as_of(self._environ)},
        }

    async def find_sandbox(self) -> None:
        """Wait until the keeper runs, to describe its sandbox; why commands are refused, if not."""
        try:
            found = await self.keeper.ready()
            self._sandbox = {"layer": found.layer, "uncovered": list(found.uncovered)}
        except BattenError as error:
            self._sandbox = {"layer": "unavailable", "error": self.deps.redactor.text(str(error))}

    def server_states(self) -> list[Any]:
        """The state of each tool server; secrets in its errors are redacted."""
        if self._servers is None:
            return []
        states: list[Any] = self.deps.redactor.value(self._servers.states())[0]
        return states

    def _unavailable(self) -> list[ErrorToolUnavailable]:
        """A fact for each tool server that did not connect."""
        return [
            ErrorToolUnavailable(
                tool_name=f"mcp__{state['name']}",
                reason=SERVER_UNAVAILABLE,
                message=" ".join(state["error"].split())[:_LONGEST_REASON],
            )
            for state in self.server_states()
            if state["status"] == "failed"
        ]

    async def _warm_up(self) -> None:
        """Restart a lost keeper, beside each run's first model call."""
        self.keeper.start()

    def seal_key(self) -> SealKey:
        if self._seal_key is None:
            self._seal_key = SealKey.load(self._home)
        return self._seal_key

    def _open_model(self, name: str) -> Model:
        provider, place = split_name(name, self._found.entry_points.models)
        if provider == "scripted":
            # It names a file, which is for the user who starts the session to choose.
            if name not in self._first_models:
                raise CallerError(f"the session's models do not include {name!r}", code="config")
            from batten.models.scripted import open_scripted
            from batten.tools.aliases import aliases

            return open_scripted(place, aliases=aliases())
        model = self._extensions and self._extensions.open_model(name)
        model = model or open_model(name, self._environ, timeouts=_timeouts(self._environ))
        if model.price is None and name not in self._unpriced:
            if self._refuses_unpriced:
                raise _unpriced(name)
            self._unpriced.add(name)
            self._spec.warn(f"no price is known for {name}: its cost is not counted, nor limited")
        return model

    def _wants_prices(self) -> bool:
        """A run that goes on as it began was allowed to when it began."""
        spec = self._spec
        states_more = spec.budget_micros_usd is not None or spec.models or spec.fallback_models
        if spec.require_price is not None or (spec.goes_on and not states_more):
            return spec.require_price is True
        return self._found.require_price

    def _check_prices(self, settings: RunSettings) -> None:
        """Refuse a budget that could not be kept, before anything is paid for."""
        summarizing = (settings.compact_model,) if settings.compact_model else ()
        for name in (*settings.models, *summarizing):
            if name.partition("/")[0] in self._found.entry_points.models:
                continue  # it states its price itself, once it is opened
            provider, model = split_name(name)
            if price(provider, model, self._environ) is None:
                raise _unpriced(name)

    def _toolbox(self, deps: RunDeps, settings: RunSettings, depth: int) -> Toolbox:
        from batten.tools.builtin import builtin_tools

        tools: list[Tool] = builtin_tools(
            self.keeper,
            deps.redactor,
            deps.home,
            deps.workspace_path,
            self._environ,
            deps.lent,
            deps.grace_s,
            deps.directories,
            self._spec.command_seconds,
        )
        tools += [AskUser(deps), *self._own_tools]
        if self._spec.child_runs:
            tools.append(AgentTool(deps, settings, depth))
        if self._found.skills:
            from batten.tools.skill import SkillTool

            tools.append(SkillTool(self._found.skills))
        if self._servers is not None:
            tools += self._servers.tools()
        if self._spec.bare:
            tools = [tool for tool in tools if tool.spec.name != "save_memory"]
        toolbox = Toolbox(tools)
        return toolbox if settings.tools is None else toolbox.only(settings.tools)

    def _recorder(
        self, redactor: Redactor, settings: RunSettings, workspace: str
    ) -> Observer | None:
        if not self._spec.record:
            return None
        from batten.models.recorder import ScenarioRecorder

        try:
            recorder = ScenarioRecorder(
                self._spec.record,
                redactor=redactor.authored,
                workspace=workspace,
                warn=self._spec.warn,
                model=settings.models[0],
            )
            recorder.check()
        except CallerError as error:
            raise CallerError(f"--record: {error}", code="usage") from error
        return recorder

    async def _connect_servers(self, workspace: str, redactor: Redactor) -> None:
        """Connect tool servers. A server that does not answer causes a warning, and is left out."""
        spec, servers = self._spec, self._mcp_servers()
        if not servers and not spec.confined_servers:
            return
        from batten.tools.mcp import MOST_TOOLS, McpServers
        from batten.tools.mcp_config import confined_config

        for server in spec.confined_servers:
            if server.name in servers:
                raise CallerError(
                    f"mcp_servers[{server.name}] has the name of a tool server of the service; give"
                    " it another one",
                    code="config",
                )
        self._servers = await McpServers.connect(
            {"mcpServers": servers},
            self._environ,
            cwd=workspace,
            redact=redactor.text,
            elicits=spec.elicits,
            confined=[confined_config(one, workspace) for one in spec.confined_servers],
            sandbox=self.keeper.twin() if spec.confined_servers else None,
        )
        for state in self._servers.states():
            if state["status"] == "failed":
                spec.warn(f"MCP server {state['name']} is not available: {state['error']}")
        for name in self._servers.with_more_tools():
            spec.warn(f"MCP server {name} has more than {MOST_TOOLS} tools; the rest is left out")


def _unpriced(name: str) -> CallerError:
    return CallerError(
        f"no price is known for {name}, so the budget (--max-budget-usd) could not be kept; give "
        "it a price in BATTEN_PRICES, or leave out --require-price to use it without counting its "
        "cost",
        code="config",
    )


def _limits(config: SandboxConfig) -> Limits:
    size = config.file_mib
    return Limits(
        processes=_PROCESSES if config.processes is None else config.processes,
        memory_bytes=(config.memory_mib or 0) * _MIB,
        open_files=_OPEN_FILES if config.open_files is None else config.open_files,
        file_bytes=HALF_OF_FREE if size is None else size * _MIB,
    )


def _timeouts(environ: Mapping[str, str]) -> Any:
    """How long a model may be silent: `BATTEN_MODEL_TIMEOUT_S` and `BATTEN_MODEL_IDLE_S`."""
    if not environ.get("BATTEN_MODEL_TIMEOUT_S") and not environ.get("BATTEN_MODEL_IDLE_S"):
        return None
    from batten.models.http import Timeouts

    usual = Timeouts()
    return Timeouts(
        first_byte_s=seconds_of(environ, "BATTEN_MODEL_TIMEOUT_S", usual.first_byte_s),
        idle_s=seconds_of(environ, "BATTEN_MODEL_IDLE_S", usual.idle_s),
    )


def _is_traced(identity: Mapping[str, str], environ: Mapping[str, str], found: Settings) -> bool:
    """Whether the caller named its span, or traces are exported."""
    is_on = environ.get("OTEL_ENABLED", "").strip().lower() in ("1", "true", "yes", "on")
    return "traceparent" in identity or is_on or "otel" in found.sinks
