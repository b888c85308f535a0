"""MCP servers and their tools, through the official SDK, which is imported on first use.

One task owns each server from connecting to closing. An unreachable server is an error only if it
is configured as required.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from batten.contract.errors import CallerError
from batten.contract.facts.error import SERVER_UNAVAILABLE, ErrorToolUnavailable
from batten.contract.facts.tool import ToolKind
from batten.contract.tracing import trace_context
from batten.models.contract import ToolSpec
from batten.tools.contract import Effect, Tool, ToolContext, ToolOutput
from batten.tools.elicitation import Elicitations
from batten.tools.mcp_config import ServerConfig, read_config
from batten.workspace.environment import outside_sandbox
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Policy

if TYPE_CHECKING:
    from anyio import CancelScope
    from mcp import Client
    from mcp_types import CallToolResult

    from batten.tools.addresses import Allowed
    from batten.tools.mcp_process import ServerProcess

_log = logging.getLogger("batten.mcp")
CALL_SECONDS = 300.0
_LOG_TAIL = 300
"""Characters of a failed server's output that are shown."""
MOST_TOOLS = 512
"""Of one server; models take fewer, and pages of tools may never end."""
_LIBRARY_LOGGERS = ("mcp", "client")
_SESSION = "mcp-session-id"
"""The header that names a session of the server."""


class McpServers:
    """The servers of a session. `close` ends all of them."""

    def __init__(
        self, servers: "list[_Server]", group: asyncio.TaskGroup, keepers: list[Keeper]
    ) -> None:
        self._servers = servers
        self._group = group
        self._keepers = keepers

    @classmethod
    async def connect(
        cls,
        config: Mapping[str, Any],
        environ: Mapping[str, str],
        *,
        cwd: str,
        redact: Callable[[str], str],
        elicits: bool = False,
        confined: Sequence[ServerConfig] = (),
        sandbox: Keeper | None = None,
    ) -> "McpServers":
        """Connect to all servers at once, each within its own deadline.

        `elicits`: announce to servers that their questions can be answered. `redact` is applied to
        what a failed server said: it may have printed a secret of its configuration.

        Servers of `config` are not sandboxed: configuring one means trusting it. `confined` ones
        are: their programs are started by `sandbox`, which is closed with this, and their URLs
        must be at public addresses or in `BATTEN_HTTP_ALLOW`.

        Raises `CallerError` if a required server is unavailable, after closing the others.
        """
        _silence_library()
        environ = outside_sandbox(environ, cwd)
        keeper = Keeper(cwd, Policy(mode="none", network=True), environ)
        configs = read_config(config, environ, cwd=cwd)
        servers = [_Server(one, keeper, redact, elicits=elicits) for one in configs]
        keepers = [keeper]
        if confined:
            from batten.tools.addresses import Allowed

            assert sandbox is not None
            allowed = Allowed(environ.get("BATTEN_HTTP_ALLOW", "").split(","))
            servers += [_Server(c, sandbox, redact, allowed, elicits=elicits) for c in confined]
            keepers.append(sandbox)
        group = asyncio.TaskGroup()
        await group.__aenter__()
        opened = cls(servers, group, keepers)
        try:
            for server in servers:
                group.create_task(server.live())
            for server in servers:
                await server.settled.wait()
            for server in servers:
                if server.config.required and server.error:
                    raise CallerError(
                        f"the required MCP server {server.config.name} is not available:"
                        f" {server.error}",
                        code="config",
                    )
        except BaseException:
            await opened.close()
            raise
        return opened

    def states(self) -> list[dict[str, Any]]:
        """One object per server: name, transport, status, tools, and the error of a failed one."""
        return [
            {
                "name": server.config.name,
                "transport": server.config.transport,
                "status": "failed" if server.error else "connected",
                "tools": len(server.tools),
                "error": server.error,
            }
            for server in self._servers
        ]

    def with_more_tools(self) -> list[str]:
        """Names of servers that have more than `MOST_TOOLS`; the rest of those are left out."""
        return [server.config.name for server in self._servers if server.has_more]

    def tools(self) -> list[Tool]:
        return [tool for server in self._servers for tool in server.tools]

    async def close(self) -> None:
        for server in self._servers:
            server.leave()
        try:
            await self._group.__aexit__(None, None, None)
        finally:
            await asyncio.gather(*(keeper.close() for keeper in self._keepers))


