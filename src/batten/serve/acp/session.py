"""One open session of a client: its prompts, its modes, and its end."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from batten.agent.rules.rule import parse_rule
from batten.contract.commands import Command, Interrupt, Prompt
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
from batten.serve.acp.session_guard import SessionGuards
from batten.serve.dialogue import Dialogue
from batten.serve.hosting import Hosted
from batten.serve.stdio import Stdio
from batten.session.history import past_runs, prompts_of
from batten.session.session import Session
from batten.tools.skill import SkillTool


class OpenSession:
    """A session this connection holds. Its prompts come one at a time."""

    def __init__(
        self,
        hosted: Hosted,
        renderer: AcpRenderer,
        peer: AcpPeer,
        stdio: Stdio,
        watch: SessionGuards,
        environ: Mapping[str, str],
    ) -> None:
        self._hosted = hosted
        self._session = hosted.session
        self._renderer = renderer
        self._peer = peer
        self._watch = watch
        self._guard = watch.guard(renderer)
        self._dialogue = Dialogue(self._session, renderer, stdio.output, self._guard)
        self._prompts: asyncio.Queue[Prompt | None] = asyncio.Queue()
        self._stopping: asyncio.Task[None] | None = None
        self._group = stdio.group
        self._closing = False
        self._environ = environ
        self._skills: dict[str, str] = {}
        self._models: list[str] = []
        renderer.begin(self.session_id, hosted.describe)
        hosted.show_notes(self._dialogue.note)

    async def prepare(self) -> None:
        """See to it that there is a model to ask, and find what there is to choose from."""
        self._skills = _skills(self._session)
        self._models = _models(self._session, self._environ)
        await self._measure()

    async def _measure(self) -> None:
        """Count from here on what the model that was chosen uses."""
        session, journal = self._session, self._session.deps.journal
        model = session.deps.open_model(session.settings.models[0])
        window = model.context_tokens
        await model.aclose()

        def spent() -> int | None:
            spend = journal.spend(session.task_id)
            return None if spend.cost_unknown else spend.cost_micros_usd

        titled = bool(prompts_of(journal, self.session_id))
        self._renderer.measure(Meter(window, spent, titled=titled), self._options_with)

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def is_working(self) -> bool:
        return self._renderer.turn is not None

    @property
    def is_closing(self) -> bool:
        """Whether it takes no more prompts."""
        return self._closing

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
        """What became of the tool servers, for who wants to know; nothing if there are none."""
        states = self._hosted.describe(self.session_id)["mcp_servers"]
        return {"batten": {"mcpServers": states}} if states else None

    def announce(self) -> None:
        """Tell which skills may be asked for by name."""
        if self._skills:
            self._peer.show(self.session_id, [commands_of(self._skills)])

    async def work(self) -> None:
        """Work through its prompts until it is closed, or everything ends."""
        try:
            await self._dialogue.run(self._commands())
        except BattenError as error:
            store = isinstance(error, JournalError)
            self._renderer.fail("store" if store else "internal", str(error))
        finally:
            self._closing = True

    async def _commands(self) -> AsyncIterator[Command]:
        while (prompt := await self._prompts.get()) is not None:
            yield prompt

    def prompt(self, request_id: RequestId, prompt: Prompt) -> None:
        """Begin a turn; it is answered when its run has ended."""
        if self._closing:
            raise Conflict(f"session {self.session_id} is closed")
        if self._renderer.turn is not None:
            raise Conflict(
                f"session {self.session_id} works on a prompt; wait for its answer or cancel it"
            )
        self._renderer.turn = Turn(request_id, self._cancel)
        self._prompts.put_nowait(with_skill(prompt, self._skills))

    def is_turn(self, request_id: RequestId) -> bool:
        """Whether this is the request of the prompt that is worked on."""
        return self._renderer.turn is not None and self._renderer.turn.request_id == request_id

    def cancel(self) -> None:
        """The client wants its turn to end: it does so soon, with everything it waits for."""
        turn = self._renderer.turn
        if turn is not None and not turn.cancelled:
            turn.cancelled = True
            self._cancel()

    def _cancel(self) -> None:
        self._stopping = self._group.create_task(self._interrupt())

    async def _interrupt(self) -> None:
        try:
            await self._dialogue.interrupt(Interrupt(reason="cancelled by the client"))
        except BattenError as error:
            self._renderer.fail("store", str(error))

    async def set_mode(self, mode: str) -> None:
        if not is_offered(mode):
            known = ", ".join(one.id for one in self.modes.available_modes)
            raise RpcError(INVALID_PARAMS, f"no mode is named {mode!r}; there are: {known}")
        await self._session.configure({"mode": mode})
        told: list[AnyUpdate] = [CurrentMode(current_mode_id=mode), self._options_with(None)]
        self._peer.show(self.session_id, told)

    async def set_option(self, option_id: str, value: str | bool) -> list[SelectOption]:
        """All options after this choice. The mode is told in both of its places."""
        change = change_of(self.options, option_id, value)
        await self._session.configure(change)
        if "model" in change:
            await self._measure()
        if "mode" in change:
            mode = self.modes.current_mode_id
            self._peer.show(self.session_id, [CurrentMode(current_mode_id=mode)])
        return self.options

    async def remember(self, verdict: Verdict, pattern: str) -> None:
        """Let an answer of the client's hold for the calls to come."""
        rule = parse_rule(verdict, pattern, "grant")
        await self._session.configure({"add_rules": [rule]})

    async def replay(self) -> None:
        """Show everything that was said and done before."""
        past = self._renderer.past()
        journal = self._session.deps.journal
        for run_id, until in past_runs(journal, SessionId(self.session_id)):
            await self._renderer.replay(journal, run_id, until, past)

    def fail(self, outcome: Outcome, message: str) -> None:
        self._renderer.fail(outcome, message)

    async def close(self) -> None:
        """Cancel what works; the session is left once that has ended."""
        self._closing = True
        self.cancel()
        if self._stopping is not None:
            await asyncio.wait([self._stopping])
        self._prompts.put_nowait(None)

    async def leave(self) -> None:
        """After its work is over: close the session and what it started."""
        try:
            await self._dialogue.close()
        finally:
            self._watch.leave(self._guard)
            await self._hosted.close()


def _models(session: Session, environ: Mapping[str, str]) -> list[str]:
    """Models to choose from: those that were named, and the newest of each family beside them."""
    named = list(session.settings.models)
    if any(name.startswith("anthropic/") for name in named):
        from batten.models.short_names import FAMILIES, model_named

        newest = (model_named(family, environ) for family in FAMILIES)
        named += [f"anthropic/{name}" for name in newest]
    return named


def _skills(session: Session) -> dict[str, str]:
    """The skills the model is offered, with what each is for."""
    tool = session.deps.toolbox(session.deps, session.settings, 0).find("skill")
    if not isinstance(tool, SkillTool):
        return {}
    return {name: skill.description for name, skill in tool.skills.items()}
