"""MCP servers in the client's process, reached through the control protocol."""

import asyncio
from typing import Any, Literal

from msgspec import Struct

from batten import __version__
from batten.contract.errors import BattenError, PeerError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.protocols.claude.control import as_list, as_object
from batten.serve.claude.control_channel import ControlChannel
from batten.tools.contract import Effect, Tool, ToolContext, ToolOutput
from batten.tools.mcp import CALL_SECONDS, missing, tool_name
from batten.tools.mcp_config import checked_name

CONNECT_SECONDS = 60.0
_MOST_TOOLS = 512
_MOST_PAGES = 64
"""Pages of a tool list; stops a server whose cursor never ends."""
_MCP_VERSION = "2025-06-18"

Status = Literal["connected", "failed", "pending", "disabled"]


class LentServer:
    """One MCP server in the client's process."""

    def __init__(self, channel: ControlChannel, name: str) -> None:
        self._channel = channel
        self.name = name
        self.status: Status = "pending"
        self.error = ""
        self.info: dict[str, Any] = {}
        self.tools: list[Tool] = []
        self._sent = 0

    async def connect(self) -> None:
        """Initialize the server and list its tools. Never raises: an error sets its status."""
        self.status, self.error, self.tools = "pending", "", []
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                greeting = {
                    "protocolVersion": _MCP_VERSION,
                    "capabilities": {},
                    "clientInfo": {"name": "batten", "version": __version__},
                }
                greeted = await self.send("initialize", greeting)
                self.info = as_object(greeted.get("serverInfo")) or {}
                await self._notify("notifications/initialized")
                self.tools = await self._list_tools()
        except TimeoutError:
            self._fail(f"no answer within {CONNECT_SECONDS:g} s")
        except BattenError as error:
            self._fail(str(error))
        except Exception as error:  # the response is unvalidated input
            self._fail(f"{type(error).__name__}: {error}")
        else:
            self.status = "connected"

    async def switch(self, enabled: bool) -> None:
        """Enable or disable its tools, from the next prompt on."""
        if not enabled:
            self.status = "disabled"
        elif self.status != "connected":
            await self.connect()

    async def send(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its result; raises `PeerError` for an error response."""
        self._sent += 1
        message = {"jsonrpc": "2.0", "id": self._sent, "method": method, "params": params}
        answered = await self._channel.ask("mcp_message", server_name=self.name, message=message)
        if answered.error is not None:
            raise PeerError(answered.error)
        response = as_object(answered.body.get("mcp_response")) or {}
        failed = as_object(response.get("error"))
        if failed is not None:
            raise PeerError(str(failed.get("message") or "it answered with an error"))
        return as_object(response.get("result")) or {}

    async def _notify(self, method: str) -> None:
        message = {"jsonrpc": "2.0", "method": method}
        await self._channel.ask("mcp_message", server_name=self.name, message=message)

    async def _list_tools(self) -> list[Tool]:
        tools: dict[str, Tool] = {}
        params: dict[str, Any] = {}
        for _ in range(_MOST_PAGES):
            page = await self.send("tools/list", params)
            listed = as_list(page.get("tools"))
            if listed is None:
                raise PeerError("its tools are no list")
            for one in listed:
                found = as_object(one)
                if found is not None and isinstance(found.get("name"), str):
                    tool = LentTool(self, found)
                    tools.setdefault(tool.spec.name, tool)
            cursor = page.get("nextCursor")
            if not cursor or len(tools) >= _MOST_TOOLS:
                break
            params = {"cursor": cursor}
        return list(tools.values())

    def _fail(self, reason: str) -> None:
        self.status, self.error, self.tools = "failed", reason, []


class LentTool:
    """A tool of such a server. Its effect is unknown here, so it counts as `execute`."""

    kind: ToolKind = "mcp"
    effect: Effect = "execute"

    def __init__(self, server: LentServer, listed: dict[str, Any]) -> None:
        self._server = server
        self.tool = str(listed["name"])
        self.description = str(listed.get("description") or "")
        schema = as_object(listed.get("inputSchema")) or {}
        self.spec = ToolSpec(
            tool_name(server.name, self.tool), self.description, {"type": "object", **schema}
        )

    def subject(self, arguments: dict[str, Any]) -> str:
        return ""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                params = {"name": self.tool, "arguments": arguments}
                result = await self._server.send("tools/call", params)
        except TimeoutError:
            return _failed(f"no answer within {CALL_SECONDS:g} s", "timeout", timed_out=True)
        except BattenError as error:
            return _failed(context.redact(str(error)), "mcp_error")
        return await _output(result, self._server.name, self.tool, context)


async def _output(
    result: dict[str, Any], server: str, tool: str, context: ToolContext
) -> ToolOutput:
    try:
        from mcp_types import CallToolResult
        from pydantic import ValidationError

        from batten.tools.mcp_result import told
    except ModuleNotFoundError as error:
        return _failed(missing(error), "mcp_unavailable")

    # The oldest SDKs send `is_error`.
    is_error = bool(result.get("isError") or result.get("is_error"))
    try:
        read = CallToolResult.model_validate({"content": [], **result, "isError": is_error})
    except ValidationError:
        return _failed("its answer is not the result of a tool", "mcp_protocol")
    return await told(read, server, tool, context)


def _failed(message: str, kind: str, *, timed_out: bool = False) -> ToolOutput:
    return ToolOutput(
        text=f"Error: {message}",
        ending="timed_out" if timed_out else "failed",
        error_kind=kind,
        mcp_result="failed",
    )


class LentServers:
    """All MCP servers in the client's process; disabled ones offer no tools."""

    def __init__(self, channel: ControlChannel, names: list[str]) -> None:
        self._servers = {name: LentServer(channel, name) for name in names}

    def __bool__(self) -> bool:
        return bool(self._servers)

    def find(self, name: str) -> LentServer | None:
        return self._servers.get(name)

    async def connect(self) -> None:
        async with asyncio.TaskGroup() as group:
            for server in self._servers.values():
                group.create_task(server.connect())

    def tools(self) -> list[Tool]:
        servers = self._servers.values()
        return [tool for one in servers if one.status == "connected" for tool in one.tools]

    def states(self) -> list[dict[str, Any]]:
        return [_state(server) for server in self._servers.values()]


def _state(server: LentServer) -> dict[str, Any]:
    state: dict[str, Any] = {
        "name": server.name,
        "status": server.status,
        "config": {"type": "sdk", "name": server.name},
    }
    if server.info:
        state["serverInfo"] = server.info
    if server.error:
        state["error"] = server.error
    shown = [tool for tool in server.tools if isinstance(tool, LentTool)]
    state["tools"] = [{"name": tool.tool, "description": tool.description} for tool in shown]
    return state


class Split(Struct, frozen=True):
    """MCP configurations: the names of the client's in-process servers, and those we connect to."""

    lent: list[str]
    ours: dict[str, Any]


def split(configs: list[dict[str, Any]]) -> Split:
    """Raises `CallerError` for a server name that cannot be part of a tool's name."""
    lent: list[str] = []
    ours: dict[str, Any] = {}
    for config in configs:
        servers = as_object(config.get("mcpServers")) or {}
        for name, entry in servers.items():
            if (as_object(entry) or {}).get("type") == "sdk":
                lent.append(checked_name(name))
            else:
                ours[name] = entry
    return Split(lent, ours)
