"""Client tools from plain functions. Each call has a thread of its own."""

from collections.abc import Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from batten.client import tools
from batten.client.events import Answer
from batten.client.sync.loop_thread import in_thread
from batten.client.tools import ClientTool
from batten.contract.errors import CallerError


def client_tool(
    description: str, schema: dict[str, Any] | None = None, *, name: str = ""
) -> Callable[[Callable[..., Answer]], ClientTool]:
    """Make a function a tool with the function's name.

    A call that is cancelled is given up: the function runs on, and its answer is dropped.
    """

    def decorate(function: Callable[..., Answer]) -> ClientTool:
        if iscoroutinefunction(function):
            raise CallerError(f"{function.__name__} is an async function; use batten.client")

        async def run(**arguments: Any) -> Answer:
            return await in_thread(partial(function, **arguments))

        named = name or getattr(function, "__name__", "")
        return tools.client_tool(description, schema, name=named)(run)

    return decorate
