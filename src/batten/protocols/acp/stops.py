"""Translates the end of a run to the response of its prompt: a stop reason or an error."""

from msgspec import Struct

from batten.contract.outcomes import Outcome, RunEnd
from batten.protocols.acp.methods import StopReason
from batten.protocols.acp.rpc import INTERNAL_ERROR, RpcError

_REASONS: dict[Outcome, StopReason] = {
    "completed": "end_turn",
    "cancelled": "cancelled",
    "interrupted": "cancelled",
    "max_turns": "max_turn_requests",
    "loop": "max_turn_requests",
    "context_overflow": "max_tokens",
    "refused": "refusal",
    "filtered": "refusal",
    "budget": "end_turn",
    "denied": "end_turn",
    "hook_denied": "end_turn",
}
"""Other outcomes are errors. Limits and policies end the turn and explain it in text: after a
`refusal` the client would forget the prompt."""

_EXPLAINED = frozenset({"max_turns", "loop", "context_overflow", "budget", "denied", "hook_denied"})

_CUT_OFF = "model_cut_off"
"""The code of a `model_error` that is no fault of a model: its answer reached the token limit."""


class Stop(Struct, frozen=True):
    """The answer to a prompt, and the explanation shown before it."""

    reason: StopReason | None
    error: RpcError | None = None
    said: str = ""


def stop_of(end: RunEnd, *, asked: bool, cut_short: bool = False) -> Stop:
    """The answer to the prompt of a run that ended so.

    `asked`: the client wanted this turn to end; then nothing else is an answer. `cut_short`: the
    model's last message reached its token limit.
    """
    if asked:
        return Stop("cancelled")
    if end.code == _CUT_OFF:
        return Stop("max_tokens", said=f"Stopped: {end.message}")
    reason = _REASONS.get(end.outcome)
    if reason is None:
        data = {"code": end.code or end.outcome, "retriable": end.retriable}
        return Stop(None, RpcError(INTERNAL_ERROR, end.message or end.outcome, **data))
    if reason == "cancelled" and end.by != "client":
        # By definition only the client causes `cancelled`.
        return Stop("end_turn", said=f"Stopped: {end.message or end.by or end.outcome}")
    if end.outcome == "completed" and cut_short:
        return Stop("max_tokens")
    return Stop(reason, said=f"Stopped: {end.message}" if end.outcome in _EXPLAINED else "")
