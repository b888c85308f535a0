"""The state of a run as its facts tell it: steps, timeline, approvals, artifacts.

A frame of the state stream is a function of the facts up to one sequence, so that a status and the
approval it waits for always appear together.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.contract.facts.artifact import ArtifactKind, ArtifactStatus
from batten.contract.outcomes import RunStatus, ending_of
from batten.contract.tracing import place_of, span_of, trace_of
from batten.protocols.hecate import activity
from batten.protocols.hecate.activity import Activity
from batten.protocols.hecate.approvals import Approval, Asked, approval_object
from batten.protocols.hecate.artifacts import Artifact, artifact_object, is_public
from batten.protocols.hecate.rows import RunLike
from batten.protocols.hecate.runs import ACTIVE, Run, RunDetails, error_of, run_object
from batten.protocols.hecate.step_fold import StepFold
from batten.protocols.hecate.steps import Step

_MAX_FILES = 50
"""Files that the timeline names of those that a command changed."""


class TurnCost(Struct, frozen=True, kw_only=True):
    """The cost of a turn that has just ended."""

    turn_index: int
    step_id: str
    cost_micros_usd: int
    run_cumulative_cost_micros_usd: int
    task_cumulative_cost_micros_usd: int
    tool_calls: int


class _Request(Struct, frozen=True, kw_only=True):
    """A request, with the attributes of its row."""

    sequence: int
    request_id: str
    run_id: str
    request_class: str
    tool_call_id: str
    summary: str
    digest: str
    deadline_at: str | None
    resolvers: tuple[str, ...]
    status: str = "pending"
    decision: str | None = None
    by: str | None = None
    answer: dict[str, Any] = {}


class _Artifact(Struct, frozen=True, kw_only=True):
    """An artifact, with the attributes of its row."""

    sequence: int
    step_id: str
    """The call that made it."""
    artifact_id: str
    run_id: str
    kind: ArtifactKind
    status: ArtifactStatus
    size_bytes: int
    sha256: str
    mime_type: str
    summary: str
    tool_call_id: str | None
    metadata: dict[str, Any]
    created_at: str
    applied_at: str | None
    reverted_at: str | None
    pinned: bool = False
    deleted_at: str | None = None
    changed_at: str = ""


class RunView:
    """Folds one run's envelopes, in order."""

    def __init__(self, most: int | None = None, prior_cost_micros_usd: int = 0) -> None:
        """With `most`, only so many of each kind of thing are kept: the newest, and what is
        unfinished. Without it the view grows with the run.
        """
        self._most = most
        self._folded = StepFold(most)
        self._requests: dict[str, _Request] = {}
        self._asked: dict[str, Asked] = {}
        self._artifacts: dict[str, _Artifact] = {}
        self._others: dict[int, Activity] = {}
        """Other items of the timeline, by the sequence of their fact."""
        self._is_whole = True
        """False if the beginning of the run was pruned: then nothing in it can be counted."""
        self._pending = 0
        self._approval_count = 0
        self._artifact_count = 0
        self._prior = prior_cost_micros_usd
        self._cost = 0
        self.status: RunStatus | None = None
        """None if the facts that decide it were pruned: the row has it."""
        self.sequence = -1
        self.event_type = ""
        self.started_at = ""
        self.last_error = ""
        self._trace_id = ""
        self.turn: TurnCost | UnsetType = UNSET
        """Set if the last fact ended a turn."""

    def take(self, envelope: Envelope) -> None:
        if self.sequence < 0:
            self._is_whole = envelope.sequence == 0
        self.sequence, self.event_type = envelope.sequence, envelope.type
        self.turn = UNSET
        if envelope.sequence == 0:
            self.status = "queued"
        self._folded.take(envelope)
        fact: f.Fact = envelope.data
        taker = _TAKERS.get(type(fact))
        if taker is not None:
            taker(self, envelope, fact)

    @property
    def steps(self) -> list[Step]:
        return list(self._folded.steps.values())

    @property
    def step_count(self) -> int:
        return self._folded.count

    @property
    def asked(self) -> dict[str, Asked]:
        """What each request of the run asks for, by its id."""
        return self._asked

    def approvals(self, task_id: str | None) -> list[Approval]:
        return [
            approval_object(row, task_id, self._asked[row.request_id], self._trace_of(row.run_id))
            for row in self._requests.values()
        ]

    def artifacts(self, run: RunLike | None) -> list[Artifact]:
        """The public ones, without their bodies."""
        return [
            artifact_object(row, run, changed_at=row.changed_at)
            for row in self._artifacts.values()
            if is_public(row)
        ]

    def run(self, row: RunLike, details: RunDetails) -> Run:
        """The run's object at this sequence: a row that is already ahead does not show."""
        run = run_object(row, details)
        status = self.status or row.status
        is_behind = status in ACTIVE and row.status not in ACTIVE
        return replace(
            run,
            status=status,
            outcome="" if is_behind else run.outcome,
            finished_at="" if is_behind else run.finished_at,
            last_sequence=self.sequence,
            last_error=self.last_error or run.last_error,
            started_at=run.started_at or self.started_at,
            trace_id=run.trace_id or self._trace_of(row.run_id),
            root_span_id=span_of(row.run_id),
            step_count=self.step_count if self._is_whole else UNSET,
            approval_count=self._approval_count if self._is_whole else UNSET,
            artifact_count=self._artifact_count if self._is_whole else UNSET,
            prior_cost_micros_usd=self._prior or run.prior_cost_micros_usd,
        )

    def _trace_of(self, run_id: str) -> str:
        return self._trace_id or trace_of(run_id)

    def activity(self) -> list[Activity]:
        """The timeline, in the order of events."""
        items = list(self._others.items())
        for step in self._folded.steps.values():
            if step.kind != "approval":
                preview = self._folded.previews.get(step.id)
                output = None if preview is None else preview.texts()
                items.append((self._folded.places[step.id], activity.of_step(step, output)))
        for row in self._requests.values():
            approval = approval_object(row, None, self._asked[row.request_id])
            items.append((row.sequence, activity.of_approval(approval)))
        for made in filter(is_public, self._artifacts.values()):
            shown = artifact_object(made, None)
            items.append((made.sequence, activity.of_artifact(shown, made.step_id)))
        items.sort(key=lambda item: item[0])
        return [item for _, item in items]

    def queued(self, envelope: Envelope, fact: f.RunQueued) -> None:
        self.status = "queued"
        if fact.prior_cost_micros_usd is not UNSET:
            self._prior = fact.prior_cost_micros_usd
        if not self._trace_id:  # queued again, it stays in its trace
            self._trace_id = place_of(envelope.run_id, fact).trace_id

    def started(self, envelope: Envelope, fact: f.RunStarted) -> None:
        self.status = "awaiting_approval" if self._pending else "running"
        self.started_at = self.started_at or envelope.occurred_at

    def charged(
        self,
        envelope: Envelope,
        fact: f.AssistantMessageComplete | f.ContextCompacted | f.CostCallUnfinished,
    ) -> None:
        self._cost += fact.cost_micros_usd or 0

    def turn_completed(self, envelope: Envelope, fact: f.TurnCompleted) -> None:
        self.turn = TurnCost(
            turn_index=fact.turn_index,
            step_id=self._folded.model_step,
            cost_micros_usd=fact.cost_micros_usd,
            run_cumulative_cost_micros_usd=self._cost,
            task_cumulative_cost_micros_usd=self._prior + self._cost,
            tool_calls=fact.tool_calls,
        )

    def approval_asked(self, envelope: Envelope, fact: f.ApprovalRequested) -> None:
        row = _Request(
            sequence=envelope.sequence,
            request_id=fact.approval_id,
            run_id=envelope.run_id,
            request_class="approval",
            tool_call_id=fact.tool_call_id,
            summary=fact.summary,
            digest=fact.digest or "",
            deadline_at=fact.deadline_at or None,
            resolvers=tuple(fact.resolvers or ()),
        )
        call = self._folded.calls.get(fact.tool_call_id)
        arguments = UNSET if call is None or call.input is None else call.input
        self._ask(envelope, row, Asked(kind=fact.kind, reason=fact.policy_reason, input=arguments))

    def question_asked(self, envelope: Envelope, fact: f.RequestOpened) -> None:
        row = _Request(
            sequence=envelope.sequence,
            request_id=fact.request_id,
            run_id=envelope.run_id,
            request_class=fact.request_class,
            tool_call_id=fact.tool_call_id,
            summary=fact.summary,
            digest=fact.digest,
            deadline_at=fact.deadline_at or None,
            resolvers=tuple(fact.resolvers or ()),
        )
        self._ask(envelope, row, Asked(kind=fact.request_class, input=fact.detail))

    def _ask(self, envelope: Envelope, row: _Request, asked: Asked) -> None:
        step_id = self._folded.step_of_approval(row.request_id)
        self._requests[row.request_id] = row
        self._asked[row.request_id] = replace(asked, at=envelope.occurred_at, step_id=step_id)
        self._pending += 1
        self._approval_count += 1
        self.status = "awaiting_approval"
        if self._most is not None and len(self._requests) > self._most:
            done = (key for key, held in self._requests.items() if held.status != "pending")
            if (oldest := next(done, None)) is not None:
                del self._requests[oldest], self._asked[oldest]

    def resolved(self, envelope: Envelope, fact: f.ApprovalResolved) -> None:
        given = {"comment": fact.comment, "scope": fact.scope, "grant": fact.grant}
        answer = {name: value for name, value in given.items() if value is not UNSET}
        status = "cancelled" if fact.decision == "cancelled" else "answered"
        self._answer(envelope, fact.approval_id, status, fact.decision, fact.by, answer)

    def timed_out(self, envelope: Envelope, fact: f.ApprovalTimedOut) -> None:
        self._answer(envelope, fact.approval_id, "timed_out", None, None, {})

    def question_closed(self, envelope: Envelope, fact: f.RequestClosed) -> None:
        status = fact.resolution
        self._answer(envelope, fact.request_id, status, status, fact.by, fact.answer)

    def _answer(
        self,
        envelope: Envelope,
        request_id: str,
        status: str,
        decision: str | None,
        by: str | None,
        answer: dict[str, Any],
    ) -> None:
        row = self._requests.get(request_id)
        if row is None or row.status != "pending":
            return  # asked before the facts that are still stored
        self._requests[request_id] = replace(
            row, status=status, decision=decision, by=by, answer=answer
        )
        asked = self._asked[request_id]
        self._asked[request_id] = replace(asked, resolved_at=envelope.occurred_at)
        self._pending -= 1
        if self.status == "awaiting_approval" and not self._pending:
            self.status = "running"

    def artifact_made(self, envelope: Envelope, fact: f.ArtifactCreated) -> None:
        if fact.kind == "sealed":
            return
        self._artifact_count += 1
        status = fact.status or "created"
        self._artifacts[fact.artifact_id] = _Artifact(
            sequence=envelope.sequence,
            step_id=self._folded.step_of_call(fact.tool_call_id or ""),
            artifact_id=fact.artifact_id,
            run_id=envelope.run_id,
            kind=fact.kind,
            status=status,
            size_bytes=fact.size_bytes,
            sha256=fact.sha256 or "",
            mime_type=fact.mime_type or "application/octet-stream",
            summary=fact.summary,
            tool_call_id=fact.tool_call_id or None,
            metadata=fact.metadata or {},
            created_at=envelope.occurred_at,
            applied_at=envelope.occurred_at if status == "applied" else None,
            reverted_at=None,
        )
        if self._most is not None and len(self._artifacts) > self._most:
            settled = (key for key, held in self._artifacts.items() if held.status != "proposed")
            del self._artifacts[next(settled, fact.artifact_id)]

    def artifact_changed(self, envelope: Envelope, fact: f.ArtifactUpdated) -> None:
        if fact.field == "deleted_at":  # never of a sealed one, which was not counted
            self._artifact_count -= 1
        row = self._artifacts.get(fact.artifact_id)
        if row is None:
            return
        changed: dict[str, Any] = {fact.field: fact.new_value, "changed_at": envelope.occurred_at}
        if changed.get("status") == "applied":
            changed["applied_at"] = envelope.occurred_at
        self._artifacts[fact.artifact_id] = replace(row, **changed)

    def files_changed(self, envelope: Envelope, fact: f.WorkspaceChangedByCommand) -> None:
        files = [{"path": each.path, "change": each.change} for each in fact.files[:_MAX_FILES]]
        self._note(
            envelope,
            Activity(
                id=f"step:{envelope.event_id}:files",
                type="changed_files",
                status="completed",
                title=f"A command changed files: {fact.file_count}",
                step_id=self._folded.step_of_call(fact.tool_call_id),
                tool_name=fact.tool_name,
                summary={"file_count": fact.file_count, "files": files},
                occurred_at=envelope.occurred_at,
            ),
        )

    def final_answer(self, envelope: Envelope, fact: f.AssistantFinalAnswer) -> None:
        self._note(
            envelope,
            Activity(
                id=f"step:{envelope.event_id}:answer",
                type="final_answer",
                status="completed",
                title="Final answer",
                step_id=self._folded.model_step,
                summary={"text": fact.summary},
                occurred_at=envelope.occurred_at,
            ),
        )

    def ended(self, envelope: Envelope, fact: f.RunFinished | f.RunFailed | f.RunCancelled) -> None:
        self.status = _ENDINGS[type(fact)]
        self.last_error = error_of(fact)
        end = ending_of(fact)
        summary: dict[str, Any] = {"outcome": end.outcome}
        if self.last_error:
            summary["error"] = self.last_error
        if end.code:
            summary["code"] = end.code
        self._note(
            envelope,
            Activity(
                id=f"run:{envelope.run_id}:terminal",
                type="run_result",
                status=self.status,
                title=f"Run {self.status}",
                summary=summary,
                occurred_at=envelope.occurred_at,
                terminal=True,
            ),
        )

    def _note(self, envelope: Envelope, item: Activity) -> None:
        self._others[envelope.sequence] = item
        if self._most is not None and len(self._others) > self._most:
            del self._others[next(iter(self._others))]


