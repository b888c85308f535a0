"""Questions of a run put to the client, each under the rules of its class.

The question is a fact before the client hears of it, and so is its answer. What the client said
it does not serve is decided by policy at once.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress

from msgspec import Struct

from batten.agent.rig import Answer, Question
from batten.contract.envelope import decode
from batten.contract.errors import CallerError, Conflict, NotFound
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalTimedOut,
    RequestClosed,
    RequestOpened,
)
from batten.journal.contract import Stored
from batten.journal.recorder import Recorder
from batten.protocols.maestro import asking
from batten.protocols.maestro.asking import Pending
from batten.protocols.maestro.incoming import (
    ClientToolResult,
    Content,
    ServerRequestResponse,
    ToolResponse,
)
from batten.protocols.maestro.totals import milliseconds
from batten.protocols.maestro.vocabulary import ApprovalMode, RequestType
from batten.serve.maestro.link import Link
from batten.serve.maestro.view import MaestroView
from batten.session.requests import JournalRequests, cancelled, resolve

RESOLVERS = ("client", "policy", "operator")
"""Who answers: the client, policy in its place, and whoever runs `batten answer`."""
_LONGEST_TEXT = 100_000
"""Characters of an answer that the journal keeps; whoever waits here is given all of it."""
_NOBODY: dict[RequestType, str] = {
    "client_tool": "The client does not run tools here",
    "mcp_elicitation": "Nobody is there to answer the server",
    "user_input": "User interaction not available in headless mode",
    "tool_retry": "Retry skipped by policy",
}

AnswerMessage = ServerRequestResponse | ToolResponse | ClientToolResult


class Patience(Struct, frozen=True, kw_only=True):
    """How long each class of requests waits, in seconds."""

    approval: float = 3600.0
    tool_retry: float = 3600.0
    client: float = 60.0

    def of(self, kind: RequestType) -> float:
        match kind:
            case "approval":
                return self.approval
            case "tool_retry":
                return self.tool_retry
            case _:
                return self.client


def patience_of(environ: Mapping[str, str]) -> Patience:
    """From `MAESTRO_HEADLESS_APPROVAL_TIMEOUT_MS`, `…_RETRY_…` and `…_CLIENT_…`."""
    given: dict[str, float] = {}
    for field, name in (("approval", "APPROVAL"), ("tool_retry", "RETRY"), ("client", "CLIENT")):
        variable = f"MAESTRO_HEADLESS_{name}_TIMEOUT_MS"
        text = environ.get(variable, "").strip()
        if text and not (text.isascii() and text.isdigit() and int(text)):
            raise CallerError(f"{variable} is {text!r}; it is milliseconds", code="config")
        if text:
            given[field] = int(text) / 1000
    return Patience(**given)


class MaestroRequests:
    """Asks the client, and takes its answers."""

    def __init__(
        self,
        link: Link,
        view: MaestroView,
        patience: Patience,
        group: asyncio.TaskGroup,
        mode: Callable[[], ApprovalMode],
        shown_run: Callable[[], str | None],
    ) -> None:
        self._link = link
        self._view = view
        self._group = group
        self._mode = mode
        self._shown_run = shown_run
        self._asking = {
            kind: JournalRequests(RESOLVERS, patience.of(kind), self._opened)
            for kind in ("approval", *_NOBODY)
        }
        self._open: dict[str, tuple[Recorder, Question]] = {}
        self._content: dict[str, tuple[Content, ...]] = {}
        self._gone = ""
        """Why nobody can answer any more."""

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        decided = self._policy(question)
        if decided is not None:
            return decided
        try:
            if recorder.run_id == self._shown_run():
                return await self._asking[question.request_class].ask(recorder, question)
            return await self._ask_beside(recorder, question)
        finally:
            for request_id, (_, open_question) in tuple(self._open.items()):
                if open_question is question:
                    del self._open[request_id]

    def taken(self, call_id: str) -> tuple[Content, ...]:
        """The content that a call was answered with, once."""
        return self._content.pop(call_id, ())

    async def answer(self, message: AnswerMessage) -> None:
        """Store an answer; `NotFound` if nothing waits for it."""
        pending = self._find(message)
        recorder = self._open[pending.request_id][0]
        said = asking.meaning(message)
        if said.content:
            self._content[pending.call_id] = said.content
        try:
            await resolve(
                recorder.journal,
                recorder.redactor,
                pending.request_id,
                granted=said.granted,
                by="client",
                text=said.text[:_LONGEST_TEXT],
                halt=said.halt,
            )
        except Conflict as error:
            raise NotFound(_not_pending(message)) from error

    async def hang_up(self, reason: str) -> None:
        """The client answers no more: what waits for it ends, and policy decides from now on."""
        self._gone = reason
        for request_id in tuple(self._open):
            await self._cancel(request_id)

    def _policy(self, question: Question) -> Answer | None:
        kind = question.request_class
        if kind == "approval" and self._mode() == "fail":
            return Answer(False, "policy", "Denied by approval policy")
        if self._gone:
            return Answer(False, "policy", _NOBODY.get(kind, self._gone))
        if kind != "approval" and kind not in self._link.connection.serves:
            return Answer(False, "policy", _NOBODY[kind])
        return None

    def _opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        self._open[request_id] = (recorder, question)
        if self._gone:
            self._group.create_task(self._cancel(request_id))

    async def _cancel(self, request_id: str) -> None:
        recorder, question = self._open[request_id]
        fact = cancelled(request_id, question.request_class, by="runtime", reason=self._gone)
        with suppress(Conflict):  # somebody was first
            await recorder.journal.append(recorder.run_id, [fact], fence=None)

    def _find(self, message: AnswerMessage) -> Pending:
        for pending in self._view.frames.pending.values():
            if pending.request_id in self._open and _is_for(message, pending):
                return pending
        raise NotFound(_not_pending(message))

    async def _ask_beside(self, recorder: Recorder, question: Question) -> Answer:
        """A child's question: its run is not shown, so the question is, by itself."""
        row = recorder.journal.run(recorder.run_id)
        shown = _Beside(
            self._view, recorder, question, -1 if row is None else row.next_sequence - 1
        )
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(shown.follow())
                try:
                    return await self._asking[question.request_class].ask(recorder, question)
                finally:
                    following.cancel()
                    shown.catch_up()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed


