"""What an MCP server asks of people while one of its tools runs, and what it is answered."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import msgspec
from msgspec import Struct

from batten.tools.contract import ToolContext

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult


class Elicited(Struct, frozen=True):
    """`text` is what was answered, or why nothing was."""

    granted: bool
    text: str


@runtime_checkable
class Eliciting(Protocol):
    """A running call through which somebody outside can be asked."""

    async def elicit(self, message: str, detail: dict[str, Any]) -> Elicited: ...


class Elicitations:
    """Puts a server's questions through the call that was started last."""

    def __init__(self) -> None:
        self._calls: list[ToolContext] = []

    async def during(self, context: ToolContext, calling: Callable[[], Awaitable[Any]]) -> Any:
        """Make a call whose server may ask."""
        self._calls.append(context)
        try:
            return await calling()
        finally:
            self._calls.remove(context)

    async def __call__(self, context: object, params: "ElicitRequestParams") -> "ElicitResult":
        from mcp_types import ElicitResult

        asked: object = self._calls[-1] if self._calls else None
        if not isinstance(asked, Eliciting):
            return ElicitResult(action="decline")
        detail = params.model_dump(by_alias=True, exclude_none=True, exclude={"meta"})
        answer = await asked.elicit(params.message, detail)
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
    """An answer as the values that were asked for: an object, or the one value there is."""
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
