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
    return called_mcp(tool.spec.name) if tool.kind == "mcp" else (UNSET, UNSET)


def called_mcp(name: str) -> tuple[Any, Any]:
    """Server and tool that a name asks for, `mcp__server__tool`; unset for every other name."""
    parts = name.split("__", 2)
    if len(parts) < 3 or parts[0] != "mcp" or not all(parts):
        return UNSET, UNSET
    return parts[1], parts[2]
