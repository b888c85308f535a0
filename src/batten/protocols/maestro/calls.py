"""The tool calls of one run as messages: proposal, request, start, end.

A response covers a run and its child runs; `Shared` holds their common state.
"""

from collections import defaultdict
from typing import Any

from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.calls import Call, CallChanged, CallEnd, CallEnded, CallFold, CallStarted
from batten.contract.envelope import Envelope
from batten.protocols.maestro import asking
from batten.protocols.maestro import outgoing as out
from batten.protocols.maestro.asking import Pending
from batten.protocols.maestro.totals import Totals, milliseconds
from batten.protocols.maestro.vocabulary import RequestType

Opened = facts.ApprovalRequested | facts.RequestOpened
Closed = facts.ApprovalResolved | facts.ApprovalTimedOut | facts.RequestClosed

_MOST_ENDED = 256
"""Ended calls that are known when a question about them or a retry comes."""
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


class _CallState(Struct):
    """What was sent of a call."""

    called: bool = False
    """Its `tool_call`."""
    label: bool = False
    output: bool = False
    """Output of its present attempt."""


class Calls:
    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._fold = CallFold(_MOST_ENDED)
        self._shown: defaultdict[str, _CallState] = defaultdict(_CallState)
        self._pictures: dict[str, str] = {}

    def child(self) -> "Calls":
        return Calls(self._shared)

    def feed(self, envelope: Envelope) -> list[out.Message]:
        """The messages of one fact. For a child run these are all there are."""
        fact: facts.Fact = envelope.data
        if isinstance(fact, facts.RunFinished | facts.RunFailed | facts.RunCancelled):
            return self.cut_off()
        match self._fold.take(fact, envelope.sequence):
            case CallStarted(call):
                self._shown[call.id].output = False
                return [*self._tell(call), out.ToolStart(call_id=call.id)]
            case CallEnded(call, end) if end.status == "denied":
                return self._denied(call, end)
            case CallEnded(call, end):
                return self._ended(call, end, envelope.data)
            case CallChanged(call) if isinstance(fact, facts.PolicyToolDecided):
                return [] if call.verdict == "ask" else self._tell(call)
            case _:
                return self._other(fact, milliseconds(envelope))

    def _other(self, fact: facts.Fact, at_ms: int) -> list[out.Message]:
        match fact:
            case facts.AssistantToolCallProposed():
                self._shown.pop(fact.tool_call_id, None)
            case facts.ApprovalRequested() | facts.RequestOpened():
                return self._request(fact, at_ms)
            case facts.ApprovalResolved() | facts.ApprovalTimedOut() | facts.RequestClosed():
                return self._close(fact, at_ms)
            case facts.ToolShellOutputChunk() if fact.data:
                self._shown[fact.tool_call_id].output = True
                return [out.ToolOutput(call_id=fact.tool_call_id, content=fact.data)]
            case facts.ArtifactCreated(kind="image"):
                self._pictures[fact.artifact_id] = fact.mime_type or "image/*"
            case _:
                pass
        return []

    def _request(self, fact: Opened, at_ms: int) -> list[out.Message]:
        call, shown = self._fold.get(fact.tool_call_id), self._shown[fact.tool_call_id]
        name = "unknown" if call is None else call.tool
        name = "mcp_elicitation" if _class(fact) == "mcp_elicitation" else name
        args = {} if call is None else call.input or {}
        put = asking.put(fact, tool=name, args=args, at_ms=at_ms)
        is_sent = put.request_type in self._shared.asks
        self._shared.pending[put.request_id] = Pending(
            request_id=put.request_id,
            request_type=put.request_type,
            call_id=put.call_id,
            is_sent=is_sent,
            started_at_ms=at_ms,
        )
        # The request to run a tool of the client has nothing to add to the label of its call.
        if put.request_type != "client_tool" or not shown.label:
            self._shared.totals.label(put.summary_label or "")
            shown.label = True
        messages: list[out.Message] = []
        if put.request_type == "approval":
            shown.called = True
            messages.append(_called(put.call_id, put.tool, args, requires_approval=True))
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

    def _tell(self, call: Call) -> list[out.Message]:
        shown, args = self._shown[call.id], call.input or {}
        if not shown.label:
            shown.label = True
            self._shared.totals.label(asking.label_of(call.tool, args))
        if shown.called:
            return []
        shown.called = True
        return [_called(call.id, call.tool, args, requires_approval=False)]

    def _denied(self, call: Call, end: CallEnd) -> list[out.Message]:
        """A call refused by a rule or an answer: it never starts."""
        self._shared.totals.tool_ended(call.tool, success=False)
        ended = out.ToolEnd(
            call_id=call.id,
            success=False,
            tool=call.tool,
            details={"summary": end.summary},
            error_code="permission_denied",
            approval_request_id=call.approval_id or UNSET,
            governed_outcome="denied",
        )
        return [*self._tell(call), ended]

    def _ended(self, call: Call, end: CallEnd, fact: facts.ToolEnded) -> list[out.Message]:
        self._shared.totals.tool_ended(call.tool, success=not end.is_error)
        messages: list[out.Message] = []
        is_told = self._shown[call.id].output or fact.output is UNSET
        shown = [] if is_told else [end.text]
        if fact.image_artifact_ids is not UNSET:
            kinds = (self._pictures.get(one, "image/*") for one in fact.image_artifact_ids)
            shown += [f"[image:{kind}]" for kind in kinds]
        if content := "\n".join(filter(None, shown)):
            messages.append(out.ToolOutput(call_id=call.id, content=content))
        code = end.code or ("tool_error" if end.status == "failed" else end.status)
        ended = out.ToolEnd(
            call_id=call.id,
            success=not end.is_error,
            tool=call.tool,
            details={"summary": end.summary, "duration_ms": end.duration_ms},
            error_code=code if end.is_error else UNSET,
        )
        return [*messages, ended]

    def cut_off(self) -> list[out.Message]:
        """The run is over: the ends of the calls that were shown and have none. Such a call waited
        for an approval, or was allowed and had not begun."""
        open_ = self._fold.open.values()
        left = [call for call in open_ if self._shown[call.id].called and not call.ends]
        self._fold = CallFold(_MOST_ENDED)
        for call in left:
            self._shared.totals.tool_ended(call.tool, success=False)
        return [
            out.ToolEnd(
                call_id=call.id,
                success=False,
                tool=call.tool,
                details={"summary": "the run ended first"},
                error_code="cancelled",
                approval_request_id=call.approval_id or UNSET,
            )
            for call in left
        ]


def _class(fact: Opened) -> RequestType:
    return "approval" if isinstance(fact, facts.ApprovalRequested) else fact.request_class


def _called(call_id: str, tool: str, args: Any, *, requires_approval: bool) -> out.ToolCalled:
    return out.ToolCalled(
        call_id=call_id, tool=tool, args=args, requires_approval=requires_approval
    )
