"""Claims runs whose worker is gone and closes everything it left open.

A tool call that began and has no ending fails with an unknown outcome. It is never run again.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Literal, Protocol

from msgspec import UNSET

from batten.agent.cancel_request import cancel_request
from batten.agent.ending import terminal_fact, unknown_outcome
from batten.agent.progress import Progress
from batten.contract import facts
from batten.contract.errors import Conflict, JournalError
from batten.contract.facts.assistant import Usage
from batten.contract.outcomes import Outcome
from batten.journal.appending import queued_again
from batten.journal.contract import Journal, Lease, RequestRow, RunRow
from batten.journal.recorder import whole_fact
from batten.journal.workers import has_exited, is_abandoned
from batten.models.pricing import costs_nothing
from batten.redact.seal import SealKey
from batten.session.history import envelopes_of, queued_of
from batten.session.last_turn import last_turn
from batten.session.requests import cancelled

_MOST_STARTS = 5
"""Without progress between them; then a run is not started again by itself."""
_LOST_CALL = "the process that made the call is gone"


class Holder(Protocol):
    """Who takes a run over."""

    @property
    def journal(self) -> Journal: ...
    @property
    def worker_id(self) -> str: ...
    @property
    def lease_s(self) -> float: ...
    @property
    def seal_key(self) -> Callable[[], SealKey]: ...


@contextmanager
def given_up_on_failure(journal: Journal, lease: Lease) -> Generator[None]:
    """Give up a lease whose holder fails, or is cancelled, before it has begun."""
    try:
        yield
    except BaseException:
        with suppress(JournalError):
            journal.release(lease)
        raise


async def take_over(
    deps: Holder,
    row: RunRow,
    then: Literal["go on", "queue", "end"],
    lease: Lease | None = None,
    *,
    closed_by: str = "runtime",
) -> Lease:
    """Claim the run and close what its last worker left open, for what `then` is done with it.

    A run without a worker, queued or parked, lost nothing, so it gets no gap. `lease` is that of a
    caller who has claimed the run already; `row` is the run as it was before. `closed_by` is the
    author of the cancellation of its questions.
    """
    from batten.session.reverting import patches_left_open

    journal = deps.journal
    if lease is None:
        lease = await journal.claim(row.run_id, deps.worker_id, deps.lease_s)
    if then == "go on" and not row.fence:
        # Nobody has executed it, so nothing is open. The run's next facts wait for this one.
        journal.append(row.run_id, [_started(lease)], fence=lease.fence)
        return lease
    left = _Left()
    since_at, since = row.created_at, -1
    async for envelope in envelopes_of(journal, row.run_id):
        left.observe(envelope.data)
        since_at, since = envelope.occurred_at, envelope.sequence
    opening: list[facts.Fact] = []
    if is_abandoned(row):
        opening.append(
            facts.GapRunDisconnected(
                since_sequence=since,
                since_at=since_at,
                reason="worker_lease_expired",
                prior_worker_id=row.worker_id or UNSET,
                worker_exited=has_exited(row) or UNSET,
            )
        )
    go_on = then != "end"
    if then == "go on":
        opening.append(_started(lease))
    closing = await patches_left_open(journal, deps.seal_key, row)
    closing += [unknown_outcome(call) for call in left.begun.values()]
    if left.turn is not None:
        if not costs_nothing(left.turn.provider):
            closing.append(_lost_cost(left.turn))
        if go_on and left.has_streamed:
            closing.append(_retracted(left.turn.turn_index, left.proposed))
        closing.append(_lost_turn(left.turn.turn_index, will_retry=go_on))

    def is_void(request: RequestRow) -> bool:
        # A question before a call that will still run stays open; its answer is used then.
        return request.status == "pending" and not (go_on and left.is_ahead(request.tool_call_id))

    await _close(journal, row.run_id, lease, opening, closing, is_void, closed_by)
    for child in await journal.runs(parent_run_id=row.run_id, limit=1000):
        if child.outcome is None and is_abandoned(child):
            await end_abandoned(deps, child)
    return lease


async def _close(
    journal: Journal,
    run_id: str,
    lease: Lease,
    opening: Sequence[facts.Fact],
    closing: Sequence[facts.Fact],
    is_void: Callable[[RequestRow], bool],
    by: str,
) -> None:
    """Append that the run was claimed, cancel its questions, and close its calls and turn.

    A question ends before the call that asked it, as in a run that was not interrupted.
    """
    while True:
        questions = [
            cancelled(request.request_id, request.request_class, by=by)
            for request in await journal.requests(run_id)
            if is_void(request)
        ]
        try:
            if facts_ := [*opening, *questions, *closing]:
                await journal.append(run_id, facts_, fence=lease.fence)
            return
        except Conflict as error:
            # An answer was faster. The holder of the lease asks nothing new, so this ends.
            if error.code != "already_resolved":
                raise


async def end_abandoned(deps: Holder, row: RunRow, *, budget_micros_usd: int | None = None) -> None:
    """Write the missing ending of an abandoned run."""
    if row.cancel_requested:
        asked = await cancel_request(deps.journal, row.run_id)
        why, by = asked.reason, asked.by
        await end_idle(deps, row, "cancelled", why, by, budget_micros_usd=budget_micros_usd)
        return
    lost = is_abandoned(row)
    why = "the process that ran it is gone" if lost else "a later prompt came while it waited"
    await end_idle(deps, row, "interrupted", why, budget_micros_usd=budget_micros_usd)


async def end_idle(
    deps: Holder,
    row: RunRow,
    outcome: Outcome,
    why: str,
    by: str = "runtime",
    *,
    closed_by: str = "runtime",
    lease: Lease | None = None,
    budget_micros_usd: int | None = None,
) -> None:
    """End a run that no worker executes: queued, parked or abandoned.

    `budget_micros_usd` is that of its task, if the caller knows.
    """
    lease = await take_over(deps, row, "end", lease, closed_by=closed_by)
    progress = await progress_of(deps.journal, row)
    ending = await last_turn(deps.journal, row, budget_micros_usd)
    ending.append(terminal_fact(outcome, why, progress, progress.duration_ms, by=by))
    await deps.journal.append(row.run_id, ending, fence=lease.fence)
    await deps.journal.release(lease)


async def queue_again(deps: Holder, row: RunRow, lease: Lease | None = None) -> bool:
    """Close what the last worker of a run left open, and let another worker go on with it.

    A run that has cost several workers without any progress is ended instead: it would take down
    one worker after another. Returns whether it is queued. `lease` is that of a worker that hands
    the run over.
    """
    lost = await _starts_in_vain(deps.journal, row.run_id)
    if lost >= _MOST_STARTS:
        why = f"it was started {lost} times in succession and each time lost its worker"
        await end_idle(deps, row, "interrupted", why, lease=lease)
        return False
    lease = await take_over(deps, row, "queue", lease)
    again = queued_again(row, await queued_of(deps.journal, row.run_id))
    await deps.journal.append(row.run_id, [again], fence=lease.fence)
    await deps.journal.release(lease)
    return True


async def _starts_in_vain(journal: Journal, run_id: str) -> int:
    """How often a run was started since anything of it was done, or a question of it answered."""
    starts = 0
    async for envelope in envelopes_of(journal, run_id):
        match envelope.data:
            case facts.RunStarted():
                starts += 1
            case facts.ToolFailed(error_kind="outcome_unknown"):
                pass  # a later worker wrote it for one that was lost
            case facts.AssistantMessageComplete() | facts.ToolEnded():
                starts = 0
            case facts.ApprovalResolved(decision="approved" | "rejected"):
                starts = 0
            case facts.RequestClosed(resolution="answered" | "failed"):
                starts = 0
            case _:
                pass
    return starts


async def progress_of(journal: Journal, row: RunRow) -> Progress:
    """A run's progress, from its own facts."""
    progress = Progress()
    async for envelope in envelopes_of(journal, row.run_id):
        progress.observe(await whole_fact(envelope.data, journal))
        if isinstance(envelope.data, facts.TurnStarted):
            progress.turn_started_at = envelope.occurred_at
        elif isinstance(envelope.data, facts.RunStarted):
            progress.started_at = progress.started_at or envelope.occurred_at
    return progress


