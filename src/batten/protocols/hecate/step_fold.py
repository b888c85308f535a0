"""Folds a run's facts into its steps."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from batten.contract import calls
from batten.contract import facts as f
from batten.contract.cutting import call_in_short, shortened
from batten.contract.envelope import Envelope
from batten.contract.marks import exact
from batten.protocols.hecate.excerpts import shown_input
from batten.protocols.hecate.steps import Result, Step, StepKind, StepStatus

PREVIEW_BYTES = 2000
"""Bytes of a command's output, of each stream, that a step keeps."""
CUT_MARK = "\n… [truncated]"
MAX_INPUT = 4096
"""Bytes of arguments, as JSON, that a step shows whole."""
_MAX_SUMMARY = 500
_KINDS: dict[str, StepKind] = {
    "shell": "shell",
    "git": "git",
    "file": "file",
    "edit": "file",
    "multi_edit": "file",
    "file_write": "file",
}
_SUBJECTS = ("command", "path", "file_path", "url", "pattern", "query", "question", "prompt")
"""Arguments that say what a call is about, the first that there is."""


class Preview(Struct):
    """The beginning of what a command wrote to each stream."""

    stdout: bytes = b""
    stderr: bytes = b""
    stdout_is_cut: bool = False
    stderr_is_cut: bool = False

    def add(self, stream: Literal["stdout", "stderr"], text: str) -> None:
        held: bytes = getattr(self, stream)
        room = PREVIEW_BYTES - len(held)
        data = text[: room + 1].encode(errors="replace")
        if len(data) > room:
            setattr(self, f"{stream}_is_cut", True)
        setattr(self, stream, held + data[:room])

    def texts(self) -> dict[str, str]:
        """Both streams as text; the mark shows where one was cut."""
        return {
            "stdout": self.stdout.decode(errors="ignore") + CUT_MARK * self.stdout_is_cut,
            "stderr": self.stderr.decode(errors="ignore") + CUT_MARK * self.stderr_is_cut,
        }