class _Beside:
    """Shows one question of a run, and nothing else of it."""

    def __init__(
        self, view: MaestroView, recorder: Recorder, question: Question, after: int
    ) -> None:
        self._view = view
        self._recorder = recorder
        self._question = question
        self._after = after

    async def follow(self) -> None:
        pages = self._recorder.journal.follow(self._recorder.run_id, after=self._after)
        async with aclosing(pages):
            async for page in pages:
                self._show(page)

    def catch_up(self) -> None:
        while page := self._recorder.journal.read(self._recorder.run_id, after=self._after):
            self._show(page)

    def _show(self, page: list[Stored]) -> None:
        for stored in page:
            if stored.sequence > self._after:
                self._after = stored.sequence
                self._show_one(stored)

    def _show_one(self, stored: Stored) -> None:
        envelope = decode(stored.body)
        at_ms = milliseconds(envelope)
        frames = self._view.frames
        match envelope.data:
            case ApprovalRequested() | RequestOpened() as fact:
                detail = self._question.detail
                args = detail["arguments"] if isinstance(fact, ApprovalRequested) else detail
                args = self._recorder.redactor.value(args)[0]
                self._view.send_all(frames.request(fact, at_ms, self._question.tool_name, args))
            case ApprovalResolved() | ApprovalTimedOut() | RequestClosed() as fact:
                self._view.send_all(frames.close(fact, at_ms))
            case _:
                pass


def _is_for(message: AnswerMessage, pending: Pending) -> bool:
    match message:
        case ServerRequestResponse():
            same = message.request_type == pending.request_type
            return same and message.request_id == pending.request_id
        case ToolResponse():
            return pending.request_type == "approval" and message.call_id == pending.call_id
        case ClientToolResult():
            lent = pending.request_type not in ("approval", "tool_retry")
            return lent and message.call_id == pending.call_id


def _not_pending(message: AnswerMessage) -> str:
    match message:
        case ServerRequestResponse():
            return asking.not_pending(message.request_type, "request_id", message.request_id)
        case ToolResponse():
            return asking.not_pending("approval", "call_id", message.call_id)
        case ClientToolResult():
            return asking.not_pending("client_tool", "call_id", message.call_id)
