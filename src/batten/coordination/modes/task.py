"""Task: the initiator asks for work; one participant takes it on and reports."""

import math
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from batten.coordination.modes.mode import (
    Descriptor,
    Mode,
    ModeState,
    Panel,
    Row,
    Step,
    nonblank,
    published_schema,
)
from batten.coordination.payloads import wire_types
from batten.coordination.policy.policy import unsupported
from batten.coordination.rejection import Denial, Rejection, denied, forbidden, invalid

MODE = "macp.mode.task.v1"


class TaskRequestPayload(Struct, frozen=True):
    task_id: str = ""
    title: str = ""
    instructions: str = ""
    requested_assignee: str = ""
    input: bytes = b""
    deadline_unix_ms: int = 0


class TaskAcceptPayload(Struct, frozen=True):
    task_id: str = ""
    assignee: str = ""
    reason: str = ""


class TaskRejectPayload(Struct, frozen=True):
    task_id: str = ""
    assignee: str = ""
    reason: str = ""


class TaskUpdatePayload(Struct, frozen=True):
    task_id: str = ""
    status: str = ""
    progress: float = 0.0
    message: str = ""
    partial_output: bytes = b""


class TaskCompletePayload(Struct, frozen=True):
    task_id: str = ""
    assignee: str = ""
    output: bytes = b""
    summary: str = ""


class TaskFailPayload(Struct, frozen=True):
    task_id: str = ""
    assignee: str = ""
    error_code: str = ""
    reason: str = ""
    retryable: bool = False


class Request(Struct, frozen=True):
    task_id: str
    title: str
    instructions: str
    requested_assignee: str


class TaskRejection(Struct, frozen=True):
    sender: str
    reason: str
    while_assigned: bool
    """The sender held the task and gave it back."""


class Report(Struct, frozen=True):
    """How the work ended."""

    kind: Literal["completed", "failed"]
    sender: str
    summary: str
    has_output: bool = False


class TaskState(ModeState, frozen=True, kw_only=True):
    phase: str = "Unrequested"
    request: Request | None = None
    assignee: str = ""
    """Empty while nobody holds the task."""
    rejections: tuple[TaskRejection, ...] = ()
    updates: int = 0
    report: Report | None = None


class Task(Mode[TaskState]):
    descriptor = Descriptor(
        mode=MODE,
        mode_version="1.0.0",
        title="Task",
        description="The initiator asks for work; one participant takes it on and reports.",
        determinism_class="structural-only",
        participant_model="orchestrated",
        schema_uris=published_schema("task"),
        message_types=(
            "SessionStart",
            "TaskRequest",
            "TaskAccept",
            "TaskReject",
            "TaskUpdate",
            "TaskComplete",
            "TaskFail",
            "Commitment",
        ),
    )
    rows = (
        Row("Unrequested", "TaskRequest", "initiator", ("Requested",)),
        Row("Requested", "TaskAccept", "participant", ("Assigned",)),
        Row("Requested", "TaskReject", "participant", ("Requested", "Declined")),
        Row("Declined", "Commitment", "authority", ("Committed",)),
        Row("Assigned", "TaskReject", "participant", ("Requested",)),
        Row("Assigned", "TaskUpdate", "assignee", ("Assigned",)),
        Row("Assigned", "TaskComplete", "assignee", ("Reported",)),
        Row("Assigned", "TaskFail", "assignee", ("Reported",)),
        Row("Reported", "Commitment", "authority", ("Committed",)),
    )
    payloads = wire_types(
        "macp.modes.task.v1.task_pb2",
        TaskRequest=TaskRequestPayload,
        TaskAccept=TaskAcceptPayload,
        TaskReject=TaskRejectPayload,
        TaskUpdate=TaskUpdatePayload,
        TaskComplete=TaskCompletePayload,
        TaskFail=TaskFailPayload,
    )
    first = TaskState()

    def check_start(self, panel: Panel) -> None:
        if not any(who != panel.initiator for who in panel.participants):
            raise invalid("a task needs a participant other than the initiator")

    def check_role(self, state: TaskState, step: Step) -> None:
        if self.senders[step.message_type] == "assignee" and (
            state.phase != "Assigned" or step.sender != state.assignee
        ):
            raise forbidden(f"{step.sender} does not hold the task")

    def apply(self, state: TaskState, panel: Panel, step: Step) -> TaskState:
        match step.payload:
            case TaskRequestPayload() as payload:
                return _requested(state, panel, payload)
            case TaskAcceptPayload() as payload:
                return _accepted(state, panel, step, payload)
            case TaskRejectPayload() as payload:
                return _rejected(state, panel, step, payload)
            case TaskUpdatePayload() as payload:
                _same_task(state, payload.task_id)
                if not math.isfinite(payload.progress):
                    raise invalid("progress must be a finite number")
                return replace(state, updates=state.updates + 1)
            case TaskCompletePayload() as payload:
                report = Report("completed", step.sender, payload.summary, bool(payload.output))
                return _reported(state, step, payload.task_id, payload.assignee, report)
            case TaskFailPayload() as payload:
                report = Report("failed", step.sender, payload.reason)
                return _reported(state, step, payload.task_id, payload.assignee, report)
            case _:
                raise invalid(f"{step.message_type} is no message of this mode")

    def committed(
        self, state: TaskState, panel: Panel, step: Step, payload: bytes
    ) -> tuple[TaskState, bytes]:
        return replace(state, phase="Committed"), payload

    def judge(self, state: TaskState, panel: Panel, positive: bool) -> Rejection | None:
        if (rejection := unsupported(panel.policy)) is not None:
            return rejection
        if positive and state.phase == "Declined":
            return denied(Denial("criterion_not_met", "nobody took the task on"))
        report = state.report
        needs = panel.policy.task.completion.require_output
        if positive and needs and report is not None and not report.has_output:
            return denied(Denial("output_required", "the task has no output", (report.sender,)))
        return None


