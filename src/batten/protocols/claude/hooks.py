"""Hooks of the client's: how it declares them, what it is told, and what its answer means."""

from msgspec import UNSET

from batten.contract.facts import HookCompleted, HookDispatched
from batten.protocols.claude.line import Frame


def hook_frame(fact: HookDispatched | HookCompleted) -> Frame:
    """A hook that started or has ended."""
    frame: Frame = {
        "type": "system",
        "subtype": "hook_started" if isinstance(fact, HookDispatched) else "hook_response",
        "hook_id": fact.hook_call_id,
        "hook_name": f"{fact.hook_event}:{fact.matcher}" if fact.matcher else fact.hook_event,
        "hook_event": fact.hook_event,
    }
    if isinstance(fact, HookDispatched):
        return frame
    failed = fact.failure is not UNSET
    frame["output"] = str(fact.failure) if failed else fact.reason
    frame["stdout"] = frame["stderr"] = ""
    if fact.exit_code is not UNSET:
        frame["exit_code"] = fact.exit_code
    frame["outcome"] = "error" if failed else "success"
    return frame
