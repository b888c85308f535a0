"""Cursors of streams and lists, and the choice between the two.

`after_sequence=N` means after N; absent or -1 means from the first stored event. If a reader also
sends `Last-Event-ID` the larger counts: a browser that reconnects repeats its first address. A
cursor inside a pruned range is valid: what follows it begins with the first survivor.
"""

import re

from msgspec import UNSET, Struct, UnsetType

from batten.contract.errors import CallerError
from batten.protocols.hecate.vocabulary import LARGEST, LARGEST_CURSOR

START = -1
_NUMBER = re.compile(r"-1|[0-9]{1,20}", re.ASCII)
_NO_WEIGHT = re.compile(r"q\s*=\s*0(\.0*)?\s*$")


class Start(Struct, frozen=True):
    """Where a reader begins."""

    after: int
    """Only events after this one; -1 for all."""
    is_reconnect: bool = False
    """The reader had a stream before: it named the last event of it."""


def start_of(after_sequence: int | UnsetType, last_event_id: str | None = None) -> Start:
    """Where to begin, by the query and the header. Raises `CallerError` for a bad cursor."""
    after = START if after_sequence is UNSET else after_sequence
    if after > LARGEST_CURSOR:
        raise CallerError(f"`after_sequence` in the query: expected an integer <= {LARGEST_CURSOR}")
    if last_event_id:
        after = max(after, _number(last_event_id))
    # No event has a larger number than the store holds.
    return Start(min(after, LARGEST), is_reconnect=bool(last_event_id))


def _number(last_event_id: str) -> int:
    text = last_event_id.strip()
    number = int(text) if _NUMBER.fullmatch(text) else None
    if number is None or number > LARGEST_CURSOR:
        raise CallerError(
            f"Last-Event-ID {last_event_id[:40]!r} is not the id of an event of this stream; send"
            " the last `id` that you received, or leave the header out"
        )
    return number


def position_of(start: Start) -> int:
    """The start as a position in the feed of all runs, where 0 is before the first."""
    return max(start.after, 0)


def is_at_end(start: Start, *, ended: bool, last_sequence: int) -> bool:
    """Whether a reader has all events of an ended run: the answer is 204, which stops a browser's
    `EventSource`. It would open an empty stream again and again.
    """
    return ended and 0 <= last_sequence <= start.after


def wants_stream(accept: str | None, *, wants_page: bool) -> bool:
    """Whether a reader of events gets a stream or a list.

    `Accept` decides if it names either type, the stream first. `wants_page`: a limit or a time to
    wait was given, which belong to a list.
    """
    named = _named_types(accept or "")
    if "text/event-stream" in named:
        return True
    return not (wants_page or "application/json" in named)


def _named_types(accept: str) -> set[str]:
    named: set[str] = set()
    for part in accept.lower().split(","):
        name, _, parameters = part.partition(";")
        if not any(_NO_WEIGHT.fullmatch(one.strip()) for one in parameters.split(";")):
            named.add(name.strip())
    return named
