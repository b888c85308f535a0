"""The tool server of a platform, as its launcher names it in the environment.

Only the environment of the process counts: settings of a workspace cannot name it.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from batten.contract.errors import CallerError
from batten.contract.identity import first, identity_of
from batten.contract.tracing import caller_of

_PREFIXES = ("MAESTRO_PLATFORM_MCP", "MAESTRO_AGENT_MCP", "MAESTRO_EVALOPS_AGENT_MCP")
_TOKENS = (
    *("MAESTRO_PLATFORM_MCP_TOKEN", "MAESTRO_AGENT_MCP_TOKEN"),
    *("MAESTRO_EVALOPS_ACCESS_TOKEN", "EVALOPS_TOKEN"),
)
_HEADERS = {
    "X-EvalOps-Workspace-Id": "workspace_id",
    "X-EvalOps-Session-Id": "session_id",
    "X-EvalOps-Agent-Id": "agent_id",
    "X-EvalOps-Agent-Run-Id": "agent_run_id",
    "X-EvalOps-Request-Id": "request_id",
    "X-EvalOps-Trace-Id": "trace_id",
}


def platform_server(environ: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The server by its name, as an entry of an MCP configuration; empty if none is named."""
    url = first(environ, tuple(f"{one}_URL" for one in _PREFIXES)) or first(
        environ, tuple(f"{one}_MANIFEST_URL" for one in _PREFIXES)
    )
    is_on = first(environ, tuple(f"{one}_ENABLED" for one in _PREFIXES)).lower()
    if not url or is_on in ("0", "false", "no", "off"):
        return {}
    identity = identity_of(environ)
    if (caller := caller_of(identity)) is not None:
        identity.setdefault("trace_id", caller.trace_id)
    headers = {name: identity[key] for name, key in _HEADERS.items() if identity.get(key)}
    headers["X-EvalOps-Maestro-Surface"] = identity.get("surface", "maestro")
    scopes = (*(f"{one}_SCOPES" for one in _PREFIXES), "MAESTRO_CEREBRO_MCP_SCOPES")
    if granted := first(environ, scopes):
        headers["X-EvalOps-Scopes"] = granted
    if token := first(environ, _TOKENS):
        headers["Authorization"] = f"Bearer {token}"
    if identity.get("session_id"):
        headers["Mcp-Session-Id"] = identity["session_id"]
    name = first(environ, tuple(f"{one}_NAME" for one in _PREFIXES)) or "evalops"
    return {name: {"type": "http", "url": endpoint(url), "headers": headers}}


def endpoint(url: str) -> str:
    """The MCP endpoint of an app's base address, of the endpoint itself or of its manifest."""
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError as error:
        raise CallerError(f"{url!r} is not the address of an MCP server: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise CallerError(
            f"{url!r} is not the address of an MCP server: it must be http or https, without a"
            " password",
            code="config",
        )
    return f"{parts.scheme}://{parts.netloc}/mcp"
