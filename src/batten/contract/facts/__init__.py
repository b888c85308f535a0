"""All facts of a run, by their type on the wire."""

from batten.contract.facts.approval import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalTimedOut,
    RequestClosed,
    RequestOpened,
)
from batten.contract.facts.artifact import ArtifactCreated, ArtifactReferenced, ArtifactUpdated
from batten.contract.facts.assistant import (
    AssistantFinalAnswer,
    AssistantMessageComplete,
    AssistantRetracted,
    AssistantTextComplete,
    AssistantTextDelta,
    AssistantThinkingComplete,
    AssistantThinkingDelta,
    AssistantToolCallProposed,
)
from batten.contract.facts.base import Fact, Unknown
from batten.contract.facts.context import ContextCompacted, ContextPruned
from batten.contract.facts.cost import (
    CostBudgetExceeded,
    CostBudgetWarning,
    CostCallUnfinished,
    CostTick,
)
from batten.contract.facts.error import (
    ErrorModelCapabilityMissing,
    ErrorToolUnavailable,
    ErrorUpstream,
)
from batten.contract.facts.gap import GapArtifactCapped, GapEventsPruned, GapRunDisconnected
from batten.contract.facts.hook import HookCompleted, HookDispatched
from batten.contract.facts.macp import (
    MacpCommitmentEvaluated,
    MacpFrameObserved,
    MacpMessageAccepted,
    MacpPanelConvened,
    MacpRunArchived,
    MacpRunDescribed,
    MacpSessionBound,
    MacpSessionChanged,
    MacpSuspensionRequested,
)
from batten.contract.facts.policy import PolicyModelRewrote, PolicyToolBlocked, PolicyToolDecided
from batten.contract.facts.run import (
    RunCancelled,
    RunCancelRequested,
    RunCheckpointSaved,
    RunFailed,
    RunFinished,
    RunQueued,
    RunResumedFromEvent,
    RunStarted,
)
from batten.contract.facts.session import (
    SessionClosed,
    SessionConfigured,
    SessionOpened,
    SessionUtilityEnded,
    SessionUtilityStarted,
)
from batten.contract.facts.task import TaskCreated, TaskUpdated
from batten.contract.facts.tool import (
    ToolCancelled,
    ToolCompleted,
    ToolEditApplied,
    ToolEditProposed,
    ToolEditReverted,
    ToolEnded,
    ToolFailed,
    ToolFileApplied,
    ToolFilePatch,
    ToolFileReadCompleted,
    ToolFileReverted,
    ToolFileWriteApplied,
    ToolFileWriteProposed,
    ToolGlobCompleted,
    ToolGrepCompleted,
    ToolHttpRequested,
    ToolHttpResponse,
    ToolInvoked,
    ToolMultiEditApplied,
    ToolMultiEditProposed,
    ToolMultiEditReverted,
    ToolShellCommand,
    ToolShellExited,
    ToolShellOutputChunk,
    ToolStarted,
    ToolTimedOut,
    ToolTodoWriteUpdated,
    ToolWebFetchRequested,
    ToolWebFetchResponse,
    ToolWebSearchRequested,
    ToolWebSearchResponse,
)
from batten.contract.facts.turn import TurnCompleted, TurnFailed, TurnStarted
from batten.contract.facts.user import UserAttachment, UserMessage
from batten.contract.facts.workspace import WorkspaceChangedByCommand

FACTS: dict[str, type[Fact]] = {
    value.TYPE: value
    for value in tuple(globals().values())
    if isinstance(value, type) and issubclass(value, Fact) and value.TYPE
}
"""Every known fact by its type. Other types decode as `Unknown`."""

TERMINAL = frozenset({RunFinished.TYPE, RunFailed.TYPE, RunCancelled.TYPE})
"""A run has exactly one of these."""

TOOL_TERMINAL = frozenset(
    {ToolCompleted.TYPE, ToolFailed.TYPE, ToolCancelled.TYPE, ToolTimedOut.TYPE}
)
"""A tool call has exactly one of these per attempt."""

