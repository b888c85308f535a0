"""Sends the requests of a run to an SDK as `can_use_tool`, and reads its responses."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from batten.agent.deps import Answer, Question
from batten.agent.rules.grants import grant_of
from batten.contract.cutting import cut
from batten.contract.errors import BattenError, CallerError
from batten.contract.marks import exact
from batten.journal.recorder import Recorder
from batten.protocols.claude.control import Permission, as_object, permission
from batten.protocols.claude.names import claude_name
from batten.serve.asking import Reply, RequestsByCall
from batten.serve.claude.control_channel import ControlChannel

RESOLVERS = ("client", "policy")
"""The client, or policy when the client is gone."""

Update = Callable[[tuple[dict[str, Any], ...]], Awaitable[None]]
"""Changes the permissions of the session."""

_LONGEST_TITLE = 500


class ClientRequests(RequestsByCall):
    """Asks the client; policy refuses in modes that do not ask."""

    def __init__(
        self,
        channel: ControlChannel,
        group: asyncio.TaskGroup,
        *,
        patience_s: float,
        asks: Callable[[], bool],
        update: Update,
    ) -> None:
        super().__init__(group, RESOLVERS, patience_s)
        self._channel = channel
        self._asks = asks
        self._update = update

    def policy(self, question: Question) -> Answer | None:
        if self._asks():
            return None
        return Answer(False, "policy", f"{question.reason}, and nobody is asked for it")

    async def call(self, recorder: Recorder, question: Question, request_id: str) -> Reply:
        if question.request_class == "approval":
            arguments: dict[str, Any] = question.detail["arguments"]
            suggested = [_suggestion(question.tool_name, arguments)]
            word = permission(await self._can_use(question, arguments, suggested), arguments)
        else:
            form = _user_question(question.detail)
            word = permission(await self._can_use(question, form, []), form)
            word = _answer_of(word, question.summary) if word.granted else word
        await self._update(word.updates)
        return Reply(
            word.granted, word.message, halt=word.interrupt, updated_input=word.updated_input
        )

    def refusal(self, error: Exception) -> Reply:
        named = isinstance(error, BattenError)
        return Reply(False, str(error) if named else f"{type(error).__name__}: {error}")

    async def _can_use(
        self, question: Question, arguments: dict[str, Any], suggested: list[dict[str, Any]]
    ) -> Any:
        name = claude_name(question.tool_name)
        return await self._channel.ask(
            "can_use_tool",
            tool_name=name,
            input=arguments,
            tool_use_id=question.tool_call_id,
            permission_suggestions=suggested,
            blocked_path=None,
            decision_reason=exact(question.reason),
            title=exact(cut(f"{name}: {question.summary}", _LONGEST_TITLE)),
            display_name=name,
        )


def _suggestion(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A rule for an "always" answer: it allows no more than the question is about."""
    name, _, content = grant_of(tool, arguments).partition("(")
    rule = {"toolName": claude_name(name)}
    if content:
        rule["ruleContent"] = content.removesuffix(")")
    return {
        "type": "addRules",
        "rules": [rule],
        "behavior": "allow",
        "destination": "session",
    }


def _user_question(detail: dict[str, Any]) -> dict[str, Any]:
    """A question of the agent as arguments of Claude Code's `AskUserQuestion`."""
    options: list[str] = detail.get("options") or []
    question = {
        "question": detail["question"],
        "header": "",
        "options": [{"label": option, "description": ""} for option in options],
        "multiSelect": False,
    }
    return {"questions": [question]}


def _answer_of(word: Permission, question: str) -> Permission:
    answers = as_object((word.updated_input or {}).get("answers")) or {}
    if not answers:
        raise CallerError("the client gave no answer")
    answer = answers.get(question, next(iter(answers.values())))
    return Permission(True, str(answer))