_ENDINGS: dict[type[f.Fact], RunStatus] = {
    f.RunFinished: "completed",
    f.RunFailed: "failed",
    f.RunCancelled: "cancelled",
}

_Taker: TypeAlias = Callable[[RunView, Envelope, Any], None]

_TAKERS: dict[type[f.Fact], _Taker] = {
    f.RunQueued: RunView.queued,
    f.RunStarted: RunView.started,
    f.AssistantMessageComplete: RunView.charged,
    f.ContextCompacted: RunView.charged,
    f.CostCallUnfinished: RunView.charged,
    f.TurnCompleted: RunView.turn_completed,
    f.ApprovalRequested: RunView.approval_asked,
    f.RequestOpened: RunView.question_asked,
    f.ApprovalResolved: RunView.resolved,
    f.ApprovalTimedOut: RunView.timed_out,
    f.RequestClosed: RunView.question_closed,
    f.ArtifactCreated: RunView.artifact_made,
    f.ArtifactUpdated: RunView.artifact_changed,
    f.WorkspaceChangedByCommand: RunView.files_changed,
    f.AssistantFinalAnswer: RunView.final_answer,
    f.RunFinished: RunView.ended,
    f.RunFailed: RunView.ended,
    f.RunCancelled: RunView.ended,
}
"""The facts that change more than steps."""
