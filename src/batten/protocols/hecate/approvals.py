"""Approvals: requests, objects, and an approval from a request's row and what was asked."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.errors import Conflict
from batten.contract.marks import exact, plain
from batten.contract.tracing import span_of
from batten.protocols.hecate.excerpts import shown_input
from batten.protocols.hecate.rows import RequestLike, RunLike
from batten.protocols.hecate.runs import ACTIVE
from batten.protocols.hecate.vocabulary import Note

ApprovalStatus = Literal["pending", "approved", "rejected", "cancelled", "timed_out"]
Scope = Literal["once", "session"]

MAX_INPUT = 64 * 1024
"""Bytes of arguments, as JSON, that an approval shows whole."""

SPELLINGS: dict[str, bool] = {
    "approve": True,
    "approved": True,
    "reject": False,
    "rejected": False,
    "deny": False,
    "denied": False,
}
"""Each word for a decision, and whether it grants what was asked."""


def _any_case(words: dict[str, bool]) -> str:
    """A pattern for these words in any case: JSON Schema has no flag for that."""
    spelled = ("".join(f"[{letter.upper()}{letter}]" for letter in word) for word in words)
    return rf"^\s*({'|'.join(spelled)})\s*$"


class ResolveApproval(Struct, frozen=True, kw_only=True):
    """An answer. The first one counts."""

    decision: Annotated[
        str,
        Meta(
            pattern=_any_case(SPELLINGS),
            max_length=100,
            extra_json_schema={"examples": ["approve", "reject"]},
            extra={"expected": f"one of {', '.join(SPELLINGS)}"},
        ),
    ]
    """`approve` (or `approved`), or `reject` (or `rejected`, `deny`, `denied`), in any case."""
    note: Note = ""
    """A word to the agent. For a question it is the answer."""
    scope: Scope = "once"
    """How far an approval reaches: this call, or every such call of the task (`session`)."""
    halt: bool = True
    """Whether a rejection cancels the run. `false`: the agent is told, and goes on without the
    call."""
    digest: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    """`digest` of the approval you looked at: the answer is refused if it is another one."""


class Approval(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question that a run waits for. Empty values are left out."""

    id: str
    task_id: str = ""
    run_id: str
    step_id: str = ""
    tool_call_id: str = ""
    kind: str
    """The name of the tool that wants to run; for another question its class, such as
    `user_input`."""
    status: ApprovalStatus
    reason: str = ""
    """Why approval is needed."""
    summary: str = ""
    """What is asked for, in short."""
    input: Any = UNSET
    """All arguments of the call, exactly as it would run."""
    input_excerpt: str = ""
    """The beginning of arguments that are too long to show, with the length and the SHA-256 of the
    whole; then `input` is missing."""
    digest: str = ""
    """SHA-256 of what is asked: an answer applies to exactly this."""
    resolvers: list[str] = []
    """The roles whose answer counts; missing if everyone's does."""
    requested_by: str
    """Always `agent`."""
    resolved_by: str = ""
    resolution_note: str = ""
    scope: str = ""
    grant: str = ""
    """The rule that the answer stored: such calls are allowed from then on."""
    created_at: str = ""
    deadline_at: str = ""
    """When the question counts as refused."""
    resolved_at: str = ""
    trace_id: str = ""
    """That of its run."""
    span_id: str = ""


class ApprovalReply(Struct, frozen=True, tag_field="object", tag="task_approval"):
    data: Approval


class ApprovalList(Struct, frozen=True, tag_field="object", tag="task_approvals"):
    """Approvals of a task, the oldest first."""

    data: list[Approval]


class ApprovalQuery(Struct, frozen=True, kw_only=True):
    """Which approvals to list."""

    status: ApprovalStatus | UnsetType = UNSET


def grants(decision: str) -> bool:
    """Whether a decision grants what was asked. The type allows only known spellings."""
    return SPELLINGS[decision.strip().lower()]


class Asked(Struct, frozen=True, kw_only=True):
    """What a request asks for, from the facts of its run."""

    kind: str = ""
    """The tool's name."""
    reason: str = ""
    input: dict[str, Any] | UnsetType = UNSET
    at: str = ""
    step_id: str = ""
    resolved_at: str = ""


_NOTHING_ASKED = Asked()
_STATUSES: dict[str, ApprovalStatus] = {
    "pending": "pending",
    "answered": "approved",
    "failed": "rejected",
    "timed_out": "timed_out",
    "cancelled": "cancelled",
}


def approval_status(row: RequestLike) -> ApprovalStatus:
    if row.status == "answered" and row.decision == "rejected":
        return "rejected"
    return _STATUSES[row.status]


def approval_object(
    row: RequestLike, task_id: str | None, asked: Asked = _NOTHING_ASKED, trace_id: str = ""
) -> Approval:
    """An approval, with all that is asked; arguments that are too long end with a visible cut.

    `trace_id` is that of its run; the span is the one that is exported.
    """
    is_approval = row.request_class == "approval"
    note = row.answer.get("comment" if is_approval else "text", "")
    return Approval(
        id=row.request_id,
        task_id=task_id or "",
        run_id=row.run_id,
        step_id=asked.step_id,
        tool_call_id=row.tool_call_id,
        kind=(asked.kind or "tool_call") if is_approval else row.request_class,
        status=approval_status(row),
        reason=asked.reason,
        summary=exact(row.summary) if is_approval else plain(row.summary),
        digest=row.digest,
        resolvers=list(row.resolvers),
        requested_by="agent",
        resolved_by=row.by or ("policy" if row.status == "timed_out" else ""),
        resolution_note=note if isinstance(note, str) else "",
        scope=str(row.answer.get("scope", "")),
        grant=str(row.answer.get("grant", "")),
        created_at=asked.at,
        deadline_at=row.deadline_at or "",
        resolved_at=asked.resolved_at,
        trace_id=trace_id,
        span_id=span_of(row.run_id, "request", row.request_id) if trace_id else "",
        **shown_input(asked.input, MAX_INPUT),
    )


def check_answerable(row: RequestLike, run: RunLike, digest: str | UnsetType = UNSET) -> None:
    """Raise `Conflict` unless the first answer to a request is still wanted, and this is it."""
    if row.status != "pending":
        by = f" by {row.by}" if row.by else ""
        raise Conflict(
            f"approval {row.request_id} is already {approval_status(row)}{by}: the first answer"
            " counts",
            code="already_resolved",
        )
    if run.status not in ACTIVE:
        raise Conflict(f"run {run.run_id} has ended ({run.status}): it needs no answer any more")
    if digest is not UNSET and digest != row.digest:
        raise Conflict(
            f"approval {row.request_id} asks for something else than you answer: its digest is"
            f" {row.digest}",
            code="digest_differs",
        )
