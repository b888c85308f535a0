"""One open session of a client: its prompts, options and modes, until it is closed."""

import asyncio
from collections.abc import Mapping
from typing import Any

from batten.agent.rules.rule import parse_rule
from batten.contract.commands import Configure, Interrupt, Prompt, ShutDown
from batten.contract.errors import BattenError, Conflict, JournalError
from batten.contract.facts.policy import Verdict
from batten.contract.ids import SessionId
from batten.contract.outcomes import Outcome
from batten.protocols.acp.choices import InForce, change_of, options_of
from batten.protocols.acp.commands import commands_of, with_skill
from batten.protocols.acp.meter import Meter
from batten.protocols.acp.methods import ModeState
from batten.protocols.acp.modes import is_offered, mode_state
from batten.protocols.acp.options import SelectOption
from batten.protocols.acp.rpc import INVALID_PARAMS, RequestId, RpcError
from batten.protocols.acp.updates import AnyUpdate, ConfigOptions, CurrentMode
from batten.serve.acp.peer import AcpPeer
from batten.serve.acp.renderer import AcpRenderer, Turn
from batten.serve.asking import Take
from batten.serve.following import RunFollower
from batten.serve.showing import Showing
from batten.serve.stdio import Stdio
from batten.session.history import past_runs, prompts_of
from batten.session.live import LiveSession
from batten.session.session import Session
from batten.tools.skill import SkillTool
from batten.wiring.opening import OpenedSession


