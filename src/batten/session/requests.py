"""A run's questions to someone outside: durable, bound to their content, answered once.

The question is a fact before anyone sees it. The answer is a fact too, from the first surface
that answers; the run waits for it in the journal. Without declared resolvers, policy denies at
once and says so.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from batten.agent.deps import Answer, Question
from batten.agent.halt import Parked
from batten.agent.rules.rule import GRANT, Rule
from batten.contract.depth import DEEPEST, is_too_deep
from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, Conflict, JournalError, NotFound
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalTimedOut,
    ArtifactCreated,
    Fact,
    RequestClosed,
    RequestOpened,
)
from batten.contract.facts.approval import (
    APPROVAL_TIMED_OUT,
    QUESTION_TIMED_OUT,
    RequestClass,
    panel_of,
)
from batten.contract.ids import new_request_id
from batten.journal.contract import Body, Journal, RequestRow
from batten.journal.fitting import fits
from batten.journal.recorder import Recorder, redact_fact
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.session.changed_input import read_back, seal_changed

Resolution = Literal["answered", "failed"]
_PAGE = 200


def digest_of(question: Question) -> str:
    """SHA-256 of the question: an answer applies to this content only."""
    asked = (question.request_class, question.tool_call_id, question.detail)
    return sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


class JournalRequests:
    """Asks through the journal and waits there for the answer."""

    def __init__(
        self,
        resolvers: tuple[str, ...],
        patience_s: float,
        opened: Callable[[Recorder, Question, str], None] | None = None,
        *,
        parks: bool = False,
        halts: bool = False,
        beside: Callable[[Recorder, Question, str], Sequence[Fact]] | None = None,
    ) -> None:
        """With `parks`, a run that waits for an approval is parked instead of kept in memory; with
        `halts` it is cancelled if there is no answer in time. `beside` are facts to record with a
        new question, which has this id.
        """
        self._resolvers = resolvers
        self._parks = parks
        self._halts = halts
        self._beside = beside
        self._closed_by = "system" if parks else "runtime"
        """The author of cancellations that come with the cancellation of a run."""
        self._patience_s = patience_s
        self._opened = opened
        """Called with each open question and its id, once it is durable."""
        self._used: set[str] = set()

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        """Ask and wait. Continues a question that a dead worker left open."""
        request_id, after = await self._asked_before(recorder, question), -1
        if not self._resolvers:
            return await self._without_anybody(recorder, question, request_id)
        is_new = request_id is None
        request_id = request_id or new_request_id()
        self._used.add(request_id)
        try:
            if is_new:
                deadline = timestamp(time.time_ns() + int(self._patience_s * 1e9))
                # Queued from here on: if the wait is cancelled, the question has been asked.
                beside = self._beside(recorder, question, request_id) if self._beside else ()
                asked = await recorder.record(*beside, self._asked(request_id, question, deadline))
                after = asked[-1].sequence - 1
            if self._opened is not None:
                self._opened(recorder, question, request_id)
            left_s = await self._left_s(recorder, request_id)
            parks = left_s > 0 and await self._is_parked_at(recorder, question)
            if parks and await recorder.journal.park(recorder.lease):
                raise Parked(recorder.run_id, request_id)
            async with asyncio.timeout(left_s):
                row = await _answered(recorder.journal, recorder.run_id, after, request_id)
        except TimeoutError:
            row = await self._time_out(recorder, question, request_id)
        except asyncio.CancelledError:
            # An answer that arrived at the same moment stands.
            with suppress(Conflict):
                by = self._closed_by
                await recorder.record(cancelled(request_id, question.request_class, by=by))
            raise
        return await _answer(recorder, row)

    async def _left_s(self, recorder: Recorder, request_id: str) -> float:
        """Seconds to wait for an answer; not positive if the deadline has passed."""
        deadline = (await known_request(recorder.journal, request_id)).deadline_at
        if deadline is None:
            return self._patience_s
        left = datetime.fromisoformat(deadline) - datetime.now(UTC)
        return min(left.total_seconds(), self._patience_s)

    async def _is_parked_at(self, recorder: Recorder, question: Question) -> bool:
        """Whether to park the run here: at a question before a call begins.

        A question inside a call waits in memory with the call, and a child with its parent.
        """
        if not self._parks or question.request_class != "approval":
            return False
        row = await recorder.journal.run(recorder.run_id)
        return row is not None and row.parent_run_id is None

    async def _without_anybody(
        self, recorder: Recorder, question: Question, request_id: str | None
    ) -> Answer:
        """Deny at once; but an answer that arrived while the run had no worker still counts."""
        if request_id is None:
            return Answer(False, "policy", _nobody(question))
        self._used.add(request_id)
        row = await known_request(recorder.journal, request_id)
        if row.status == "pending":
            row = await self._time_out(recorder, question, request_id)
        return await _answer(recorder, row)

    async def _asked_before(self, recorder: Recorder, question: Question) -> str | None:
        """The request in which a dead worker asked this run's same question, answered or not.

        Requests of this process do not count: an answer authorises one call. A panel that came to
        no decision in time has answered; people are asked again.
        """
        digest = digest_of(question)
        for row in await recorder.journal.requests(recorder.run_id):
            usable = row.status in ("pending", "answered", "failed") or (
                row.status == "timed_out" and panel_of(row.resolvers)
            )
            if row.digest == digest and usable and row.request_id not in self._used:
                return row.request_id
        return None

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
                input=question.detail["arguments"] if question.changed else UNSET,
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
    ) -> RequestRow:
        """Close the request as timed out; an answer that arrived at the same moment wins."""
        late: Fact
        if question.request_class == "approval":
            late = ApprovalTimedOut(
                approval_id=request_id,
                after_seconds=round(self._patience_s),
                halt=True if self._halts else UNSET,
            )
        else:
            late = RequestClosed(
                request_id=request_id, resolution="timed_out", by="policy", answer={}
            )
        with suppress(Conflict):
            await recorder.record(late)
        return await known_request(recorder.journal, request_id)


async def resolve(
    journal: Journal,
    redactor: Redactor,
    request_id: str,
    *,
    granted: bool,
    by: str,
    text: str = "",
    updated_input: dict[str, Any] | None = None,
    halt: bool = False,
    halt_reason: str = "",
    scope: str = "",
    grant: str = "",
    role: str = "",
    seal_key: Callable[[], SealKey] | None = None,
    last_words: Sequence[Fact] = (),
) -> RequestRow:
    """Answer a request from any surface. Raises `Conflict` if it is already answered.

    For an approval, `updated_input` replaces the arguments of the call; `seal_key` seals secrets
    in it. `halt` makes a refusal end the run. Arguments nested too deeply turn an approval into a
    refusal. `grant` allows such calls from now on. `role` is the resolver that the author `by`
    answers as, if that is another name. `last_words` go before the ending of a parked run.
    """
    if granted and updated_input is not None and is_too_deep(updated_input):
        granted, updated_input = False, None
        text = f"the changed arguments are nested more than {DEEPEST} levels deep"
    row = await known_request(journal, request_id)
    if row.status != "pending":
        by = f" by {row.by}" if row.by else ""
        raise Conflict(
            f"request {request_id} is already {row.decision or row.status}{by}",
            code="already_resolved",
        )
    role = role or by
    if row.resolvers and role not in row.resolvers:
        raise CallerError(
            f"{role!r} may not answer {request_id}; it waits for: {', '.join(row.resolvers)}"
        )
    facts: list[Fact] = []
    bodies: list[Body] = []
    if row.request_class == "approval":
        resolved = ApprovalResolved(
            approval_id=request_id,
            decision="approved" if granted else "rejected",
            by=by,
            comment=text,
            scope=scope or UNSET,
            grant=(granted and grant) or UNSET,
            halt=True if halt and not granted else UNSET,
            halt_reason=(halt and not granted and halt_reason) or UNSET,
        )
        if granted and updated_input is not None:
            sealed = seal_changed(journal, redactor, seal_key, row, updated_input)
            resolved = _changing(resolved, updated_input, sealed)
            facts += [] if sealed is None else [sealed[0]]
            bodies += [] if sealed is None else [sealed[1]]
        facts.append(resolved)
    else:
        resolution: Resolution = "answered" if granted else "failed"
        answer: dict[str, Any] = {"text": text}
        if halt and not granted:
            answer["halt"] = True
        facts.append(
            RequestClosed(request_id=request_id, resolution=resolution, by=by, answer=answer)
        )
    clean = [redact_fact(fact, redactor) for fact in facts]
    await journal.append(row.run_id, clean, fence=None, bodies=bodies, last_words=last_words)
    return await known_request(journal, request_id)


def _changing(
    resolved: ApprovalResolved,
    updated_input: dict[str, Any],
    sealed: tuple[ArtifactCreated, Body] | None,
) -> ApprovalResolved:
    """The answer with the changed arguments, unless they are too long: the artifact has them."""
    changed = msgspec.structs.replace(
        resolved,
        updated_input=updated_input,
        sealed_artifact_id=UNSET if sealed is None else sealed[0].artifact_id,
    )
    return changed if fits(changed) else msgspec.structs.replace(changed, updated_input={})


async def known_request(journal: Journal, request_id: str) -> RequestRow:
    row = await journal.request(request_id)
    if row is None:
        raise NotFound(f"no request is named {request_id}; `batten requests` lists them")
    return row


async def granted_rules(journal: Journal, session_id: str) -> tuple[Rule, ...]:
    """The rules that answers have stored for a session, oldest first."""
    patterns: dict[str, None] = {}
    after: str | None = None
    while page := await journal.runs(session_id=session_id, after=after, limit=_PAGE):
        for run in page:
            for row in await journal.requests(run.run_id):
                if row.answer.get("grant"):
                    patterns[str(row.answer["grant"])] = None
        after = page[-1].run_id
    return tuple(Rule("allow", pattern, GRANT) for pattern in patterns)


async def _answered(journal: Journal, run_id: str, after: int, request_id: str) -> RequestRow:
    """Wait until the request is no longer pending; any process may write the answer."""
    async with aclosing(journal.follow(run_id, after=after)) as pages:
        async for _ in pages:
            row = await journal.request(request_id)
            if row is not None and row.status != "pending":
                return row
    raise JournalError(f"{run_id} is no longer followed: nobody can answer {request_id}")


def cancelled(request_id: str, request_class: RequestClass, *, by: str, reason: str = "") -> Fact:
    """The fact that closes a request that needs no answer any more."""
    if request_class == "approval":
        return ApprovalResolved(approval_id=request_id, decision="cancelled", by=by, comment=reason)
    answer = {"text": reason} if reason else {}
    return RequestClosed(request_id=request_id, resolution="cancelled", by=by, answer=answer)


async def _answer(recorder: Recorder, row: RequestRow) -> Answer:
    by = row.by or "policy"
    if row.status == "timed_out":
        # Without a decision about a failed call the run must not continue.
        halt = row.request_class == "tool_retry" or row.answer.get("halt") is True
        why = APPROVAL_TIMED_OUT if row.request_class == "approval" else ""
        told = QUESTION_TIMED_OUT.get(row.request_class, "nobody answered in time")
        return Answer(False, "policy", told, halt=halt, halt_reason=why)
    if row.request_class == "approval":
        note = str(row.answer.get("comment", ""))
        if row.decision == "approved":
            grant = str(row.answer.get("grant", ""))
            return Answer(True, by, note, await read_back(recorder, row), grant=grant)
        halt = row.answer.get("halt") is True
        why = str(row.answer.get("halt_reason", ""))
        return Answer(False, by, note or f"rejected by {by}", halt=halt, halt_reason=why)
    halt = row.answer.get("halt") is True
    return Answer(row.status == "answered", by, str(row.answer.get("text", "")), halt=halt)


def _nobody(question: Question) -> str:
    if question.request_class == "approval":
        return f"{question.reason}, and nobody is declared to give it"
    return "User interaction not available in headless mode"
