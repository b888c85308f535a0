"""The facts of a session's runs as messages: one response around all that a prompt set going."""

from typing import Any

from msgspec import UNSET, Struct

from batten.contract.envelope import Envelope
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalTimedOut,
    ArtifactCreated,
    AssistantTextDelta,
    AssistantToolCallProposed,
    ContextCompacted,
    ErrorUpstream,
    Fact,
    PolicyToolBlocked,
    PolicyToolDecided,
    RequestClosed,
    RequestOpened,
    RunCancelled,
    RunCancelRequested,
    RunFailed,
    RunFinished,
    RunStarted,
    ToolCancelled,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    ToolShellOutputChunk,
    ToolTimedOut,
    TurnCompleted,
)
from batten.contract.notes import Note, ThinkingPiece
from batten.contract.outcomes import outcome_of_code
from batten.protocols.maestro import asking, faults
from batten.protocols.maestro import outgoing as out
from batten.protocols.maestro.asking import Pending
from batten.protocols.maestro.totals import Totals, milliseconds
from batten.protocols.maestro.vocabulary import RequestType
from batten.protocols.notes import NoteOrder

Ended = ToolCompleted | ToolFailed | ToolCancelled | ToolTimedOut
Asked = ApprovalRequested | RequestOpened
Closed = ApprovalResolved | ApprovalTimedOut | RequestClosed

_LENT: frozenset[RequestType] = frozenset({"client_tool", "user_input"})
"""Classes that are also told of in the older way."""


class _Call(Struct):
    """A call of the response, as far as it is told."""

    tool: str
    args: dict[str, Any]
    told: bool = False
    """Whether there was a `tool_call` for it."""
    streamed: bool = False
    """Whether its output was shown as it came."""
    approval_id: str = ""


