"""`batten` in the place of Claude Code's CLI: its SDK's command line in, our wiring behind it."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from batten import __version__
from batten.agent.deps import RunDeps
from batten.agent.settings import RunSettings
from batten.cli.arguments import parse
from batten.cli.options import json_object, run_settings
from batten.cli.print_mode import Invocation, named_session, refuse, see_through
from batten.cli.prompt import commands_of
from batten.cli.wiring import Wiring
from batten.contract.commands import Command
from batten.contract.errors import BattenError, CallerError
from batten.journal.contract import Journal, RunRow, SessionRow
from batten.models.short_names import model_named
from batten.protocols.claude import PROTOCOL_VERSION
from batten.protocols.claude import argv as sdk
from batten.protocols.claude.frames import FrameOptions
from batten.protocols.claude.permissions import (
    MODES,
    claude_mode,
    our_mode,
    pattern,
    read_update,
)
from batten.serve.claude.agents import definitions
from batten.serve.claude.checkpoints import place_after
from batten.serve.claude.children import ClaudeChildren
from batten.serve.claude.control_channel import ControlChannel
from batten.serve.claude.controls import Controls
from batten.serve.claude.renderer import ClaudeRenderer
from batten.serve.claude.requests import RESOLVERS, ClientRequests
from batten.serve.claude.servers import LentServers, split
from batten.serve.claude.surface import LONGEST_LINE, ClaudeSurface
from batten.serve.claude.toolboxes import ClientToolboxes
from batten.serve.dialogue import STALLED_S, Dialogue
from batten.serve.guard import Guard
from batten.serve.lines import Lines
from batten.serve.output import Output, say
from batten.serve.renderer import Describe
from batten.session.session import Session
from batten.settings.contract import RuleConfig, Settings, Skill
from batten.tools.contract import Tool


def is_for_us(argv: list[str]) -> bool:
    """Whether this command line is one of the SDK's."""
    return sdk.detect(argv, os.environ) or sdk.asks_version(argv, os.environ)


def run_claude(
    argv: list[str],
    tools: Sequence[Tool] = (),
    leave: Callable[[int], object] | None = None,
    ready: Callable[[], object] = lambda: None,
) -> int:
    """Serve the SDK until it has no more to ask; the exit code."""
    output = Output(1)
    if sdk.asks_version(argv, os.environ):
        output.write(f"{PROTOCOL_VERSION} (Batten {__version__})\n".encode())
        output.drain(STALLED_S)
        return 1 if output.closed else 0
    try:
        invoked = sdk.read(argv, os.environ)
    except BattenError as error:
        return refuse(
            ClaudeRenderer(ControlChannel(output, seamless=False), FrameOptions()), output, error
        )
    channel = ControlChannel(output, seamless=invoked.seamless)
    renderer = ClaudeRenderer(channel, invoked.wanted)
    people = Output(2)

    def made(guard: Guard) -> ClaudeInvocation:
        given = split([json_object(text, "--mcp-config") for text in invoked.mcp_config])
        options = parse([*invoked.ours, *_for_parser(invoked, given.ours)], os.environ)
        # A session that is resumed does not bring its directory: the client named one.
        options.workspace = options.workspace or "."
        options.model = _models(options.model or ())
        options.fallback_model = _models(options.fallback_model)
        commands = _nothing() if invoked.streams else commands_of(options)
        serving = ClaudeInvocation(options, commands, output, people, renderer, guard, tools)
        serving.attach(invoked, channel, renderer, LentServers(channel, given.lent))
        return serving

    return see_through(made, renderer, output, people, leave, ready)


def _for_parser(invoked: sdk.Invocation, servers: dict[str, Any]) -> list[str]:
    """What our own parser is told beside the flags that were translated one by one."""
    flags = ["--output-format=stream-json"]
    if invoked.wanted.partial_messages:
        flags.append("--include-partial-messages")
    if servers:
        config = msgspec.json.encode({"mcpServers": servers}).decode()
        flags.append(f"--mcp-config={config}")
    return flags


def _models(names: Iterable[str]) -> list[str]:
    return [model_named(name, os.environ) for name in names]


async def _nothing() -> AsyncIterator[Command]:
    """What is asked comes through the surface."""
    nothing: tuple[Command, ...] = ()
    for command in nothing:
        yield command


