"""Questions of a run put to the client: `can_use_tool`, and what its answer means.

The question is a fact before the client hears of it, and its answer is one too. Another
surface may answer first; the client is then no longer asked.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from batten.agent.deps import Answer, Question
from batten.contract.errors import BattenError, CallerError, Conflict
from batten.journal.recorder import Recorder
from batten.protocols.claude.control import Permission, as_object, permission
from batten.protocols.claude.names import claude_name
from batten.redact.seal import SealKey
from batten.serve.claude.control_channel import ClientGone, ControlChannel
from batten.session.requests import JournalRequests, resolve

RESOLVERS = ("client", "policy")
"""Who answers: the client, and policy in its place when it is gone."""

Update = Callable[[tuple[dict[str, Any], ...]], Awaitable[None]]
"""Carries out changes to the permissions of the session."""


class ClientRequests:
    """Asks the client; where it is not to be asked, policy answers with no."""

    def __init__(
        self,
        channel: ControlChannel,
        group: asyncio.TaskGroup,
        *,
        patience_s: float,
        seal_key: Callable[[], SealKey],
        asks: Callable[[], bool],
        update: Update,
    ) -> None:
        self._channel = channel
        self._group = group
        self._seal_key = seal_key
        self._asks = asks
        self._update = update
        self._asking: dict[str, asyncio.Task[None]] = {}
        self._questions = JournalRequests(RESOLVERS, patience_s, self._opened)

    async def ask(self, recorder: Recorder, question: Question) -> Answer:
        if not self._asks():
            return Answer(False, "policy", f"{question.reason}, and nobody is asked for it")
        try:
            return await self._questions.ask(recorder, question)
        finally:
            asking = self._asking.pop(question.tool_call_id, None)
            if asking is not None:
                asking.cancel()

    def _opened(self, recorder: Recorder, question: Question, request_id: str) -> None:
        asking = self._put(recorder, question, request_id)
        self._asking[question.tool_call_id] = self._group.create_task(asking)

    async def _put(self, recorder: Recorder, question: Question, request_id: str) -> None:
        """Ask the client, and store what it says as the answer."""
        by = "client"
        try:
            said = await self._said(question)
            await self._update(said.updates)
        except ClientGone as error:
            by, said = "policy", _no(error)
        except Exception as error:  # the edge of foreign values: what goes wrong here is a no
            said = _no(error)
        try:
            await self._store(recorder, request_id, by, said)
        except Conflict:
            return  # somebody else was first
        except Exception as error:
            # If not even the no can be stored, the question stays open until its time is over.
            with suppress(BattenError):
                await self._store(recorder, request_id, by, _no(error))

    async def _store(self, recorder: Recorder, request_id: str, by: str, said: Permission) -> None:
        await resolve(
            recorder.journal,
            recorder.redactor,
            request_id,
            granted=said.granted,
            by=by,
            text=said.message,
            updated_input=said.updated_input,
            halt=said.interrupt,
            seal_key=self._seal_key,
        )

    async def _said(self, question: Question) -> Permission:
        if question.request_class == "approval":
            arguments: dict[str, Any] = question.detail["arguments"]
            answered = await self._can_use(question, arguments)
            return permission(answered, arguments)
        asked = _user_question(question.detail)
        said = permission(await self._can_use(question, asked), asked)
        return _answer_of(said, question.summary) if said.granted else said

    async def _can_use(self, question: Question, arguments: dict[str, Any]) -> Any:
        name = claude_name(question.tool_name)
        return await self._channel.ask(
            "can_use_tool",
            tool_name=name,
            input=arguments,
            tool_use_id=question.tool_call_id,
            permission_suggestions=[_suggestion(name)],
            blocked_path=None,
            decision_reason=question.reason,
            title=f"{name}: {question.summary}"[:500],
            display_name=name,
        )


def _no(error: Exception) -> Permission:
    reason = str(error) if isinstance(error, BattenError) else f"{type(error).__name__}: {error}"
    return Permission(False, reason)


def _suggestion(tool: str) -> dict[str, Any]:
    """What would keep this from being asked again."""
    return {
        "type": "addRules",
        "rules": [{"toolName": tool}],
        "behavior": "allow",
        "destination": "session",
    }


def _user_question(detail: dict[str, Any]) -> dict[str, Any]:
    """A question of the agent's in the form of their tool for it."""
    options: list[str] = detail.get("options") or []
    asked = {
        "question": detail["question"],
        "header": "",
        "options": [{"label": option, "description": ""} for option in options],
        "multiSelect": False,
    }
    return {"questions": [asked]}


def _answer_of(said: Permission, question: str) -> Permission:
    answers = as_object((said.updated_input or {}).get("answers")) or {}
    if not answers:
        raise CallerError("the client gave no answer")
    answer = answers.get(question, next(iter(answers.values())))
    return Permission(True, str(answer))