class MaestroFrames:
    """Shows one run after the other. What it says depends on the facts alone, and on `asks`."""

    def __init__(self) -> None:
        self.asks: frozenset[RequestType] = frozenset()
        """The classes of requests that the client said it serves."""
        self.pending: dict[str, Pending] = {}
        """Requests that wait for an answer, by id, in the order they were put."""
        self.response_id: str | None = None
        """The response that is open."""
        self._order = NoteOrder()
        self._calls: dict[str, _Call] = {}
        self._pictures: dict[str, str] = {}
        self._totals = Totals()
        self._why = ""
        """Why requests that nobody answers end."""

    def feed(self, envelope: Envelope) -> list[out.Message]:
        """The messages of one fact, and of the notes in their place around it."""
        fact: Fact = envelope.data
        messages = [said for note in self._order.before(fact) for said in self._piece(note)]
        self._totals.see(envelope)
        messages += self._told(fact, envelope)
        messages += [said for note in self._order.after(fact) for said in self._piece(note)]
        return messages

    def note(self, note: Note, *, room: bool = True) -> list[out.Message]:
        """Something said once; with no `room` it may be left out."""
        if not isinstance(note, ThinkingPiece):
            return []
        ready = self._order.hold(note, room=room)
        return [said for one in ready for said in self._piece(one)]

    def request(
        self, fact: Asked, at_ms: int, tool: str = "", args: Any = None
    ) -> list[out.Message]:
        """A request is put; of a run that is not shown, its tool and arguments are given."""
        call = self._calls.get(fact.tool_call_id) or _Call(tool or "unknown", args or {})
        name = "mcp_elicitation" if _class(fact) == "mcp_elicitation" else call.tool
        if isinstance(fact, ApprovalRequested) and fact.input is not UNSET:
            call.args = fact.input
        put = asking.put(fact, tool=name, args=call.args, at_ms=at_ms)
        self.pending[put.request_id] = Pending(
            request_id=put.request_id,
            request_type=put.request_type,
            call_id=put.call_id,
            is_told=put.request_type in self.asks,
            started_at_ms=at_ms,
        )
        self._totals.label(put.summary_label or "")
        messages: list[out.Message] = []
        if put.request_type == "approval":
            call.approval_id = put.request_id
            call.told = True
            messages.append(_called(put.call_id, put.tool, call.args, requires_approval=True))
        elif put.request_type in _LENT:
            asked = out.ClientToolRequest(call_id=put.call_id, tool=put.tool, args=put.args)
            messages.append(asked)
        return [*messages, put] if put.request_type in self.asks else messages

    def close(self, fact: Closed, at_ms: int) -> list[out.Message]:
        """A request is over: said once, and only to a client that was asked."""
        request_id = fact.request_id if isinstance(fact, RequestClosed) else fact.approval_id
        pending = self.pending.pop(request_id, None)
        if pending is None or not pending.is_told:
            return []
        why = f"{self._why or 'Run ended'} before request completed"
        return [asking.resolved(pending, fact, at_ms=at_ms, cancelled=why)]

    def fail(self, message: str) -> list[out.Message]:
        """The run has an ending that the journal could not keep."""
        ending = out.Error(message=message, fatal=False, error_type=faults.classify(message))
        if self.response_id is None:
            return [ending]
        response_id, self.response_id = self.response_id, None
        return [ending, self._totals.cut_short(response_id)]

    def _told(self, fact: Fact, envelope: Envelope) -> list[out.Message]:
        match fact:
            case RunStarted() if self.response_id is None:
                return self._begin(envelope)
            case AssistantTextDelta():
                return self._chunk(fact.delta, is_thinking=False)
            case AssistantToolCallProposed():
                self._calls[fact.tool_call_id] = _Call(fact.tool_name, fact.input)
            case ApprovalRequested() | RequestOpened():
                return self.request(fact, milliseconds(envelope))
            case ApprovalResolved() | ApprovalTimedOut() | RequestClosed():
                return self.close(fact, milliseconds(envelope))
            case ContextCompacted():
                return [_compaction(fact, envelope)]
            case ErrorUpstream() if fact.retriable and fact.attempt < fact.max_attempts:
                tried = f"attempt {fact.attempt} of {fact.max_attempts} failed: {fact.message}"
                return [out.Status(message=f"Retrying the model call: {tried}")]
            case TurnCompleted() if fact.tool_calls:
                calls = f"{fact.tool_calls} tool call{'s' if fact.tool_calls > 1 else ''}"
                return [out.Status(message=f"Completed {calls}")]
            case RunCancelRequested():
                self._why = fact.reason.partition(" ")[0] if fact.by == "client" else ""
            case RunFinished() | RunFailed() | RunCancelled():
                return self._end(fact, envelope)
            case _:
                return self._tool(fact)
        return []

    def _tool(self, fact: Fact) -> list[out.Message]:
        match fact:
            case PolicyToolDecided() if fact.verdict != "ask":
                return self._decided(fact)
            case PolicyToolBlocked():
                return self._blocked(fact)
            case ToolInvoked():
                call = self._call(fact.tool_call_id, fact.tool_name)
                call.streamed = False
                return [
                    *self._tell(fact.tool_call_id, call),
                    out.ToolStart(call_id=fact.tool_call_id),
                ]
            case ToolShellOutputChunk() if fact.data:
                self._call(fact.tool_call_id, "").streamed = True
                return [out.ToolOutput(call_id=fact.tool_call_id, content=fact.data)]
            case ArtifactCreated(kind="image"):
                self._pictures[fact.artifact_id] = fact.mime_type or "image/*"
            case ToolCompleted() | ToolFailed() | ToolCancelled() | ToolTimedOut():
                return self._ended(fact)
            case _:
                pass
        return []

    def _begin(self, envelope: Envelope) -> list[out.Message]:
        self._calls, self._pictures, self._why = {}, {}, ""
        self.pending.clear()
        self.response_id = "resp_" + envelope.run_id.removeprefix("run_")
        return [out.ResponseStart(response_id=self.response_id)]

    def _piece(self, note: Note) -> list[out.Message]:
        self._totals.thought()
        return self._chunk(note.text, is_thinking=True)

    def _chunk(self, text: str, *, is_thinking: bool) -> list[out.Message]:
        if self.response_id is None or not text:
            return []
        chunk = out.ResponseChunk(
            response_id=self.response_id, content=text, is_thinking=is_thinking
        )
        return [chunk]

    def _call(self, call_id: str, tool: str) -> _Call:
        """What is known of a call; its tool has the name that was decided upon."""
        call = self._calls.setdefault(call_id, _Call(tool, {}))
        call.tool = tool or call.tool
        return call

    def _tell(self, call_id: str, call: _Call) -> list[out.Message]:
        if call.told:
            return []
        call.told = True
        return [_called(call_id, call.tool, call.args, requires_approval=False)]

    def _decided(self, fact: PolicyToolDecided) -> list[out.Message]:
        return self._tell(fact.tool_call_id, self._call(fact.tool_call_id, fact.tool_name))

    def _blocked(self, fact: PolicyToolBlocked) -> list[out.Message]:
        """A call that was refused, by a rule or by whoever was asked: it never starts."""
        call = self._call(fact.tool_call_id, fact.tool_name)
        self._totals.tool_ended(fact.tool_name, success=False)
        ended = out.ToolEnd(
            call_id=fact.tool_call_id,
            success=False,
            tool=fact.tool_name,
            details={"summary": fact.reason},
            error_code="permission_denied",
            approval_request_id=call.approval_id or UNSET,
            governed_outcome="denied",
        )
        return [*self._tell(fact.tool_call_id, call), ended]

    def _ended(self, fact: Ended) -> list[out.Message]:
        success = isinstance(fact, ToolCompleted) and fact.error is UNSET
        self._totals.tool_ended(fact.tool_name, success=success)
        call = self._call(fact.tool_call_id, fact.tool_name)
        messages: list[out.Message] = []
        shown = [] if call.streamed or fact.output is UNSET else [fact.output]
        if fact.image_artifact_ids is not UNSET:
            kinds = (self._pictures.get(one, "image/*") for one in fact.image_artifact_ids)
            shown += [f"[image:{kind}]" for kind in kinds]
        if content := "\n".join(filter(None, shown)):
            messages.append(out.ToolOutput(call_id=fact.tool_call_id, content=content))
        ended = out.ToolEnd(
            call_id=fact.tool_call_id,
            success=success,
            tool=fact.tool_name,
            details={"summary": fact.summary, "duration_ms": fact.duration_ms},
            error_code=UNSET if success else _error_code(fact),
        )
        return [*messages, ended]

    def _end(
        self, fact: RunFinished | RunFailed | RunCancelled, envelope: Envelope
    ) -> list[out.Message]:
        """What ended the run, unless the client itself did; then the response's end."""
        messages: list[out.Message] = []
        match fact:
            case RunFailed():
                outcome = fact.outcome if fact.outcome is not UNSET else outcome_of_code(fact.code)
                kind = faults.class_of(outcome, retriable=fact.retriable)
                messages.append(out.Error(message=fact.message, fatal=False, error_type=kind))
            case RunCancelled() if fact.by != "client":
                said = f"Cancelled by {fact.by}: {fact.reason}"
                messages.append(out.Error(message=said, fatal=False, error_type="cancelled"))
            case _:
                pass
        response_id = self.response_id or ""
        messages.append(self._totals.end(response_id, envelope))
        self.response_id, self._totals = None, Totals()
        return messages


def _class(fact: Asked) -> RequestType:
    return "approval" if isinstance(fact, ApprovalRequested) else fact.request_class


def _called(call_id: str, tool: str, args: Any, *, requires_approval: bool) -> out.ToolCalled:
    return out.ToolCalled(
        call_id=call_id, tool=tool, args=args, requires_approval=requires_approval
    )


def _error_code(fact: Ended) -> str:
    match fact:
        case ToolFailed() if fact.error_kind is not UNSET:
            return fact.error_kind
        case ToolCancelled():
            return "cancelled"
        case ToolTimedOut():
            return "timed_out"
        case _:
            return "tool_error"


def _compaction(fact: ContextCompacted, envelope: Envelope) -> out.Compaction:
    return out.Compaction(
        summary=fact.summary,
        first_kept_entry_index=fact.messages_removed,
        tokens_before=fact.tokens_before,
        auto=True,
        timestamp=envelope.occurred_at,
    )
