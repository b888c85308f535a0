"""Puts the parts of one invocation together, and takes them apart again."""

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from batten.agent.ask import AskUser
from batten.agent.child import AgentTool
from batten.agent.deps import Observer, RunDeps
from batten.agent.hooks.hooks import Hooks
from batten.agent.rules.rule import Rule, check_tools
from batten.agent.settings import RunSettings
from batten.cli.arguments import UsageError
from batten.cli.options import json_object
from batten.contract.errors import CallerError
from batten.contract.notes import Note
from batten.journal.sqlite import SqliteJournal
from batten.journal.workers import this_worker
from batten.models.contract import Model
from batten.models.pricing import price, prices_as_of
from batten.models.registry import open_model
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.serve.output import say
from batten.session.requests import JournalRequests
from batten.settings.contract import Settings
from batten.settings.reader import config_folder
from batten.tools.contract import Tool
from batten.tools.registry import Toolbox
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Policy

if TYPE_CHECKING:
    from batten.tools.mcp import McpServers
    from batten.workspace.private_directory import PrivateDirectory


class Wiring:
    """The store and everything a session works with. Leaving it ends what was started."""

    def __init__(
        self,
        home: str,
        environ: Mapping[str, str],
        options: Namespace,
        tools: Sequence[Tool] = (),
        journal: SqliteJournal | None = None,
    ) -> None:
        """`journal` is the store, if whoever opened it closes it."""
        self._home = home
        self._environ = environ
        self._options = options
        self._tools = tools
        self._seal_key: SealKey | None = None
        self._keeper: Keeper | None = None
        self._servers: McpServers | None = None
        self._found = Settings()
        self._deps: RunDeps | None = None
        self._show_note: Callable[[str, Note], None] | None = None
        self._unpriced: set[str] = set()
        """Models without a known price, of which that has been said."""
        self._unsaved = directory_for_now() if options.no_save and journal is None else None
        self._shared = journal is not None
        store = self._unsaved.path if self._unsaved else home
        self.journal = journal or SqliteJournal.open(store, own_process=True)

    @property
    def deps(self) -> RunDeps:
        assert self._deps is not None
        return self._deps

    @property
    def keeper(self) -> Keeper:
        assert self._keeper is not None
        return self._keeper

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._servers is not None:
            await self._servers.close()
        if self._keeper is not None:
            await self._keeper.close()
        if not self._shared:
            self.journal.close()
        if self._unsaved is not None:
            await self._unsaved.remove()

    async def deps_for(
        self,
        workspace: str,
        settings: RunSettings,
        found: Settings | None = None,
        *,
        elicits: bool = False,
        lends_tools: bool = False,
    ) -> RunDeps:
        """Everything a session in this workspace works with.

        `elicits`: what tool servers want to know is asked of whoever answers requests.
        `lends_tools`: a client may bring tools later, which rules may name by now.
        """
        self._found = found or Settings()
        if not lends_tools:
            check_tools(self._read_rules(), [tool.spec.name for tool in self._tools])
        # Where the next start looks for settings: what they add to the environment moves nothing.
        settled = config_folder(self._environ)
        if self._found.env:
            self._environ = {**self._environ, **self._found.env}
        redactor = Redactor.from_environment(self._environ)
        policy = Policy(
            protected=(self._home, settled),
            added=self._found.env,
            network=self._options.sandbox_network == "allow",
            mode=self._options.sandbox,
        )
        self._keeper = Keeper(workspace, policy)
        if self._options.mcp_config or self._found.mcp_servers:
            await self._connect_servers(workspace, elicits=elicits)
        self._deps = RunDeps(
            journal=self.journal,
            redactor=redactor,
            seal_key=self.seal_key,
            open_model=self._open_model,
            toolbox=self._toolbox,
            requests=JournalRequests(settings.resolvers, settings.request_seconds),
            worker_id=this_worker(),
            workspace_path=workspace,
            home=self._home,
            hooks=Hooks(
                self._found.hooks,
                self._found.hook_limits,
                workspace=workspace,
                observed=self._options.include_hook_events,
            ),
            observer=self._recorder(redactor, settings),
            note=self._note if self._options.include_partial_messages else None,
            before_effects=self._warm_up,
        )
        if settings.tools is not None:
            self._check_tools(settings)
        # While the session is opened and the first call is made, which takes less time.
        self._keeper.start()
        return self._deps

    def _read_rules(self) -> Iterator[Rule]:
        """Rules that flags and files name now; those of a resumed session were read before."""
        yield from self._options.rules or ()
        for rule in self._found.rules:
            yield Rule(rule.action, rule.pattern, rule.scope)
        for hook in self._found.hooks:
            if hook.condition:
                yield Rule("deny", hook.condition, f"{hook.scope} hook")

    def show_notes(self, show: Callable[[str, Note], None]) -> None:
        """Who shows what is said once."""
        self._show_note = show

    def _note(self, run_id: str, note: Note) -> None:
        if self._show_note is not None:
            self._show_note(run_id, note)

    def _check_tools(self, settings: RunSettings) -> None:
        try:
            self._toolbox(self.deps, settings, 0)
        except CallerError as error:
            raise UsageError(f"--tools: {error}") from error

    def describe(self, settings: RunSettings, session_id: str) -> dict[str, Any]:
        """What the first frame says of the run."""
        toolbox = self._toolbox(self.deps, settings, 0)
        return {
            "session_id": session_id,
            "model": settings.models[0],
            "tools": sorted(toolbox.names()),
            "mcp_servers": self._server_states(),
            "plugins": [
                {"name": plugin.name, "version": plugin.version, "source": plugin.path}
                for plugin in self._found.plugins
            ],
            "settingSources": list(self._found.sources),
            "bare_mode": bool(self._options.bare),
            "cwd": self.deps.workspace_path,
            "permission_mode": settings.mode,
            "pricing": {"as_of": prices_as_of()},
        }

    def _server_states(self) -> list[Any]:
        """What became of each server, without the secrets its error may repeat."""
        if self._servers is None:
            return []
        states: list[Any] = self.deps.redactor.value(self._servers.states())[0]
        return states

    async def _warm_up(self) -> None:
        """Beside each run's first model call: a keeper that was lost is started again."""
        assert self._keeper is not None
        self._keeper.start()

    def seal_key(self) -> SealKey:
        if self._seal_key is None:
            self._seal_key = SealKey.load(self._home)
        return self._seal_key

    def _open_model(self, name: str) -> Model:
        if name.startswith("scripted/"):
            from batten.models.scripted import open_scripted
            from batten.tools.aliases import aliases

            return open_scripted(name.removeprefix("scripted/"), aliases=aliases())
        model = open_model(name, self._environ, timeouts=_timeouts(self._environ))
        if price(model.provider, model.name) is None and name not in self._unpriced:
            self._unpriced.add(name)
            say(f"batten: no price is known for {name}: its cost is not counted, nor limited")
        return model

    def _toolbox(self, deps: RunDeps, settings: RunSettings, depth: int) -> Toolbox:
        from batten.tools.builtin import builtin_tools

        assert self._keeper is not None
        tools: list[Tool] = builtin_tools(
            self._keeper, deps.redactor, deps.home, deps.workspace_path, self._environ, deps.lent
        )
        tools += [AskUser(deps), *self._tools]
        if not self._options.no_sub_agent:
            tools.append(AgentTool(deps, settings, depth))
        if self._found.skills:
            from batten.tools.skill import SkillTool

            tools.append(SkillTool(self._found.skills))
        if self._servers is not None:
            tools += self._servers.tools()
        if self._options.bare:
            tools = [tool for tool in tools if tool.spec.name != "save_memory"]
        toolbox = Toolbox(tools)
        return toolbox if settings.tools is None else toolbox.only(settings.tools)

    def _recorder(self, redactor: Redactor, settings: RunSettings) -> Observer | None:
        if not self._options.record:
            return None
        from batten.models.recorder import ScenarioRecorder

        recorder = ScenarioRecorder(
            self._options.record, redactor=redactor, model=settings.models[0]
        )
        try:
            recorder.check()
        except CallerError as error:
            raise UsageError(f"--record: {error}") from error
        return recorder

    async def _connect_servers(self, workspace: str, *, elicits: bool) -> None:
        """Those that do not answer are said on one line each; the run does without them."""
        from batten.tools.mcp import McpServers

        servers: dict[str, Any] = dict(self._found.mcp_servers)
        for given in self._options.mcp_config:
            config = json_object(given, "--mcp-config")
            named = config.get("mcpServers", config)
            if not isinstance(named, dict):
                raise UsageError('--mcp-config: write {"mcpServers": {name: {...}}}')
            servers |= named
        config = {"mcpServers": servers}
        self._servers = await McpServers.connect(
            config, self._environ, cwd=workspace, elicits=elicits
        )
        for state in self._servers.states():
            if state["status"] == "failed":
                said = " ".join(state["error"].split())
                say(f"batten: MCP server {state['name']} is not available: {said}")


def directory_for_now() -> "PrivateDirectory":
    """For a journal that nobody keeps. What a process that was killed left is swept up by the
    next one.
    """
    from batten.workspace.private_directory import PrivateDirectory

    return PrivateDirectory("batten-unsaved-", swept_whole=True)


def _timeouts(environ: Mapping[str, str]) -> Any:
    """How long a model may be silent: `BATTEN_MODEL_TIMEOUT_S` and `BATTEN_MODEL_IDLE_S`."""
    first = environ.get("BATTEN_MODEL_TIMEOUT_S")
    idle = environ.get("BATTEN_MODEL_IDLE_S")
    if first is None and idle is None:
        return None
    from batten.models.http import Timeouts

    usual = Timeouts()
    try:
        return Timeouts(
            first_byte_s=usual.first_byte_s if first is None else float(first),
            idle_s=usual.idle_s if idle is None else float(idle),
        )
    except ValueError as error:
        raise CallerError(
            f"BATTEN_MODEL_TIMEOUT_S and BATTEN_MODEL_IDLE_S are seconds: {error}", code="config"
        ) from error
