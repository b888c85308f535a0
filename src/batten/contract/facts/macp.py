"""`macp.*`: a session in which several agents decide together."""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.facts.base import Fact

SessionState = Literal["OPEN", "SUSPENDED", "RESOLVED", "EXPIRED", "CANCELLED"]


class BoundPolicy(Struct, frozen=True, kw_only=True):
    """The whole policy of a session: later changes of the registry do not touch it."""

    policy_id: str
    mode: str
    description: str
    rules: str
    schema_version: int


class BoundMode(Struct, frozen=True, kw_only=True):
    """An extension mode as it was registered when the session started."""

    mode_version: str
    message_types: list[str]
    strict: bool


class MacpSessionBound(Fact, frozen=True):
    """A session was started; its mode, policy and panel do not change any more."""

    TYPE = "macp.session_bound"
    session_id: str
    mode: str
    mode_version: str
    configuration_version: str
    initiator: str
    participants: list[str]
    policy: BoundPolicy
    deadline_unix_ms: int
    semantics_rev: int
    """The revision of the rules that judge its messages."""
    extension: BoundMode | UnsetType = UNSET
    redact: list[str] | UnsetType = UNSET
    """Patterns of texts that canonical events of this run do not show."""


class MacpMessageAccepted(Fact, frozen=True):
    """A message of a session, with all its bytes. The first is SessionStart."""

    TYPE = "macp.message_accepted"
    ordinal: int
    """Its place among the accepted messages, from 1."""
    message_id: str
    message_type: str
    sender: str
    timestamp_unix_ms: int
    accepted_at_unix_ms: int
    state: SessionState
    """The session's state after it."""
    body: dict[str, Any]
    """The payload in readable form, secrets removed."""
    payload: str | UnsetType = UNSET
    """The payload's bytes in base64."""
    payload_artifact_id: str | UnsetType = UNSET
    """An artifact with the payload's bytes, if they are many."""
    sealed_artifact_id: str | UnsetType = UNSET
    """A sealed artifact with the payload's bytes, if they hold a secret."""
    metadata: dict[str, Any] | UnsetType = UNSET
    """What came beside the payload: the model call it rests on (`llmCall`), its run and call."""
    by_runtime: bool | UnsetType = UNSET
    """The runtime sent it in the sender's name, because the time to answer had passed."""


class MacpSessionChanged(Fact, frozen=True):
    """A session was suspended, resumed, cancelled, or its time has passed."""

    TYPE = "macp.session_changed"
    state: SessionState
    at_unix_ms: int
    by: str
    reason: str
    banked_ms: int
    """The time that a resumed session gets back."""


class MacpDenial(Struct, frozen=True):
    code: str
    message: str
    participants: list[str]


class MacpCommitmentEvaluated(Fact, frozen=True):
    """The policy judged a commitment. A denied one was not accepted, and can be sent again."""

    TYPE = "macp.commitment_evaluated"
    message_id: str
    sender: str
    commitment_id: str
    policy_id: str
    decision: Literal["allow", "deny"]
    denials: list[MacpDenial]


class PanelSeat(Struct, frozen=True):
    """A member of a panel."""

    name: str
    model: str
    """Empty for the first of the panel's models."""
    instructions: str


PanelOwner = Literal["run", "worker", "runtime"]


class MacpPanelConvened(Fact, frozen=True):
    """An approval of this run is asked of a panel: everything that holding it needs."""

    TYPE = "macp.panel_convened"
    approval_id: str
    """The panel's session has the same number."""
    panel: str
    owner: PanelOwner
    """Who holds it: the process of the run, any worker, or the runtime that its members connect
    to."""
    mode: str
    policy: BoundPolicy
    members: list[PanelSeat]
    models: list[str]
    """Of members without one of their own."""
    rounds: int
    question: str
    about: str
    """The tool and its arguments, secrets removed."""


class MacpRunDescribed(Fact, frozen=True):
    """A client asked to observe a session that agents open elsewhere, or will open here."""

    TYPE = "macp.run_described"
    session_id: str
    """The session's id: the client's own, or one that was given out."""
    descriptor: dict[str, Any]
    """The checked request, as it was sent."""
    normaliser: int
    """The version of the rules that make canonical events of this run."""
    redact: list[str] | UnsetType = UNSET
    """Patterns of texts that canonical events of this run do not show."""
    by: str | UnsetType = UNSET
    """Who asked for it."""
    elsewhere: bool | UnsetType = UNSET
    """The session opens on a runtime elsewhere, and an observer follows it."""
    cloned_from: str | UnsetType = UNSET
    """The run whose descriptor this is, with what its client changed."""
    sealed_artifact_id: str | UnsetType = UNSET
    """The descriptor unchanged and encrypted; present if redaction altered it."""


class MacpRunArchived(Fact, frozen=True):
    """A client put a run aside: lists leave it out. The first one counts."""

    TYPE = "macp.run_archived"
    by: str


class MacpSuspensionRequested(Fact, frozen=True):
    """A client asked to suspend a session of this home, or to resume it."""

    TYPE = "macp.suspension_requested"
    state: Literal["SUSPENDED", "OPEN"]
    """The state that the session should have."""
    by: str
    reason: str


FrameKind = Literal["envelope", "stream_status", "session_snapshot", "send_ack", "stream_error"]


class MacpFrameObserved(Fact, frozen=True):
    """Something a runtime told its observer; an envelope comes with all its bytes."""

    TYPE = "macp.frame_observed"
    kind: FrameKind
    session_id: str
    detail: dict[str, Any]
    """The frame's fields; of an envelope its payload in readable form, secrets removed."""
    ordinal: int | UnsetType = UNSET
    """The place of an envelope in its session; absent for a signal."""
    mode: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    message_type: str | UnsetType = UNSET
    sender: str | UnsetType = UNSET
    timestamp_unix_ms: int | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    """The payload's bytes in base64."""
    payload_artifact_id: str | UnsetType = UNSET
    sealed_artifact_id: str | UnsetType = UNSET
