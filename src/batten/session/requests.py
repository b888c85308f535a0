"""Questions a run asks somebody outside: durable, bound to what is asked, answered once.

The question is a fact before anyone is asked. The answer is a fact too, from whichever
surface comes first; the run waits for it in the journal. Where nobody is declared to
answer, policy answers at once, with no, and says so.
"""

import asyncio
import time
from contextlib import aclosing, suppress
from hashlib import sha256

import msgspec

from batten.agent.rig import Answer, Question
from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalTimedOut,
    Fact,
    RequestClosed,
    RequestOpened,
)
from batten.contract.facts.approval import Decision
from batten.contract.ids import new_request_id
from batten.journal.contract import Journal, RequestRow, Stored
from batten.journal.recorder import Recorder


def digest_of(question: Question) -> str:
    """SHA-256 of what is asked: an answer applies to this and to nothing else."""
    asked = (question.request_class, question.tool_call_id, question.detail)
    return sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


class JournalRequests:
    """Asks through the journal and waits for the answer there."""

    def __init__(self, resolvers: tuple[str, ...], patience_s: float) -> None:
        self._resolvers = resolvers
        self._patience_s = patience_s

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        if not self._resolvers:
            return Answer(False, "policy", _nobody(question))
        request_id = new_request_id()
        deadline = timestamp(time.time_ns() + int(self._patience_s * 1e9))
        asked = await recorder.record(self._asked(request_id, question, deadline))
        try:
            async with asyncio.timeout(self._patience_s):
                row = await _answered(recorder.journal, asked[-1], request_id)
        except TimeoutError:
            row = await self._time_out(recorder, question, request_id)
        except asyncio.CancelledError:
            await _close_quietly(recorder, question, request_id)
            raise
        return _answer(row)

    def _asked(self, request_id: str, question: Question, deadline: str) -> Fact:
        resolvers = list(self._resolvers)
        if question.request_class == "approval":
            return ApprovalRequested(
                approval_id=request_id,
                tool_call_id=question.tool_call_id,
                kind=question.tool_name,
                summary=question.summary,
                policy_reason=question.reason,
                digest=digest_of(question),
                deadline_at=deadline,
                resolvers=resolvers,
            )
        return RequestOpened(
            request_id=request_id,
            request_class=question.request_class,
            tool_call_id=question.tool_call_id,
            summary=question.summary,
            detail=question.detail,
            digest=digest_of(question),
            deadline_at=deadline,
            resolvers=resolvers,
        )

    async def _time_out(
        self, recorder: Recorder, question: Question, request_id: str
    ) -> RequestRow | None:
        """Close it as timed out; an answer that came in this very moment still wins."""
        late: Fact
        if question.request_class == "approval":
            late = ApprovalTimedOut(approval_id=request_id, after_seconds=round(self._patience_s))
        else:
            late = RequestClosed(
                request_id=request_id, resolution="timed_out", by="policy", answer={}
            )
        with suppress(Conflict):
            await recorder.record(late)
        return recorder.journal.request(request_id)


async def resolve(
    journal: Journal, request_id: str, *, granted: bool, by: str, text: str = ""
) -> RequestRow:
    """Answer a request from any surface. The first answer wins; a later one is a `Conflict`."""
    row = journal.request(request_id)
    if row is None:
        raise NotFound(f"no request {request_id}")
    if row.status != "pending":
        raise Conflict(f"request {request_id} is already {row.status}, by {row.by}")
    if row.resolvers and by not in row.resolvers:
        raise CallerError(
            f"{by!r} may not answer {request_id}; it waits for: {', '.join(row.resolvers)}"
        )
    fact: Fact
    if row.request_class == "approval":
        decision: Decision = "approved" if granted else "rejected"
        fact = ApprovalResolved(approval_id=request_id, decision=decision, by=by, comment=text)
    else:
        fact = RequestClosed(
            request_id=request_id,
            resolution="answered" if granted else "failed",
            by=by,
            answer={"text": text},
        )
    await journal.append(row.run_id, [fact], fence=None)
    answered = journal.request(request_id)
    assert answered is not None
    return answered


async def _answered(journal: Journal, asked: Stored, request_id: str) -> RequestRow | None:
    """Wait until the request is no longer pending, wherever the answer is written."""
    following = journal.follow(asked.run_id, after=asked.sequence)
    async with aclosing(following) as pages:  # type: ignore[type-var]
        async for _ in pages:
            row = journal.request(request_id)
            if row is not None and row.status != "pending":
                return row
    return None


async def _close_quietly(recorder: Recorder, question: Question, request_id: str) -> None:
    """The run is being cancelled: nobody needs to answer any more."""
    closed: Fact
    if question.request_class == "approval":
        closed = ApprovalResolved(
            approval_id=request_id, decision="cancelled", by="system", comment=""
        )
    else:
        closed = RequestClosed(
            request_id=request_id, resolution="cancelled", by="system", answer={}
        )
    recorder.record(closed)


def _answer(row: RequestRow | None) -> Answer:
    if row is None:
        return Answer(False, "policy", "the request is gone")
    by = row.by or "policy"
    if row.status == "timed_out":
        return Answer(False, "policy", "nobody answered in time")
    if row.request_class == "approval":
        note = str(row.answer.get("comment", ""))
        if row.decision == "approved":
            return Answer(True, by, note)
        return Answer(False, by, note or f"rejected by {by}")
    return Answer(row.status == "answered", by, str(row.answer.get("text", "")))


def _nobody(question: Question) -> str:
    if question.request_class == "approval":
        return f"{question.reason}, and nobody is declared to give it"
    return "User interaction not available in headless mode"
