"""The fact that a call begins, the same for the journal and for the hooks before it."""

from typing import Any

from msgspec import UNSET

from batten.agent.hooks.matching import HookedCall
from batten.contract.facts import ToolInvoked
from batten.tools.contract import Tool


def invoked_fact(
    turn: int, call: HookedCall, proposed: dict[str, Any], attempt: int
) -> ToolInvoked:
    """Holds the arguments if they differ from the proposed ones; a first attempt has no number."""
    server, name = mcp_names(call.tool)
    return ToolInvoked(
        tool_call_id=call.call_id,
        tool_name=call.tool.spec.name,
        kind=call.tool.kind,
        turn_index=turn,
        attempt=attempt if attempt > 1 else UNSET,
        mcp_server=server,
        mcp_tool=name,
        input=UNSET if call.arguments == proposed else call.arguments,
    )


def mcp_names(tool: Tool) -> tuple[Any, Any]:
    """Server and tool name of an MCP tool; unset for every other kind."""
    if tool.kind != "mcp":
        return UNSET, UNSET
    _, server, name = tool.spec.name.split("__", 2)
    return server, name
