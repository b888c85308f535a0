"""The state of a conversation, folded from its messages; both ends compute the same."""

from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from batten.protocols.maestro import incoming, outgoing, workgraph
from batten.protocols.maestro.connection import Connection, problem
from batten.protocols.maestro.snapshot import (
    ActiveCommand,
    ActiveTool,
    Edge,
    PendingTool,
    RuntimeState,
    StreamingResponse,
    fields_of,
    request_of,
)
from batten.protocols.maestro.vocabulary import REQUEST_TYPES, RequestType
from batten.protocols.tail import Tail

LONGEST_TAIL = 32_768
"""Characters kept of a command's output."""

_QUEUES: dict[RequestType, str] = {
    "approval": "pending_approvals",
    "client_tool": "pending_client_tools",
    "mcp_elicitation": "pending_mcp_elicitations",
    "user_input": "pending_user_inputs",
    "tool_retry": "pending_tool_retries",
}
_PLAIN = frozenset(RuntimeState.__struct_fields__) - {
    *_QUEUES.values(),
    "current_response",
    "pending_requests",
    "active_tools",
    "active_utility_commands",
    "active_file_watches",
    "tracked_tools",
}
"""The state's fields that come from a single message."""


class _Response:
    def __init__(self, response_id: str) -> None:
        self.response_id = response_id
        self.parts: dict[bool, list[str]] = {False: [], True: []}

    def shown(self) -> StreamingResponse:
        return StreamingResponse(
            response_id=self.response_id,
            text="".join(self.parts[False]),
            thinking="".join(self.parts[True]),
        )


