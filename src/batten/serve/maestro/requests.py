"""Sends the requests of a run to a Maestro client.

Policy answers the request classes that the client does not serve, at once.
"""

import asyncio
from collections.abc import Callable, Iterable

from batten.agent.deps import Answer, Question
from batten.contract.errors import NotFound
from batten.protocols.maestro import asking
from batten.protocols.maestro.asking import Pending
from batten.protocols.maestro.incoming import (
    ClientToolResult,
    Content,
    ServerRequestResponse,
    ToolResponse,
)
from batten.protocols.maestro.vocabulary import ApprovalMode, RequestType
from batten.serve.asking import Reply, RequestsByMessage
from batten.serve.maestro.client_sink import ClientSink
from batten.serve.maestro.limits import Limits
from batten.serve.maestro.renderer import MaestroRenderer

RESOLVERS = ("client", "policy", "operator")
"""The client, policy in its place, or an operator with `batten answer`."""
_LONGEST_TEXT = 100_000
"""Characters of an answer in the journal; the model receives a client tool's whole result."""
_NOBODY: dict[RequestType, str] = {
    "client_tool": "The client does not run tools here",
    "mcp_elicitation": "Nobody is there to answer the server",
    "user_input": "User interaction not available in headless mode",
    "tool_retry": "Retry skipped by policy",
}

AnswerMessage = ServerRequestResponse | ToolResponse | ClientToolResult


class MaestroRequests(RequestsByMessage):
    """Asks the client and stores its answers."""

    def __init__(
        self,
        sink: ClientSink,
        renderer: MaestroRenderer,
        limits: Limits,
        group: asyncio.TaskGroup,
        mode: Callable[[], ApprovalMode],
    ) -> None:
        super().__init__(group, RESOLVERS, limits.patience_s, closed_by="runtime")
        self._sink = sink
        self._renderer = renderer
        self._mode = mode
        self._content: dict[str, tuple[Content, ...]] = {}

    def pending(self) -> Iterable[str]:
        """Includes the requests of an earlier process."""
        return self._renderer.frames.pending

    def taken(self, call_id: str, answer: Answer) -> tuple[Content, ...]:
        """Pop the content of the client's answer to a call; empty if another surface answered."""
        content = self._content.pop(call_id, ())
        return content if answer.by == "client" else ()

    def find(self, message: AnswerMessage) -> Pending | None:
        """The pending request that this message answers."""
        waiting = self._renderer.frames.pending.values()
        return next((one for one in waiting if _is_for(message, one)), None)

    async def answer(self, message: AnswerMessage) -> None:
        """Store an answer; raises `NotFound` if no request is pending for it."""
        pending = self.find(message)
        if pending is None:
            raise NotFound(_not_pending(message))
        said = asking.meaning(message)
        first = pending.request_type == "client_tool" and pending.call_id not in self._content
        if first:  # before the answer is stored: the tool call may resume before this task does
            self._content[pending.call_id] = said.content
        try:
            await self.store(
                pending.request_id,
                Reply(said.granted, said.text[:_LONGEST_TEXT], halt=said.halt),
                _not_pending(message),
            )
        except NotFound:
            if first:
                self._content.pop(pending.call_id, None)
            raise

    def policy(self, question: Question) -> Answer | None:
        kind = question.request_class
        if kind == "approval" and self._mode() == "fail":
            return Answer(False, "policy", "Denied by approval policy")
        if self._gone:
            return Answer(False, "policy", _NOBODY.get(kind, self._gone))
        if kind != "approval" and kind not in self._sink.serves:
            return Answer(False, "policy", _NOBODY[kind])
        return None


def _is_for(message: AnswerMessage, pending: Pending) -> bool:
    match message:
        case ServerRequestResponse():
            same = message.request_type == pending.request_type
            return same and message.request_id in _names(pending)
        case ToolResponse():
            return pending.request_type == "approval" and message.call_id == pending.call_id
        case ClientToolResult():
            lent = pending.request_type not in ("approval", "tool_retry")
            return lent and message.call_id == pending.call_id


def _names(pending: Pending) -> tuple[str, ...]:
    """What a client may call a request; one that was sent in the older form has only its call's
    id."""
    return (pending.request_id,) if pending.is_sent else (pending.request_id, pending.call_id)


def _not_pending(message: AnswerMessage) -> str:
    match message:
        case ServerRequestResponse():
            return asking.not_pending(message.request_type, "request_id", message.request_id)
        case ToolResponse():
            return asking.not_pending("approval", "call_id", message.call_id)
        case ClientToolResult():
            return asking.not_pending("client_tool", "call_id", message.call_id)