def _requested(state: TaskState, panel: Panel, payload: TaskRequestPayload) -> TaskState:
    nonblank(payload, "task_id")
    wanted = payload.requested_assignee
    if wanted and wanted not in panel.participants:
        raise invalid(f"{wanted} is no participant of the session")
    request = Request(payload.task_id, payload.title, payload.instructions, wanted)
    return replace(state, phase="Requested", request=request)


def _accepted(state: TaskState, panel: Panel, step: Step, payload: TaskAcceptPayload) -> TaskState:
    _same_task(state, payload.task_id)
    _own(step, payload.assignee)
    _check_eligible(state, panel, step.sender)
    if any(one.sender == step.sender for one in state.rejections):
        raise invalid(f"{step.sender} has rejected the task")
    gave_back = tuple(one.sender for one in state.rejections if one.while_assigned)
    if gave_back and not panel.policy.task.assignment.allow_reassignment_on_reject:
        text = "the task was given back and the policy allows no other assignee"
        raise denied(Denial("reassignment_not_allowed", text, gave_back))
    return replace(state, phase="Assigned", assignee=step.sender)


def _rejected(state: TaskState, panel: Panel, step: Step, payload: TaskRejectPayload) -> TaskState:
    _same_task(state, payload.task_id)
    _own(step, payload.assignee)
    request = state.request
    assert request is not None
    if state.assignee:
        if state.assignee != step.sender:
            raise invalid(f"{state.assignee} holds the task")
        if not panel.policy.task.assignment.allow_reassignment_on_reject:
            text = "the policy does not let an assignee give the task back"
            raise denied(Denial("reassignment_not_allowed", text, (step.sender,)))
        rejection = TaskRejection(step.sender, payload.reason, True)
        rejections = (*state.rejections, rejection)
        return replace(state, phase="Requested", assignee="", rejections=rejections)
    _check_eligible(state, panel, step.sender)
    if any(one.sender == step.sender for one in state.rejections):
        raise invalid(f"{step.sender} has rejected the task already")
    rejection = TaskRejection(step.sender, payload.reason, False)
    phase = "Declined" if request.requested_assignee else "Requested"
    return replace(state, phase=phase, rejections=(*state.rejections, rejection))


def _reported(
    state: TaskState, step: Step, task_id: str, assignee: str, report: Report
) -> TaskState:
    _same_task(state, task_id)
    _own(step, assignee)
    return replace(state, phase="Reported", report=report)


def _same_task(state: TaskState, task_id: str) -> None:
    if state.request is None or state.request.task_id != task_id:
        raise invalid(f"the session has no task {task_id!r}")


def _own(step: Step, assignee: str) -> None:
    if assignee not in ("", step.sender):
        raise invalid(f"assignee must be empty or {step.sender}")


def _check_eligible(state: TaskState, panel: Panel, sender: str) -> None:
    request = state.request
    assert request is not None
    if request.requested_assignee:
        if sender != request.requested_assignee:
            raise forbidden(f"the task was asked of {request.requested_assignee}")
    elif sender == panel.initiator:
        raise forbidden("the initiator cannot take on its own task")
