"""Where a reader begins, and whether it gets a stream, a list or nothing more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, ValidationError, convert

from batten.contract.errors import CallerError
from batten.protocols.hecate.cursors import (
    Start,
    is_at_end,
    position_of,
    start_of,
    wants_stream,
)
from batten.protocols.hecate.events import EventsQuery, FeedQuery
from batten.protocols.hecate.vocabulary import EVENT_PAGE, FEED_PAGE, MAX_FEED_PAGE, page_size


@pytest.mark.parametrize(
    ("query", "header", "after"),
    [
        (UNSET, None, -1),
        (-1, None, -1),
        (0, None, 0),
        (7, None, 7),
        (UNSET, "", -1),
        (UNSET, "-1", -1),
        (UNSET, "0", 0),
        (UNSET, " 12 ", 12),
        (3, "12", 12),
        (12, "3", 12),
    ],
)
def test_the_larger_of_query_and_header_counts(query: object, header: str, after: int) -> None:
    assert start_of(query, header).after == after  # type: ignore[arg-type]  # as from a query


@given(st.integers(-1, 2**63 - 1), st.integers(-1, 2**63 - 1))
def test_line_38_a_reconnected_reader_never_goes_back(query: int, seen: int) -> None:
    assert start_of(query, str(seen)).after >= max(query, seen)


def test_line_61_the_header_alone_resumes() -> None:
    assert start_of(UNSET, "41") == Start(41, is_reconnect=True)


@pytest.mark.parametrize(
    "header", ["x", "1.5", "-2", "1 2", "٣", "0x1", str(2**64), "9" * 400, "1\x00"]
)
def test_line_41_a_header_that_is_no_cursor_is_refused(header: str) -> None:
    with pytest.raises(CallerError, match="Last-Event-ID") as caught:
        start_of(UNSET, header)
    assert len(caught.value.message) < 300


@pytest.mark.parametrize("text", ["x", "", "null", "1.5", "-2", str(2**64), "9" * 400])
@pytest.mark.parametrize("type_", [EventsQuery, FeedQuery])
def test_line_41_a_query_that_is_no_cursor_is_refused(
    text: str, type_: type[EventsQuery] | type[FeedQuery]
) -> None:
    with pytest.raises((ValidationError, CallerError)):
        start_of(convert({"after_sequence": text}, type_, strict=False).after_sequence)


@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**64 - 1])
def test_a_cursor_has_64_bits_as_a_sequence_has(number: int) -> None:
    query = convert({"after_sequence": str(number)}, EventsQuery, strict=False)
    assert start_of(query.after_sequence) == Start(2**63 - 1)
    assert start_of(UNSET, str(number)) == Start(2**63 - 1, is_reconnect=True)


@pytest.mark.parametrize("limit", ["0", "-1", "x", ""])
@pytest.mark.parametrize("type_", [EventsQuery, FeedQuery])
def test_a_page_has_at_least_one_event(limit: str, type_: type) -> None:
    with pytest.raises(ValidationError):
        convert({"limit": limit}, type_, strict=False)


@pytest.mark.parametrize(("limit", "size"), [(UNSET, 200), (1, 1), (500, 500), (501, 500)])
def test_line_62_a_limit_is_honoured_up_to_the_largest(limit: object, size: int) -> None:
    assert page_size(limit, FEED_PAGE, MAX_FEED_PAGE) == size
    assert page_size(UNSET, EVENT_PAGE, EVENT_PAGE) == 500


def test_zero_asks_for_the_largest_page_of_a_list() -> None:
    assert page_size(0, 50, 200) == 200


def test_the_feed_starts_at_position_zero() -> None:
    assert [position_of(start_of(after)) for after in (-1, 0, 9)] == [0, 0, 9]


@pytest.mark.parametrize(
    ("query", "header", "ended", "over"),
    [
        (UNSET, "9", True, True),
        (UNSET, "12", True, True),
        (UNSET, "8", True, False),
        (UNSET, "9", False, False),
        (9, None, True, True),
        (9, None, False, False),
        (8, None, True, False),
        (9, "2", True, True),
        (UNSET, None, True, False),
    ],
)
def test_only_a_reader_with_all_events_of_an_ended_run_is_sent_away(
    query: object, header: str | None, ended: bool, over: bool
) -> None:
    start = start_of(query, header)  # type: ignore[arg-type]  # as from a query
    assert is_at_end(start, ended=ended, last_sequence=9) is over


@pytest.mark.parametrize(
    ("accept", "wants_page", "stream"),
    [
        ("text/event-stream", False, True),
        ("text/event-stream", True, True),
        ("application/json, text/event-stream;q=0.5", True, True),
        ("Text/Event-Stream; charset=utf-8", False, True),
        ("application/json", False, False),
        ("application/json", True, False),
        ("*/*", False, True),
        ("*/*", True, False),
        ("text/html", True, False),
        (None, False, True),
        (None, True, False),
        ("", True, False),
        ("text/event-stream;q=0, */*", True, False),
        ("text/event-stream;q=0.0", False, True),
        ("application/json;q=0", False, True),
    ],
)
def test_accept_decides_and_then_the_limit(
    accept: str | None, wants_page: bool, stream: bool
) -> None:
    assert wants_stream(accept, wants_page=wants_page) is stream