class ClaudeInvocation(Invocation):
    """One start by the SDK, from its command line to our exit code."""

    surface = sdk.COMPAT
    needs_prompt = False

    def attach(
        self,
        invoked: sdk.Invocation,
        channel: ControlChannel,
        renderer: ClaudeRenderer,
        servers: LentServers,
    ) -> None:
        """What an SDK brings, in addition to what every invocation has."""
        self._invoked = invoked
        self._channel = channel
        self._frames = renderer
        self._servers = servers
        self._skills: tuple[Skill, ...] = ()
        self._group: asyncio.TaskGroup | None = None
        self._controls: Controls | None = None

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

    def earlier(self, journal: Journal) -> tuple[SessionRow | None, tuple[RunRow, int] | None]:
        if self._invoked.resume_at is not None:
            self._options.branch = self._place(journal, self._invoked.resume_at)
        return super().earlier(journal)

    def _place(self, journal: Journal, message_id: str) -> str:
        resumed = named_session(self._options, journal)
        assert resumed is not None
        return place_after(journal, resumed.session_id, message_id)

    def surroundings(self, environ: Mapping[str, str], workspace: str) -> Settings:
        found = super().surroundings(environ, workspace)
        self._skills = found.skills
        servers = {} if self._invoked.strict_mcp else found.mcp_servers
        rules = [_our_rule(rule) for rule in found.rules]
        return msgspec.structs.replace(
            found,
            mcp_servers=servers,
            rules=tuple(rules),
            permission_mode=self._found_mode(found.permission_mode),
            model=None if found.model is None else model_named(found.model, environ),
            fallback_models=tuple(_models(found.fallback_models)),
        )

    def _found_mode(self, mode: str | None) -> str | None:
        """A mode of settings, by their name of it: what asks nobody must not allow more."""
        if mode not in MODES:
            return mode
        self._invoked.permission_mode = self._invoked.permission_mode or mode
        return our_mode(mode)

    def settings(
        self, environ: Mapping[str, str], given: RunSettings | None, found: Settings
    ) -> RunSettings:
        """Each start says all of it: nothing is taken over from the session that is resumed."""
        if not found.may_bypass:
            self._invoked.may_bypass = False
            if self._invoked.permission_mode == "bypassPermissions":
                raise CallerError("bypassPermissions is forbidden on this machine", code="config")
        settings = run_settings(self._options, environ, None, found)
        if not self._invoked.asks_client:
            return settings
        return msgspec.structs.replace(settings, resolvers=RESOLVERS)

    def equip(self, deps: RunDeps, settings: RunSettings) -> RunDeps:
        toolboxes = ClientToolboxes(deps, self._invoked, self._servers, self._skills, os.environ)
        if self._invoked.agents is not None:
            toolboxes.agents = definitions(json_object(self._invoked.agents, "--agents"))
        self._toolboxes = toolboxes
        deps = msgspec.structs.replace(deps, toolbox=toolboxes)
        if not self._invoked.asks_client:
            return deps
        assert self._group is not None
        requests = ClientRequests(
            self._channel,
            self._group,
            patience_s=settings.request_seconds,
            seal_key=deps.seal_key,
            asks=lambda: self.controls.asks(),
            update=self._update,
        )
        return msgspec.structs.replace(deps, requests=requests)

    def describe(self, wiring: Wiring, session: Session) -> Describe:
        def described(session_id: str) -> dict[str, Any]:
            toolbox = session.deps.toolbox(session.deps, session.settings, 0)
            said = wiring.describe(session.settings, session_id)
            return {
                **said,
                "tools": toolbox.names(),
                "mcp_servers": [*said["mcp_servers"], *self._servers.states()],
                "permission_mode": self.controls.mode,
                "skills": [skill.name for skill in self._toolboxes.skills],
                "agents": list(self._toolboxes.agents),
                "api_key_source": _key_source(session.settings.models[0]),
            }

        return described

    async def serve(self, wiring: Wiring, session: Session, dialogue: Dialogue) -> None:
        assert self._group is not None
        self._controls = Controls(
            session,
            self._servers,
            os.environ,
            mode=self._invoked.permission_mode or claude_mode(session.settings.mode),
            may_bypass=self._invoked.may_bypass,
            is_idle=lambda: not dialogue.is_working,
            server_states=lambda: wiring.describe(session.settings, "")["mcp_servers"],
            context_tokens=lambda: self._frames.context_tokens,
        )
        children = self._frames.follow_children(self._group)
        try:
            await self._converse_with(wiring, session, dialogue, children)
        finally:
            children.leave()

    async def _converse_with(
        self, wiring: Wiring, session: Session, dialogue: Dialogue, children: ClaudeChildren
    ) -> None:
        if not self._invoked.streams:
            await super().serve(wiring, session, dialogue)
            return
        assert self._group is not None
        surface = ClaudeSurface(
            self._channel,
            dialogue,
            self.controls,
            self._servers,
            session.deps.hooks.register,
            self._toolboxes,
            children,
            self._group,
        )
        await surface.serve(Lines(0, longest=LONGEST_LINE))

    async def _update(self, changes: tuple[dict[str, Any], ...]) -> None:
        """One that cannot be carried out is left out: the call that it came with was allowed."""
        for change in changes:
            try:
                await self.controls.update([read_update(change)])
            except CallerError as error:
                say(f"batten: a permission update is left out: {error}")


def _our_rule(rule: RuleConfig) -> RuleConfig:
    """Rules that the SDK gave are spelled as Claude Code spells them; those of files, as we do."""
    if rule.scope != "flag":
        return rule
    return msgspec.structs.replace(rule, pattern=pattern(rule.pattern))


def _key_source(model: str) -> str:
    """Which variable holds the key, for who wants to know whose account pays."""
    variable = f"{model.partition('/')[0].upper()}_API_KEY"
    return variable if os.environ.get(variable) else "none"
