"""Work delegated to other agents: the edges between a conversation and its children.

Only ids and statuses are read from a tool's arguments; nothing else of them is repeated.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import Any, cast

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from batten.protocols.maestro.snapshot import Edge, PendingTool, RuntimeState

SCHEMA_VERSION = "evalops.maestro.codex.subagent-workgraph.v1"
TOOL_PREFIX = "codex.subagent."
MOST_EDGES = 512
"""Edges kept of ended calls."""


class Operation(Struct, frozen=True):
    name: str
    active: str
    """The status of an edge while its call is in progress."""
    done: str
    """The status after its call succeeded."""


SPAWN = Operation("spawn_agent", "waiting_for_restore", "spawned")
SEND = Operation("send_input", "waiting_for_input_ack", "acknowledged")
RESUME = Operation("resume_agent", "restoring", "resumed")
WAIT = Operation("wait_agent", "wait_pending", "completed")
CLOSE = Operation("close_agent", "waiting_for_close", "closed")

OPERATIONS = {
    "spawnAgent": SPAWN,
    "spawn_agent": SPAWN,
    "sendInput": SEND,
    "send_input": SEND,
    "resumeAgent": RESUME,
    "resumeSubagent": RESUME,
    "resume_agent": RESUME,
    "resume_subagent": RESUME,
    "wait": WAIT,
    "waitAgent": WAIT,
    "wait_agent": WAIT,
    "closeAgent": CLOSE,
    "close_agent": CLOSE,
}

_SUCCEEDED = frozenset({"succeeded", "success", "completed", "complete", "done"})
_CLOSED = frozenset({"closed", "explicitly_closed"})
_TERMINAL = (
    _SUCCEEDED | _CLOSED | {"acknowledged", "failed", "failure", "error", "cancelled", "canceled"}
)
_FINISHES = {WAIT.name: _SUCCEEDED, CLOSE.name: _SUCCEEDED | _CLOSED}
"""Statuses of an edge that finish its child."""

_ID = re.compile(r"[\w.:/@#+=~-]{1,256}", re.ASCII)
_STATUS = re.compile(r"[\w-]{1,40}", re.ASCII)

Json = dict[str, Any]


class Child(Struct, frozen=True):
    run_id: str | UnsetType
    thread_id: str | UnsetType
    status: str | None


def is_terminal(status: str) -> bool:
    return _plain(status) in _TERMINAL


def operation_of(tool: str, args: object) -> Operation | None:
    """The operation of a call on another agent; None for other calls."""
    if tool.startswith(TOOL_PREFIX):
        return OPERATIONS.get(tool.removeprefix(TOOL_PREFIX))
    graph = _graph(args)
    named = _first(graph, "tool", "operation")
    return OPERATIONS.get(str(named).removeprefix(TOOL_PREFIX)) if graph else None


def edges_of(tool: PendingTool) -> Iterator[Edge]:
    """The edges of a call in progress: one for each child, or one for a child without an id yet."""
    operation = operation_of(tool.tool, tool.args)
    if operation is None:
        return
    which = "spawn_tool_call_id" if operation is SPAWN else "wait_tool_call_id"
    for child in tuple(_children(tool.args)) or (Child(UNSET, UNSET, None),):
        yield Edge(
            **{which: tool.call_id},
            child_run_id=child.run_id,
            thread_id=child.thread_id,
            operation=operation.name,
            status=child.status or operation.active,
        )


def ended(tool: PendingTool, success: bool) -> Iterator[Edge]:
    """The edges of an ended call."""
    operation = operation_of(tool.tool, tool.args)
    for edge in edges_of(tool):
        assert operation is not None
        yield replace(edge, status=operation.done if success else "failed")


def merged(earlier: Iterable[Edge], later: Iterable[Edge]) -> tuple[Edge, ...]:
    """Both, sorted by key; a child that finished on one edge is finished on all."""
    by_key = {key_of(edge): edge for edge in (*earlier, *later)}
    edges = tuple(by_key[key] for key in sorted(by_key))
    while (settled := _settled(edges)) != edges:  # known by its run, then by its thread
        edges = settled
    return edges


def kept(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """At most `MOST_EDGES`; open edges take precedence over finished ones."""
    if len(edges) <= MOST_EDGES:
        return edges
    by_need = sorted(edges, key=lambda edge: is_terminal(edge.status))
    return tuple(sorted(by_need[:MOST_EDGES], key=key_of))


def edges_in(state: RuntimeState) -> tuple[Edge, ...]:
    """Every edge of a conversation: the kept ones, and those of calls in progress."""
    remembered = () if state.codex_subagent_edges is UNSET else state.codex_subagent_edges
    on_the_way = {
        tool.call_id: PendingTool(call_id=tool.call_id, tool=tool.tool, args=None)
        for tool in state.active_tools
    }
    # The entry with arguments has more information.
    on_the_way |= {tool.call_id: tool for tool in (*pending(state), *state.tracked_tools)}
    return merged(remembered, [e for tool in on_the_way.values() for e in edges_of(tool)])


def pending(state: RuntimeState) -> tuple[PendingTool, ...]:
    """The waiting calls, from the lists of the state by class."""
    return (
        *state.pending_approvals,
        *state.pending_client_tools,
        *state.pending_mcp_elicitations,
        *state.pending_user_inputs,
        *state.pending_tool_retries,
    )


def key_of(edge: Edge) -> str:
    parts = (
        edge.spawn_tool_call_id,
        edge.wait_tool_call_id,
        edge.child_run_id,
        edge.thread_id,
        edge.operation,
    )
    return "\0".join("" if part is UNSET else part for part in parts)


def _settled(edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    finished = {
        name: edge.status
        for edge in edges
        if _plain(edge.status) in _FINISHES.get(edge.operation, ())
        for name in _names(edge)
    }
    return tuple(_finished(edge, finished) for edge in edges)


def _finished(edge: Edge, finished: dict[tuple[str, str], str]) -> Edge:
    if is_terminal(edge.status):
        return edge
    status = next((finished[name] for name in _names(edge) if name in finished), None)
    return edge if status is None else replace(edge, status=status)


def _names(edge: Edge) -> Iterator[tuple[str, str]]:
    """The ids of a child."""
    if edge.child_run_id is not UNSET:
        yield "run", edge.child_run_id
    if edge.thread_id is not UNSET:
        yield "thread", edge.thread_id


def _children(args: object) -> Iterator[Child]:
    """The children in the graph, then others that the arguments name."""
    known: set[str] = set()
    for child in _listed(args):
        known |= {name for name in (child.run_id, child.thread_id) if name is not UNSET}
        yield child
    pairs = zip_longest(
        _ids(args, "childRunIds", "child_run_ids"),
        _ids(args, "receiverThreadIds", "receiver_thread_ids"),
        fillvalue=UNSET,
    )
    for run_id, thread_id in pairs:
        if run_id not in known and thread_id not in known:
            yield Child(run_id, thread_id, _status_of_thread(args, thread_id))


def _listed(args: object) -> Iterator[Child]:
    for entry in _list(_graph(args), "childRuns", "child_runs"):
        run_id = _id(_first(entry, "childRunId", "child_run_id"))
        thread_id = _id(_first(entry, "threadId", "thread_id"))
        status = _status(_first(entry, "status", "targetStatus", "target_status"))
        if run_id is not UNSET or thread_id is not UNSET:
            yield Child(run_id, thread_id, status or _status_of_thread(args, thread_id))


def _status_of_thread(args: object, thread_id: str | UnsetType) -> str | None:
    for holder in (args, _graph(args)):
        states = _first(holder, "agentsStates", "agents_states")
        if thread_id is not UNSET and (known := _first(states, thread_id)) is not None:
            return _status(_first(known, "status"))
    return None


def _graph(args: object) -> Json | None:
    graph = _first(args, "codexWorkGraph", "codex_work_graph")
    version = _first(graph, "schemaVersion", "schema_version")
    return cast(Json, graph) if version == SCHEMA_VERSION else None


def _first(holder: object, *names: str) -> object:
    if not isinstance(holder, dict):
        return None
    held = cast(Json, holder)
    return next((held[name] for name in names if held.get(name) is not None), None)


def _list(holder: object, *names: str) -> list[object]:
    found = _first(holder, *names)
    return cast(list[object], found) if isinstance(found, list) else []


def _ids(args: object, *names: str) -> list[str | UnsetType]:
    return [one for one in map(_id, _list(args, *names)) if one is not UNSET]


def _id(value: object) -> str | UnsetType:
    """An id is a single word: a value that looks like prose is none."""
    return value if isinstance(value, str) and _ID.fullmatch(value) else UNSET


def _status(value: object) -> str | None:
    """One word, or a final status in any spelling."""
    if not isinstance(value, str):
        return None
    return value if _STATUS.fullmatch(value) or is_terminal(value) else None


def _plain(status: str) -> str:
    return status.strip().lower().replace("-", "_").replace(" ", "_")