class Conversation:
    """Folds the messages of both sides, in order. `state` is the current state."""

    def __init__(self) -> None:
        self._connection = Connection()
        self._plain: dict[str, Any] = {}
        self._pending: dict[RequestType, dict[str, PendingTool]] = {
            kind: {} for kind in REQUEST_TYPES
        }
        """By call id."""
        self._tracked: dict[str, PendingTool] = {}
        self._active: dict[str, tuple[str, list[str]]] = {}
        self._commands: dict[str, tuple[outgoing.CommandStarted, Tail]] = {}
        self._watches: dict[str, outgoing.ActiveWatch] = {}
        self._response: _Response | None = None
        self._edges: tuple[Edge, ...] = ()
        """Of ended calls."""
        self.version: int = 0
        """Grows with each message that may have changed the state."""

    @classmethod
    def of(cls, state: RuntimeState) -> "Conversation":
        """A conversation that continues from a state."""
        self = cls()
        known = {name: getattr(state, name) for name in _PLAIN}
        self._plain = {name: value for name, value in known.items() if value is not UNSET}
        for kind, queue in _QUEUES.items():
            self._pending[kind] = {tool.call_id: tool for tool in getattr(state, queue)}
        self._tracked = {tool.call_id: tool for tool in state.tracked_tools}
        self._active = {one.call_id: (one.tool, [one.output]) for one in state.active_tools}
        for command in state.active_utility_commands:
            tail = Tail(LONGEST_TAIL)
            tail.add(command.output)
            started = outgoing.CommandStarted(**fields_of(command, "output"))
            self._commands[command.command_id] = (started, tail)
        for watch in state.active_file_watches:
            self._watches[watch.watch_id] = watch
        if state.codex_subagent_edges is not UNSET:
            self._edges = state.codex_subagent_edges
        if state.current_response is not UNSET:
            self._response = _Response(state.current_response.response_id)
            self._response.parts[False].append(state.current_response.text)
            self._response.parts[True].append(state.current_response.thinking)
        return self

    @property
    def state(self) -> RuntimeState:
        session_id = self._plain.get("session_id", UNSET)
        queues: dict[str, Any] = {
            _QUEUES[kind]: tuple(held.values()) for kind, held in self._pending.items()
        }
        requests = [
            request_of(kind, tool, session_id)
            for kind, held in self._pending.items()
            for tool in held.values()
        ]
        return RuntimeState(
            **self._plain,
            **queues,
            current_response=UNSET if self._response is None else self._response.shown(),
            pending_requests=tuple(requests),
            active_tools=tuple(
                ActiveTool(call_id=call_id, tool=tool, output="".join(output))
                for call_id, (tool, output) in self._active.items()
            ),
            active_utility_commands=tuple(
                ActiveCommand(**fields_of(started), output=tail.text())
                for started, tail in self._commands.values()
            ),
            active_file_watches=tuple(self._watches.values()),
            tracked_tools=tuple(self._tracked.values()),
            codex_subagent_edges=self._edges or UNSET,
        )

    def hear(self, message: outgoing.Message) -> None:
        """Fold a message of the server."""
        self.version += 1
        match message:
            case outgoing.HelloOk():
                self._greeted(message)
            case outgoing.Ready():
                self._set(is_ready=True, **fields_of(message))
            case outgoing.SessionInfo():
                self._set(**fields_of(message))
            case outgoing.ConnectionInfo():
                self._connected(message)
            case outgoing.ResponseStart():
                self._response = _Response(message.response_id)
                self._set(is_responding=True)
            case outgoing.ResponseChunk():
                if self._response is not None and self._response.response_id == message.response_id:
                    self._response.parts[message.is_thinking].append(message.content)
            case outgoing.ResponseEnd():
                self._response = None
                self._set(
                    is_responding=False,
                    last_response_duration_ms=message.duration_ms,
                    last_ttft_ms=message.ttft_ms,
                )
            case outgoing.Error():
                self._set(last_error=message.message, last_error_type=message.error_type)
            case outgoing.Status():
                self._set(last_status=message.message)
            case _:
                self._hear_of_tools(message)

    def _hear_of_tools(self, message: outgoing.Message) -> None:
        match message:
            case outgoing.ToolCalled():
                tool = PendingTool(call_id=message.call_id, tool=message.tool, args=message.args)
                self._tracked[message.call_id] = tool
                if message.requires_approval:
                    self._pending["approval"][message.call_id] = tool
            case outgoing.ToolStart():
                self._active[message.call_id] = (self._name_of(message.call_id), [])
            case outgoing.ToolOutput():
                if message.call_id in self._active:
                    self._active[message.call_id][1].append(message.content)
            case outgoing.ToolEnd():
                self._delegated(message)
                self._forget(message.call_id)
            case outgoing.ClientToolRequest():
                tool = PendingTool(call_id=message.call_id, tool=message.tool, args=message.args)
                self._tracked[message.call_id] = tool
                kind: RequestType = "user_input" if message.tool == "ask_user" else "client_tool"
                self._pending[kind][message.call_id] = tool
            case outgoing.ServerRequest():
                self._request(message)
            case outgoing.ServerRequestResolved():
                self._resolved(message)
            case _:
                self._hear_of_utilities(message)

    def _hear_of_utilities(self, message: outgoing.Message) -> None:
        match message:
            case outgoing.CommandStarted():
                self._commands[message.command_id] = (message, Tail(LONGEST_TAIL))
            case outgoing.CommandResized():
                if message.command_id in self._commands:
                    started, tail = self._commands[message.command_id]
                    size = {"columns": message.columns, "rows": message.rows}
                    self._commands[message.command_id] = (replace(started, **size), tail)
            case outgoing.CommandOutput():
                if message.command_id in self._commands:
                    self._commands[message.command_id][1].add(message.content)
            case outgoing.CommandExited():
                self._commands.pop(message.command_id, None)
            case outgoing.WatchStarted():
                self._watches[message.watch_id] = outgoing.ActiveWatch(**fields_of(message))
            case outgoing.WatchStopped():
                self._watches.pop(message.watch_id, None)
            case _:
                pass  # results, events and raw events change nothing

    def say(self, message: incoming.Incoming) -> None:
        """Fold a message of the client; one that it may not send changes nothing."""
        self.version += 1
        if isinstance(message, incoming.Hello):
            if problem(self._connection.established, message) is None:
                self._connection.greet(message)
                self._connected(self._connection.info())
            return
        if self._connection.role == "viewer":
            return
        match message:
            case incoming.Prompt():
                self._response = None
                for name in ("last_error", "last_error_type", "last_status"):
                    self._plain.pop(name, None)
                self._set(is_responding=True)
            case incoming.Interrupt() | incoming.Cancel():
                self._stop()
            case incoming.ShutDown():
                self._stop()
                self._set(is_ready=False)
            case incoming.ToolResponse():
                self._pending["approval"].pop(message.call_id, None)
                if not message.approved:
                    self._tracked.pop(message.call_id, None)
            case incoming.ClientToolResult():
                for kind in ("client_tool", "user_input", "mcp_elicitation"):
                    self._pending[kind].pop(message.call_id, None)
            case incoming.ServerRequestResponse():
                found = self._take(message.request_type, message.request_id)
                denied = message.request_type == "approval" and not message.approved
                if found is not None and denied:
                    self._tracked.pop(found.call_id, None)
            case _:
                pass

    def _set(self, **fields: Any) -> None:
        self._plain |= fields

    def _greeted(self, message: outgoing.HelloOk) -> None:
        self._set(
            connection_role=message.role,
            **fields_of(
                message, "connection_id", "server_capabilities", "role", "lease_expires_at"
            ),
        )

    def _connected(self, message: outgoing.ConnectionInfo) -> None:
        fields = fields_of(message, "connection_id", "role", "lease_expires_at", "connections")
        if message.connections is not UNSET:
            fields["connections"] = message.connections
            if message.connection_count is UNSET:
                fields["connection_count"] = len(message.connections)
        known = {name: value for name, value in fields.items() if value is not UNSET}
        gone = ("client_protocol_version", "client_info", "capabilities", "opt_out_notifications")
        for name in gone:
            self._plain.pop(name, None)
        self._set(connection_role=message.role, **known)

    def _request(self, message: outgoing.ServerRequest) -> None:
        tool = PendingTool(
            request_id=UNSET if message.request_id == message.call_id else message.request_id,
            **fields_of(message, "request_id", "request_type", "reason"),
        )
        self._pending[message.request_type][message.call_id] = tool
        if message.request_type != "tool_retry" or message.call_id not in self._tracked:
            self._tracked[message.call_id] = tool

    def _resolved(self, message: outgoing.ServerRequestResolved) -> None:
        self._take(message.request_type, message.request_id)
        if _ends_call(message) or self._ends_retry(message):
            self._tracked.pop(message.call_id, None)

    def _ends_retry(self, message: outgoing.ServerRequestResolved) -> bool:
        """Whether a call that had ended, and is tracked for its retry alone, is not retried."""
        tool = self._tracked.get(message.call_id)
        is_for_retry = tool is not None and tool.key == message.request_id
        is_over = message.request_type == "tool_retry" and message.resolution != "retried"
        return is_for_retry and is_over

    def _take(self, kind: RequestType, request_id: str) -> PendingTool | None:
        for call_id, tool in self._pending[kind].items():
            if tool.key == request_id:
                return self._pending[kind].pop(call_id)
        return None

    def _delegated(self, message: outgoing.ToolEnd) -> None:
        """Keep the edges of a call after its end."""
        tool = self._tracked.get(message.call_id)
        done = () if tool is None else tuple(workgraph.ended(tool, message.success))
        if done:
            self._edges = workgraph.kept(workgraph.merged(self._edges, done))

    def _name_of(self, call_id: str) -> str:
        for held in (self._tracked, *self._pending.values()):
            if call_id in held:
                return held[call_id].tool
        return "unknown"

    def _forget(self, call_id: str) -> None:
        self._active.pop(call_id, None)
        for held in (self._tracked, *self._pending.values()):
            held.pop(call_id, None)

    def _stop(self) -> None:
        self.leave_run()
        self._commands.clear()
        self._watches.clear()

    def leave_run(self) -> None:
        """End the calls and requests of a run."""
        self.version += 1
        self._response = None
        self._active.clear()
        for held in (self._tracked, *self._pending.values()):
            held.clear()
        self._set(is_responding=False)


def _ends_call(message: outgoing.ServerRequestResolved) -> bool:
    """Whether the call behind a request does not go on."""
    match message.request_type:
        case "approval":
            return message.resolution != "approved"
        case "user_input":
            return message.resolution != "answered"
        case "client_tool":
            return message.resolution == "cancelled"
        case "mcp_elicitation" | "tool_retry":
            return False