class StepFold:
    """Folds one run's facts, in order, into its steps."""

    def __init__(self, most: int | None = None) -> None:
        """With `most`, the oldest finished steps are dropped."""
        self._most = most
        self.steps: dict[str, Step] = {}
        self.previews: dict[str, Preview] = {}
        """The output of commands, by the id of their step."""
        self.calls = calls.CallFold(turns=True)
        self.count = 0
        self.places: dict[str, int] = {}
        """The sequence at which each step began."""
        self.model_step = ""
        """The model call of the present turn."""
        self._calls: dict[str, str] = {}
        """The latest step of each call."""
        self._approvals: dict[str, str] = {}

    def take(self, envelope: Envelope) -> None:
        fact: f.Fact = envelope.data
        change = self.calls.take(fact, envelope.sequence)
        if (taker := _BY_CHANGE.get(type(change))) is not None:
            taker(self, envelope, change)
        elif (taker := _BY_FACT.get(type(fact))) is not None:
            taker(self, envelope, fact)

    def step_of_call(self, tool_call_id: str) -> str:
        return self._calls.get(tool_call_id, "")

    def step_of_approval(self, approval_id: str) -> str:
        return self._approvals.get(approval_id, "")

    def _open(self, envelope: Envelope, **fields: Any) -> Step:
        self.count += 1
        step = Step(
            id=f"step_{envelope.event_id[4:]}",
            task_id=envelope.task_id or "",
            run_id=envelope.run_id,
            index=self.count,
            started_at=envelope.occurred_at,
            **fields,
        )
        self.steps[step.id] = step
        self.places[step.id] = envelope.sequence
        if self._most is not None and len(self.steps) > self._most:
            self._drop_oldest()
        return step

    def _drop_oldest(self) -> None:
        done = next((key for key, step in self.steps.items() if step.finished_at), None)
        if done is not None:
            call = self.steps.pop(done).tool_call_id
            del self.places[done]
            if self._calls.get(call) == done:
                del self._calls[call]
            self.previews.pop(done, None)

    def _close(self, step_id: str, envelope: Envelope, status: StepStatus, **fields: Any) -> None:
        step = self.steps.get(step_id)
        if step is not None:
            self.steps[step_id] = replace(
                step, status=status, finished_at=envelope.occurred_at, **fields
            )

    def turn_started(self, envelope: Envelope, fact: f.TurnStarted) -> None:
        self._interrupt(envelope, "interrupted")
        self.model_step = self._open(
            envelope,
            kind="model",
            title=f"Turn {fact.turn_index}: {fact.model}",
            status="running",
            phase="thinking",
            turn_index=fact.turn_index,
        ).id

    def answered(self, envelope: Envelope, change: calls.TurnAnswered) -> None:
        text = change.text[: _MAX_SUMMARY + 1]
        summary = shortened(" ".join(text.split()), _MAX_SUMMARY)
        self._close(
            self.model_step, envelope, "completed", result="success", output_summary=summary
        )

    def turn_failed(self, envelope: Envelope, fact: f.TurnFailed) -> None:
        self._close(
            self.model_step,
            envelope,
            "failed",
            result="error",
            error=fact.message,
            error_kind=fact.code,
        )

    def started(self, envelope: Envelope, change: calls.CallStarted) -> None:
        fact: f.ToolInvoked = envelope.data
        step = self._open_call(
            envelope, change.call, fact.kind, phase="execution", turn_index=fact.turn_index
        )
        self._calls[step.tool_call_id] = step.id
        if step.kind in ("shell", "git"):
            self.previews[step.id] = Preview()

    def _open_call(self, envelope: Envelope, call: calls.Call, kind: str, **fields: Any) -> Step:
        return self._open(
            envelope,
            kind="git" if call.tool in ("git", "git_exec") else _KINDS.get(kind, "tool"),
            title=_title(call),
            status="running",
            parent_step_id=self.model_step,
            tool_name=call.tool,
            tool_call_id=call.id,
            **shown_input(call.input, MAX_INPUT),
            **fields,
        )

    def output_came(self, envelope: Envelope, fact: f.ToolShellOutputChunk) -> None:
        preview = self.previews.get(self._calls.get(fact.tool_call_id, ""))
        if preview is not None:
            preview.add(fact.stream, fact.data)

    def exited(self, envelope: Envelope, fact: f.ToolShellExited) -> None:
        step_id = self._calls.get(fact.tool_call_id, "")
        if step_id in self.steps:
            self.steps[step_id] = replace(self.steps[step_id], exit_code=fact.exit_code)

    def ended(self, envelope: Envelope, change: calls.CallEnded) -> None:
        if change.end.status == "denied":
            self._denied(envelope, change.call, change.end)
            return
        fact: f.ToolEnded = envelope.data
        step_id = self._calls.get(fact.tool_call_id, "")
        step = self.steps.get(step_id)
        status, result, kind = _end_of(change.end, "tool" if step is None else step.kind)
        self._close(
            step_id,
            envelope,
            status,
            result=result,
            output_summary=fact.summary,
            error=change.end.error,
            error_kind=kind,
            artifact_id=fact.result_artifact_id or "",
        )

    def _denied(self, envelope: Envelope, call: calls.Call, end: calls.CallEnd) -> None:
        if not self.model_step and end.is_by_answer:
            return  # a command's own run that was rejected took no step
        step = self._open_call(envelope, call, envelope.data.kind or "", phase="policy")
        is_bound = end.by.startswith("bounds:")
        kind = "sandbox_policy_denied" if is_bound else "policy_denied"
        self._close(
            step.id, envelope, "completed", result="denied", error=end.summary, error_kind=kind
        )

    def approval_asked(self, envelope: Envelope, fact: f.ApprovalRequested) -> None:
        self._ask(envelope, fact.approval_id, fact.kind, fact.tool_call_id, fact.summary)

    def question_asked(self, envelope: Envelope, fact: f.RequestOpened) -> None:
        name = fact.request_class
        self._ask(envelope, fact.request_id, name, fact.tool_call_id, fact.summary)

    def _ask(
        self, envelope: Envelope, approval_id: str, name: str, tool_call_id: str, summary: str
    ) -> None:
        """A command's own run asks before its only step: that is no step of its own."""
        if not self.model_step:
            return
        step = self._open(
            envelope,
            kind="approval",
            title=exact(shortened(summary, 200)) or name,
            status="awaiting_approval",
            phase="approval",
            parent_step_id=self.model_step,
            tool_name=name,
            tool_call_id=tool_call_id,
            approval_id=approval_id,
        )
        self._approvals[approval_id] = step.id

    def resolved(self, envelope: Envelope, fact: f.ApprovalResolved) -> None:
        step_id = self._approvals.pop(fact.approval_id, "")
        if fact.decision == "cancelled":
            self._close(step_id, envelope, "cancelled", error_kind="run_cancelled")
        else:
            result = "success" if fact.decision == "approved" else "denied"
            self._close(step_id, envelope, "completed", result=result, output_summary=fact.comment)

    def timed_out(self, envelope: Envelope, fact: f.ApprovalTimedOut) -> None:
        step_id = self._approvals.pop(fact.approval_id, "")
        error = f"nobody answered within {fact.after_seconds} s"
        self._close(
            step_id, envelope, "failed", result="denied", error=error, error_kind="timed_out"
        )

    def question_closed(self, envelope: Envelope, fact: f.RequestClosed) -> None:
        step_id = self._approvals.pop(fact.request_id, "")
        if fact.resolution == "cancelled":
            self._close(step_id, envelope, "cancelled", error_kind="run_cancelled")
        elif fact.resolution == "answered":
            self._close(step_id, envelope, "completed", result="success")
        else:
            self._close(step_id, envelope, "failed", result="denied", error_kind=fact.resolution)

    def disconnected(self, envelope: Envelope, fact: f.GapRunDisconnected) -> None:
        self._interrupt(envelope, fact.reason)

    def _interrupt(self, envelope: Envelope, reason: str) -> None:
        """A model call that its worker did not finish is made again."""
        step = self.steps.get(self.model_step)
        if step is not None and not step.finished_at:
            self._close(step.id, envelope, "failed", result="error", error_kind=reason)

    def run_ended(self, envelope: Envelope, change: calls.RunEnded) -> None:
        """Close what is left open."""
        is_cancelled = isinstance(envelope.data, f.RunCancelled)
        status: StepStatus = "cancelled" if is_cancelled else "failed"
        kind = "run_cancelled" if is_cancelled else "run_ended"
        for step_id in [key for key, step in self.steps.items() if not step.finished_at]:
            self._close(step_id, envelope, status, error_kind=kind)
        self._approvals.clear()


