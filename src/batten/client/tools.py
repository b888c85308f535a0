"""Client tools: functions of the embedder's that the model may call."""

from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction, isfunction
from typing import Any, cast

from msgspec import Struct, field

from batten.client.events import Answer
from batten.contract.errors import CallerError
from batten.protocols.maestro import incoming

Function = Callable[..., Awaitable[Answer]]


class ClientTool(Struct, frozen=True, kw_only=True):
    """A tool with its name and schema, called with the model's arguments by name.

    The model sees what it returns, or the error it raises. Without `run`, each call is a
    `ClientToolCalled` event to answer.
    """

    name: str
    description: str
    schema: dict[str, Any] = field(default_factory=dict[str, Any])
    """JSON Schema of an object; `type` may be left out."""
    run: Function | None = None

    def lent(self) -> incoming.ClientTool:
        """The declaration sent to the worker."""
        return incoming.ClientTool(
            name=self.name, description=self.description, input_schema=self.schema
        )


def client_tool(
    description: str, schema: dict[str, Any] | None = None, *, name: str = ""
) -> Callable[[Function], ClientTool]:
    """Make an async function a tool with the function's name."""

    if not isinstance(cast("object", description), str):
        raise CallerError(f'description is {description!r}; write @client_tool("What it does.")')

    def decorate(function: Function) -> ClientTool:
        if isfunction(function) and not iscoroutinefunction(function):
            raise CallerError(f"{function.__name__} is no async function, which a tool is")
        named = name or getattr(function, "__name__", "")
        return ClientTool(name=named, description=description, schema=schema or {}, run=function)

    return decorate
