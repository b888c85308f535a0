"""Trace Context: ids of traces and spans, derived from runs and not drawn.

The same run always has the same ids, so an export that is repeated is the same export, and a
process can name the span that another process will export.
"""

import re
from collections.abc import Mapping
from contextvars import ContextVar
from hashlib import sha256

from msgspec import UNSET, Struct

from batten.contract.facts import RunQueued
from batten.contract.identity import current_ids
from batten.contract.ids import is_ulid, to_uuid

current_traceparent: ContextVar[str] = ContextVar("current_traceparent", default="")
"""The span that what is done now belongs to, for commands, hooks, tool servers and model calls.
Empty while tracing is off."""

_TRACEPARENT = r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
_MEMBER = r"[a-z0-9][a-z0-9_*/@-]{0,255}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{1,256}"
_TRACESTATE = rf"{_MEMBER}(?:[ \t]*,[ \t]*{_MEMBER}){{0,31}}"
_LONGEST = 512


class TraceParent(Struct, frozen=True):
    """A caller's span."""

    trace_id: str
    span_id: str
    flags: str = "01"

    @property
    def is_sampled(self) -> bool:
        """Whether the spans of the trace are kept."""
        return bool(int(self.flags, 16) & 1)

    def __str__(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


def parse_traceparent(text: str) -> TraceParent | None:
    """A `traceparent` as W3C spells it; None for anything else."""
    found = re.fullmatch(_TRACEPARENT, text[:_LONGEST])
    if found is None or found[1] == "ff" or (found[1] == "00" and found[5]):
        return None
    if not int(found[2], 16) or not int(found[3], 16):
        return None
    return TraceParent(found[2], found[3], found[4])


def tracestate_of(text: str) -> str:
    """A `tracestate` as W3C spells it; empty for anything else."""
    text = text.strip()
    return text if len(text) <= _LONGEST and re.fullmatch(_TRACESTATE, text) else ""


def trace_of(run_id: str) -> str:
    """The trace of a run that no caller's trace contains: its own number."""
    return to_uuid(run_id).replace("-", "") if is_ulid(run_id) else _digest(run_id)[:32]


def span_of(run_id: str, *parts: str | int) -> str:
    """The id of a span: of the run, or of a part of it such as `tool` and its call."""
    return _digest(" ".join((run_id, *map(str, parts))))[:16]


def identity_in(fact: RunQueued) -> dict[str, str]:
    """The ids that a run was queued with; the span of a request counts among them."""
    identity = {} if fact.identity is UNSET else fact.identity
    return identity if fact.traceparent is UNSET else {**identity, "traceparent": fact.traceparent}


def caller_of(identity: Mapping[str, str]) -> TraceParent | None:
    """The span that a launcher named, if it named one."""
    return parse_traceparent(identity.get("traceparent", ""))


def enter_run(
    run_id: str, session_id: str, identity: Mapping[str, str], *, is_traced: bool
) -> None:
    """Make the ids of a run the current ones; those that its launcher named come first.

    A child keeps the call that started it.
    """
    own = {"session_id": session_id, "run_id": run_id}
    if call := current_ids.get().get("tool_call_id"):
        own["tool_call_id"] = call
    if is_traced:
        caller = caller_of(identity)
        own["trace_id"] = trace_of(run_id) if caller is None else caller.trace_id
    current_ids.set({**own, **identity})


def place_of(run_id: str, fact: RunQueued) -> TraceParent:
    """The trace of a run, and the span above it: of its caller, or of the call in another run that
    started it. The span is empty if there is none.
    """
    if (caller := caller_of(identity_in(fact))) is not None:
        return caller
    if fact.parent_run_id is UNSET or fact.parent_tool_call_id is UNSET:
        return TraceParent(trace_of(run_id), "")
    above = span_of(fact.parent_run_id, "tool", fact.parent_tool_call_id, 1)
    return TraceParent(trace_of(fact.parent_run_id), above)


def traceparent_of(run_id: str, identity: Mapping[str, str], *parts: str | int) -> str:
    """The `traceparent` for what a part of a run starts: a turn, or a tool call.

    It is in the trace of what is done now: a child run's is that of the run that started it.
    """
    caller = parse_traceparent(current_traceparent.get()) or caller_of(identity)
    trace = trace_of(run_id) if caller is None else caller.trace_id
    flags = "01" if caller is None else caller.flags
    return str(TraceParent(trace, span_of(run_id, *parts), flags))


def trace_context() -> dict[str, str]:
    """The `traceparent` of what is done now, for those that do a part of it, and the `tracestate`
    of the caller whose trace it is. Empty while tracing is off.
    """
    span = current_traceparent.get()
    if not span:
        return {}
    ids = current_ids.get()
    state = "" if caller_of(ids) is None else tracestate_of(ids.get("tracestate", ""))
    return {"traceparent": span, "tracestate": state} if state else {"traceparent": span}


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
