"""`GET /runs/:id/state`: the projection of a run, block by block."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.protocols.macp.events import EventType, Subject

RunStatus = Literal[
    "queued",
    "starting",
    "binding_session",
    "running",
    "suspended",
    "completed",
    "failed",
    "cancelled",
]
TERMINAL: frozenset[str] = frozenset({"completed", "failed", "cancelled"})
ParticipantStatus = Literal["idle", "active", "waiting", "completed", "failed", "skipped"]
Side = Literal["allow", "deny"]

MOST_RECENT = 50
"""Entries of the timeline."""
MOST_PROPOSALS = 50
MOST_EVALUATIONS = 50
MOST_TALLIES = 200
MOST_CALLS = 100
MOST_PROGRESS = 100
MOST_SIGNALS = 200
MOST_EDGES = 300
MOST_ARTIFACTS = 1000
"""The newest ones are kept."""


class RunBlock(Struct, kw_only=True, rename="camel"):
    run_id: str
    status: RunStatus = "queued"
    mode_name: str | UnsetType = UNSET
    runtime_session_id: str | UnsetType = UNSET
    started_at: str | UnsetType = UNSET
    ended_at: str | UnsetType = UNSET
    trace_id: str | UnsetType = UNSET


class ParticipantBlock(Struct, kw_only=True, rename="camel"):
    participant_id: str
    role: str | UnsetType = UNSET
    status: ParticipantStatus = "idle"
    latest_activity_at: str | UnsetType = UNSET
    """When it last emitted something; to be spoken to is no activity."""
    latest_summary: str | UnsetType = UNSET


class Node(Struct, kw_only=True):
    id: str
    kind: str
    status: str


class Edge(Struct, kw_only=True, rename={"from_": "from"}):
    from_: str
    to: str
    kind: str
    ts: str


class Graph(Struct, kw_only=True):
    nodes: list[Node] = []
    edges: list[Edge] = []


class Contribution(Struct, kw_only=True, rename="camel"):
    """What one participant said about a proposal."""

    participant_id: str
    action: str
    confidence: float | UnsetType = UNSET
    reasons: list[str] = []
    ts: str
    vote: Side | UnsetType = UNSET
    message_type: str | UnsetType = UNSET


class Supersedes(Struct, kw_only=True, rename="camel"):
    session_id: str = ""
    commitment_hash: str = ""


class Current(Struct, kw_only=True, rename="camel"):
    """The decision as it stands."""

    action: str = ""
    confidence: float | UnsetType = UNSET
    reasons: list[str] = []
    finalized: bool = False
    proposal_id: str | UnsetType = UNSET
    outcome_positive: bool | UnsetType | None = UNSET
    """None: finalized, and nothing tells whether it is positive. Absent before."""
    prompt: str | UnsetType = UNSET
    resolved_at: str | UnsetType = UNSET
    resolved_by: str | UnsetType = UNSET
    proposals: list[Contribution] = []
    supersedes: Supersedes | UnsetType = UNSET


class Decision(Struct, kw_only=True):
    current: Current | UnsetType = UNSET


class Signal(Struct, kw_only=True, rename="camel"):
    id: str
    name: str
    severity: str | UnsetType = UNSET
    source_participant_id: str | UnsetType = UNSET
    ts: str
    confidence: float | UnsetType = UNSET
    payload: Any = None
    acknowledged_at: str | UnsetType = UNSET
    acknowledged_by: str | UnsetType = UNSET


class Signals(Struct, kw_only=True):
    signals: list[Signal] = []


class ProgressEntry(Struct, kw_only=True, rename="camel"):
    participant_id: str
    percentage: float | UnsetType = UNSET
    message: str
    ts: str


class Progress(Struct, kw_only=True):
    entries: list[ProgressEntry] = []


class TimelineEntry(Struct, kw_only=True):
    id: str
    seq: int
    ts: str
    type: EventType
    subject: Subject | UnsetType = UNSET


class Timeline(Struct, kw_only=True, rename="camel"):
    latest_seq: int = 0
    total_events: int = 0
    recent: list[TimelineEntry] = []


class TraceBlock(Struct, kw_only=True, rename="camel"):
    trace_id: str | UnsetType = UNSET
    last_span_id: str | UnsetType = UNSET
    span_count: int = 0
    """Spans of the run: its own, and one of each tool call."""
    linked_artifacts: list[str] = []


class OutboundMessages(Struct, kw_only=True):
    """Messages that agents sent to the runtime."""

    total: int = 0
    queued: int = 0
    accepted: int = 0
    rejected: int = 0


class Evaluation(Struct, kw_only=True, rename="camel"):
    commitment_id: str
    decision: Side
    reasons: list[str] = []
    ts: str


class Quorum(Struct, kw_only=True):
    required: int
    cast: int


class Tally(Struct, kw_only=True, rename="camel"):
    """Votes on a proposal: of each voter the last one."""

    commitment_id: str
    allow: int
    deny: int
    threshold: int
    quorum: Quorum


class Policy(Struct, kw_only=True, rename="camel"):
    policy_version: str = ""
    policy_description: str | UnsetType = UNSET
    resolved_at: str | UnsetType = UNSET
    outcome_positive: bool | UnsetType | None = UNSET
    commitment_evaluations: list[Evaluation] = []
    expected_commitments: list[Any] | UnsetType = UNSET
    vote_tally: list[Tally] | UnsetType = UNSET
    quorum_status: Literal["pending", "reached", "failed"] | UnsetType = UNSET


class LlmCall(Struct, kw_only=True, rename="camel"):
    participant_id: str
    model: str | UnsetType = UNSET
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    latency_ms: int | UnsetType = UNSET
    ts: str
    message_id: str | UnsetType = UNSET
    artifact_id: str | UnsetType = UNSET
    estimated_cost_usd: float | UnsetType = UNSET


class LlmTotals(Struct, kw_only=True, rename="camel"):
    """Over the whole run, also of calls that are no longer listed."""

    call_count: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    estimated_cost_usd: float = 0.0


class Llm(Struct, kw_only=True):
    calls: list[LlmCall] = []
    totals: LlmTotals


class ProjectedState(Struct, kw_only=True, rename="camel"):
    """Everything a reader needs to draw a run."""

    run: RunBlock
    participants: list[ParticipantBlock]
    graph: Graph
    decision: Decision
    signals: Signals
    progress: Progress
    timeline: Timeline
    trace: TraceBlock
    outbound_messages: OutboundMessages
    policy: Policy
    llm: Llm
