"""Unsuccessful endings as error envelopes and, since 0.4, with diagnostics."""

from typing import Any, cast

from msgspec import UNSET, Struct

from batten.contract.calls import Call
from batten.contract.facts import TurnFailed
from batten.contract.outcomes import Outcome
from batten.protocols.heddle.messages import CallMade, Code, ErrorEnvelope, ErrorEvent
from batten.protocols.heddle.versions import Spoken

_CODES: dict[Outcome, Code] = {
    "model_error": "provider_error",
    "refused": "provider_error",
    "filtered": "provider_error",
    "context_overflow": "provider_error",
    "schema_invalid": "provider_error",
    "timeout": "provider_error",
    "loop": "loop_detected",
    "max_turns": "max_iterations",
    "denied": "tool_error",
    "tool_error": "tool_error",
    "hook_denied": "tool_error",
    "cancelled": "cancelled",
    "interrupted": "cancelled",
}
"""Other outcomes are our fault: `protocol_error`."""
_RETRYABLE_STATUS = frozenset({408, 429, 500, 502, 503, 504, 529})


class Fault(Struct, frozen=True):
    """A provider's failure, as reported."""

    provider: str
    message: str
    details: Any
    status: int | None = None
    retry_after_ms: int | None = None


def is_cancel(outcome: Outcome) -> bool:
    return _CODES.get(outcome) == "cancelled"


def envelope(
    outcome: Outcome, message: str, fault: Fault | None, spoken: Spoken, iterations: int
) -> ErrorEnvelope:
    """`fault` is the last error of the provider; it is used if the provider caused the ending."""
    code = _CODES.get(outcome, "protocol_error")
    details: Any = UNSET
    if outcome == "context_overflow" and fault is None:
        # No provider was asked, and the same message would be refused again.
        code = "protocol_error"
    if code == "provider_error" and fault is not None:
        message, details = fault.message, fault.details
    if code == "max_iterations":
        message = f"Max iterations ({iterations}) reached — possible infinite loop"
        if not spoken.has("0.4.0"):  # which added the code
            code = "loop_detected"
    retryable = code == "provider_error"
    if retryable and spoken.has("0.5.0") and fault is not None and fault.status is not None:
        retryable = fault.retry_after_ms is not None or fault.status in _RETRYABLE_STATUS
    return ErrorEnvelope(code=code, message=message, retryable=retryable, details=details)


def event_of(error: ErrorEnvelope, fault: Fault | None) -> ErrorEvent:
    blamed = fault is not None and error.code == "provider_error"
    return ErrorEvent(
        code=error.code,
        message=error.message,
        retryable=error.retryable,
        details=error.details,
        provider=(fault.provider or UNSET) if fault is not None and blamed else UNSET,
    )


def restart(reason: str) -> ErrorEvent:
    """The event that voids the deltas before it: the answer starts again."""
    return ErrorEvent(
        code="provider_error", message=f"The answer starts again: {reason}", retryable=True
    )


def fault_of(fact: TurnFailed) -> Fault:
    """The provider's own message, if its response has one."""
    provider = fact.provider if isinstance(fact.provider, str) else ""
    message = words(fact.answer) or fact.message.removeprefix(f"{provider}: ")
    status = fact.status if isinstance(fact.status, int) else None
    after = fact.retry_after_ms if isinstance(fact.retry_after_ms, int) else None
    return Fault(provider, message, fact.answer, status, after)


def words(details: object) -> str:
    """The message in the body of an error response; empty if there is none."""
    if isinstance(details, str):
        return details.strip()
    error = cast("dict[str, Any]", details).get("error") if isinstance(details, dict) else None
    if isinstance(error, dict):
        error = cast("dict[str, Any]", error).get("message")
    return error if isinstance(error, str) else ""


class Trail(Struct):
    """The history of a send, which tells why it failed."""

    loop_threshold: int
    """Equal iterations that count as a loop."""
    iterations: int = 0
    calls: list[CallMade] = []
    fault: Fault | None = None
    denied: dict[str, Any] | None = None
    """The last denied call."""
    proposed: Call | None = None
    """The call that was proposed last."""


def failure(error: ErrorEnvelope, trail: Trail, spoken: Spoken) -> dict[str, Any]:
    """Diagnostics of an error, for programs."""
    calls = trail.calls
    fields: dict[str, Any] = {
        "code": error.code,
        "termination_reason": error.message,
        "iterations": trail.iterations,
        "tool_calls_made": len(calls),
    }
    if calls:
        fields["last_tool_name"] = calls[-1].name
    if not spoken.has("0.5.0"):
        return fields
    if calls:
        fields["last_tool"] = calls[-1]
    last = trail.proposed
    if last is not None and last.is_unreadable:
        fields["malformed_tool_call"] = {"id": last.id, "name": last.name, "args": None}
    match error.code:
        case "loop_detected":
            fields |= {"loop_count": trail.loop_threshold, "loop_threshold": trail.loop_threshold}
        case "provider_error" if trail.fault is not None:
            fields["provider"] = _provider(trail.fault)
        case "cancelled":
            fields["cancellation_source"] = "user"
        case "tool_error" if trail.denied is not None:
            fields["permission"] = trail.denied
        case _:
            pass
    return fields


def _provider(fault: Fault) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": fault.provider} if fault.provider else {}
    if fault.status is not None:
        fields |= {"status": fault.status, "status_category": f"{fault.status // 100}xx"}
    if fault.retry_after_ms is not None:
        fields["retry_after_ms"] = fault.retry_after_ms
    details: object = fault.details
    error = cast("dict[str, Any]", details).get("error") if isinstance(details, dict) else None
    if isinstance(error, dict):
        body = cast("dict[str, Any]", error)
        named = (("error_type", body.get("type")), ("provider_code", body.get("code")))
        fields |= {name: value for name, value in named if value is not None}
    return fields