GUEST = frozenset(
    {
        ApprovalResolved.TYPE,
        ApprovalTimedOut.TYPE,
        ArtifactCreated.TYPE,
        ArtifactReferenced.TYPE,
        ArtifactUpdated.TYPE,
        GapArtifactCapped.TYPE,
        GapEventsPruned.TYPE,
        MacpRunArchived.TYPE,
        MacpSuspensionRequested.TYPE,
        RequestClosed.TYPE,
        RunCancelRequested.TYPE,
        TaskUpdated.TYPE,
        ToolEditApplied.TYPE,
        ToolEditReverted.TYPE,
        ToolFileWriteApplied.TYPE,
        ToolMultiEditApplied.TYPE,
        ToolMultiEditReverted.TYPE,
    }
)
"""Facts that may be appended without the run's lease."""

EXTERNAL = "external."
"""The beginning of the types of a client's own events: guests may append them."""


def is_guest(type_: str) -> bool:
    """Whether a fact of this type may be appended without the run's lease, also after its end."""
    return type_ in GUEST or type_.startswith(EXTERNAL)


__all__ = [
    "EXTERNAL",
    "FACTS",
    "GUEST",
    "TERMINAL",
    "TOOL_TERMINAL",
    "ApprovalRequested",
    "ApprovalResolved",
    "ApprovalTimedOut",
    "ArtifactCreated",
    "ArtifactReferenced",
    "ArtifactUpdated",
    "AssistantFinalAnswer",
    "AssistantMessageComplete",
    "AssistantRetracted",
    "AssistantTextComplete",
    "AssistantTextDelta",
    "AssistantThinkingComplete",
    "AssistantThinkingDelta",
    "AssistantToolCallProposed",
    "ContextCompacted",
    "ContextPruned",
    "CostBudgetExceeded",
    "CostBudgetWarning",
    "CostCallUnfinished",
    "CostTick",
    "ErrorModelCapabilityMissing",
    "ErrorToolUnavailable",
    "ErrorUpstream",
    "Fact",
    "GapArtifactCapped",
    "GapEventsPruned",
    "GapRunDisconnected",
    "HookCompleted",
    "HookDispatched",
    "MacpCommitmentEvaluated",
    "MacpFrameObserved",
    "MacpMessageAccepted",
    "MacpPanelConvened",
    "MacpRunArchived",
    "MacpRunDescribed",
    "MacpSessionBound",
    "MacpSessionChanged",
    "MacpSuspensionRequested",
    "PolicyModelRewrote",
    "PolicyToolBlocked",
    "PolicyToolDecided",
    "RequestClosed",
    "RequestOpened",
    "RunCancelRequested",
    "RunCancelled",
    "RunCheckpointSaved",
    "RunFailed",
    "RunFinished",
    "RunQueued",
    "RunResumedFromEvent",
    "RunStarted",
    "SessionClosed",
    "SessionConfigured",
    "SessionOpened",
    "SessionUtilityEnded",
    "SessionUtilityStarted",
    "TaskCreated",
    "TaskUpdated",
    "ToolCancelled",
    "ToolCompleted",
    "ToolEditApplied",
    "ToolEditProposed",
    "ToolEditReverted",
    "ToolEnded",
    "ToolFailed",
    "ToolFileApplied",
    "ToolFilePatch",
    "ToolFileReadCompleted",
    "ToolFileReverted",
    "ToolFileWriteApplied",
    "ToolFileWriteProposed",
    "ToolGlobCompleted",
    "ToolGrepCompleted",
    "ToolHttpRequested",
    "ToolHttpResponse",
    "ToolInvoked",
    "ToolMultiEditApplied",
    "ToolMultiEditProposed",
    "ToolMultiEditReverted",
    "ToolShellCommand",
    "ToolShellExited",
    "ToolShellOutputChunk",
    "ToolStarted",
    "ToolTimedOut",
    "ToolTodoWriteUpdated",
    "ToolWebFetchRequested",
    "ToolWebFetchResponse",
    "ToolWebSearchRequested",
    "ToolWebSearchResponse",
    "TurnCompleted",
    "TurnFailed",
    "TurnStarted",
    "Unknown",
    "UserAttachment",
    "UserMessage",
    "WorkspaceChangedByCommand",
    "is_guest",
]
