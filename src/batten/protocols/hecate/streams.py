"""Frames and lists of events, made of stored bytes: nothing is encoded again."""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from batten.contract.facts import TERMINAL
from batten.protocols.hecate.rows import StoredLike

OPENING = b": ok\n\n"
"""The first bytes of the feed of all runs: they carry the headers to the reader."""
HEARTBEAT = b": heartbeat\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
HEARTBEAT_S = 15.0

_HEAD = 400
"""Bytes of an envelope in which its ids are found: its keys have a fixed order."""


def run_frame(stored: StoredLike) -> bytes:
    """A frame of one run's stream; without an `event` field, for a browser's `onmessage`."""
    return b"id: %d\ndata: %b\n\n" % (stored.sequence, _line(stored.body))


def run_frames(page: Iterable[StoredLike]) -> bytes:
    return b"".join(map(run_frame, page))


def feed_frame(stored: StoredLike) -> bytes:
    """A frame of the feed of all runs; its id is the position."""
    return b'id: %d\nevent: event\ndata: {"object":"event","data":%b}\n\n' % (
        stored.position,
        _line(stored.body),
    )


def feed_frames(page: Iterable[StoredLike]) -> bytes:
    return b"".join(map(feed_frame, page))


def event_list(page: Iterable[StoredLike]) -> bytes:
    """A list of one run's events."""
    return b'{"object":"list","data":[%b]}' % b",".join(stored.body for stored in page)


def feed_list(page: Sequence[StoredLike], position: int | None = None) -> bytes:
    """A page of the feed. `position` is where the next one starts, if later than the last event:
    a filter may have left out those that follow it.
    """
    events = b",".join(stored.body for stored in page)
    if not page and position is None:
        return b'{"object":"events","data":[]}'
    after = max(page[-1].position if page else 0, position or 0)
    return b'{"object":"events","data":[%b],"next_after_sequence":%d}' % (events, after)


def event_reply(stored: StoredLike) -> bytes:
    """The answer to an appended event."""
    return b'{"object":"task_run_event","data":%b}' % stored.body


def has_ending(page: Iterable[StoredLike]) -> bool:
    """Whether a run ended in this page. Its stream closes once nothing follows."""
    return any(stored.type in TERMINAL for stored in page)


class FeedFilter(Struct, frozen=True):
    """Selects events of the feed."""

    types: frozenset[str] = frozenset()
    """Empty: every type, except in streams of sessions, which are no runs."""
    task_id: str = ""
    run_id: str = ""

    def admits(self, stored: StoredLike) -> bool:
        if self.run_id and stored.run_id != self.run_id:
            return False
        if self.types:
            if stored.type not in self.types:
                return False
        elif is_of_session(stored):
            return False
        return not self.task_id or _names(stored.body, b"task_id", self.task_id)

    def select(self, page: Iterable[StoredLike]) -> list[StoredLike]:
        return [stored for stored in page if self.admits(stored)]


def is_of_session(stored: StoredLike) -> bool:
    """Whether an event is in the stream of a session: that has the session's own number."""
    return _names(stored.body, b"session_id", f"chat_{stored.run_id[4:]}")


def _names(body: bytes, key: bytes, id_: str) -> bool:
    return body.find(b'"%b":"%b"' % (key, id_.encode()), 0, _HEAD) > 0


def _line(body: bytes) -> bytes:
    """An envelope for `data:`. Ours are one line; those of other writers may have line ends, which
    must not end a frame."""
    if b"\n" in body or b"\r" in body:
        return b"\ndata: ".join(body.splitlines())
    return body