class _Server:
    """One server and the task that owns its connection."""

    def __init__(
        self,
        config: ServerConfig,
        keeper: Keeper,
        redact: Callable[[str], str],
        allowed: "Allowed | None" = None,
        *,
        elicits: bool,
    ) -> None:
        """`allowed`: the only addresses that it may be at; any if None."""
        self.config = config
        self._allowed = allowed
        self._redact = redact
        self.elicitations = Elicitations() if elicits else None
        self.settled = asyncio.Event()
        self.tools: list[Tool] = []
        self.has_more = False
        self.error = ""
        self._keeper = keeper
        self._leaving = asyncio.Event()
        self._started: list[ServerProcess] = []
        self._patience: CancelScope | None = None

    def leave(self) -> None:
        self._leaving.set()
        if self._patience is not None and not self.settled.is_set():
            self._patience.cancel()

    async def live(self) -> None:
        """Connect, list the tools, and keep the connection until `leave`."""
        if self._leaving.is_set():
            return self.settled.set()
        try:
            try:
                await self._serve()
            except Exception:
                if self.settled.is_set() or not self._leave_session():
                    raise
                await self._serve()
        # The edge of foreign code: no failure of a server may stop the others or the run.
        except Exception as error:
            # Not its message: that may quote a secret of the configuration.
            _log.debug("server=%s failed: %s", self.config.name, type(error).__name__)
            self._fail(_reason(error))
        finally:
            self.settled.set()

    async def _serve(self) -> None:
        import anyio

        with anyio.CancelScope() as patience:
            self._patience = patience
            patience.deadline = anyio.current_time() + self.config.timeout_s
            async with self._client() as client:
                self.tools = await self._list_tools(client)
                patience.deadline = float("inf")
                _log.debug("server=%s connected tools=%d", self.config.name, len(self.tools))
                self.settled.set()
                await self._leaving.wait()
        if patience.cancelled_caught and not self.settled.is_set():
            _log.debug("server=%s is silent", self.config.name)
            self._fail(f"no answer within {self.config.timeout_s:g} s")

    def _leave_session(self) -> bool:
        """Stop naming a session to a server that gives out its own and knows no other; whether one
        was named."""
        headers = {k: v for k, v in self.config.headers.items() if k.lower() != _SESSION}
        if len(headers) == len(self.config.headers):
            return False
        self.config = replace(self.config, headers=headers)
        return True

    def _fail(self, reason: str) -> None:
        logs = (self._redact(process.log_text) for process in self._started)
        output = next((tail for log in logs if (tail := log.strip()[-_LOG_TAIL:])), "")
        reason = self._redact(reason)
        error = f"{reason}; its output: {output}" if output else reason
        self.error = " ".join(error.split())
        self.tools = []

    @asynccontextmanager
    async def _client(self) -> "AsyncGenerator[Client, None]":
        from mcp import Client
        from mcp_types import Implementation

        from batten import __version__

        ours = Implementation(name="batten", version=__version__)
        async with (
            self._transport() as transport,
            Client(transport, client_info=ours, elicitation_callback=self.elicitations) as client,
        ):
            yield client

    @asynccontextmanager
    async def _transport(self) -> "AsyncGenerator[Any, None]":
        config = self.config
        match config.transport:
            case "http" | "sse":
                from batten.tools.mcp_remote import remote_server

                async with remote_server(config, self._allowed, read_s=CALL_SECONDS) as transport:
                    yield transport
            case "stdio":
                from batten.tools.mcp_process import server_process

                yield server_process(
                    self._keeper, list(config.argv), config.env, config.cwd, self._started
                )

    async def _list_tools(self, client: "Client") -> list[Tool]:
        tools: list[Tool] = []
        taken: set[str] = set()
        cursor: str | None = None
        while True:
            page = await client.list_tools(cursor=cursor)
            for listed in page.tools:
                name = tool_name(self.config.name, listed.name)
                if name in taken:
                    continue
                if len(tools) == MOST_TOOLS:
                    self.has_more = True
                    return tools
                taken.add(name)
                spec = ToolSpec(name, listed.description or "", dict(listed.input_schema))
                tools.append(
                    McpTool(spec, self.config.name, listed.name, client, self.elicitations)
                )
            cursor = page.next_cursor
            if cursor is None:
                return tools


