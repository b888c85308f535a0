"""Approvals by a panel: a permission rule names it, and a tool call waits for its commitment.

The question is an ordinary approval of the run: durable, with a deadline, answered once. The
panel's session has the approval's number, so a run that is taken over finds its panel again. What
is not approved in time is denied.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from batten.agent.deps import Answer, Question, RunDeps
from batten.agent.settings import RunSettings
from batten.contract.cutting import cut
from batten.contract.errors import BattenError, CallerError, Conflict
from batten.contract.ids import to_uuid
from batten.control.coordination.chair import MODES
from batten.control.coordination.panel import Decided, Panel, PanelAgent, hold
from batten.control.coordination.records import Keeping
from batten.control.coordination.registries import Registries, read_policy_file
from batten.control.coordination.runtime import Runtime
from batten.coordination.modes.quorum import MODE as QUORUM
from batten.coordination.policy.policy import PolicyDescriptor
from batten.coordination.registry import PolicyRegistry
from batten.coordination.rejection import Rejection
from batten.journal.recorder import Recorder
from batten.session.requests import JournalRequests, resolve
from batten.settings.contract import PanelConfig, Settings
from batten.settings.folders import at_home
from batten.wiring.opening import open_session
from batten.wiring.spec import SessionSpec

_LARGEST_ABOUT = 128 * 1024
"""Characters of the arguments that the agents are shown."""
_LONGEST_QUESTION = 2000


class _Bound(Struct, frozen=True):
    """A panel of the settings, with its policy read."""

    config: PanelConfig
    policy: PolicyDescriptor
    mode: str


def panels_of(
    spec: SessionSpec, deps: RunDeps, settings: RunSettings, found: Settings
) -> "PanelRequests":
    """The panels of the settings. Raises `CallerError` for a policy that cannot be used."""
    named = {rule.panel for rule in settings.rules if rule.panel}
    bound = {
        config.name: _read(config, spec.environ) for config in found.panels if config.name in named
    }
    return PanelRequests(bound, deps, _agent_spec(spec, deps, settings))


def _read(config: PanelConfig, environ: Mapping[str, str]) -> _Bound:
    policy = read_policy_file(at_home(config.policy, environ))
    try:
        PolicyRegistry().register(policy)
    except Rejection as rejection:
        raise CallerError(f"panel {config.name}: {rejection}", code="config") from rejection
    mode = QUORUM if policy.mode == "*" else policy.mode
    if mode not in MODES.values():
        raise CallerError(
            f"panel {config.name}: {config.policy} is for {mode}, in which nothing is approved; "
            f"use one of {', '.join(MODES.values())}",
            code="config",
        )
    return _Bound(config, policy, mode)


def _agent_spec(spec: SessionSpec, deps: RunDeps, settings: RunSettings) -> SessionSpec:
    """How the agents of a panel are opened: they read the workspace, and bring nothing else."""
    return replace(
        spec,
        session_id=None,
        resume=None,
        lease=None,
        resume_newest=False,
        fork=False,
        branch=None,
        goes_on=False,
        record=None,
        workspace=deps.workspace_path,
        worktree=None,
        models=settings.models,
        fallback_models=(),
        provider=None,
        mode="default",
        may_bypass=False,
        auto_allow=False,
        resolvers=(),
        convene=None,
        elicits=False,
        output_schema=None,
        fail_on=None,
        system=None,
        own_tools=(),
        without=frozenset(("hooks", "skills", "mcp", "plugins")),
        mcp_servers={},
        client_servers={},
        plugin_dirs=(),
    )


class PanelRequests:
    """Asks panels in the process of the run."""

    def __init__(self, panels: dict[str, _Bound], deps: RunDeps, base: SessionSpec) -> None:
        self._panels = panels
        self._base = base
        self._open = partial(open_session, journal=deps.journal, home=deps.home)
        registry = PolicyRegistry()
        for panel in panels.values():
            if panel.policy.policy_id not in registry.policies:
                registry = registry.register(panel.policy)
        keeping = Keeping(deps.journal, deps.redactor, deps.seal_key)
        self._runtime = Runtime(keeping, Registries(policies=registry))
        self._asking: dict[str, JournalRequests] = {}
        self._opened: dict[int, asyncio.Future[str]] = {}
        """The id of each question that is being asked, once it is durable."""

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        panel = self._panels.get(question.panel)
        if panel is None:
            return Answer(False, "policy", f"there is no panel {question.panel!r}")
        asked = asyncio.get_running_loop().create_future()
        self._opened[id(question)] = asked
        try:
            async with asyncio.TaskGroup() as group:
                holding = group.create_task(self._hold(panel, recorder, question, asked))
                answer = await self._journaled(panel).ask(recorder, question)
                holding.cancel()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed
        finally:
            del self._opened[id(question)]
        return answer

    def _journaled(self, panel: _Bound) -> JournalRequests:
        """One for all questions of a panel: an answer authorises one call."""
        name = panel.config.name
        if name not in self._asking:

            def opened(recorder: Recorder, question: Question, request_id: str) -> None:
                self._opened[id(question)].set_result(request_id)

            role, patience_s = role_of(name), panel.config.timeout_s
            self._asking[name] = JournalRequests((role,), patience_s, opened)
        return self._asking[name]

    async def _hold(
        self,
        panel: _Bound,
        recorder: Recorder,
        question: Question,
        asked: "asyncio.Future[str]",
    ) -> None:
        """Hold the panel on an open question, and write its decision as the answer."""
        request_id = await asked
        try:
            decided = await hold(
                _panel(panel, recorder, question, request_id),
                self._runtime,
                self._open,
                self._base,
            )
            granted, text = decided.outcome == "approved", _reason(decided)
        except BattenError as error:
            granted, text = False, f"the panel could not be held: {error}"
        try:
            await resolve(
                recorder.journal,
                recorder.redactor,
                request_id,
                granted=granted,
                by=role_of(panel.config.name),
                text=text,
            )
        except Conflict:
            return  # it was answered, or its time has passed


def role_of(panel: str) -> str:
    """The resolver of an approval that a panel answers."""
    return f"panel:{panel}"


def _panel(panel: _Bound, recorder: Recorder, question: Question, request_id: str) -> Panel:
    redactor = recorder.redactor.authored
    detail: dict[str, Any] = redactor.value(question.detail)[0]
    arguments = msgspec.json.format(msgspec.json.encode(detail["arguments"]), indent=2).decode()
    text = redactor.text(f"May {question.tool_name} run? {question.summary}")
    return Panel(
        question=cut(text, _LONGEST_QUESTION),
        agents=tuple(
            PanelAgent(name=one.name, model=one.model, instructions=one.instructions)
            for one in panel.config.agents
        ),
        policy=panel.policy,
        mode=panel.mode,
        seconds=panel.config.timeout_s,
        rounds=panel.config.rounds,
        session_id=to_uuid(request_id),
        context_id=request_id,
        about=cut(f"{question.tool_name} {arguments}", _LARGEST_ABOUT),
    )


def _reason(decided: Decided) -> str:
    by = f" by {decided.by}" if decided.by else ""
    action = decided.action or decided.outcome
    silent = "".join(f"; {name} fell silent: {why}" for name, why in decided.failures.items())
    return f"{action}{by}: {decided.reason} (session {decided.session_id}){silent}"
