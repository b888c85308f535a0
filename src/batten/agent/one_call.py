"""A run that makes one call and asks no model: the same gate, facts and endings as an agent's."""

from collections.abc import Callable

from batten.agent.dispatch import Dispatch
from batten.agent.halt import Halt
from batten.agent.progress import Progress
from batten.contract.conversation import ToolCall
from batten.contract.facts import (
    PolicyToolBlocked,
    ToolCancelled,
    ToolCompleted,
    ToolEnded,
    ToolFailed,
)
from batten.models.contract import Model

_RESOLVER = "resolver:"
_COMMAND_FAILED = "command_failed"
_COMMAND_TIMED_OUT = "command_timed_out"
_INTERRUPTED = "command_interrupted"
_OUTPUT_CAP = "output_cap_exceeded"


class OneCall:
    """Makes the call, unless an earlier worker began it; the run ends as the call does."""

    def __init__(self, dispatch: Dispatch, call: ToolCall, progress: Progress) -> None:
        self.dispatch = dispatch
        self._call = call
        self._progress = progress

    def hand_over(self) -> None:
        """Another worker goes on: a call that is cut short now is told as cut, not made again."""
        self.dispatch.cut_by = "the worker that ran it was stopped"

    async def run(self, models: Callable[[], tuple[Model, ...]]) -> str:
        """The summary of the call. Raises `Halt` if it did not complete."""
        ended = self._progress.last_call or await self._make()
        if isinstance(ended, PolicyToolBlocked):
            raise _refusal(ended)
        if not isinstance(ended, ToolCompleted):
            raise _failure(ended)
        return ended.summary

    async def _make(self) -> ToolEnded | PolicyToolBlocked:
        try:
            await self.dispatch.run_unproposed(self._call)
        except Halt as halt:
            # A refusal that ends the run ends it like any other refusal.
            if halt.outcome != "cancelled" or self._progress.last_call is None:
                raise
        ended = self._progress.last_call
        assert ended is not None
        return ended


def _refusal(blocked: PolicyToolBlocked) -> Halt:
    author = blocked.policy_id if isinstance(blocked.policy_id, str) else ""
    if not author.startswith(_RESOLVER):
        return Halt("denied", blocked.reason)
    by = author.removeprefix(_RESOLVER)
    if by == "policy":
        return Halt("cancelled", blocked.reason, by=by)
    return Halt("cancelled", "approval rejected", by=by)


def _failure(ended: ToolEnded) -> Halt:
    if isinstance(ended, ToolCancelled):
        reason = "it was cut short when its worker was stopped, and is not run again"
        return Halt("tool_error", f"{ended.tool_name}: {reason}", code=_INTERRUPTED)
    if isinstance(ended, ToolFailed):
        kind = ended.error_kind if isinstance(ended.error_kind, str) else ""
        code = _COMMAND_FAILED if kind == "exit_status" else kind
    else:
        code = _OUTPUT_CAP if ended.summary.startswith("output cap") else _COMMAND_TIMED_OUT
    return Halt("tool_error", f"{ended.tool_name}: {ended.summary}", code=code)
