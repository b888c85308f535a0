"""Rows for the steps of a run, and for its state as a stream."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from batten.contract.envelope import decode
from batten.contract.errors import NotFound
from batten.contract.facts import AssistantTextDelta, AssistantThinkingDelta, TurnCompleted
from batten.journal.contract import RunRow, Stored
from batten.protocols.hecate import cursors
from batten.protocols.hecate.events import StateQuery
from batten.protocols.hecate.runs import PageQuery
from batten.protocols.hecate.snapshots import (
    MOST,
    Snapshot,
    last_frames,
    snapshot_frame,
    snapshot_of,
    with_task_cost,
)
from batten.protocols.hecate.steps import StepList, StepReply
from batten.protocols.hecate.streams import KEEP_ALIVE
from batten.protocols.hecate.view import RunView
from batten.serve.http.hecate.events import RESUMED
from batten.serve.http.hecate.pages import page_of
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.tasks import RUN
from batten.serve.http.table import Call, Reply, Route, Stream

_PAUSE_S = 0.05
"""Between two frames of one reader: what happens meanwhile is one frame."""
_SILENT = frozenset({AssistantTextDelta.TYPE, AssistantThinkingDelta.TYPE})
"""Events that no state shows."""


async def list_steps(call: Call) -> StepList:
    service: Service = call.service
    query: PageQuery = call.query
    row = await service.tasks.run(call.params["task_id"], call.params["run_id"])
    steps = (await service.whole_view(row)).steps
    page, cursor = page_of(steps, query, lambda step: step.id)
    return StepList(data=page, has_more=bool(cursor), next_cursor=cursor)


async def get_step(call: Call) -> StepReply:
    service: Service = call.service
    row = await service.tasks.run(call.params["task_id"], call.params["run_id"])
    step_id = call.params["step_id"]
    for step in (await service.whole_view(row)).steps:
        if step.id == step_id:
            return StepReply(step)
    raise NotFound(f"run {row.run_id} has no step {step_id}")


async def states(call: Call) -> Reply | Stream:
    service: Service = call.service
    query: StateQuery = call.query
    row = await service.tasks.run(call.params["task_id"], call.params["run_id"])
    start = cursors.start_of(query.after_sequence, call.last_event_id)
    last = row.next_sequence - 1
    ended = row.outcome is not None
    if start.is_reconnect and cursors.is_at_end(start, ended=ended, last_sequence=last):
        return Reply(status=204)
    return Stream(_frames(service, row, start.after), heartbeat=KEEP_ALIVE)


async def _frames(service: Service, row: RunRow, after: int) -> AsyncGenerator[bytes, None]:
    """The state after each change past `after`, until the run has ended and nothing follows.

    A reader that has seen nothing gets the present state first. One with a cursor gets the frame of
    each turn since then, because its cost is in no other.
    """
    view = RunView(MOST)
    details = await service.details_of(row)
    journal, shows = service.journal, False
    turned: Snapshot | None = None
    turns_after = after if after >= 0 else row.next_sequence - 1
    async with aclosing(journal.follow(row.run_id, after=row.base_sequence - 1)) as pages:
        async for page in pages:
            frames: list[bytes] = []
            for stored in page:
                envelope = decode(stored.body)
                view.take(envelope)
                if turned is not None:
                    frames.append(snapshot_frame(with_task_cost(turned, envelope.data)))
                    turned = None
                shows = shows or (stored.sequence > after and stored.type not in _SILENT)
                if stored.type == TurnCompleted.TYPE and stored.sequence > turns_after:
                    turned, shows = snapshot_of(view, row, details), False
            if _is_behind(row, page):
                if frames:
                    yield b"".join(frames)
                await asyncio.sleep(0)  # others have their turn while a long run is read
                continue
            row = await journal.run(row.run_id) or row
            if row.outcome is not None and not _is_behind(row, page):
                yield b"".join([*frames, last_frames(snapshot_of(view, row, details))])
                return
            if shows:
                frames.append(snapshot_frame(snapshot_of(view, row, details)))
                shows = False
            if frames:
                yield b"".join(frames)
                await asyncio.sleep(_PAUSE_S)


def _is_behind(row: RunRow, page: list[Stored]) -> bool:
    """Whether the row tells of events after these."""
    return page[-1].sequence < row.next_sequence - 1


ROUTES = (
    Route(
        method="GET",
        path=f"{RUN}/steps",
        handler=list_steps,
        summary="List the steps of a run, in order",
        tag="steps",
        query=PageQuery,
        reply=StepList,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path=f"{RUN}/steps/{{step_id}}",
        handler=get_step,
        summary="Get a step of a run",
        tag="steps",
        reply=StepReply,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path=f"{RUN}/stream",
        handler=states,
        summary="The state of a run as a stream: the whole of it after each change",
        tag="steps",
        query=StateQuery,
        headers=RESUMED,
        streams=True,
        errors=("not_found",),
    ),
)
