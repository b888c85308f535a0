"""`hook.*`: calls of the user's hooks, and their answers."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.facts.base import Fact
from batten.contract.facts.policy import Verdict

HookPace = Literal["sync", "async"]
HookSaid = Literal["allow", "deny", "ask", "none"]


class HookHandler(Struct, frozen=True, kw_only=True):
    """The hook that was called: a command, a URL or a client's callback. An observer receives
    events that no other hook handled; it does not answer."""

    type: Literal["command", "http", "callback", "observer"]
    name: str
    """The command line, URL or callback id, without secrets; empty for an observer."""


class HookDispatched(Fact, frozen=True):
    """A handler was started."""

    TYPE = "hook.dispatched"
    hook_call_id: str
    hook_event: str
    handler: HookHandler
    matcher: str
    pace: HookPace
    tool_call_id: str | UnsetType = UNSET


class HookCompleted(Fact, frozen=True):
    """A handler answered, or was given up."""

    TYPE = "hook.completed"
    hook_call_id: str
    hook_event: str
    handler: HookHandler
    matcher: str
    pace: HookPace
    router_decision: HookSaid
    """The handler's answer; `none` if it gave none or its answer does not count."""
    decision: HookSaid
    """The effective decision: after a failure, that of `on_failure`."""
    reason: str
    duration_ms: int
    permission_action: Verdict | UnsetType = UNSET
    """The verdict of the permission rules alone."""
    failure: str | UnsetType = UNSET
    """Why there is no answer: timeout, failed start, invalid output."""
    exit_code: int | UnsetType = UNSET
    changed_input: bool | UnsetType = UNSET
    additional_context: str | UnsetType = UNSET
    """Text that the hook adds to the model's context."""
    system_message: str | UnsetType = UNSET
    """Text that the hook shows to the user."""
    tool_call_id: str | UnsetType = UNSET
    detail: dict[str, Any] | UnsetType = UNSET
    """The subject of the hook event, as its protocol shows it."""
