"""Questions of a run put to the client: `session/request_permission`, and what its answer means.

The question is a fact before the client hears of it, and its answer is one too. Another
surface may answer first; the client is then no longer asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from msgspec import Struct

from batten.agent.rig import Answer, Question
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
from batten.protocols.acp.tool_calls import kind_of, title_of
from batten.protocols.acp.updates import ToolCallFields
from batten.serve.acp.grants import grant_of
from batten.serve.acp.link import ClientGone, Link
from batten.serve.acp.view import AcpView
from batten.session.requests import JournalRequests, resolve

RESOLVERS = ("client", "operator", "policy")
"""Who answers: the client, somebody at `batten answer`, and policy when the client is gone."""

_LONGEST_NAME = 120

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
        link: Link,
        view: AcpView,
        group: asyncio.TaskGroup,
        session_id: Callable[[], str],
        *,
        patience_s: float,
        remember: Remember,
        preview: Preview,
    ) -> None:
        self._link = link
        self._view = view
        self._group = group
        self._session_id = session_id
        self._remember = remember
        self._preview = preview
        self._asking: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._questions = JournalRequests(RESOLVERS, patience_s, self._opened)

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        """An approval is asked. The protocol has no form for other questions: policy says no."""
        if question.request_class != "approval":
            return Answer(False, "policy")
        try:
            return await self._questions.ask(recorder, question)
        finally:
            asking = self._asking.pop((recorder.run_id, question.tool_call_id), None)
            if asking is not None:
                asking.cancel()

    def _opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        task = self._group.create_task(self._put(recorder, question, request_id))
        self._asking[recorder.run_id, question.tool_call_id] = task

    async def _put(self, recorder: Recorder, question: Question, request_id: str) -> None:
        """Ask the client, and store what it says as the answer."""
        try:
            said = await self._said(recorder, question, request_id)
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
        result = await self._link.ask(
            PERMISSION,
            PermissionParams(
                session_id=self._session_id(), tool_call=call, options=options_of(pattern)
            ),
            PermissionResult,
            withdraws=lambda: not self._view.is_cancelled,
        )
        return await self._meant(result.outcome, pattern)

    async def _call(
        self, recorder: Recorder, question: Question, request_id: str, arguments: dict[str, Any]
    ) -> ToolCallFields:
        """The call as the client knows it, with what it is to be decided on."""
        child = _child_of_shown(recorder.journal, recorder.run_id)
        if child is None:
            known = await self._view.asked_about(request_id, question.tool_call_id)
        else:
            known = await self._view.starter_of(child)
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


def _child_of_shown(journal: Journal, run_id: str) -> str | None:
    """The child run, started by the run the client sees, that this one belongs to; None if it is
    the client's own."""
    row = journal.run(run_id)
    child: str | None = None
    while row is not None and row.parent_run_id is not None:
        child = row.run_id
        row = journal.run(row.parent_run_id)
    return child
