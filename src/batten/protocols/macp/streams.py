"""Frames of a run's stream: a snapshot, canonical events, heartbeats."""

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode


def snapshot_frame(state: Any) -> bytes:
    """The whole state. Without an id: a reader resumes from events alone."""
    return b"event: snapshot\ndata: %b\n\n" % _encode(state)


def event_frame(seq: int, body: bytes) -> bytes:
    """One canonical event; its id is its number in the run."""
    return b"event: canonical_event\nid: %d\ndata: %b\n\n" % (seq, body)


def heartbeat_frame(ts: str) -> bytes:
    return b'event: heartbeat\ndata: {"ts":"%b"}\n\n' % ts.encode()


def start_after(after_seq: int | None, last_event_id: str | None) -> int | None:
    """The number that a reader has seen, by its query or its header: the larger one.

    A browser that reconnects repeats the query of its first request. None if neither tells one.
    """
    given = last_event_id or ""
    seen = int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else None
    told = [one for one in (after_seq, seen) if one is not None]
    return max(told, default=None)
