"""The tool server of a platform, as its launcher names it in the environment.

Only the environment of the process counts: settings of a workspace cannot name it.
"""

from collections.abc import Mapping
from typing import Any, cast
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

_SESSION = "Mcp-Session-Id"
_IDS = frozenset(name.lower() for name in (*_HEADERS, _SESSION))
"""Headers that hold ids: long and mixed like a secret, and none."""


def without_ids(entry: object) -> object:
    """An entry of a tool server without the headers that name whom it works for."""
    if not isinstance(entry, dict):
        return entry  # the reader of the entries refuses it
    server = cast("dict[str, Any]", entry)
    headers = server.get("headers")
    if not isinstance(headers, dict):
        return server
    given = cast("dict[str, Any]", headers)
    kept = {name: value for name, value in given.items() if name.lower() not in _IDS}
    return {**server, "headers": kept}


def platform_server(environ: Mapping[str, str], session_id: str = "") -> dict[str, dict[str, Any]]:
    """The server by its name, as an entry of an MCP configuration; empty if none is named.

    `session_id` is told to it if the launcher names no session.
    """
    url = first(environ, tuple(f"{one}_URL" for one in _PREFIXES)) or first(
        environ, tuple(f"{one}_MANIFEST_URL" for one in _PREFIXES)
    )
    is_on = first(environ, tuple(f"{one}_ENABLED" for one in _PREFIXES)).lower()
    if not url or is_on in ("0", "false", "no", "off"):
        return {}
    identity = identity_of(environ)
    caller = caller_of(identity)
    ids = {
        "session_id": session_id,
        "trace_id": "" if caller is None else caller.trace_id,
        **identity,
    }
    headers = {name: ids[key] for name, key in _HEADERS.items() if ids.get(key)}
    headers["X-EvalOps-Maestro-Surface"] = identity.get("surface", "maestro")
    scopes = (*(f"{one}_SCOPES" for one in _PREFIXES), "MAESTRO_CEREBRO_MCP_SCOPES")
    if granted := first(environ, scopes):
        headers["X-EvalOps-Scopes"] = granted
    if token := first(environ, _TOKENS):
        headers["Authorization"] = f"Bearer {token}"
    if identity.get("session_id"):
        headers[_SESSION] = identity["session_id"]
    name = first(environ, tuple(f"{one}_NAME" for one in _PREFIXES)) or "evalops"
    return {name: {"type": "http", "url": endpoint(url), "headers": headers}}


def endpoint(url: str) -> str:
    """The MCP endpoint of an app's base address, of the endpoint itself or of its manifest."""
    try:
        parts = urlsplit(url.strip())
        _ = parts.port
    except ValueError as error:
        message = f"{url!r} is not the address of an MCP server: {error}"
        raise CallerError(message, code="config") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise CallerError(
            f"{url!r} is not the address of an MCP server: it must be http or https, without a"
            " password",
            code="config",
        )
    return f"{parts.scheme}://{parts.netloc}/mcp"
