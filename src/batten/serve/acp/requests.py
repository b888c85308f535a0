"""Questions of a run put to the client, for its word on a call or its user's, and what it means.

The question is a fact before the client hears of it, and its answer is one too. Another
surface may answer first; the client is then no longer asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from batten.agent.deps import Answer, Question
from batten.contract.errors import BattenError, Conflict
from batten.journal.contract import Journal
from batten.journal.recorder import Recorder
from batten.protocols.acp.asking import (
    PERMISSION,
    Chosen,
    OptionKind,
    PermissionOption,
    PermissionParams,
    PermissionResult,
)
from batten.protocols.acp.content import ToolContent
from batten.protocols.acp.eliciting import ELICIT, ElicitResult, mode_of, params_of, text_of
from batten.protocols.acp.methods import ClientCapabilities
from batten.protocols.acp.tool_calls import kind_of, title_of
from batten.protocols.acp.updates import ToolCallFields
from batten.serve.acp.grants import grant_of
from batten.serve.acp.peer import AcpPeer, ClientGone
from batten.serve.acp.renderer import AcpRenderer
from batten.session.requests import JournalRequests, resolve

RESOLVERS = ("client", "operator", "policy")
"""Who answers: the client, somebody at `batten answer`, and policy when the client is gone."""

_LONGEST_NAME = 120
_LONGEST_TEXT = 100_000
"""Characters of an answer that are kept."""
_NOBODY = "the client has no way to ask its user"

Remember = Callable[[Literal["allow", "deny"], str], Awaitable[None]]
"""Makes an answer hold for later calls: the verdict, and the pattern it is about."""

Preview = Callable[[str, dict[str, Any]], Awaitable[list[ToolContent] | None]]
"""What a call of this tool would change."""


class _Said(Struct, frozen=True):
    """An answer in our words."""

    granted: bool
    by: str = "client"
    text: str = ""
    halt: bool = False


class ClientRequests:
    """Asks the client about the calls of one session's runs."""

    def __init__(
        self,
        peer: AcpPeer,
        renderer: AcpRenderer,
        group: asyncio.TaskGroup,
        session_id: Callable[[], str],
        *,
        can: ClientCapabilities,
        patience_s: float,
        remember: Remember,
        preview: Preview,
    ) -> None:
        self._peer = peer
        self._renderer = renderer
        self._group = group
        self._session_id = session_id
        self._can = can
        self._remember = remember
        self._preview = preview
        self._asking: dict[int, asyncio.Task[None]] = {}
        """By the identity of the question, which lasts as long as it is asked."""
        self._questions = JournalRequests(RESOLVERS, patience_s, self._opened)

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        """Ask the client; what it has no way to ask its user, policy answers with no."""
        if not self._can_ask(question):
            return Answer(False, "policy", _NOBODY)
        try:
            return await self._questions.ask(recorder, question)
        finally:
            asking = self._asking.pop(id(question), None)
            if asking is not None:
                asking.cancel()

    def _can_ask(self, question: Question) -> bool:
        match question.request_class:
            case "approval":
                return True
            case "mcp_elicitation":
                return self._can.urls if mode_of(question.detail) == "url" else self._can.forms
            case "user_input":
                return self._can.forms
            case _:
                return False

    def _opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        task = self._group.create_task(self._put(recorder, question, request_id))
        self._asking[id(question)] = task

    async def _put(self, recorder: Recorder, question: Question, request_id: str) -> None:
        """Ask the client, and store what it says as the answer."""
        try:
            if question.request_class == "approval":
                said = await self._said(recorder, question, request_id)
            else:
                said = await self._filled_in(recorder, question, request_id)
        except ClientGone as error:
            said = _Said(False, "policy", str(error))
        except BattenError as error:
            said = _Said(False, "policy", f"the client could not be asked: {error}")
        try:
            await resolve(
                recorder.journal,
                recorder.redactor,
                request_id,
                granted=said.granted,
                by=said.by,
                text=said.text,
                halt=said.halt,
            )
        except Conflict:
            return  # somebody else was first

    async def _said(self, recorder: Recorder, question: Question, request_id: str) -> _Said:
        arguments: dict[str, Any] = question.detail["arguments"]
        call = await self._call(recorder, question, request_id, arguments)
        pattern = grant_of(question.tool_name, arguments)
        result = await self._peer.ask(
            PERMISSION,
            PermissionParams(
                session_id=self._session_id(), tool_call=call, options=options_of(pattern)
            ),
            PermissionResult,
            withdraws=lambda: not self._renderer.is_cancelled,
        )
        return await self._meant(result.outcome, pattern)

    async def _filled_in(self, recorder: Recorder, question: Question, request_id: str) -> _Said:
        """What the client's user says to a question in words."""
        known = await self._known(recorder, question, request_id)
        detail: dict[str, Any] = recorder.redactor.value(question.detail)[0]
        params = params_of(
            self._session_id(),
            None if known is None else known.tool_call_id,
            recorder.redactor.text(question.summary),
            detail,
        )
        result = await self._peer.ask(
            ELICIT, params, ElicitResult, withdraws=lambda: not self._renderer.is_cancelled
        )
        answer = text_of(result, question.detail)
        if answer is None:
            return _Said(False, text="the user gave no answer")
        return _Said(True, text=answer[:_LONGEST_TEXT])

    async def _known(
        self, recorder: Recorder, question: Question, request_id: str
    ) -> ToolCallFields | None:
        """The call that a question belongs to, once the client was told of it."""
        child = await _child_of_shown(recorder.journal, recorder.run_id)
        if child is None:
            return await self._renderer.asked_about(request_id, question.tool_call_id)
        return await self._renderer.starter_of(child)

    async def _call(
        self, recorder: Recorder, question: Question, request_id: str, arguments: dict[str, Any]
    ) -> ToolCallFields:
        """The call as the client knows it, with what it is to be decided on."""
        known = await self._known(recorder, question, request_id)
        fallback = f"{recorder.run_id}:{question.tool_call_id}"
        return ToolCallFields(
            tool_call_id=fallback if known is None else known.tool_call_id,
            title=title_of(question.tool_name, arguments),
            kind=kind_of(question.tool_name),
            status="pending",
            content=await self._preview(question.tool_name, arguments),
            locations=None if known is None else known.locations,
            raw_input=arguments,
        )

    async def _meant(self, chosen: Chosen, pattern: str) -> _Said:
        if chosen.outcome == "cancelled":
            return _Said(False, text="cancelled by the client", halt=True)
        match chosen.option_id:
            case "allow_once":
                return _Said(True)
            case "allow_always":
                await self._remember("allow", pattern)
                return _Said(True, text=f"from now on {pattern} is allowed")
            case "reject_always":
                await self._remember("deny", pattern)
                return _Said(False, text=f"rejected by the client, and from now on {pattern}")
            case _:
                return _Said(False, text="rejected by the client")


def options_of(pattern: str) -> list[PermissionOption]:
    """What there is to choose; what holds for later says what it is about."""
    about = pattern if len(pattern) <= _LONGEST_NAME else f"{pattern[:_LONGEST_NAME]}…"
    names: dict[OptionKind, str] = {
        "allow_once": "Allow",
        "allow_always": f"Always allow {about}",
        "reject_once": "Reject",
        "reject_always": f"Always reject {about}",
    }
    return [PermissionOption(option_id=kind, name=name, kind=kind) for kind, name in names.items()]


async def _child_of_shown(journal: Journal, run_id: str) -> str | None:
    """The child run, started by the run the client sees, that this one belongs to; None if it is
    the client's own."""
    row = await journal.run(run_id)
    child: str | None = None
    while row is not None and row.parent_run_id is not None:
        child = row.run_id
        row = await journal.run(row.parent_run_id)
    return child
