"""Traces: a run is one trace, its own or that of the request which queued it."""

import re

from batten.contract.tracing import TraceParent, parse_traceparent, span_of, tracestate_of

_TRACE = re.compile(r"[0-9a-f]{32}")
_SPAN = re.compile(r"[0-9a-f]{16}")


def parent_of(traceparent: str | None, trace_id: str | None, span_id: str | None) -> str:
    """The span of a caller, spelled as W3C's `traceparent`; empty if its headers name none.

    `traceparent` comes before `X-Trace-Id` with `X-Span-Id`. What is malformed counts as missing.
    """
    parent = parse_traceparent(traceparent or "")
    if parent is not None:
        return str(parent)
    trace, span = (trace_id or "").lower(), (span_id or "").lower()
    if _TRACE.fullmatch(trace) is None or not int(trace, 16):
        return ""
    if _SPAN.fullmatch(span) is None or not int(span, 16):
        span = span_of(trace)  # the caller did not name its span
    return str(TraceParent(trace, span))


def state_of(traceparent: str | None, tracestate: str | None) -> str:
    """What a caller's `tracestate` says; it counts beside a `traceparent` only."""
    return tracestate_of(tracestate or "") if parse_traceparent(traceparent or "") else ""
