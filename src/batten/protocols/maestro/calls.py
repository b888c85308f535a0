"""The tool calls of one run as messages: proposal, request, start, end.

A response covers a run and its child runs; `Shared` holds their common state.
"""

from typing import Any

from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.protocols.maestro import asking
from batten.protocols.maestro import outgoing as out
from batten.protocols.maestro.asking import Pending
from batten.protocols.maestro.totals import Totals, milliseconds
from batten.protocols.maestro.vocabulary import RequestType

Opened = facts.ApprovalRequested | facts.RequestOpened
Closed = facts.ApprovalResolved | facts.ApprovalTimedOut | facts.RequestClosed

_LENT: frozenset[RequestType] = frozenset({"client_tool", "user_input"})
"""Classes that are also sent as `client_tool_request`, the older message."""


class Shared:
    """State common to all runs behind one response."""

    def __init__(self) -> None:
        self.asks: frozenset[RequestType] = frozenset()
        """The classes of requests that the client announced."""
        self.pending: dict[str, Pending] = {}
        """Open requests by id, in the order of their creation."""
        self.totals = Totals()
        self.why = ""
        """Why requests end without an answer."""


class _Call(Struct):
    """A call, as far as it is shown."""

    tool: str
    args: dict[str, Any]
    is_shown: bool = False
    """Whether its `tool_call` was sent."""
    is_over: bool = False
    """Whether a `tool_end` was sent."""
    is_labelled: bool = False
    streamed: bool = False
    """Whether its output was streamed."""
    approval_id: str = ""


class Calls:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._calls: dict[str, _Call] = {}
        self._pictures: dict[str, str] = {}

    def child(self) -> "Calls":
        return Calls(self._shared)

    def feed(self, envelope: Envelope) -> list[out.Message]:
        """The messages of one fact. For a child run these are all there are."""
        fact: facts.Fact = envelope.data
        match fact:
            case facts.AssistantToolCallProposed():
                self._calls[fact.tool_call_id] = _Call(fact.tool_name, fact.input)
            case facts.ApprovalRequested() | facts.RequestOpened():
                return self._request(fact, milliseconds(envelope))
            case facts.ApprovalResolved() | facts.ApprovalTimedOut() | facts.RequestClosed():
                return self._close(fact, milliseconds(envelope))
            case facts.PolicyToolDecided() if fact.verdict != "ask":
                return self._tell(fact.tool_call_id, self._call(fact.tool_call_id, fact.tool_name))
            case facts.PolicyToolBlocked():
                return self._blocked(fact)
            case facts.ToolInvoked():
                return self._started(fact)
            case facts.ToolShellOutputChunk() if fact.data:
                self._call(fact.tool_call_id, "").streamed = True
                return [out.ToolOutput(call_id=fact.tool_call_id, content=fact.data)]
            case facts.ArtifactCreated(kind="image"):
                self._pictures[fact.artifact_id] = fact.mime_type or "image/*"
            case facts.ToolEnded():
                return self._ended(fact)
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                return self.cut_off()
            case _:
                pass
        return []

    def _request(self, fact: Opened, at_ms: int) -> list[out.Message]:
        call = self._calls.get(fact.tool_call_id) or _Call("unknown", {})
        name = "mcp_elicitation" if _class(fact) == "mcp_elicitation" else call.tool
        if isinstance(fact, facts.ApprovalRequested) and fact.input is not UNSET:
            call.args = fact.input
        put = asking.put(fact, tool=name, args=call.args, at_ms=at_ms)
        is_sent = put.request_type in self._shared.asks
        self._shared.pending[put.request_id] = Pending(
            request_id=put.request_id,
            request_type=put.request_type,
            call_id=put.call_id,
            is_sent=is_sent,
            started_at_ms=at_ms,
        )
        # The request to run a tool of the client has nothing to add to the label of its call.
        if put.request_type != "client_tool" or not call.is_labelled:
            self._shared.totals.label(put.summary_label or "")
            call.is_labelled = True
        messages: list[out.Message] = []
        if put.request_type == "approval":
            call.approval_id = put.request_id
            call.is_shown = True
            messages.append(_called(put.call_id, put.tool, call.args, requires_approval=True))
        elif put.request_type in _LENT:
            request = out.ClientToolRequest(call_id=put.call_id, tool=put.tool, args=put.args)
            messages.append(request)
        return [*messages, put] if is_sent else messages

    def _close(self, fact: Closed, at_ms: int) -> list[out.Message]:
        """End a request: once, and only for a client that received it."""
        request_id = fact.request_id if isinstance(fact, facts.RequestClosed) else fact.approval_id
        pending = self._shared.pending.pop(request_id, None)
        if pending is None or not pending.is_sent:
            return []
        why = f"{self._shared.why or 'Run ended'} before request completed"
        return [asking.resolved(pending, fact, at_ms=at_ms, cancelled=why)]

    def _call(self, call_id: str, tool: str) -> _Call:
        """The state of a call, with the tool's name from the latest fact."""
        call = self._calls.setdefault(call_id, _Call(tool, {}))
        call.tool = tool or call.tool
        return call

    def _tell(self, call_id: str, call: _Call) -> list[out.Message]:
        if not call.is_labelled:
            call.is_labelled = True
            self._shared.totals.label(asking.label_of(call.tool, call.args))
        if call.is_shown:
            return []
        call.is_shown = True
        return [_called(call_id, call.tool, call.args, requires_approval=False)]

    def _started(self, fact: facts.ToolInvoked) -> list[out.Message]:
        call = self._call(fact.tool_call_id, fact.tool_name)
        call.streamed = False
        messages = self._tell(fact.tool_call_id, call)
        return [*messages, out.ToolStart(call_id=fact.tool_call_id)]

    def _blocked(self, fact: facts.PolicyToolBlocked) -> list[out.Message]:
        """A call refused by a rule or an answer: it never starts."""
        call = self._call(fact.tool_call_id, fact.tool_name)
        call.is_over = True
        self._shared.totals.tool_ended(fact.tool_name, success=False)
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

    def _ended(self, fact: facts.ToolEnded) -> list[out.Message]:
        success = isinstance(fact, facts.ToolCompleted) and fact.error is UNSET
        self._shared.totals.tool_ended(fact.tool_name, success=success)
        call = self._call(fact.tool_call_id, fact.tool_name)
        call.is_over = True
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

    def cut_off(self) -> list[out.Message]:
        """The run is over: the ends of the calls that were shown and have none. Such a call waited
        for an approval, or was allowed and had not begun."""
        left = [(key, one) for key, one in self._calls.items() if one.is_shown and not one.is_over]
        for _, call in left:
            call.is_over = True
            self._shared.totals.tool_ended(call.tool, success=False)
        return [
            out.ToolEnd(
                call_id=call_id,
                success=False,
                tool=call.tool,
                details={"summary": "the run ended first"},
                error_code="cancelled",
                approval_request_id=call.approval_id or UNSET,
            )
            for call_id, call in left
        ]


def _class(fact: Opened) -> RequestType:
    return "approval" if isinstance(fact, facts.ApprovalRequested) else fact.request_class


def _called(call_id: str, tool: str, args: Any, *, requires_approval: bool) -> out.ToolCalled:
    return out.ToolCalled(
        call_id=call_id, tool=tool, args=args, requires_approval=requires_approval
    )


def _error_code(fact: facts.ToolEnded) -> str:
    match fact:
        case facts.ToolFailed() if fact.error_kind is not UNSET:
            return fact.error_kind
        case facts.ToolCancelled():
            return "cancelled"
        case facts.ToolTimedOut():
            return "timed_out"
        case _:
            return "tool_error"
