"""What the client asks of a session beside its prompts, carried out."""

from collections.abc import Callable, Mapping

from batten import __version__
from batten.agent.rules.rule import Rule, check_tools, parse_rule
from batten.contract.errors import CallerError, NotFound
from batten.models.registry import split_name
from batten.models.short_names import model_named
from batten.protocols.claude import control
from batten.protocols.claude.line import Frame
from batten.protocols.claude.names import claude_model
from batten.protocols.claude.permissions import Update, asks, our_mode
from batten.serve.claude.checkpoints import runs_since
from batten.serve.claude.servers import LentServer, LentServers
from batten.session.reverting import applied_patches, revert_run
from batten.session.session import Session

_SOURCE = "client"
"""Whose the rules are that came with an answer."""


class Controls:
    """Changes what a session works with, and tells of it."""

    def __init__(
        self,
        session: Session,
        servers: LentServers,
        environ: Mapping[str, str],
        *,
        mode: str,
        may_bypass: bool,
        is_idle: Callable[[], bool],
        server_states: Callable[[], list[Frame]],
        context_tokens: Callable[[], int],
    ) -> None:
        self._session = session
        self._servers = servers
        self._environ = environ
        self._may_bypass = may_bypass
        self._is_idle = is_idle
        self._server_states = server_states
        self._context_tokens = context_tokens
        self.mode = mode
        """The permission mode, by the client's name for it."""

    async def carry_out(self, request: control.Request) -> Frame:
        """The answer; `BattenError` if there is none."""
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
                return self._context_usage()
            case control.RewindFiles():
                return await self._rewind(request.user_message_id)
            case control.StopTask():
                raise NotFound(f"no task is named {request.task_id}")
            case control.Initialize() | control.InterruptTurn():
                raise CallerError("this is not asked here")
        return {}

    def asks(self) -> bool:
        """Whether the client is asked where no rule decides."""
        return asks(self.mode)

    def description(self) -> Frame:
        """What the client is told once, at the beginning."""
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
        """What the model is told first, where the client says it here and not by a flag."""
        system = request.system_prompt
        if system is not None:
            text = system if isinstance(system, str) else "\n\n".join(system)
            await self._session.configure({"system": text})
        if request.append_system_prompt is not None:
            await self._session.configure({"append_system": request.append_system_prompt})

    async def set_mode(self, mode: str) -> None:
        ours = our_mode(mode)
        if mode == "bypassPermissions" and not self._may_bypass:
            raise CallerError(
                "bypassPermissions asks nobody; start with that mode, or with "
                "--allow-dangerously-skip-permissions, to change to it"
            )
        await self._session.configure({"mode": ours})
        self.mode = mode

    async def update(self, changes: list[Update]) -> None:
        """Changes to the permissions of this session; nothing is written to files of settings."""
        for change in changes:
            if change.kind == "mode":
                await self.set_mode(change.mode)
            else:
                held = [rule for rule in self._session.settings.rules if rule.source != "managed"]
                rules = _updated(held, change)
                await self._session.configure({"rules": rules})

    async def _set_model(self, name: str | None) -> None:
        if name is None or name == "default":
            await self._session.configure({"model": None})
        else:
            chosen = "/".join(split_name(model_named(name, self._environ)))
            await self._session.configure({"model": chosen})

    def _context_usage(self) -> Frame:
        """How full the model's context was at its last answer; of its parts nothing is known."""
        settings = self._session.settings
        largest = self._session.deps.open_model(settings.models[0]).context_tokens
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

    async def _rewind(self, message_id: str) -> Frame:
        """Undo what the runs since a prompt changed, the latest first."""
        if not self._is_idle():
            raise CallerError("files are not rewound while a turn runs; interrupt it first")
        deps = self._session.deps
        changed: list[str] = []
        for run in reversed(runs_since(deps.journal, self._session.session_id, message_id)):
            if not applied_patches(deps.journal, run.run_id, []):
                continue
            changed += await revert_run(
                deps.journal,
                deps.seal_key(),
                deps.redactor,
                run,
                home=deps.home,
                paths=[],
                by="client",
                reason="rewound by the client",
            )
        return {"canRewind": True, "filesChanged": sorted(set(changed))}


def _updated(held: list[Rule], change: Update) -> list[Rule]:
    """The rules after a change. What the client takes back is its own."""
    given = {(rule.action, rule.pattern) for rule in change.rules}

    def is_taken_back(rule: Rule) -> bool:
        if change.kind == "replace":
            return rule.source == _SOURCE and rule.action == change.action
        return change.kind == "remove" and (rule.action, rule.pattern) in given

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
    """A server that we connected to ourselves, as the client knows servers."""
    shown = {"name": state["name"], "status": state["status"]}
    return {**shown, "error": state["error"]} if state.get("error") else shown
