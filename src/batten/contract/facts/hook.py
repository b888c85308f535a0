"""`hook.*`: programs of the user's that were told of something, and what they said."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.facts.base import Fact
from batten.contract.facts.policy import Verdict

HookPace = Literal["sync", "async"]
HookSaid = Literal["allow", "deny", "ask", "none"]


class HookHandler(Struct, frozen=True, kw_only=True):
    """Who was told: a command, an address, a callback of the client's. An observer is told of
    what no other was, and says nothing."""

    type: Literal["command", "http", "callback", "observer"]
    name: str
    """The command line, the address or the callback's id, without secrets; an observer has none."""


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
    """A handler has answered, or was given up."""

    TYPE = "hook.completed"
    hook_call_id: str
    hook_event: str
    handler: HookHandler
    matcher: str
    pace: HookPace
    router_decision: HookSaid
    """What the handler said; `none` if nothing, or if its answer does not count."""
    decision: HookSaid
    """What came of it: after a failure, what `on_failure` says."""
    reason: str
    duration_ms: int
    permission_action: Verdict | UnsetType = UNSET
    """What the permission rules say of the call by themselves."""
    failure: str | UnsetType = UNSET
    """Why it gave no answer: timed out, could not start, answered with no sense."""
    exit_code: int | UnsetType = UNSET
    changed_input: bool | UnsetType = UNSET
    additional_context: str | UnsetType = UNSET
    """What it adds to what the model sees."""
    system_message: str | UnsetType = UNSET
    """What it says to people."""
    tool_call_id: str | UnsetType = UNSET
    detail: dict[str, Any] | UnsetType = UNSET
    """What its event is about, as its protocol shows it."""