def _title(call: calls.Call) -> str:
    given = call.input or {}
    return call_in_short(call.tool, next((given[key] for key in _SUBJECTS if key in given), None))


def _end_of(end: calls.CallEnd, kind: StepKind) -> tuple[StepStatus, Result | Literal[""], str]:
    """The status, the result and the kind of error that the end of a call gives its step."""
    match end.status:
        case "completed":
            return "completed", "error" if end.is_error else "success", ""
        case "cancelled":
            return "cancelled", "", "run_cancelled"
        case "timed_out":
            return "failed", "error", f"{kind}_timeout"
        case _ if end.code and end.code != "exit_status":
            return "failed", "error", end.code
        case _:
            is_command = kind in ("shell", "git")
            return "failed", "error", f"{kind}_command_failed" if is_command else "tool_failed"


_Taker: TypeAlias = Callable[[StepFold, Envelope, Any], None]

_BY_CHANGE: dict[type[calls.Change | None], _Taker] = {
    calls.TurnAnswered: StepFold.answered,
    calls.CallStarted: StepFold.started,
    calls.CallEnded: StepFold.ended,
    calls.RunEnded: StepFold.run_ended,
}
_BY_FACT: dict[type[f.Fact], _Taker] = {
    f.TurnStarted: StepFold.turn_started,
    f.TurnFailed: StepFold.turn_failed,
    f.ToolShellOutputChunk: StepFold.output_came,
    f.ToolShellExited: StepFold.exited,
    f.ApprovalRequested: StepFold.approval_asked,
    f.ApprovalResolved: StepFold.resolved,
    f.ApprovalTimedOut: StepFold.timed_out,
    f.RequestOpened: StepFold.question_asked,
    f.RequestClosed: StepFold.question_closed,
    f.GapRunDisconnected: StepFold.disconnected,
}
"""What begins, changes or ends a step."""
