"""Translates a client's MCP servers to our configuration."""

from collections.abc import Iterable
from typing import Any

from batten.protocols.acp.methods import McpServer
from batten.protocols.acp.rpc import INVALID_PARAMS, RpcError


def config_of(servers: Iterable[McpServer]) -> dict[str, Any]:
    """`{name: entry}`; `RpcError` for a server that cannot be used."""
    config: dict[str, Any] = {}
    for server in servers:
        if server.name in config:
            raise RpcError(INVALID_PARAMS, f"two MCP servers are named {server.name!r}")
        config[server.name] = _entry(server)
    return config


def _entry(server: McpServer) -> dict[str, Any]:
    match server.type:
        case None | "stdio":
            if server.command is None:
                raise RpcError(INVALID_PARAMS, f"MCP server {server.name!r} has no command")
            env = {_literal(one.name): _literal(one.value) for one in server.env}
            args = [_literal(word) for word in server.args]
            return {"command": _literal(server.command), "args": args, "env": env}
        case "http" | "sse":
            if server.url is None:
                raise RpcError(INVALID_PARAMS, f"MCP server {server.name!r} has no url")
            headers = {one.name: _literal(one.value) for one in server.headers}
            return {"type": server.type, "url": _literal(server.url), "headers": headers}
        case other:
            raise RpcError(
                INVALID_PARAMS,
                f"MCP server {server.name!r}: {other!r} is not one of stdio, http, sse",
            )


def _literal(text: str) -> str:
    """Text with variable references escaped."""
    return text.replace("${", "${_:-$}{")
