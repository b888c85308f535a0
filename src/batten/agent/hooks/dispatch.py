"""One dispatch of one event to one hook: the hook, the event's payload and the resulting facts."""

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
from batten.tools.contract import judged

_LONGEST_NAME = 200
_STRICTNESS: dict[HookSaid, int] = {"none": 0, "allow": 1, "ask": 2, "deny": 3}

Reply = Callable[[dict[str, Any], str | None], Awaitable[object]]


class ClientHook(Struct, frozen=True, kw_only=True):
    """A callback that a client lends the session."""

    event: HookEvent
    callback_id: str
    call: Reply
    """Takes the payload and the id of the tool call, if there is one. Returns an object."""
    matcher: str = "*"
    timeout_s: float = 60.0
    on_failure: OnFailure = "deny"


class HookRun(Struct, frozen=True, kw_only=True):
    """One event, as its hooks receive it."""

    event: HookEvent
    fields: dict[str, Any]
    """The payload without the call, which each hook may change for the hooks after it."""
    detail: dict[str, Any]
    """The part of the payload that the facts show."""
    names: tuple[str, ...] = ()
    """Names that matchers are compared with, for events without a tool call."""
    call: HookedCall | None = None
    shape: Callable[[HookedCall], dict[str, Any]] | None = None
    """Renders the call for the payload."""
    judge: Callable[[dict[str, Any]], Decision] | None = None
    """The verdict of the permission rules alone on these arguments."""
    check: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    """Validates arguments against the tool's schema; raises `CallerError`."""
    at_most_s: float | None = None
    """An upper bound for every handler's timeout."""
    managed_only: bool = False
    """Whether only the machine owner's hooks receive it."""


class HookVerdict(Struct, frozen=True, kw_only=True):
    """The combined result of all hooks of one event."""

    decision: HookSaid = "none"
    reason: str = ""
    by: str = ""
    """The name of the deciding hook."""
    arguments: dict[str, Any] | None = None
    """The changed arguments of the call; None if no hook changed them."""
    context: str = ""
    stop: str | None = None
    """Why the run must end, if a hook asks for that."""
    halt: bool = False
    """Whether a refusal ends the run."""

    def after(self, said: HookReply, by: str) -> "HookVerdict":
        """This verdict with one more reply: the strictest decides, of equals the first."""
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
    """Whether the machine owner configured it."""

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
        names = names_of(judged(call.tool).spec.name) if call is not None else told.names
        return fits(self.matcher, names) and holds(self.condition, call, workspace)


class HookDispatch:
    """Makes the facts of one hook's dispatch."""

    def __init__(
        self, recorder: Recorder, hook: Hook, told: HookRun, call: HookedCall | None
    ) -> None:
        self.recorder = recorder
        self.hook = hook
        self.told = told
        self.call = call
        """The call with the changes of earlier hooks."""
        # Redacted here: the recorder does not look into a struct inside a fact.
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
        """`came` is the effective reply, `call` the call with the hook's changes."""
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
    """The fact of an event that no hook received, for clients that observe every event."""
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
    """The decision on an event without a reply: a permission request is still asked."""
    if rules is None:
        return "none"
    return "ask" if event == "PermissionRequest" else rules.verdict


def combined(heard: HookVerdict, rules: Decision) -> Decision:
    """The verdict of hooks and rules together: either may deny; hooks decide if the rules `ask`."""
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
