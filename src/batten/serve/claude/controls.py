"""Carries out a client's control requests on a session."""

from collections.abc import Callable, Mapping
from typing import Any

from batten import __version__
from batten.agent.rules.rule import Rule, check_tools, parse_rule
from batten.contract.commands import Configure
from batten.contract.errors import BattenError, CallerError, NotFound
from batten.models.registry import split_name
from batten.models.short_names import model_named
from batten.protocols.claude import control
from batten.protocols.claude.line import Frame
from batten.protocols.claude.names import claude_model
from batten.protocols.claude.permissions import Update, asks, our_mode
from batten.serve.claude.checkpoints import runs_since
from batten.serve.claude.servers import LentServer, LentServers
from batten.session.live import LiveSession
from batten.session.rewinding import preview_rewind, rewind_files

_SOURCE = "client"
"""The source of the rules in a client's permission updates."""


class Controls:
    """Changes and reports the settings of a session."""

    def __init__(
        self,
        live: LiveSession,
        servers: LentServers,
        environ: Mapping[str, str],
        *,
        mode: str,
        may_bypass: bool,
        server_states: Callable[[], list[Frame]],
        context_tokens: Callable[[], int],
    ) -> None:
        self._live = live
        self._session = live.session
        self._servers = servers
        self._environ = environ
        self._may_bypass = may_bypass
        self._server_states = server_states
        self._context_tokens = context_tokens
        self.mode = mode
        """The permission mode, by the client's name."""

    async def carry_out(self, request: control.Request) -> Frame:
        """Carry out a request and return the response; raises `BattenError`."""
        match request:
            case control.SetPermissionMode():
                await self.set_mode(request.mode)
            case control.SetModel():
                await self._set_model(request.model)
            case control.McpStatus():
                ours = [_server_state(state) for state in self._server_states()]
                return {"mcpServers": [*ours, *self._servers.states()]}
            case control.McpReconnect():
                await self._lent(request.server_name).connect()
            case control.McpToggle():
                await self._lent(request.server_name).switch(request.enabled)
            case control.GetContextUsage():
                return await self._context_usage()
            case control.RewindFiles():
                return await self._rewind(request)
            case control.StopTask():
                raise NotFound(f"no task is named {request.task_id}")
            case control.Initialize() | control.InterruptTurn():
                raise CallerError("this is not asked here")
        return {}

    async def _configure(self, changes: dict[str, Any]) -> None:
        await self._live.take(Configure(changes=changes))

    def asks(self) -> bool:
        """Whether the client decides where no rule matches."""
        return asks(self.mode)

    def description(self) -> Frame:
        """The response to `initialize`."""
        model = claude_model(self._session.settings.models[0])
        return {
            "commands": [],
            "output_style": "default",
            "available_output_styles": ["default"],
            "models": [{"value": model, "displayName": model, "description": ""}],
            "account": {},
            "hook_on_failure_supported": True,
            "hooks_applied": True,
            "batten_version": __version__,
        }

    async def instruct(self, request: control.Initialize) -> None:
        """Apply the system prompts of `initialize`, which may also come as flags."""
        system = request.system_prompt
        if system is not None:
            text = system if isinstance(system, str) else "\n\n".join(system)
            await self._configure({"system": text})
        if request.append_system_prompt is not None:
            await self._configure({"append_system": request.append_system_prompt})

    async def set_mode(self, mode: str) -> None:
        ours = our_mode(mode)
        if mode == "bypassPermissions" and not self._may_bypass:
            raise CallerError(
                "bypassPermissions asks nobody; start with that mode, or with "
                "--allow-dangerously-skip-permissions, to change to it"
            )
        await self._configure({"mode": ours})
        self.mode = mode

    async def update(self, changes: list[Update]) -> None:
        """Change the permissions of this session; settings files are not written."""
        for change in changes:
            if change.kind == "mode":
                await self.set_mode(change.mode)
            else:
                held = [rule for rule in self._session.settings.rules if rule.source != "managed"]
                rules = _updated(held, change)
                await self._configure({"rules": rules})

    async def _set_model(self, name: str | None) -> None:
        if name is None or name == "default":
            await self._configure({"model": None})
        else:
            chosen = "/".join(split_name(model_named(name, self._environ)))
            await self._configure({"model": chosen})

    async def _context_usage(self) -> Frame:
        """How full the model's context was at its last answer; a breakdown is not available."""
        settings = self._session.settings
        model = self._session.deps.open_model(settings.models[0])
        largest = model.context_tokens
        await model.aclose()
        used = self._context_tokens()
        nothing: list[Frame] = []
        return {
            "categories": [{"name": "Conversation", "tokens": used, "color": "blue"}],
            "totalTokens": used,
            "maxTokens": largest,
            "rawMaxTokens": largest,
            "percentage": round(100 * used / largest, 2) if largest else 0.0,
            "model": claude_model(settings.models[0]),
            "isAutoCompactEnabled": True,
            "autoCompactThreshold": int(largest * settings.compact_ratio),
            "memoryFiles": nothing,
            "mcpTools": nothing,
            "agents": nothing,
            "gridRows": nothing,
        }

    def _lent(self, name: str) -> LentServer:
        server = self._servers.find(name)
        if server is None:
            raise NotFound(
                f"no in-process server is named {name}; others are connected when we start"
            )
        return server

    async def _rewind(self, request: control.RewindFiles) -> Frame:
        """Restore the files as they were before a prompt, or say what that would do.

        A preview that finds a reason against it answers with that; a rewind raises it.
        """
        deps = self._session.deps
        try:
            if self._live.is_working:
                raise CallerError("files are not rewound while a turn runs; interrupt it first")
            runs = await runs_since(deps.journal, self._session.session_id, request.user_message_id)
            key = deps.seal_key
            if request.dry_run:
                effect = await preview_rewind(deps.journal, key, runs, home=deps.home)
            else:
                effect = await rewind_files(
                    deps.journal, key, deps.redactor, runs, home=deps.home, by="client"
                )
        except BattenError as error:
            if request.dry_run:
                return {"canRewind": False, "error": str(error)}
            raise
        return {
            "canRewind": True,
            "filesChanged": list(effect.paths),
            "insertions": effect.insertions,
            "deletions": effect.deletions,
        }


def _updated(held: list[Rule], change: Update) -> list[Rule]:
    """The rules after a change. A client can remove only its own rules."""
    named = {(rule.action, rule.pattern) for rule in change.rules}

    def is_taken_back(rule: Rule) -> bool:
        if change.kind == "replace":
            return rule.source == _SOURCE and rule.action == change.action
        return change.kind == "remove" and (rule.action, rule.pattern) in named

    rules = [rule for rule in held if rule.source != _SOURCE or not is_taken_back(rule)]
    if change.kind == "remove":
        return rules
    for new in change.rules:
        rule = parse_rule(new.action, new.pattern, _SOURCE)
        check_tools([rule])
        if rule not in rules:
            rules.append(rule)
    return rules


def _server_state(state: Frame) -> Frame:
    """The state of a server that we connected to, in the client's format."""
    shown = {"name": state["name"], "status": state["status"]}
    return {**shown, "error": state["error"]} if state.get("error") else shown
