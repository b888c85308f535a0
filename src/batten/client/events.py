"""Events of a run: one type each, to `match` on.

A request is answered through its event, once: `await event.allow()`, `await event.answer("…")`.
Messages of unknown types are `Unknown` events.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import Struct

from batten.client.result import Result
from batten.contract.errors import CallerError
from batten.protocols.maestro.incoming import (
    Content,
    ImageContent,
    ServerRequestResponse,
    TextContent,
    ToolResult,
)
from batten.protocols.maestro.vocabulary import (
    ErrorType,
    RequestType,
    Resolution,
    ResolvedBy,
    RetryAction,
)

Reply = Callable[[ServerRequestResponse], Awaitable[None]]
"""Sends an answer to the worker. Raises `Conflict` if the request is closed."""


class Picture(Struct, frozen=True):
    data: bytes
    mime_type: str


Answer = str | Picture | Sequence[str | Picture]
"""The answer to a question or to a call of a client tool."""


class Event(Struct, frozen=True, kw_only=True):
    """Something that happened in a run."""


class RunStarted(Event, frozen=True, kw_only=True):
    run_id: str


class TextDelta(Event, frozen=True, kw_only=True):
    text: str


class TextRetracted(Event, frozen=True, kw_only=True):
    """The model's answer broke off and starts again: the text since the last tool call is void, and
    any part of it that still holds comes again."""


class ThinkingDelta(Event, frozen=True, kw_only=True):
    text: str


class ToolProposed(Event, frozen=True, kw_only=True):
    """The model proposed a call; it has not begun."""

    call_id: str
    tool: str
    arguments: Any


class ToolStarted(Event, frozen=True, kw_only=True):
    call_id: str
    tool: str


class ToolOutput(Event, frozen=True, kw_only=True):
    call_id: str
    text: str


class ToolEnded(Event, frozen=True, kw_only=True):
    call_id: str
    tool: str
    success: bool
    summary: str = ""
    error_code: str = ""
    """Why it failed: `permission_denied` if it was not allowed and never began."""


class RequestResolved(Event, frozen=True, kw_only=True):
    """A request is closed, by this client or by another resolver."""

    request_id: str
    request_type: RequestType
    resolution: Resolution
    resolved_by: ResolvedBy
    reason: str = ""


class Compacted(Event, frozen=True, kw_only=True):
    """The conversation was summarised to make room."""

    summary: str
    tokens_before: int


class Status(Event, frozen=True, kw_only=True):
    """A progress message for people."""

    message: str


class Problem(Event, frozen=True, kw_only=True):
    """Something went wrong. `Ended` tells how the run ends because of it."""

    message: str
    kind: ErrorType


class JournalEvent(Event, frozen=True, kw_only=True):
    """A stored event, as stored. Sent only with `journal_events=True`."""

    type: str
    body: dict[str, Any]


class Unknown(Event, frozen=True, kw_only=True):
    """A message of a type that this version does not know."""

    type: str
    body: dict[str, Any]


class Ended(Event, frozen=True, kw_only=True):
    """The last event of each run."""

    result: Result


class Request(Event, frozen=True, kw_only=True):
    """A question that the run waits on. It has a deadline, and the first answer counts."""

    request_id: str
    call_id: str
    tool: str
    arguments: Any
    reason: str
    summary: str = ""
    reply: Reply

    async def _say(self, kind: RequestType, **answer: Any) -> None:
        response = ServerRequestResponse(request_id=self.request_id, request_type=kind, **answer)
        await self.reply(response)

    async def refuse(self, reason: str = "") -> None:
        """Refuse any class of request."""
        raise NotImplementedError


class ApprovalAsked(Request, frozen=True, kw_only=True):
    """Whether a tool call may begin."""

    async def allow(self) -> None:
        await self._say("approval", approved=True)

    async def deny(self, reason: str = "") -> None:
        """The model sees the reason; the run goes on."""
        no = ToolResult(success=False, output="", error=reason or None)
        await self._say("approval", approved=False, result=no)

    async def refuse(self, reason: str = "") -> None:
        await self.deny(reason)


class _ContentAsked(Request, frozen=True, kw_only=True):
    async def _content(self, kind: RequestType, answer: Answer, *, failed: bool = False) -> None:
        await self._say(kind, content=content_of(answer), is_error=failed)


class QuestionAsked(_ContentAsked, frozen=True, kw_only=True):
    """A question from the model to a person."""

    @property
    def question(self) -> str:
        return str(self.arguments.get("question", self.summary))

    @property
    def options(self) -> list[str]:
        """The answers that the model suggests."""
        return [str(option) for option in self.arguments.get("options", ())]

    async def answer(self, answer: Answer) -> None:
        await self._content("user_input", answer)

    async def refuse(self, reason: str = "") -> None:
        await self._content("user_input", reason or "Nobody answers", failed=True)


class ElicitationAsked(_ContentAsked, frozen=True, kw_only=True):
    """A question from a tool server; its arguments hold the question and the form of the answer."""

    async def answer(self, values: dict[str, Any] | str) -> None:
        """Answer with the values by name, or with the only value."""
        from msgspec.json import encode

        text = values if isinstance(values, str) else encode(values).decode()
        await self._content("mcp_elicitation", text)

    async def refuse(self, reason: str = "") -> None:
        await self._content("mcp_elicitation", reason or "Nobody answers", failed=True)


class ClientToolCalled(_ContentAsked, frozen=True, kw_only=True):
    """A call of a client tool that was lent without a function."""

    async def answer(self, answer: Answer) -> None:
        await self._content("client_tool", answer)

    async def fail(self, answer: Answer) -> None:
        """Report that the tool ran and failed; the model sees the answer."""
        await self._content("client_tool", answer, failed=True)

    async def refuse(self, reason: str = "") -> None:
        await self.fail(reason or "The client does not run this tool")


class RetryAsked(Request, frozen=True, kw_only=True):
    """Whether to try a failed call again."""

    async def decide(self, action: RetryAction, reason: str = "") -> None:
        """`retry` it, `skip` it and go on, or `abort` the run."""
        await self._say("tool_retry", decision_action=action, reason=reason or None)

    async def refuse(self, reason: str = "") -> None:
        await self.decide("skip", reason)


def content_of(answer: Answer) -> tuple[Content, ...]:
    """An answer as content blocks of the protocol."""
    blocks: Sequence[object] = [answer]
    if isinstance(answer, Sequence) and not isinstance(answer, str):
        blocks = answer
    return tuple(map(_block, blocks))


def _block(part: object) -> Content:
    match part:
        case str():
            return TextContent(part)
        case Picture(data=bytes()):
            return ImageContent(part.data, part.mime_type)
        case _:
            kind = type(part).__name__
            right = "text, a `Picture` with bytes, or a list of them"
            raise CallerError(f"an answer of type {kind}; it must be {right}")