class OpenSession:
    """A session held by this connection. It accepts one prompt at a time."""

    def __init__(
        self,
        opened: OpenedSession,
        renderer: AcpRenderer,
        peer: AcpPeer,
        stdio: Stdio,
        environ: Mapping[str, str],
    ) -> None:
        self._opened = opened
        self._session = opened.session
        self._renderer = renderer
        self._peer = peer
        self._output = stdio.output
        self._guard = stdio.guard(renderer, is_only=False)
        self._live = LiveSession(self._session)
        self._showing = Showing(self._live, renderer, stdio.output, self._guard)
        self._stopping: asyncio.Task[None] | None = None
        self._group = stdio.group
        self.is_closing = False
        """Whether it accepts no more prompts."""
        self.problem = ""
        """The error that ended the session; empty if the client closed it."""
        self._environ = environ
        self._skills: dict[str, str] = {}
        self._models: list[str] = []
        renderer.begin(self.session_id, opened.describe)
        opened.show_notes(self._showing.note)

    @property
    def take(self) -> Take:
        return self._live.take

    async def prepare(self) -> None:
        """Check that the model can be opened, and collect the skills and models to offer."""
        self._skills = _skills(self._session)
        self._models = _models(self._session, self._environ)
        await self._measure()

    async def _measure(self) -> None:
        """Start measuring the usage of the chosen model."""
        session = self._session
        model = session.deps.open_model(session.settings.models[0])
        window = model.context_tokens
        await model.aclose()
        titled = bool(await prompts_of(session.deps.journal, self.session_id))
        meter = Meter(window, titled=titled)
        self._renderer.measure(meter, session.task_id, self._options_with)

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def is_working(self) -> bool:
        return self._renderer.turn is not None

    @property
    def modes(self) -> ModeState:
        return mode_state(self._session.settings.mode)

    @property
    def options(self) -> list[SelectOption]:
        return self._options_with(None).config_options

    def _options_with(self, model: str | None) -> ConfigOptions:
        settings = self._session.settings
        model = model or settings.models[0]
        held = InForce(self.modes, model, self._models, settings.thinking_tokens)
        return ConfigOptions(config_options=options_of(held))

    @property
    def described(self) -> dict[str, Any] | None:
        """The states of the MCP servers, for the `_meta` of a response; None without servers."""
        states = self._opened.server_states()
        return {"batten": {"mcpServers": states}} if states else None

    def announce(self) -> None:
        """Send the skills that can be invoked as slash commands."""
        if self._skills:
            self._peer.show(self.session_id, [commands_of(self._skills)])

    async def work(self) -> None:
        """Work through the prompts until the session is closed or the process ends."""
        try:
            await self._showing.run()
        except BattenError as error:
            store = isinstance(error, JournalError)
            self._renderer.fail("store" if store else "internal", str(error))
            self.problem = str(error)
        finally:
            self.is_closing = True

    async def prompt(self, request_id: RequestId, prompt: Prompt) -> None:
        """Start a turn; its request is answered when the run has ended."""
        if self.is_closing:
            raise Conflict(f"session {self.session_id} is closed")
        if self._renderer.turn is not None:
            raise Conflict(
                f"session {self.session_id} works on a prompt; wait for its answer or cancel it"
            )
        self._renderer.turn = Turn(request_id)
        await self._live.take(with_skill(prompt, self._skills))

    def is_turn(self, request_id: RequestId) -> bool:
        return self._renderer.turn is not None and self._renderer.turn.request_id == request_id

    def cancel(self) -> None:
        """Interrupt the current turn and its pending requests."""
        turn = self._renderer.turn
        if turn is not None and not turn.cancelled:
            turn.cancelled = True
            self._stopping = self._group.create_task(self._interrupt())

    async def _interrupt(self) -> None:
        try:
            await self._live.take(Interrupt(reason="cancelled by the client"))
        except BattenError as error:
            self._renderer.fail("store", str(error))

    async def set_mode(self, mode: str) -> None:
        if not is_offered(mode):
            known = ", ".join(one.id for one in self.modes.available_modes)
            raise RpcError(INVALID_PARAMS, f"no mode is named {mode!r}; there are: {known}")
        await self._live.take(Configure(changes={"mode": mode}))
        updates: list[AnyUpdate] = [CurrentMode(current_mode_id=mode), self._options_with(None)]
        self._peer.show(self.session_id, updates)

    async def set_option(self, option_id: str, value: str | bool) -> list[SelectOption]:
        """Set an option and return all of them. A mode is also sent as `current_mode_update`."""
        change = change_of(self.options, option_id, value)
        await self._live.take(Configure(changes=change))
        if "model" in change:
            await self._measure()
        if "mode" in change:
            mode = self.modes.current_mode_id
            self._peer.show(self.session_id, [CurrentMode(current_mode_id=mode)])
        return self.options

    async def remember(self, verdict: Verdict, pattern: str) -> None:
        """Add a rule, so that an "always" answer holds for later calls."""
        rule = parse_rule(verdict, pattern, "grant")
        await self._live.take(Configure(changes={"add_rules": [rule]}))

    async def replay(self) -> None:
        """Show all earlier runs of the session."""
        past = self._renderer.past()
        journal = self._session.deps.journal
        async for run_id, until in past_runs(journal, SessionId(self.session_id)):
            if await RunFollower(journal, past, run_id, self._output).replay(until):
                past.end_run()

    def fail(self, outcome: Outcome, message: str) -> None:
        self._renderer.fail(outcome, message)

    async def close(self) -> None:
        """Cancel the current turn and shut the session down."""
        self.is_closing = True
        self.cancel()
        if self._stopping is not None:
            await asyncio.wait([self._stopping])
        await self._live.take(ShutDown())

    async def leave(self) -> None:
        """After `work` has returned: close the session and release its resources."""
        try:
            await self._showing.close()
        finally:
            self._guard.leave()
            await self._opened.close()


def _models(session: Session, environ: Mapping[str, str]) -> list[str]:
    """Models to choose from: the configured ones and the newest of each Anthropic family."""
    named = list(session.settings.models)
    if any(name.startswith("anthropic/") for name in named):
        from batten.models.short_names import FAMILIES, model_named

        newest = (model_named(family, environ) for family in FAMILIES)
        named += [f"anthropic/{name}" for name in newest]
    return named


def _skills(session: Session) -> dict[str, str]:
    """The skills offered to the model, with their descriptions."""
    tool = session.deps.toolbox(session.deps, session.settings, 0).find("skill")
    if not isinstance(tool, SkillTool):
        return {}
    return {name: skill.description for name, skill in tool.skills.items()}
