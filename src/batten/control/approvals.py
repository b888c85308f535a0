"""Answers to the questions that runs wait for, from clients that do not execute them.

The first answer counts, from whichever surface. A parked run goes on in a worker; a rejection ends
it at once, unless the client wants the agent to be told.
"""

from datetime import datetime

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.agent.rules.grants import grant_of
from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.contract.facts import ApprovalTimedOut, Fact
from batten.contract.facts.approval import APPROVAL_REJECTED, panel_of
from batten.control.specification import OPERATOR
from batten.control.tasks import Tasks
from batten.journal.contract import Journal, RequestRow, RunRow
from batten.journal.recorder import whole_fact
from batten.journal.remains import Remains
from batten.protocols.hecate.approvals import Asked, Scope, check_answerable
from batten.protocols.hecate.view import RunView
from batten.session.history import envelopes_of
from batten.session.last_turn import last_turn
from batten.session.requests import resolve

_PAGE = 200


class Asking(Struct, frozen=True):
    """A request with its run, and what it asks for."""

    row: RequestRow
    run: RunRow
    asked: Asked


class Answer(Struct, frozen=True, kw_only=True):
    """A client's answer."""

    granted: bool
    by: str
    note: str = ""
    scope: Scope = "once"
    halt: bool = True
    """Whether a rejection cancels the run."""
    digest: str | UnsetType = UNSET
    """Of the request that the client looked at."""


async def approvals_of(tasks: Tasks, task_id: str) -> list[Asking]:
    """The requests of all runs of a task, child runs included, oldest first."""
    await tasks.find(task_id)
    found: list[Asking] = []
    after: str | None = None
    while page := await tasks.journal.runs(task_id=task_id, after=after, limit=_PAGE):
        for run in page:
            found += await _of_run(tasks.journal, run)
        after = page[-1].run_id
    return sorted(found, key=lambda one: (one.asked.at or one.run.created_at, one.row.request_id))


async def _of_run(journal: Journal, run: RunRow) -> list[Asking]:
    rows = await journal.requests(run.run_id)
    if not rows:
        return []
    view = RunView()
    base = await journal.base(run.run_id) if run.base_sequence else None
    remains = Remains() if base is None else base.remains.copy()
    async for envelope in envelopes_of(journal, run.run_id):
        view.take(replace(envelope, data=await whole_fact(envelope.data, journal)))
        remains.take(envelope)
    return [
        Asking(row, run, view.asked.get(row.request_id) or _pruned(remains, row.request_id))
        for row in rows
    ]


def _pruned(remains: Remains, request_id: str) -> Asked:
    """What is kept of a question that was pruned: not what it asked for."""
    kept = remains.requests.get(request_id)
    if kept is None:
        return Asked()
    return Asked(kind=kept.kind, reason=kept.reason, at=kept.at, resolved_at=kept.resolved_at)


async def find_approval(tasks: Tasks, task_id: str, request_id: str) -> Asking:
    """A request of a task. Raises `NotFound`, also for one of another task."""
    row = await tasks.journal.request(request_id)
    run = None if row is None else await tasks.journal.run(row.run_id)
    if run is None or run.task_id != task_id:
        await tasks.find(task_id)
        raise NotFound(f"task {task_id} has no approval {request_id}")
    for one in await _of_run(tasks.journal, run):
        if one.row.request_id == request_id:
            return one
    raise NotFound(f"task {task_id} has no approval {request_id}")


async def answer_approval(tasks: Tasks, task_id: str, request_id: str, answer: Answer) -> Asking:
    """Answer a request; the first answer counts.

    Raises `Conflict` (`already_resolved`) that names who answered before and how, or for a run that
    has ended. A parked run is queued again, or ended by a rejection that halts it. The ending of
    one that its worker was about to park is waited for, as that of a cancel.
    """
    asking = await find_approval(tasks, task_id, request_id)
    if is_overdue(asking.row):
        await time_out(tasks, asking)
        asking = await find_approval(tasks, task_id, request_id)
    check_answerable(asking.row, asking.run, answer.digest)
    is_approval = asking.row.request_class == "approval"
    ends = is_approval and answer.halt and not answer.granted
    await resolve(
        tasks.journal,
        tasks.redactor,
        request_id,
        granted=answer.granted,
        by=answer.by,
        text=answer.note,
        halt=is_approval and answer.halt,
        halt_reason=APPROVAL_REJECTED,
        scope=answer.scope if is_approval else "",
        grant=_grant(asking, answer) if is_approval else "",
        role=OPERATOR,
        last_words=await _last_words(tasks, asking.run) if ends else (),
    )
    if ends:
        await _all_settled(tasks, task_id, asking.run)
    return await find_approval(tasks, task_id, request_id)


async def _all_settled(tasks: Tasks, task_id: str, run: RunRow) -> None:
    """Wait a moment for the end of a run, and of those that started it."""
    run = await tasks.settled(task_id, run.run_id)
    while run.parent_run_id is not None:
        run = await tasks.settled(task_id, run.parent_run_id)


def _grant(asking: Asking, answer: Answer) -> str:
    """The pattern of the rule that an answer for the session stores; empty if it stores none."""
    if not answer.granted or answer.scope == "once":
        return ""
    asked = asking.asked
    if asked.input is UNSET or not asked.kind:
        raise CallerError(
            f"what {asking.row.request_id} asks for was pruned, so no rule can be made of it: "
            "approve it with the scope once",
            code="invalid_request",
        )
    return grant_of(asked.kind, asked.input)


def is_overdue(row: RequestRow) -> bool:
    """Whether nobody has answered a request in time."""
    return (
        row.status == "pending" and row.deadline_at is not None and row.deadline_at <= timestamp()
    )


async def time_out(tasks: Tasks, asking: Asking) -> bool:
    """Close an overdue approval. False if an answer was faster.

    A parked run is cancelled, unless it asked a panel: then its model is told.
    """
    waited = 0.0
    if asking.row.deadline_at and asking.asked.at:
        until = datetime.fromisoformat(asking.row.deadline_at)
        waited = (until - datetime.fromisoformat(asking.asked.at)).total_seconds()
    late = ApprovalTimedOut(
        approval_id=asking.row.request_id,
        after_seconds=round(waited),
        halt=UNSET if panel_of(asking.row.resolvers) else True,
    )
    words = await _last_words(tasks, asking.run)
    try:
        await tasks.journal.append(asking.run.run_id, [late], fence=None, last_words=words)
    except Conflict:
        return False
    return True


async def _last_words(tasks: Tasks, run: RunRow) -> list[Fact]:
    """What goes before the ending of a run that an answer ends."""
    return await last_turn(tasks.journal, run, await tasks.budget_of(run))
