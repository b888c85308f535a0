"""Frames and lists hold the stored bytes, unchanged."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.facts import RunFinished, RunStarted, SessionClosed, Unknown
from batten.contract.facts.task import TaskCreated
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Stored
from batten.models.sse import SseDecoder
from batten.protocols.hecate.events import (
    AppendEvent,
    EventList,
    EventReply,
    FeedList,
    FeedQuery,
    payload_of,
    types_of,
)
from batten.protocols.hecate.streams import (
    FeedFilter,
    event_list,
    event_reply,
    feed_frames,
    feed_list,
    has_ending,
    is_of_session,
    run_frames,
)

from .making import CHAT, RUN, TASK, stored

STARTED = RunStarted("w", "2026-01-01T00:00:00.000Z")
PAGE = [stored(STARTED, n, position=40 + n) for n in range(3)]
SESSION_STREAM = session_stream(SessionId(CHAT))


def payloads(frames: bytes) -> list[bytes]:
    """What a reader of server-sent events gets."""
    return SseDecoder().receive(frames)


@given(st.lists(st.text(max_size=50), max_size=8))
def test_the_bytes_of_frames_and_of_the_list_are_the_stored_ones(texts: list[str]) -> None:
    page = [
        stored(Unknown(type="external.note", data={"text": text}), n)
        for n, text in enumerate(texts)
    ]
    bodies = [each.body for each in page]
    assert payloads(run_frames(page)) == bodies
    listed = msgspec.json.decode(event_list(page), type=dict[str, msgspec.Raw])
    assert msgspec.json.decode(listed["data"], type=list[msgspec.Raw]) == [
        msgspec.Raw(body) for body in bodies
    ]


def test_a_frame_of_a_run_has_its_sequence_and_no_event_name() -> None:
    frame = run_frames(PAGE[1:2])
    assert frame == b"id: 1\ndata: " + PAGE[1].body + b"\n\n"


def test_a_frame_of_the_feed_has_its_position_and_wraps_the_stored_bytes() -> None:
    frame = feed_frames(PAGE[1:2])
    assert frame == (
        b'id: 41\nevent: event\ndata: {"object":"event","data":' + PAGE[1].body + b"}\n\n"
    )


def test_a_line_end_in_bytes_of_another_writer_cannot_end_a_frame() -> None:
    body = b'{"a":1,\n\n"event":\r\n"done"\r}'
    foreign = Stored(position=1, run_id=RUN, sequence=0, type="x.y", body=body)
    for frames in (run_frames([foreign]), feed_frames([foreign])):
        (data,) = payloads(frames)
        assert b"done" in data
        assert frames.count(b"\n\n") == 1
    assert msgspec.json.decode(payloads(run_frames([foreign]))[0]) == {"a": 1, "event": "done"}


def test_line_62_a_list_is_named_so_and_may_be_empty() -> None:
    assert event_list([]) == b'{"object":"list","data":[]}'
    read = msgspec.json.decode(event_list(PAGE), type=EventList)
    assert [event.sequence for event in read.data] == [0, 1, 2]


def test_a_page_of_the_feed_names_its_last_position_unless_it_is_empty() -> None:
    read = msgspec.json.decode(feed_list(PAGE), type=FeedList)
    assert (read.next_after_sequence, len(read.data)) == (42, 3)
    assert feed_list([]) == b'{"object":"events","data":[]}'


def test_a_page_that_a_filter_emptied_still_moves_on() -> None:
    assert msgspec.json.decode(feed_list([], 90)) == {
        "object": "events",
        "data": [],
        "next_after_sequence": 90,
    }
    assert msgspec.json.decode(feed_list(PAGE, 90))["next_after_sequence"] == 90


def test_line_40_an_appended_event_is_returned_as_stored() -> None:
    event = msgspec.json.decode(
        b'{"type":"external.build.done","status":"ok","note":"","data":{"n":1}}', type=AppendEvent
    )
    assert payload_of(event) == {"n": 1, "status": "ok"}
    made = stored(Unknown(type=event.type, data=payload_of(event)), 3)
    reply = event_reply(made)
    assert made.body in reply
    assert msgspec.json.decode(reply, type=EventReply).data.data == {"n": 1, "status": "ok"}
    assert AppendEvent().type == "external.event"


@pytest.mark.parametrize(
    "type_",
    [
        "turn.completed",
        "external",
        "external.",
        "External.x",
        "external.A",
        "xexternal.y",
        "external.x\n",
    ],
)
def test_a_caller_cannot_append_events_of_the_service(type_: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"type": type_}, AppendEvent)


def test_an_ending_is_seen_wherever_it_is_in_a_page() -> None:
    assert not has_ending(PAGE)
    finished = stored(RunFinished("completed", 1, 0, 5), 3)
    assert has_ending([*PAGE, finished, stored(Unknown(type="external.late", data={}), 4)])


def task_event() -> Stored:
    task = TaskCreated(
        title="x", execution_kind="shell", workspace_mode="clone", priority="low", by="ada"
    )
    return stored(task, 1, position=50, run_id=SESSION_STREAM)


def test_streams_of_sessions_do_not_pose_as_runs_in_the_feed() -> None:
    closed = stored(SessionClosed("done"), 0, position=49, run_id=SESSION_STREAM)
    hooked = stored(Unknown(type="hook.other", data={}), 2, position=51, run_id=SESSION_STREAM)
    page = [*PAGE, closed, task_event(), hooked]
    assert [is_of_session(each) for each in page] == [False] * 3 + [True] * 3
    assert FeedFilter().select(page) == PAGE
    named = FeedFilter(types=frozenset({"task.created", "run.started"}))
    assert named.select(page) == [*PAGE, task_event()]


def test_line_41_a_filter_by_type_and_task_leaks_nothing() -> None:
    other = msgspec.structs.replace(PAGE[0], body=PAGE[0].body.replace(TASK.encode(), b"task_X"))
    quoted = stored(Unknown(type="external.x", data={"text": f'"task_id":"{TASK}"'}), 5)
    quoted = msgspec.structs.replace(
        quoted, body=quoted.body.replace(f'"task_id":"{TASK}",'.encode(), b"", 1)
    )
    wanted = FeedFilter(task_id=TASK)
    assert wanted.select([other, *PAGE]) == PAGE
    assert FeedFilter(types=frozenset({"run.finished"})).select(PAGE) == []
    assert TASK.encode() in quoted.body
    assert wanted.select([quoted]) == []


def test_types_in_a_query_are_separated_by_commas_and_blanks_do_not_count() -> None:
    assert types_of(FeedQuery(event_type=" run.started, run.finished ,,")) == {
        "run.started",
        "run.finished",
    }
    assert types_of(FeedQuery()) == types_of(FeedQuery(event_type="")) == frozenset()