class _Left:
    """The open turn and calls at the end of a run's facts."""

    def __init__(self) -> None:
        self.begun: dict[str, facts.ToolInvoked] = {}
        self._ended: set[str] = set()
        self.turn: facts.TurnStarted | None = None
        """The turn whose model call was in progress."""
        self.has_streamed = False
        """Whether facts hold a part of the answer to that call."""
        self.proposed: list[str] = []
        """Ids of the calls in that part."""

    def is_ahead(self, call_id: str) -> bool:
        """Whether a call is still to run. A failed one is not retried by the next worker."""
        return call_id not in self.begun and call_id not in self._ended

    def observe(self, fact: facts.Fact) -> None:
        match fact:
            case facts.ToolInvoked():
                self.begun[fact.tool_call_id] = fact
            case facts.ToolEnded():
                self.begun.pop(fact.tool_call_id, None)
                self._ended.add(fact.tool_call_id)
            case facts.TurnStarted():
                self.turn = fact
                self._forget_answer()
            case facts.AssistantRetracted():
                self._forget_answer()
            case facts.AssistantTextDelta() | facts.AssistantThinkingDelta():
                self.has_streamed = True
            case facts.AssistantToolCallProposed():
                self.has_streamed = True
                self.proposed.append(fact.tool_call_id)
            case facts.AssistantMessageComplete() | facts.TurnFailed():
                self.turn = None
            case _:
                pass

    def _forget_answer(self) -> None:
        self.has_streamed, self.proposed = False, []


def _started(lease: Lease) -> facts.RunStarted:
    return facts.RunStarted(worker_id=lease.worker_id, lease_until=lease.until)


def _retracted(turn: int, tool_call_ids: list[str]) -> facts.AssistantRetracted:
    """Void the part of an answer that a client may have shown: the call is made again."""
    return facts.AssistantRetracted(turn_index=turn, reason=_LOST_CALL, tool_call_ids=tool_call_ids)


def _lost_cost(turn: facts.TurnStarted) -> facts.CostCallUnfinished:
    """Count a call whose worker took along what its provider had reported."""
    return facts.CostCallUnfinished(
        turn_index=turn.turn_index,
        provider=turn.provider,
        model=turn.model,
        reason="broken",
        usage=Usage(),
        cost_micros_usd=None,
        price_as_of=None,
    )


def _lost_turn(turn: int, *, will_retry: bool) -> facts.TurnFailed:
    return facts.TurnFailed(
        turn_index=turn,
        code="worker_lost",
        message=_LOST_CALL,
        will_retry=will_retry,
    )
