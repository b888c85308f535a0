"""Sends the requests of a run to an editor: permission for a call, or a form for its user."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeVar

from batten.agent.deps import Answer, Question
from batten.agent.rules.grants import grant_of
from batten.contract.marks import exact, one_line, plain
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
from batten.protocols.acp.content import ToolContent, shown
from batten.protocols.acp.eliciting import ELICIT, ElicitResult, mode_of, params_of, text_of
from batten.protocols.acp.methods import ClientCapabilities
from batten.protocols.acp.shape import Shape
from batten.protocols.acp.tool_calls import kind_of, title_of
from batten.protocols.acp.updates import ToolCallFields
from batten.serve.acp.peer import AcpPeer
from batten.serve.acp.renderer import AcpRenderer
from batten.serve.asking import Reply, RequestsByCall

RESOLVERS = ("client", "operator", "policy")
"""The client, an operator with `batten answer`, or policy when the client is gone."""

_LONGEST_NAME = 120
_LONGEST_TEXT = 100_000
"""Characters of an answer that are kept."""
_NOBODY = "the client has no way to ask its user"

Result = TypeVar("Result", bound=Shape)

Remember = Callable[[Literal["allow", "deny"], str], Awaitable[None]]
"""Stores a verdict for all later calls that match a pattern."""

Preview = Callable[[str, dict[str, Any]], Awaitable[list[ToolContent] | None]]
"""The changes that a tool call would make."""


class ClientRequests(RequestsByCall):
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
        super().__init__(group, RESOLVERS, patience_s)
        self._peer = peer
        self._renderer = renderer
        self._session_id = session_id
        self._can = can
        self._remember = remember
        self._preview = preview

    def policy(self, question: Question) -> Answer | None:
        return None if self._can_ask(question) else Answer(False, "policy", _NOBODY)

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

    async def call(self, recorder: Recorder, question: Question, request_id: str) -> Reply:
        if question.request_class == "approval":
            return await self._permission(recorder, question, request_id)
        return await self._elicit(recorder, question, request_id)

    async def _permission(self, recorder: Recorder, question: Question, request_id: str) -> Reply:
        arguments: dict[str, Any] = question.detail["arguments"]
        call = await self._tool_call(recorder, question, request_id, arguments)
        pattern = grant_of(question.tool_name, arguments)
        params = PermissionParams(
            session_id=self._session_id(), tool_call=call, options=options_of(pattern)
        )
        result = await self._ask(PERMISSION, params, PermissionResult)
        return await self._reply(result.outcome, pattern)

    async def _elicit(self, recorder: Recorder, question: Question, request_id: str) -> Reply:
        """Ask the client's user to fill in a form or open a URL."""
        known = await self._known(recorder, question, request_id)
        detail: dict[str, Any] = recorder.redactor.value(question.detail)[0]
        params = params_of(
            self._session_id(),
            None if known is None else known.tool_call_id,
            plain(recorder.redactor.text(question.summary)),
            detail,
        )
        answer = text_of(await self._ask(ELICIT, params, ElicitResult), question.detail)
        if answer is None:
            return Reply(False, "the user gave no answer")
        return Reply(True, answer[:_LONGEST_TEXT])

    async def _ask(self, method: str, params: Shape, kind: type[Result]) -> Result:
        renderer = self._renderer
        return await self._peer.ask(
            method, params, kind, withdraws=lambda: not renderer.is_cancelled
        )

    async def _known(
        self, recorder: Recorder, question: Question, request_id: str
    ) -> ToolCallFields | None:
        """Wait until the client was shown the tool call of a question; its fields."""
        child = await _child_of_shown(recorder.journal, recorder.run_id)
        if child is None:
            return await self._renderer.asked_about(request_id, question.tool_call_id)
        return await self._renderer.starter_of(child)

    async def _tool_call(
        self, recorder: Recorder, question: Question, request_id: str, arguments: dict[str, Any]
    ) -> ToolCallFields:
        """The call under the client's id, with the arguments to decide on."""
        known = await self._known(recorder, question, request_id)
        fallback = f"{recorder.run_id}:{question.tool_call_id}"
        title = title_of(question.tool_name, arguments)
        content: list[ToolContent] | None = await self._preview(question.tool_name, arguments)
        if content is None and not title.endswith(question.summary):
            # The title is a short form; the question shows what would run.
            content = [shown(exact(question.summary))]
        return ToolCallFields(
            tool_call_id=fallback if known is None else known.tool_call_id,
            title=title,
            kind=kind_of(question.tool_name),
            status="pending",
            content=content,
            locations=None if known is None else known.locations,
            raw_input=arguments,
        )

    async def _reply(self, chosen: Chosen, pattern: str) -> Reply:
        if chosen.outcome == "cancelled":
            return Reply(False, "cancelled by the client", halt=True)
        match chosen.option_id:
            case "allow_once":
                return Reply(True)
            case "allow_always":
                await self._remember("allow", pattern)
                return Reply(True, f"from now on {pattern} is allowed")
            case "reject_always":
                await self._remember("deny", pattern)
                return Reply(False, f"rejected by the client, and from now on {pattern}")
            case _:
                return Reply(False, "rejected by the client")


def options_of(pattern: str) -> list[PermissionOption]:
    """The choices; the "always" ones name the pattern they cover."""
    about = one_line(pattern if len(pattern) <= _LONGEST_NAME else f"{pattern[:_LONGEST_NAME]}…")
    names: dict[OptionKind, str] = {
        "allow_once": "Allow",
        "allow_always": f"Always allow {about}",
        "reject_once": "Reject",
        "reject_always": f"Always reject {about}",
    }
    return [PermissionOption(option_id=kind, name=name, kind=kind) for kind, name in names.items()]


async def _child_of_shown(journal: Journal, run_id: str) -> str | None:
    """The child of the top-level run that contains this run; None for the top-level run itself."""
    row = await journal.run(run_id)
    child: str | None = None
    while row is not None and row.parent_run_id is not None:
        child = row.run_id
        row = await journal.run(row.parent_run_id)
    return child
