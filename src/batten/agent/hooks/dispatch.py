"""One hook being told of one event: who it is, what it is told, and the facts of that."""

import time
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct

from batten.agent.hooks.matching import HookedCall, fits, holds, names_of
from batten.agent.hooks.reply import HookReply
from batten.agent.rules.rule import Rule
from batten.agent.rules.verdict import Decision
from batten.contract.facts.hook import (
    HookCompleted,
    HookDispatched,
    HookHandler,
    HookPace,
    HookSaid,
)
from batten.contract.ids import new_hook_call_id
from batten.journal.recorder import Recorder
from batten.settings.contract import HandlerConfig, HookEvent, OnFailure

_LONGEST_NAME = 200
_STRICTNESS: dict[HookSaid, int] = {"none": 0, "allow": 1, "ask": 2, "deny": 3}

Reply = Callable[[dict[str, Any], str | None], Awaitable[object]]


class ClientHook(Struct, frozen=True, kw_only=True):
    """A callback that a client lends the session."""

    event: HookEvent
    callback_id: str
    call: Reply
    """Given what happened, and the id of the tool call if there is one. Answers with an object."""
    matcher: str = "*"
    timeout_s: float = 60.0
    on_failure: OnFailure = "deny"


class HookRun(Struct, frozen=True, kw_only=True):
    """What hooks are told of one event."""

    event: HookEvent
    fields: dict[str, Any]
    """The payload but for the call, which a hook may change for those after it."""
    detail: dict[str, Any]
    """What of it the facts show."""
    names: tuple[str, ...] = ()
    """What matchers are held against, where it is no tool's name."""
    call: HookedCall | None = None
    shape: Callable[[HookedCall], dict[str, Any]] | None = None
    """The call as it stands in the payload."""
    judge: Callable[[dict[str, Any]], Decision] | None = None
    """What the permission rules alone say of arguments."""
    check: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Arguments that fit the tool; `CallerError` for others."""
    at_most_s: float | None = None
    """No handler gets longer than this, whatever it was promised."""
    managed_only: bool = False
    """Whether only the machine owner's hooks are told."""


class HookVerdict(Struct, frozen=True, kw_only=True):
    """What all hooks of one event came to."""

    decision: HookSaid = "none"
    reason: str = ""
    by: str = ""
    """The one that decided."""
    arguments: dict[str, Any] | None = None
    """Those of the call, if a hook changed them."""
    context: str = ""
    stop: str | None = None
    """Why the run is to end, if a hook wants that."""
    halt: bool = False
    """Whether a refusal ends the run."""

    def after(self, said: HookReply, by: str) -> "HookVerdict":
        """With one more answer: the strictest decides, and of equals the first."""
        heard = self
        if said.stop is not None:
            heard = msgspec.structs.replace(self, stop=said.stop, by=by)
        if _STRICTNESS[said.decision] <= _STRICTNESS[self.decision]:
            return heard
        return msgspec.structs.replace(
            heard, decision=said.decision, reason=said.reason, by=by, halt=said.halt
        )


NOTHING = HookVerdict()


class Hook(Struct, frozen=True, kw_only=True):
    """One handler of one event."""

    event: HookEvent
    matcher: str
    condition: Rule | None
    handler: HandlerConfig | ClientHook
    is_managed: bool = False
    """Whether it is the machine owner's."""

    @property
    def is_async(self) -> bool:
        return isinstance(self.handler, HandlerConfig) and self.handler.is_async

    @property
    def type(self) -> Literal["command", "http", "callback"]:
        return "callback" if isinstance(self.handler, ClientHook) else self.handler.type

    @property
    def name(self) -> str:
        handler = self.handler
        if isinstance(handler, ClientHook):
            return handler.callback_id
        if handler.type == "http":
            from batten.agent.hooks.http import shown

            return shown(handler.url)
        return " ".join([handler.command, *(handler.args or ())])

    def is_for(self, told: HookRun, call: HookedCall | None, workspace: str) -> bool:
        if told.managed_only and not self.is_managed:
            return False
        names = names_of(call.tool.spec.name) if call is not None else told.names
        return fits(self.matcher, names) and holds(self.condition, call, workspace)


class HookDispatch:
    """Has the facts of one hook told of one event."""

    def __init__(
        self, recorder: Recorder, hook: Hook, told: HookRun, call: HookedCall | None
    ) -> None:
        self.recorder = recorder
        self.hook = hook
        self.told = told
        self.call = call
        """As it is for this hook."""
        # Redacted here: the recorder does not look into a value inside a fact.
        self.name = recorder.redactor.text(hook.name)[:_LONGEST_NAME]
        self._began = time.monotonic()
        pace: HookPace = "async" if hook.is_async else "sync"
        self._common: dict[str, Any] = {
            "hook_call_id": new_hook_call_id(),
            "hook_event": told.event,
            "handler": HookHandler(type=hook.type, name=self.name),
            "matcher": hook.matcher,
            "pace": pace,
            "tool_call_id": UNSET if call is None else call.call_id,
        }

    def dispatched(self) -> HookDispatched:
        return HookDispatched(**self._common)

    def completed(
        self, said: HookReply, came: HookReply | None = None, call: HookedCall | None = None
    ) -> HookCompleted:
        """`came` is what its answer came to, and `call` what the hook made of it."""
        came = said if came is None else came
        rules: Decision | None = None
        if self.told.judge is not None and (now := call or self.call) is not None:
            rules = self.told.judge(now.arguments)
        decision = came.decision
        if rules is not None:
            decision = combined(HookVerdict(decision=decision), rules).verdict
        return HookCompleted(
            **self._common,
            router_decision="none" if said.failure else said.decision,
            decision=decision,
            reason=came.reason or came.stop or "",
            duration_ms=round((time.monotonic() - self._began) * 1000),
            permission_action=UNSET if rules is None else rules.verdict,
            failure=said.failure or UNSET,
            exit_code=UNSET if said.exit_code is None else said.exit_code,
            changed_input=True if call is not None and call is not self.call else UNSET,
            additional_context=came.context or UNSET,
            system_message=said.system_message or UNSET,
            detail=self.told.detail,
        )


def observed(told: HookRun) -> HookCompleted:
    """An event that no hook was told of, for whoever wants to see every one."""
    rules: Decision | None = None
    if told.judge is not None and told.call is not None:
        rules = told.judge(told.call.arguments)
    return HookCompleted(
        hook_call_id=new_hook_call_id(),
        hook_event=told.event,
        handler=HookHandler(type="observer", name=""),
        matcher="*",
        pace="sync",
        router_decision="none",
        decision=_unanswered(told.event, rules),
        reason="",
        duration_ms=0,
        permission_action=UNSET if rules is None else rules.verdict,
        tool_call_id=UNSET if told.call is None else told.call.call_id,
        detail=told.detail,
    )


def _unanswered(event: HookEvent, rules: Decision | None) -> HookSaid:
    """What an event comes to if no hook says anything; what is asked about is asked then."""
    if rules is None:
        return "none"
    return "ask" if event == "PermissionRequest" else rules.verdict


def combined(heard: HookVerdict, rules: Decision) -> Decision:
    """One verdict of hooks and rules: a no of either stands, and hooks speak to what is asked."""
    author = f"hook:{heard.by}"
    match heard.decision, rules.verdict:
        case "deny", _:
            return Decision("deny", heard.reason or "a hook denied it", author)
        case "ask", "allow":
            return Decision("ask", heard.reason or "a hook wants it asked", author)
        case "allow", "ask":
            return Decision("allow", heard.reason or "a hook allowed it", author)
        case _:
            return rules
