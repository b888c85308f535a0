"""How the work that is on its way is counted, that of other agents among it."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.snapshot import ActiveTool, Edge, PendingTool, RuntimeState
from batten.protocols.maestro.workgraph import (
    MOST_EDGES,
    OPERATIONS,
    SCHEMA_VERSION,
    edges_of,
    is_terminal,
    kept,
    key_of,
    merged,
)
from batten.runner.continuity import continuity_of, counted
from batten.runner.request import DrainRequest
from batten.runner.restore import load
from tests.maestro.schemas import PRESENT, PUBLISHED, Published

from .given import (
    Json,
    Playing,
    asked,
    called,
    drain,
    ended,
    identity,
    manifest_file,
    started,
    wire,
)

SECRET = "please rewrite the whole billing module"


def graph(tool: str, *children: Json, **more: Any) -> Json:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "toolCallId": "c1",
        "tool": tool,
        "status": "in_progress",
        "parent": {"threadId": "t0"},
        "childRuns": list(children),
        **more,
    }


def child(number: int, **more: Any) -> Json:
    return {
        "edgeId": f"e{number}",
        "targetIndex": number,
        "threadId": f"t{number}",
        "childRunId": f"codex-thread:t{number}",
        "operation": "spawn_agent",
        **more,
    }


def tool(name: str, args: object, call: str = "c1") -> PendingTool:
    return PendingTool(call_id=call, tool=name, args=args)


def shown(*messages: heard.Message) -> Json:
    """The continuity of a conversation, as it is written."""
    continuity: Json = wire(continuity_of(Playing(*messages).conversation.state))
    return continuity


def edge(call: str, operation: str, number: int | None, status: str) -> Json:
    which = "spawn_tool_call_id" if operation == "spawn_agent" else "wait_tool_call_id"
    of_child = {"child_run_id": f"codex-thread:t{number}", "thread_id": f"t{number}"}
    known = {} if number is None else of_child
    return {which: call, **known, "operation": operation, "status": status}


def test_without_other_agents_tools_are_counted_as_they_are() -> None:
    messages = (called("c1", "bash"), started("c1"), called("c2", "read"), asked("c3"))
    assert shown(*messages) == {
        "protocol_version": "evalops.remote-runner.work-continuity.v1",
        "codex_subagent_schema_version": SCHEMA_VERSION,
        "active_tool_count": 1,
        "tracked_tool_count": 3,
        "pending_request_count": 1,
        "codex_subagent_tool_call_ids": [],
        "codex_subagent_child_run_ids": [],
        "codex_subagent_thread_ids": [],
    }


def test_the_joint_list_of_requests_is_not_what_is_counted() -> None:
    state = Playing(asked("c1"), asked("c2", kind="user_input")).conversation.state
    assert continuity_of(state).pending_request_count == 2
    derived = msgspec.structs.replace(state, pending_requests=())
    assert continuity_of(derived).pending_request_count == 2


@pytest.mark.parametrize(
    ("alias", "operation", "status"),
    [
        ("spawnAgent", "spawn_agent", "waiting_for_restore"),
        ("spawn_agent", "spawn_agent", "waiting_for_restore"),
        ("sendInput", "send_input", "waiting_for_input_ack"),
        ("send_input", "send_input", "waiting_for_input_ack"),
        ("resumeAgent", "resume_agent", "restoring"),
        ("resumeSubagent", "resume_agent", "restoring"),
        ("resume_subagent", "resume_agent", "restoring"),
        ("wait", "wait_agent", "wait_pending"),
        ("waitAgent", "wait_agent", "wait_pending"),
        ("wait_agent", "wait_agent", "wait_pending"),
        ("closeAgent", "close_agent", "waiting_for_close"),
        ("close_agent", "close_agent", "waiting_for_close"),
    ],
)
def test_each_operation_has_its_names_and_a_status_while_it_is_on_its_way(
    alias: str, operation: str, status: str
) -> None:
    by_name = edges_of(tool(f"codex.subagent.{alias}", {"receiverThreadIds": ["t1"]}))
    by_graph = edges_of(tool("mcp_tool", {"codexWorkGraph": graph(alias, child(1))}))
    [one], [other] = list(by_name), list(by_graph)
    assert (one.operation, one.status, one.thread_id) == (operation, status, "t1")
    assert wire(other) == edge("c1", operation, 1, status)


@pytest.mark.skipif(not PRESENT, reason="the published contract is not here")
def test_the_operations_are_the_published_ones() -> None:
    contract = msgspec.json.decode((PUBLISHED / "codex-subagent-workgraph-v1.json").read_bytes())
    assert contract["schemaVersion"] == SCHEMA_VERSION
    published = {
        alias: (one["operation"], one["activeStatus"], one["terminalSuccessStatus"])
        for one in contract["operations"]
        for alias in one["aliases"]
    }
    assert published == {
        alias: (one.name, one.active, one.done) for alias, one in OPERATIONS.items()
    }


async def test_edges_are_recorded_and_no_prompt_leaves_the_snapshot(workspace: Path) -> None:
    args = {
        "prompt": SECRET,
        "message": SECRET,
        "childRunIds": [SECRET, "run_9"],
        "codexWorkGraph": graph(
            "spawnAgent",
            child(1, prompt=SECRET, status=SECRET),
            child(2, status="running"),
            {"childRunId": {"deep": SECRET}, "threadId": SECRET},
            prompt=SECRET,
        ),
    }
    runtime = Playing(called("c1", "codex.subagent.spawnAgent", args), started("c1"))
    drained = await drain(DrainRequest(), identity(workspace), runtime)
    manifest = manifest_file(drained)
    edges = [
        edge("c1", "spawn_agent", 1, "waiting_for_restore"),
        edge("c1", "spawn_agent", 2, "running"),
        {
            "spawn_tool_call_id": "c1",
            "child_run_id": "run_9",
            "operation": "spawn_agent",
            "status": "waiting_for_restore",
        },
    ]
    work = manifest["work_continuity"]
    assert work["codex_subagent_edges"] == edges
    assert work["codex_subagent_tool_call_ids"] == ["c1"]
    assert work["codex_subagent_child_run_ids"] == ["codex-thread:t1", "codex-thread:t2", "run_9"]
    assert work["codex_subagent_thread_ids"] == ["t1", "t2"]
    told = manifest["platform_evidence"]["work_continuity"]
    assert told["codex_subagent_edges"] == edges
    assert [told[f"codex_subagent_{one}_count"] for one in ("tool_call", "edge")] == [1, 3]
    assert [told[f"codex_subagent_{one}_count"] for one in ("child_run", "thread")] == [3, 2]
    assert SECRET in repr(manifest.pop("snapshot"))
    assert SECRET not in repr(manifest)


def test_the_other_spelling_of_a_graph_is_read_too() -> None:
    args = {
        "codex_work_graph": {
            "schema_version": SCHEMA_VERSION,
            "tool": "wait_agent",
            "child_runs": [
                {"child_run_id": "codex-thread:t1", "thread_id": "t1", "target_status": "running"}
            ],
        },
        "child_run_ids": ["codex-thread:t1", "codex-thread:t2"],
        "receiver_thread_ids": ["t1", "t2"],
        "agents_states": {"t2": {"status": "errored"}},
    }
    assert shown(called("c1", "anything", args))["codex_subagent_edges"] == [
        edge("c1", "wait_agent", 1, "running"),
        edge("c1", "wait_agent", 2, "errored"),
    ]


@pytest.mark.parametrize(
    "args",
    [
        None,
        [],
        "codexWorkGraph",
        {"codexWorkGraph": graph("spawnAgent", child(1), schemaVersion="another")},
        {"codexWorkGraph": graph("paint", child(1))},
        {"codexWorkGraph": [SCHEMA_VERSION]},
    ],
)
def test_a_call_with_anything_else_is_a_call_like_any_other(args: object) -> None:
    assert list(edges_of(tool("bash", args))) == []
    assert list(edges_of(tool("codex.subagent.paint", args))) == []


def test_edges_that_were_restored_are_counted(workspace: Path) -> None:
    remembered = (Edge(spawn_tool_call_id="c0", operation="spawn_agent", status="spawned"),)
    state = RuntimeState(codex_subagent_edges=remembered)
    work = continuity_of(state)
    assert (work.active_tool_count, work.tracked_tool_count) == (1, 1)
    assert work.codex_subagent_edges == remembered


async def test_edges_go_from_one_runner_to_the_next(workspace: Path) -> None:
    spawn = called("c1", "codex.subagent.spawnAgent", {"receiverThreadIds": ["t1"]})
    runtime = Playing(spawn, started("c1"), ended("c1"))
    drained = await drain(DrainRequest(), identity(workspace), runtime)
    assert drained.manifest.work_continuity.codex_subagent_thread_ids == ("t1",)
    state = load(drained.manifest_path, str(workspace)).snapshot.state
    assert continuity_of(state) == drained.manifest.work_continuity


def test_calls_of_other_kinds_are_counted_beside_edges() -> None:
    spawn = {"codexWorkGraph": graph("spawnAgent", child(1), child(2))}
    work = shown(
        called("c1", "codex.subagent.spawnAgent", spawn),
        started("c1"),
        called("c2", "bash"),
        started("c2"),
        called("c3", "read"),
    )
    assert (work["active_tool_count"], work["tracked_tool_count"]) == (1 + 2, 2 + 2)


def test_a_call_that_is_only_known_by_its_name_is_an_edge_too() -> None:
    active = (ActiveTool(call_id="c1", tool="codex.subagent.wait", output=""),)
    work = continuity_of(RuntimeState(active_tools=active))
    assert (work.active_tool_count, work.tracked_tool_count) == (1, 1)
    assert wire(work.codex_subagent_edges) == [edge("c1", "wait_agent", None, "wait_pending")]


@pytest.mark.parametrize(
    ("operation", "success", "status", "is_open"),
    [
        ("spawnAgent", True, "spawned", True),
        ("resumeAgent", True, "resumed", True),
        ("sendInput", True, "acknowledged", False),
        ("wait", True, "completed", False),
        ("closeAgent", True, "closed", False),
        ("spawnAgent", False, "failed", False),
        ("sendInput", False, "failed", False),
    ],
)
def test_what_a_call_came_to_outlasts_it(
    operation: str, success: bool, status: str, is_open: bool
) -> None:
    args = {"receiverThreadIds": ["t1"]}
    work = shown(
        called("c1", f"codex.subagent.{operation}", args), started("c1"), ended("c1", success)
    )
    assert [one["status"] for one in work["codex_subagent_edges"]] == [status]
    assert (work["active_tool_count"], work["tracked_tool_count"]) == (int(is_open), 1)


def test_a_call_that_failed_and_is_tried_again_is_open_again() -> None:
    wait = called("c1", "codex.subagent.wait", {"receiverThreadIds": ["t1"]})
    failed = (wait, started("c1"), ended("c1", success=False))
    assert shown(*failed)["active_tool_count"] == 0
    assert shown(*failed, wait, started("c1"))["active_tool_count"] == 1
    assert shown(*failed, *failed[:2], ended("c1"))["active_tool_count"] == 0


@pytest.mark.parametrize(("last", "status"), [("wait", "completed"), ("closeAgent", "closed")])
def test_a_child_that_is_done_finishes_what_else_is_open_of_it(last: str, status: str) -> None:
    args = {"receiverThreadIds": ["t1"]}
    spawned = {"codexWorkGraph": graph("spawnAgent", child(1), child(2))}
    work = shown(
        called("c1", "codex.subagent.spawnAgent", spawned),
        ended("c1"),
        called("c2", f"codex.subagent.{last}", args),
        ended("c2"),
    )
    statuses = {
        one.get("spawn_tool_call_id"): one["status"]
        for one in work["codex_subagent_edges"]
        if one["thread_id"] == "t1"
    }
    assert statuses["c1"] == status
    assert work["active_tool_count"] == 1, "the other child is still at work"


def test_a_child_is_the_same_by_its_run_and_by_its_thread() -> None:
    closed = Edge(
        wait_tool_call_id="c3", child_run_id="r", operation="close_agent", status="closed"
    )
    both = Edge(
        wait_tool_call_id="c2",
        child_run_id="r",
        thread_id="t",
        operation="close_agent",
        status="waiting_for_close",
    )
    spawned = Edge(
        spawn_tool_call_id="c1", thread_id="t", operation="spawn_agent", status="spawned"
    )
    assert {one.status for one in merged((), [closed, both, spawned])} == {"closed"}


@pytest.mark.parametrize(
    ("status", "terminal"),
    [
        ("closed", True),
        ("Explicitly-Closed", True),
        ("explicitly closed", True),
        ("SUCCEEDED", True),
        ("canceled", True),
        ("cancelled", True),
        ("acknowledged", True),
        ("error", True),
        ("spawned", False),
        ("resumed", False),
        ("wait_pending", False),
        ("running", False),
    ],
)
def test_which_statuses_are_final(status: str, terminal: bool) -> None:
    assert is_terminal(status) is terminal


def test_edges_are_bounded_and_those_that_are_open_are_kept() -> None:
    edges = [
        Edge(wait_tool_call_id=f"c{number:04}", operation="send_input", status=status)
        for number in range(MOST_EDGES)
        for status in ("acknowledged",)
    ]
    waiting = Edge(wait_tool_call_id="z", operation="wait_agent", status="wait_pending")
    left = kept(merged(edges, [waiting]))
    assert len(left) == MOST_EDGES
    assert waiting in left


names = st.one_of(st.just(UNSET), st.sampled_from(["a", "b", "c"]))
edges_anyhow = st.lists(
    st.builds(
        Edge,
        spawn_tool_call_id=names,
        wait_tool_call_id=names,
        child_run_id=names,
        thread_id=names,
        operation=st.sampled_from(sorted({one.name for one in OPERATIONS.values()})),
        status=st.sampled_from(["spawned", "completed", "closed", "failed", "wait_pending"]),
    ),
    max_size=12,
)


@given(edges_anyhow)
def test_edges_are_in_order_each_once_and_counting_them_again_changes_nothing(
    edges: list[Edge],
) -> None:
    once = merged((), edges)
    keys = [key_of(one) for one in once]
    assert keys == sorted({key_of(one) for one in edges})
    assert merged(once, once) == once
    work = counted(continuity_of(RuntimeState(codex_subagent_edges=tuple(edges))))
    assert work.codex_subagent_edge_count == len(once)
    assert list(work.codex_subagent_thread_ids) == sorted(
        {one.thread_id for one in once if one.thread_id is not UNSET}
    )


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["codexWorkGraph", "childRuns", "childRunIds", "agentsStates", "status"]),
        inner,
        max_size=3,
    ),
    max_leaves=10,
)  # fmt: skip


@given(json_like)
def test_no_arguments_do_more_than_name_nobody(args: Any) -> None:
    for one in edges_of(tool("codex.subagent.wait", args)):
        assert one.operation == "wait_agent"


@pytest.mark.skipif(not PRESENT, reason="the published schemas are not here")
def test_a_state_with_edges_is_a_published_one() -> None:
    spawn = called("c1", "codex.subagent.spawnAgent", {"receiverThreadIds": ["t1"]})
    state = Playing(spawn, ended("c1")).conversation.state
    Published().check_named("HeadlessRuntimeStateSchema", wire(state))
