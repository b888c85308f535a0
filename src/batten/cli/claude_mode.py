"""`batten` as a replacement for Claude Code's CLI: serves the SDK's command line."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from batten import __version__
from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.cli.arguments import parse
from batten.cli.options import json_object, spec_of
from batten.cli.print_mode import Invocation, refuse, report_unwritten, see_through
from batten.cli.prompt import commands_of
from batten.contract.commands import Command
from batten.contract.errors import BattenError, CallerError
from batten.journal.contract import Journal
from batten.models.short_names import model_named
from batten.protocols.claude import PROTOCOL_VERSION
from batten.protocols.claude import argv as sdk
from batten.protocols.claude.permissions import (
    MODES,
    claude_mode,
    our_mode,
    pattern,
    read_update,
)
from batten.protocols.stream_json import FrameOptions
from batten.serve.claude.agents import definitions
from batten.serve.claude.checkpoints import place_after
from batten.serve.claude.control_channel import ControlChannel
from batten.serve.claude.controls import Controls
from batten.serve.claude.renderer import ClaudeRenderer
from batten.serve.claude.requests import RESOLVERS, ClientRequests
from batten.serve.claude.servers import LentServers, split
from batten.serve.claude.surface import LONGEST_LINE, ClaudeSurface
from batten.serve.claude.toolboxes import ClientToolboxes
from batten.serve.guard import SessionGuard
from batten.serve.lines import Lines
from batten.serve.output import Output, redact_for_people, say
from batten.serve.pace import STALLED_S
from batten.serve.renderer import Describe
from batten.serve.showing import Showing
from batten.serve.words import redacting
from batten.session.live import LiveSession
from batten.session.prompt_queue import Bounds
from batten.settings.contract import RuleConfig, Settings, Skill
from batten.tools.contract import Tool
from batten.wiring.earlier import resumed_session
from batten.wiring.opening import OpenedSession
from batten.wiring.spec import SessionSpec


def is_for_us(argv: list[str]) -> bool:
    """Whether this command line comes from the SDK."""
    return sdk.detect(argv, os.environ) or sdk.asks_version(argv, os.environ)


def _window(environ: Mapping[str, str], model: str) -> int | None:
    """The tokens that a model takes, where that is known."""
    from batten.models.pricing import known_context_tokens

    provider, _, name = model.partition("/")
    return known_context_tokens(provider, name, environ)


def run_claude(
    argv: list[str],
    tools: Sequence[Tool] = (),
    leave: Callable[[int], object] | None = None,
    ready: Callable[[], object] = lambda: None,
) -> int:
    """Serve the SDK until it is done; the exit code."""
    output = Output(1)
    environ = dict(os.environ)
    redact_for_people.set(redacting(environ))
    if sdk.asks_version(argv, os.environ):
        output.write(f"{PROTOCOL_VERSION} (Batten {__version__})\n".encode())
        output.drain(STALLED_S)
        return report_unwritten(output, 0)
    try:
        invoked = sdk.read(argv, os.environ)
    except BattenError as error:
        return refuse(
            ClaudeRenderer(ControlChannel(output, seamless=False), FrameOptions()), output, error
        )
    channel = ControlChannel(output, seamless=invoked.seamless)
    renderer = ClaudeRenderer(channel, invoked.wanted, partial(_window, environ))
    renderer.redact = redacting(environ)
    people = Output(2, styled=True)

    def make(guard: SessionGuard) -> ClaudeInvocation:
        servers = split([json_object(text, "--mcp-config") for text in invoked.mcp_config])
        options = parse(invoked.ours, environ)
        if invoked.streams and options.attach:
            raise CallerError("--attach adds files to a prompt of the command line", code="usage")
        commands = _nothing() if invoked.streams else commands_of(options, environ)[0]
        spec = spec_of(options, environ)
        spec = replace(
            spec,
            surface=sdk.COMPAT,
            own_tools=tuple(tools),
            # The client sets the directory: a resumed session does not restore its own.
            workspace=spec.workspace or ".",
            # The SDK passes all settings each time: a resumed session restores none.
            inherit=False,
            models=_models(spec.models, environ),
            fallback_models=_models(spec.fallback_models, environ),
            mcp_servers=servers.ours,
            notes=invoked.wanted.partial_messages,
        )
        serving = ClaudeInvocation(spec, commands, output, people, renderer, guard)
        serving.attach(invoked, channel, renderer, LentServers(channel, servers.lent))
        return serving

    return see_through(make, renderer, output, people, leave, ready)


def _models(names: Iterable[str], environ: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(model_named(name, environ) for name in names)


async def _nothing() -> AsyncIterator[Command]:
    """No commands: they come through the surface."""
    nothing: tuple[Command, ...] = ()
    for command in nothing:
        yield command


class ClaudeInvocation(Invocation):
    """One start by the SDK, from its command line to our exit code."""

    needs_prompt = False
    bounds = Bounds(prompts=1024, size=64 * 1024 * 1024)

    def attach(
        self,
        invoked: sdk.Invocation,
        channel: ControlChannel,
        renderer: ClaudeRenderer,
        servers: LentServers,
    ) -> None:
        """Set the parts that only an SDK's invocation has."""
        self._invoked = invoked
        self._channel = channel
        self._frames = renderer
        self._servers = servers
        self._skills: tuple[Skill, ...] = ()
        self._group: asyncio.TaskGroup | None = None
        self._controls: Controls | None = None
        self._requests: ClientRequests | None = None

    async def run(self) -> int:
        for notice in self._invoked.notices:
            say(f"batten: not used here: {notice}")
        try:
            async with asyncio.TaskGroup() as self._group:
                return await super().run()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    @property
    def controls(self) -> Controls:
        assert self._controls is not None
        return self._controls

    async def spec(self, journal: Journal) -> SessionSpec:
        spec = replace(self._spec, adapt=self._adapt, equip=self._equip)
        if self._invoked.asks_client:
            spec = replace(spec, resolvers=RESOLVERS)
        if self._invoked.resume_at is None:
            return spec
        resumed = await resumed_session(spec, journal)
        assert resumed is not None
        place = await place_after(journal, resumed.session_id, self._invoked.resume_at)
        return replace(spec, branch=place)

    def _adapt(self, found: Settings) -> Settings:
        """Translate the settings of files to our names of models, modes and rules."""
        environ = self._spec.environ
        self._skills = found.skills
        if not found.may_bypass:
            self._invoked.may_bypass = False
        servers = {} if self._invoked.strict_mcp else found.mcp_servers
        rules = [_our_rule(rule) for rule in found.rules]
        mode = self._found_mode(found.permission_mode)
        if not found.may_bypass and self._invoked.permission_mode == "bypassPermissions":
            raise CallerError("bypassPermissions is forbidden on this machine", code="config")
        return replace(
            found,
            mcp_servers=servers,
            rules=tuple(rules),
            permission_mode=mode,
            model=None if found.model is None else model_named(found.model, environ),
            fallback_models=_models(found.fallback_models, environ),
        )

    def _found_mode(self, mode: str | None) -> str | None:
        """Translate a permission mode of the settings; it applies unless the SDK sets one."""
        if mode not in MODES:
            return mode
        self._invoked.permission_mode = self._invoked.permission_mode or mode
        return our_mode(mode)

    def _equip(self, deps: RunDeps, settings: RunSettings) -> RunDeps:
        toolboxes = ClientToolboxes(
            deps, self._invoked, self._servers, self._skills, self._spec.environ
        )
        if self._invoked.agents is not None:
            toolboxes.agents = definitions(json_object(self._invoked.agents, "--agents"))
        self._toolboxes = toolboxes
        deps = replace(deps, toolbox=toolboxes)
        if not self._invoked.asks_client:
            return deps
        assert self._group is not None
        self._requests = ClientRequests(
            self._channel,
            self._group,
            patience_s=settings.request_seconds,
            asks=lambda: self.controls.asks(),
            update=self._update,
        )
        return replace(deps, requests=self._requests)

    def describe(self, opened: OpenedSession) -> Describe:
        session = opened.session

        def described(session_id: str) -> dict[str, Any]:
            toolbox = session.deps.toolbox(session.deps, session.settings, 0)
            fields = opened.describe(session_id)
            return {
                **fields,
                "tools": toolbox.names(),
                "mcp_servers": [*fields["mcp_servers"], *self._servers.states()],
                "permission_mode": self.controls.mode,
                "skills": [skill.name for skill in self._toolboxes.skills],
                "agents": list(self._toolboxes.agents),
                "api_key_source": _key_source(session.settings.models[0], self._spec.environ),
            }

        return described

    async def serve(self, opened: OpenedSession, live: LiveSession, showing: Showing) -> None:
        assert self._group is not None
        session = live.session
        if self._requests is not None:
            self._requests.take = live.take
        self._controls = Controls(
            live,
            self._servers,
            self._spec.environ,
            mode=self._invoked.permission_mode or claude_mode(session.settings.mode),
            may_bypass=self._invoked.may_bypass,
            server_states=opened.server_states,
            context_tokens=lambda: self._frames.context_tokens,
        )
        if not self._invoked.streams:
            await super().serve(opened, live, showing)
            return
        surface = ClaudeSurface(
            self._channel,
            live,
            showing,
            self.controls,
            self._servers,
            self._toolboxes,
            self._frames,
            self._group,
        )
        await surface.serve(Lines(0, longest=LONGEST_LINE))

    async def _update(self, changes: tuple[dict[str, Any], ...]) -> None:
        """Apply permission updates. A bad one is reported and skipped: the call was allowed."""
        for change in changes:
            try:
                await self.controls.update([read_update(change)])
            except CallerError as error:
                say(f"batten: a permission update is left out: {error}")


def _our_rule(rule: RuleConfig) -> RuleConfig:
    """Translate a rule of the SDK's flags from Claude Code's names; rules of files use ours."""
    if rule.scope != "flag":
        return rule
    return replace(rule, pattern=pattern(rule.pattern))


def _key_source(model: str, environ: Mapping[str, str]) -> str:
    """The variable that holds the key."""
    variable = f"{model.partition('/')[0].upper()}_API_KEY"
    return variable if environ.get(variable) else "none"
