"""Work in progress when a runner was drained: counts and ids only."""

from typing import Literal

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from batten.protocols.maestro.snapshot import Edge, RuntimeState
from batten.protocols.maestro.workgraph import (
    SCHEMA_VERSION,
    edges_in,
    is_terminal,
    pending,
)

_VERSION: Literal["evalops.remote-runner.work-continuity.v1"] = (
    "evalops.remote-runner.work-continuity.v1"
)


class WorkContinuity(Struct, frozen=True, kw_only=True):
    protocol_version: Literal["evalops.remote-runner.work-continuity.v1"] = _VERSION
    codex_subagent_schema_version: str = SCHEMA_VERSION
    active_tool_count: int
    tracked_tool_count: int
    pending_request_count: int
    codex_subagent_tool_call_ids: tuple[str, ...]
    codex_subagent_child_run_ids: tuple[str, ...]
    codex_subagent_thread_ids: tuple[str, ...]
    codex_subagent_edges: tuple[Edge, ...] | UnsetType = UNSET
    """Absent if nothing was delegated to another agent."""


class CountedContinuity(Struct, frozen=True, kw_only=True):
    """The same with the lengths of its lists, as evidence carries it."""

    protocol_version: Literal["evalops.remote-runner.work-continuity.v1"] = _VERSION
    codex_subagent_schema_version: str = SCHEMA_VERSION
    active_tool_count: int
    tracked_tool_count: int
    pending_request_count: int
    codex_subagent_tool_call_count: int
    codex_subagent_child_run_count: int
    codex_subagent_thread_count: int
    codex_subagent_edge_count: int
    codex_subagent_tool_call_ids: tuple[str, ...]
    codex_subagent_child_run_ids: tuple[str, ...]
    codex_subagent_thread_ids: tuple[str, ...]
    codex_subagent_edges: tuple[Edge, ...] | UnsetType = UNSET


def continuity_of(state: RuntimeState) -> WorkContinuity:
    edges = edges_in(state)
    calls = _unique(*((e.spawn_tool_call_id, e.wait_tool_call_id) for e in edges))
    active = [tool for tool in state.active_tools if tool.call_id not in calls]
    tracked = [tool for tool in state.tracked_tools if tool.call_id not in calls]
    return WorkContinuity(
        active_tool_count=len(active) + sum(not is_terminal(edge.status) for edge in edges),
        tracked_tool_count=len(tracked) + max(len(calls), len(edges)),
        # The joint list of requests is derived from these, and may be absent.
        pending_request_count=len(pending(state)),
        codex_subagent_tool_call_ids=calls,
        codex_subagent_child_run_ids=_unique(*((edge.child_run_id,) for edge in edges)),
        codex_subagent_thread_ids=_unique(*((edge.thread_id,) for edge in edges)),
        codex_subagent_edges=edges or UNSET,
    )


def counted(work: WorkContinuity) -> CountedContinuity:
    edges = work.codex_subagent_edges
    return CountedContinuity(
        **asdict(work),
        codex_subagent_tool_call_count=len(work.codex_subagent_tool_call_ids),
        codex_subagent_child_run_count=len(work.codex_subagent_child_run_ids),
        codex_subagent_thread_count=len(work.codex_subagent_thread_ids),
        codex_subagent_edge_count=0 if edges is UNSET else len(edges),
    )


def _unique(*groups: tuple[str | UnsetType, ...]) -> tuple[str, ...]:
    return tuple(sorted({one for group in groups for one in group if one is not UNSET}))
