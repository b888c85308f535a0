"""Elicitation: questions from an MCP server while one of its tools runs, and their answers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import msgspec
from msgspec import Struct

from batten.tools.contract import ToolContext

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult


class Elicited(Struct, frozen=True):
    """`text` is the answer, or the reason there is none."""

    granted: bool
    text: str


@runtime_checkable
class Eliciting(Protocol):
    """A call context that can put questions to a person or client."""

    async def elicit(self, message: str, detail: dict[str, Any]) -> Elicited: ...


class _Call:
    """A running call and its open questions."""

    def __init__(self, context: ToolContext, group: asyncio.TaskGroup) -> None:
        self.context: object = context
        self._group = group
        self._questions: set[asyncio.Task[Elicited]] = set()

    async def ask(self, message: str, detail: dict[str, Any]) -> Elicited | None:
        """The answer; None if the call ended first."""
        assert isinstance(self.context, Eliciting)
        question = self._group.create_task(self.context.elicit(message, detail))
        self._questions.add(question)
        try:
            await asyncio.wait([question])
        finally:
            question.cancel()
            self._questions.discard(question)
        return None if question.cancelled() else question.result()

    def end(self) -> None:
        """Cancel the open questions; the task group waits until that is recorded."""
        for question in self._questions:
            question.cancel()


class Elicitations:
    """Routes a server's questions to the call that started last."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []

    async def during(self, context: ToolContext, calling: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call during which the server may ask; open questions end with it."""
        try:
            async with asyncio.TaskGroup() as group:
                call = _Call(context, group)
                self._calls.append(call)
                try:
                    return await calling()
                finally:
                    self._calls.remove(call)
                    call.end()
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def __call__(self, context: object, params: "ElicitRequestParams") -> "ElicitResult":
        from mcp_types import ElicitResult

        call = self._calls[-1] if self._calls else None
        if call is None or not isinstance(call.context, Eliciting):
            return ElicitResult(action="decline")
        detail = params.model_dump(by_alias=True, exclude_none=True, exclude={"meta"})
        answer = await call.ask(params.message, detail)
        if answer is None:
            return ElicitResult(action="cancel")
        if not answer.granted:
            return ElicitResult(action="decline")
        if params.mode == "url":
            return ElicitResult(action="accept")
        schema = cast("dict[str, Any]", detail.get("requestedSchema", {}))
        content = values_of(answer.text, schema)
        if content is None:
            return ElicitResult(action="cancel")
        return ElicitResult(action="accept", content=content)


def values_of(text: str, schema: dict[str, Any]) -> dict[str, Any] | None:
    """The answer as values for the schema: a JSON object, or the value of its only property."""
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError):
        found = text
    if isinstance(found, dict):
        return cast("dict[str, Any]", found)
    names = list(schema.get("properties", {}))
    if len(names) != 1:
        return None
    kind = schema["properties"][names[0]].get("type")
    return {names[0]: text if kind == "string" else found}
