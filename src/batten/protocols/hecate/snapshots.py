"""Frames of the state stream of one run: the whole state, after each change."""

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.contract.envelope import on_one_line
from batten.contract.facts import CostTick, Fact
from batten.protocols.hecate.activity import Activity
from batten.protocols.hecate.approvals import Approval
from batten.protocols.hecate.artifacts import Artifact
from batten.protocols.hecate.rows import RunLike
from batten.protocols.hecate.runs import ACTIVE, Run, RunDetails
from batten.protocols.hecate.steps import Step
from batten.protocols.hecate.view import RunView, TurnCost

MOST = 200
"""The `most` of a stream's view: it bounds the size of a frame."""


class Snapshot(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The state of a run at one of its events."""

    sequence: int
    """The event up to which this is the state."""
    terminal: bool = False
    """The run has ended."""
    event_type: str
    """The type of that event; `snapshot` if nothing new caused the frame."""
    run: Run
    steps: list[Step]
    artifacts: list[Artifact]
    activity: list[Activity]
    approvals: list[Approval]
    turn: TurnCost | UnsetType = UNSET
    """Only if the event is `turn.completed`."""


class SnapshotFrame(Struct, frozen=True, tag_field="object", tag="task_run_stream_event"):
    """The `data` of a frame."""

    data: Snapshot


def with_task_cost(snapshot: Snapshot, following: Fact) -> Snapshot:
    """The state at the end of a turn, with what the task has cost by then.

    The fact that follows tells it: child runs and earlier runs are not in the view.
    """
    if not isinstance(following, CostTick) or snapshot.turn is UNSET:
        return snapshot
    cost = following.cumulative_cost_micros_usd
    return replace(snapshot, turn=replace(snapshot.turn, task_cumulative_cost_micros_usd=cost))


def snapshot_of(
    view: RunView, row: RunLike, details: RunDetails, *, event_type: str = ""
) -> Snapshot:
    """The state that a view has reached. The row is the run's, at that event or later."""
    run = view.run(row, details)
    return Snapshot(
        sequence=view.sequence,
        terminal=run.status not in ACTIVE,
        event_type=event_type or view.event_type or "snapshot",
        run=run,
        steps=view.steps,
        artifacts=view.artifacts(row),
        activity=view.activity(),
        approvals=view.approvals(row.task_id),
        turn=view.turn,
    )


def snapshot_frame(snapshot: Snapshot) -> bytes:
    return _frame(b"snapshot", snapshot)


def last_frames(snapshot: Snapshot) -> bytes:
    """The state of an ended run, and the sign that nothing follows."""
    return _frame(b"snapshot", snapshot) + _frame(b"done", snapshot)


def _frame(event: bytes, snapshot: Snapshot) -> bytes:
    data = on_one_line(msgspec.json.encode(SnapshotFrame(snapshot)))
    return b"id: %d\nevent: %b\ndata: %b\n\n" % (snapshot.sequence, event, data)
