"""Requests and objects of approvals."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.protocols.hecate.vocabulary import Note

ApprovalStatus = Literal["pending", "approved", "rejected", "cancelled", "timed_out"]
Scope = Literal["once", "session", "workspace_tool", "adapter_tool"]

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
        ),
    ]
    """`approve` (or `approved`), or `reject` (or `rejected`, `deny`, `denied`), in any case."""
    note: Note = ""
    """A word to the agent. For a question it is the answer."""
    scope: Scope = "once"
    """How far an approval reaches: this call, every such call of the session (`session`), of the
    workspace (`workspace_tool`), or of every workspace (`adapter_tool`)."""
    updated_input: dict[str, Any] | UnsetType = UNSET
    """Arguments to run with instead of those asked for."""
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
    created_at: str = ""
    deadline_at: str = ""
    """When the question counts as refused."""
    resolved_at: str = ""


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
