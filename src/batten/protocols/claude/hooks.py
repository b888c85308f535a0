"""Hooks as Claude Code's frames, both the user's and the client's."""

from msgspec import UNSET

from batten.contract.facts import HookCompleted, HookDispatched
from batten.protocols.claude.line import Frame


def hook_frames(fact: HookDispatched | HookCompleted) -> list[Frame]:
    """The frames of a hook that started or ended. A synchronous hook is shown when it has ended.

    An event without hooks has no frame in this protocol.
    """
    if fact.handler.type == "observer":
        return []
    if isinstance(fact, HookDispatched):
        return [_frame("hook_started", fact)]
    ended = _ended(fact)
    return [_frame("hook_started", fact), ended] if fact.pace == "sync" else [ended]


def _frame(subtype: str, fact: HookDispatched | HookCompleted) -> Frame:
    return {
        "type": "system",
        "subtype": subtype,
        "hook_id": fact.hook_call_id,
        "hook_name": f"{fact.hook_event}:{fact.matcher}" if fact.matcher else fact.hook_event,
        "hook_event": fact.hook_event,
    }


def _ended(fact: HookCompleted) -> Frame:
    frame = _frame("hook_response", fact)
    failed = fact.failure is not UNSET
    frame["output"] = str(fact.failure) if failed else fact.reason
    frame["stdout"] = frame["stderr"] = ""
    if fact.exit_code is not UNSET:
        frame["exit_code"] = fact.exit_code
    frame["outcome"] = "error" if failed else "success"
    return frame
