"""The question whether to retry a failed call, for clients that decide about retries."""

from batten.agent.deps import Question
from batten.agent.hooks.matching import HookedCall
from batten.contract.facts import Fact, ToolFailed, ToolTimedOut

MOST_ATTEMPTS = 3


def retry_question(call: HookedCall, ended: Fact, tried: int) -> Question | None:
    """The question about a call that ended; None if it is not retried anyway.

    A failed `ask_user` is not asked again.
    """
    if not isinstance(ended, ToolFailed | ToolTimedOut) or call.tool.kind == "ask_user":
        return None
    if tried >= MOST_ATTEMPTS:
        return None
    name = call.tool.spec.name
    summary = f"{name} failed: {ended.summary}"
    return Question(
        request_class="tool_retry",
        tool_call_id=call.call_id,
        tool_name=name,
        summary=summary,
        reason=summary,
        detail={
            "tool_call_id": call.call_id,
            "args": call.arguments,
            "error_message": ended.text[:2000],
            "attempt": tried + 1,
            "max_attempts": MOST_ATTEMPTS,
            "summary": summary,
        },
    )