def _silence_library() -> None:
    """Keep what the SDK logs off standard error: it quotes servers, unredacted, in tracebacks.

    What went wrong is told as the failure of the server or of the call. An embedder's own handlers
    get the records still.
    """
    for name in _LIBRARY_LOGGERS:
        logger = logging.getLogger(name)
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())


def tool_name(server: str, tool: str) -> str:
    """`mcp__server__tool`, in characters and length that every model accepts."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp__{server}__{tool}")
    if len(name) <= 64:
        return name
    from hashlib import sha256

    return f"{name[:55]}_{sha256(tool.encode()).hexdigest()[:8]}"


class McpTool:
    """A tool of a server. Its effects are unknown, so it counts as `execute`."""

    kind: ToolKind = "mcp"
    effect: Effect = "execute"

    def __init__(
        self,
        spec: ToolSpec,
        server: str,
        tool: str,
        client: "Client",
        elicitations: Elicitations | None = None,
    ) -> None:
        self.spec = spec
        self.server = server
        self.tool = tool
        self._client = client
        self._elicitations = elicitations

    def subject(self, arguments: dict[str, Any]) -> str:
        return ""

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        from mcp import MCPError

        from batten.tools.mcp_result import told

        try:
            async with asyncio.timeout(CALL_SECONDS):
                result = await self._call(arguments, context)
        except TimeoutError:
            return _failed(f"no answer within {CALL_SECONDS:g} s", "timeout", timed_out=True)
        except MCPError as error:
            return _failed(context.redact(error.message), "mcp_error")
        # The edge of foreign code: an invalid answer is a failed call, not a bug.
        except Exception as error:
            reason = context.redact(_reason(error))
            context.record(ErrorToolUnavailable(self.spec.name, SERVER_UNAVAILABLE, reason))
            return _failed(reason, "mcp_unavailable")
        return await told(result, self.server, self.tool, context)

    async def _call(self, arguments: dict[str, Any], context: ToolContext) -> "CallToolResult":
        calling = partial(self._client.call_tool, self.tool, arguments)
        trace: Any = trace_context()  # the SDK's type of `meta` has no keys of others
        if trace:
            calling = partial(calling, meta=trace)
        if self._elicitations is None:
            return await calling()
        result: CallToolResult = await self._elicitations.during(context, calling)
        return result


def _failed(message: str, kind: str, *, timed_out: bool = False) -> ToolOutput:
    return ToolOutput(
        text=f"Error: {message}",
        ending="timed_out" if timed_out else "failed",
        error_kind=kind,
        mcp_result="failed",
    )


def _reason(error: BaseException) -> str:
    """The message of the innermost cause: task groups wrap exceptions."""
    inner: Any = error
    while isinstance(inner, BaseExceptionGroup):
        inner = cast(Any, inner).exceptions[0]
    if isinstance(inner, ModuleNotFoundError):
        return missing(inner)
    return str(inner) or type(inner).__name__


def missing(error: ModuleNotFoundError) -> str:
    """What to do about a library that only MCP servers need: the demo leaves it out."""
    return (
        f"MCP servers need the Python package {error.name}, which is not installed beside this "
        "Batten; installing Batten with uv, pipx or pip brings it"
    )
