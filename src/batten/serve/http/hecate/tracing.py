"""Trace ids in headers: a run is one trace, so whoever knows its id knows the trace."""

from hashlib import sha256

from batten.contract.ids import is_ulid, to_uuid


def trace_headers(run_id: str, about: str) -> tuple[tuple[str, str], ...]:
    """The trace of a run and the span of one thing in it, as W3C Trace Context spells them."""
    trace = to_uuid(run_id).replace("-", "") if is_ulid(run_id) else _digest(run_id)[:32]
    return (
        ("x-trace-id", trace),
        ("x-span-id", _digest(about)[:16]),
    )


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()
