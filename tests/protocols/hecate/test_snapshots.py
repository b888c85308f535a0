"""Frames of a run's state: each is the state at one event, complete in itself."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.journal.contract import RunRow
from batten.models.sse import SseDecoder
from batten.protocols.hecate.runs import ACTIVE, RunDetails
from batten.protocols.hecate.snapshots import (
    MOST,
    SnapshotFrame,
    last_frames,
    snapshot_frame,
    snapshot_of,
)
from batten.protocols.hecate.view import RunView
from tests.contract.journals import GOLDEN, envelopes

from .making import run_row

RUNS = [name for name in GOLDEN if name not in ("session", "task")]
DETAILS = RunDetails(number=1)


def row_of(journal: list[Envelope]) -> RunRow:
    """The row after the last event: it is always ahead of the frames before."""
    statuses = {"run.finished": "completed", "run.failed": "failed", "run.cancelled": "cancelled"}
    ending = next(envelope for envelope in journal if envelope.type in statuses)
    return run_row(
        run_id=journal[0].run_id,
        task_id=journal[0].task_id or None,
        status=statuses[ending.type],
        outcome="completed",
        ended_at=ending.occurred_at,
        next_sequence=len(journal),
    )


def frames_of(name: str) -> Iterator[tuple[bytes, Envelope]]:
    journal = envelopes(name)
    view, row = RunView(MOST), row_of(journal)
    for envelope in journal:
        view.take(envelope)
        yield snapshot_frame(snapshot_of(view, row, DETAILS)), envelope


def data_of(frames: bytes) -> list[dict[str, Any]]:
    return [msgspec.json.decode(data) for data in SseDecoder().receive(frames)]


@pytest.mark.parametrize("name", RUNS)
def test_a_frame_has_the_state_at_its_event_though_the_row_is_ahead(name: str) -> None:
    over = False
    for frame, envelope in frames_of(name):
        over = over or envelope.type in f.TERMINAL
        assert frame.startswith(b"id: %d\nevent: snapshot\ndata: " % envelope.sequence)
        (body,) = data_of(frame)
        assert body["object"] == "task_run_stream_event"
        state = body["data"]
        assert (state["sequence"], state["event_type"]) == (envelope.sequence, envelope.type)
        assert state.get("terminal", False) is over
        assert ("finished_at" in state["run"]) is over
        assert ("turn" in state) is (envelope.type == "turn.completed")
        msgspec.json.decode(frame.split(b"data: ", 1)[1], type=SnapshotFrame)


@pytest.mark.parametrize("name", RUNS)
def test_line_42_every_waiting_frame_carries_its_pending_approval(name: str) -> None:
    waiting = 0
    for frame, _ in frames_of(name):
        (body,) = data_of(frame)
        state = body["data"]
        pending = [each for each in state["approvals"] if each["status"] == "pending"]
        is_waiting = state["run"]["status"] == "awaiting_approval"
        assert is_waiting is bool(pending)
        waiting += is_waiting
    assert waiting or name != "cancelled"


def test_the_last_state_is_sent_again_as_done() -> None:
    journal = envelopes("finished")
    view = RunView(MOST)
    for envelope in journal:
        view.take(envelope)
    state = snapshot_of(view, row_of(journal), DETAILS)
    first, second = last_frames(state).split(b"\n\n")[:2]
    assert first.startswith(b"id: %d\nevent: snapshot\n" % journal[-1].sequence)
    assert second == first.replace(b"event: snapshot", b"event: done", 1)
    assert state.run.status not in ACTIVE


def test_a_frame_without_a_new_event_says_so_and_keeps_the_cursor() -> None:
    journal = envelopes("finished")
    view = RunView(MOST)
    view.take(journal[0])
    state = snapshot_of(view, row_of(journal), DETAILS, event_type="snapshot")
    assert (state.sequence, state.event_type) == (0, "snapshot")


def test_line_39_making_frames_changes_nothing() -> None:
    journal = envelopes("cancelled")
    view, row = RunView(MOST), row_of(journal)
    for envelope in journal:
        view.take(envelope)
    assert snapshot_of(view, row, DETAILS) == snapshot_of(view, row, DETAILS)
