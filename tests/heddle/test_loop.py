"""The loop as a client sees it: what the model is asked, what is told of it, and when it ends."""

from tests.agent.stage import Stage, bash, call, end, say
from tests.heddle.test_provider import served
from tests.heddle.working import calling, calling_all, events, init, names, saying, working

SEND = {"type": "send", "id": "s", "message": "go"}


async def test_words_alone_end_a_send_after_one_call(stage: Stage) -> None:
    async with served(stage, [saying("So ", "", "it is.")]) as (worker, server):
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        assert names(heard) == ["content_delta", "content_delta", "usage"]
        assert (heard[-1]["response"], heard[-1]["iterations"]) == ("So it is.", 1)
        assert len(server.requests) == 1


async def test_each_round_has_its_usage_and_the_result_their_sum(stage: Stage) -> None:
    first = calling("glob", {"pattern": "*"}, tokens=(10, 1))
    async with served(stage, [first, saying("x", tokens=(20, 2))]) as (worker, _):
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        assert [one["total_tokens"] for one in events(heard, "usage")] == [11, 22]
        total = {"prompt_tokens": 30, "completion_tokens": 3, "total_tokens": 33}
        assert heard[-1]["usage"] == total


async def test_a_provider_that_tells_no_usage_has_none_shown(stage: Stage) -> None:
    async with served(stage, [saying("x", tokens=(0, 0))]) as (worker, _):
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        assert names(heard) == ["content_delta"]
        assert "usage" not in heard[-1]


async def test_calls_in_pieces_are_put_together_and_run_in_their_order(stage: Stage) -> None:
    asked = [
        ("bash", {"command": "echo first >> log"}, "c1"),
        ("glob", {"pattern": "lo*"}, "c2"),
        ("bash", {"command": "echo third >> log"}, "c3"),
    ]
    several = calling_all(*asked, pieces=4)
    async with served(stage, [several, saying("x")]) as (worker, server):
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        made = [{"name": tool, "args": arguments} for tool, arguments, _ in asked]
        assert heard[-1]["tool_calls_made"] == made
        assert names(heard)[:6] == ["tool_start", "tool_end"] * 3
        messages = server.requests[1].json()["messages"]
        answered = [one["tool_call_id"] for one in messages if one["role"] == "tool"]
        assert answered == ["c1", "c2", "c3"]
    assert (stage.workspace / "log").read_text() == "first\nthird\n"


async def test_history_grows_from_send_to_send(stage: Stage) -> None:
    async with served(stage, [saying("One."), saying("Two.")]) as (worker, server):
        await worker.ask(init(), "init_ok")
        await worker.send("s", "first")
        await worker.send("t", "second")
        messages = server.requests[1].json()["messages"]
        assert [one["role"] for one in messages] == ["system", "user", "assistant", "user"]


async def test_calls_that_go_wrong_are_told_to_the_model_and_the_loop_goes_on(
    stage: Stage,
) -> None:
    wrong = [call("globb", "c1", pattern="*"), bash("exit 3", "c2"), call("glob", "c3")]
    model = stage.scenario(wrong, [say("Well."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        previews = [one["result_preview"] for one in events(heard, "tool_end")]
        assert previews[0].startswith("Error: Unknown tool: globb")
        assert "Exit code: 3" in previews[1]
        assert previews[2].startswith("Error: ")
        assert (heard[-1]["status"], heard[-1]["response"]) == ("ok", "Well.")


async def test_nothing_is_asked_of_a_model_for_a_send_that_was_cancelled(stage: Stage) -> None:
    sleeping = calling("bash", {"command": "sleep 300"})
    async with served(stage, [sleeping]) as (worker, server):
        await worker.say(init(), SEND, {"type": "cancel", "id": "c", "target_id": "s"})
        await worker.until("result", "s")
        assert server.requests == []
        await worker.say({**SEND, "id": "t"})
        await worker.until("tool_start")
        await worker.say({"type": "cancel", "id": "d", "target_id": "t"})
        await worker.until("result", "t")
        assert len(server.requests) == 1


async def test_old_results_that_are_pruned_are_told_with_their_numbers(stage: Stage) -> None:
    home = stage.directory / "heddle"
    home.mkdir()
    (home / "config.toml").write_text("prune_protect = 8000\n")
    long = [[bash(f"head -c 29000 /dev/zero | tr '\\0' x; echo {one}")] for one in range(5)]
    model = stage.scenario(*long, [say("Done."), end()])
    environ = {"HEDDLE_HOME": str(home)}
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        pruned = events(heard, "context_prune")
        assert pruned
        for one in pruned:
            assert set(one) == {"event", "messages_pruned", "tokens_before", "tokens_after"}
            assert one["messages_pruned"] >= 1
            assert one["tokens_after"] < one["tokens_before"] >= 20_000
        assert heard[-1]["status"] == "ok"


async def test_the_lifecycle_of_the_seed_is_answered_as_it_is_drawn(stage: Stage) -> None:
    """Init, a send with a tool, a status, a cancel while another send works, and the end."""
    replies = [
        calling("glob", {"pattern": "*"}, tokens=(5, 5)),
        saying("Nothing."),
        calling("bash", {"command": "sleep 300"}),
    ]
    slow = {"HEDDLE_HEARTBEAT_INTERVAL": "1"}
    async with served(stage, replies, **slow) as (worker, _):
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        assert {"content_delta", "tool_start", "tool_end", "usage", "heartbeat"} == set(
            names(heard)
        )
        status = await worker.ask({"type": "status", "id": "q"}, "status_ok")
        assert status["active"] is False
        await worker.say({**SEND, "id": "t"})
        await worker.until("tool_start")
        await worker.say({"type": "cancel", "id": "c", "target_id": "t"})
        assert (await worker.until("result", "t"))[-1]["error"]["code"] == "cancelled"
        await worker.say({"type": "shutdown", "id": "z"})
        assert (await worker.rest())[-1] == {"type": "shutdown_ok", "id": "z"}
        assert await worker.code() == 0
