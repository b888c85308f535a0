"""Runs that a run starts: what they do and ask is part of the response."""

from tests.agent.stage import Stage, bash, call, end, say
from tests.maestro.asking import answer
from tests.maestro.schemas import Json
from tests.maestro.speaking import Speaker, speaking

DONE = [say("Done."), end()]
CHILD = {"do it": "child.json"}


def doings(client: Speaker) -> list[tuple[str, str]]:
    """The messages about calls, without those that are no event of one."""
    wanted = ("tool_call", "tool_start", "tool_output", "tool_end", "server_request")
    return [(one["type"], one["call_id"]) for one in client.heard if one["type"] in wanted]


def parts(call_id: str) -> list[tuple[str, str]]:
    return [(kind, call_id) for kind in ("tool_call", "tool_start", "tool_output", "tool_end")]


async def test_what_a_child_does_is_shown_before_the_result_of_its_call(stage: Stage) -> None:
    stage.scenario([bash("echo deep", "g1")], [say("Part done."), end()], name="grandchild")
    stage.scenario(
        [bash("echo child", "k1")],
        [call("agent", "k2", prompt="do a part")],
        [say("Child done."), end()],
        name="child",
    )
    frames = [[call("agent", "c1", prompt="do it")], DONE]
    async with speaking(
        stage, *frames, children={**CHILD, "do a part": "grandchild.json"}
    ) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        shown = await client.prompt()
    assert doings(client) == [
        *parts("c1")[:2],
        *parts("k1"),
        *parts("k2")[:2],
        *parts("g1"),
        *parts("k2")[2:],
        *parts("c1")[2:],
    ]
    assert client.of("tool_output", call_id="k1")[0]["content"] == "child\n"
    assert "Part done." in client.of("tool_output", call_id="k2")[0]["content"]
    # What a child says is told to the run that started it, and not to the client.
    assert [one["content"] for one in client.of("response_chunk")] == ["Done."]
    assert len(client.of("response_start")) == 1
    summary: Json = shown[-1]["tools_summary"]
    assert summary["tools_used"] == ["agent", "bash"]
    assert (summary["calls_succeeded"], summary["calls_failed"]) == (4, 0)


async def test_calls_of_a_child_have_other_ids_than_those_of_its_parent(stage: Stage) -> None:
    """Whatever ids a model repeats: a client keeps calls apart by them."""
    stage.scenario([bash("echo child", "c1")], [say("Child done."), end()], name="child")
    frames = [[call("agent", "c1", prompt="do it")], [bash("echo parent", "c1")], DONE]
    async with speaking(stage, *frames, children=CHILD) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        await client.prompt()
    called = [one["call_id"] for one in client.of("tool_call")]
    assert len(set(called)) == len(called) == 3
    for call_id in called:
        kinds = [kind for kind, named in doings(client) if named == call_id]
        assert kinds == ["tool_call", "tool_start", "tool_output", "tool_end"]


async def test_a_request_of_a_child_run_is_put_and_answered_like_any_other(stage: Stage) -> None:
    stage.scenario([bash("echo child", "k1")], [say("Child done."), end()], name="child")
    frames = [[call("agent", "c1", prompt="do it")], DONE]
    async with speaking(stage, *frames, children=CHILD) as client:
        await client.hello("approval", capabilities={"raw_agent_events": True})
        client.say("prompt", content="go")
        request = await client.until("server_request")
        assert (request["call_id"], request["tool"]) == ("k1", "bash")
        assert request["args"] == {"command": "echo child"}
        answer(client, request)
        await client.until("response_end")
    (resolved,) = client.of("server_request_resolved")
    assert resolved["resolution"] == "approved"
    assert [one["success"] for one in client.of("tool_end")] == [True, True]
    assert "Child done." in client.of("tool_output")[-1]["content"]
    runs = {one["event"]["run_id"] for one in client.of("raw_agent_event")}
    assert len(runs - {None}) >= 2  # the child's own events are among the raw ones


async def test_an_interrupt_ends_what_a_child_does_and_asks(stage: Stage) -> None:
    stage.scenario([bash("echo child", "k1")], [say("Child done."), end()], name="child")
    frames = [[call("agent", "c1", prompt="do it")], DONE, DONE]
    async with speaking(stage, *frames, children=CHILD) as client:
        await client.hello("approval")
        client.say("prompt", content="go")
        await client.until("server_request", call_id="k1")
        client.say("interrupt")
        await client.until("response_end")
        (resolved,) = client.of("server_request_resolved")
        assert (resolved["resolution"], resolved["resolved_by"]) == ("cancelled", "runtime")
        assert resolved["reason"] == "Interrupted before request completed"
        ends = [(one["call_id"], one["success"]) for one in client.of("tool_end")]
        assert ends == [("k1", False), ("c1", False)]
        assert client.of("tool_start", call_id="k1") == []
        await client.prompt("next")
    journal = stage.journal()
    assert all(run.outcome for run in await journal.runs())
    journal.close()
