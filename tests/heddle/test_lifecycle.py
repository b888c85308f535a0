"""A worker's life: greeted, asked, cancelled, left. Each test is one line of the protocol's."""

import asyncio
import signal
from uuid import UUID

import pytest

from tests.agent.stage import Stage, bash, end, say
from tests.heddle.working import Json, Worker, events, init, names, working
from tests.session.processes import batten

SHUTDOWN = {"type": "shutdown", "id": "z"}


def refused(request_id: str, message: str) -> Json:
    error = {"code": "protocol_error", "message": message, "retryable": False}
    return {
        "type": "result",
        "id": request_id,
        "status": "error",
        "tool_calls_made": [],
        "iterations": 0,
        "error": error,
    }


async def test_init_is_answered_with_its_id_a_session_and_the_version(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        greeted = await worker.ask(init(), "init_ok")
        session_id = greeted.pop("session_id")
        assert greeted == {"type": "init_ok", "id": "i", "protocol_version": "0.2.0"}
        assert str(UUID(session_id)) == session_id


async def test_before_init_nothing_can_be_asked(stage: Stage) -> None:
    async with working(stage) as worker:
        problem = "Not initialized. Send 'init' first."
        await worker.say({"type": "cancel", "id": "c", "target_id": "s"})
        sent = await worker.ask({"type": "send", "id": "s", "message": "go"}, "result")
        asked = await worker.ask({"type": "status", "id": "q"}, "result")
        assert [sent, asked] == [refused("s", problem), refused("q", problem)]


async def test_shutdown_is_answered_and_ends_the_process_well(stage: Stage) -> None:
    async with working(stage) as worker:
        await worker.say(SHUTDOWN)
        assert await worker.rest() == [{"type": "shutdown_ok", "id": "z"}]
        assert await worker.code() == 0


async def test_all_lines_at_once_are_answered_in_order(stage: Stage) -> None:
    model = stage.scenario([say("Hello."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"}, SHUTDOWN)
        heard = await worker.rest()
        kinds = [frame["type"] for frame in heard]
        assert kinds == ["init_ok", "event", "result", "shutdown_ok"]
        assert heard[2]["response"] == "Hello."
        assert await worker.code() == 0


async def test_the_end_of_input_finishes_what_was_asked_and_says_no_farewell(stage: Stage) -> None:
    model = stage.scenario([bash("sleep 0.1; echo slept")], [say("Done."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        heard = await worker.rest()
        assert heard[-1]["type"] == "result"
        assert heard[-1]["response"] == "Done."
        assert await worker.code() == 0


async def test_status_says_how_things_stand(stage: Stage) -> None:
    model = stage.scenario([bash("true")], [say("Done."), end()])
    async with working(stage, "--model", model) as worker:
        session_id = (await worker.ask(init(), "init_ok"))["session_id"]
        before = await worker.ask({"type": "status", "id": "q"}, "status_ok")
        await worker.send("s")
        after = await worker.ask({"type": "status", "id": "r"}, "status_ok")
        expected = {
            "type": "status_ok",
            "id": "q",
            "model": model,
            "messages_count": 1,
            "session_id": session_id,
            "active": False,
        }
        assert before == expected
        # The system prompt, the user's message, two answers and a tool's result.
        assert after == {**expected, "id": "r", "messages_count": 5}


async def test_while_a_send_works_status_is_answered_and_another_send_is_not_taken(
    stage: Stage,
) -> None:
    async with working(stage, "--model", stage.scenario([bash("sleep 300")])) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        await worker.until("tool_start")
        status = await worker.ask({"type": "status", "id": "q"}, "status_ok")
        assert status["active"] is True
        problem = "A send is already in progress."
        second = await worker.ask({"type": "send", "id": "t", "message": "go"}, "result")
        assert second == refused("t", problem)
        assert await worker.ask(init(request_id="j"), "result") == refused("j", problem)


async def test_an_id_that_is_at_work_has_only_the_result_of_its_send(stage: Stage) -> None:
    model = stage.scenario([bash("until [ -e go ]; do sleep 0.02; done")], [say("Done."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        await worker.until("tool_start")
        again = {"type": "send", "id": "s", "message": "go"}
        for request in (
            again,
            {**again, "message": " "},
            init(request_id="s"),
            {**again, "type": "x"},
        ):
            await worker.say(request)
            refusal = await worker.hear()
            assert (refusal["type"], refusal["id"]) == ("result", "unknown")
            assert refusal["error"]["code"] == "protocol_error"
        (stage.workspace / "go").touch()
        await worker.say(SHUTDOWN)
        results = [one for one in await worker.rest() if one["type"] == "result"]
        assert [(one["id"], one["status"]) for one in results] == [("s", "ok")]


async def test_a_cancel_ends_a_running_command_and_later_sends_work(stage: Stage) -> None:
    model = stage.scenario([bash("sleep 300")], [say("Again."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        await worker.until("tool_start")
        await worker.say({"type": "cancel", "id": "c", "target_id": "s"})
        (result,) = await worker.until("result", "s")
        assert result["status"] == "error"
        assert result["error"] == {"code": "cancelled", "message": "cancelled", "retryable": False}
        assert result["tool_calls_made"] == [{"name": "bash", "args": {"command": "sleep 300"}}]
        assert "response" not in result
        assert "usage" not in result
        again = await worker.send("t")
        assert again[-1]["id"] == "t"


async def test_a_cancel_right_behind_its_send_leaves_no_event_of_it(stage: Stage) -> None:
    model = stage.scenario([say("Much too late."), end()])
    async with working(stage, "--model", model) as worker:
        send = {"type": "send", "id": "s", "message": "go"}
        await worker.say(init(), send, {"type": "cancel", "id": "c", "target_id": "s"}, SHUTDOWN)
        heard = await worker.rest()
        assert [frame["type"] for frame in heard] == ["init_ok", "result", "shutdown_ok"]
        assert heard[1]["error"]["code"] == "cancelled"
        assert (heard[1]["tool_calls_made"], heard[1]["iterations"]) == ([], 0)


async def test_a_send_that_a_shutdown_waits_for_can_be_cancelled(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([bash("sleep 60")])) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        await worker.until("tool_start")
        ignored = {"type": "status", "id": "q"}
        await worker.say(SHUTDOWN, ignored, {"type": "cancel", "id": "c", "target_id": "s"})
        result, farewell = await worker.rest()
        assert (result["id"], result["error"]["code"]) == ("s", "cancelled")
        assert farewell == {"type": "shutdown_ok", "id": "z"}
        assert await worker.code() == 0


async def test_a_cancel_that_names_no_send_of_now_is_nothing(stage: Stage) -> None:
    model = stage.scenario([say("Hello."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.ask(init(), "init_ok")
        await worker.say({"type": "cancel", "id": "c", "target_id": "s"})
        assert (await worker.send("s"))[-1]["status"] == "ok"
        await worker.say({"type": "cancel", "id": "d", "target_id": "s"}, SHUTDOWN)
        assert await worker.rest() == [{"type": "shutdown_ok", "id": "z"}]


async def test_sends_share_a_history_and_count_their_events_anew(stage: Stage) -> None:
    model = stage.scenario([say("One."), end()], [say("Two."), end()])
    async with working(stage, "--model", model) as worker:
        session_id = (await worker.ask(init(task_id="T", worker_id="W"), "init_ok"))["session_id"]
        for send_id in ("s", "t"):
            heard = await worker.send(send_id)
            assert [frame["event_seq"] for frame in heard[:-1]] == list(range(len(heard) - 1))
            assert {frame["send_id"] for frame in heard[:-1]} == {send_id}
            for frame in heard:
                ids = (frame["session_id"], frame["task_id"], frame["worker_id"])
                assert ids == (session_id, "T", "W")


async def test_ids_that_were_not_given_are_not_repeated(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        await worker.ask(init(), "init_ok")
        for frame in await worker.send("s"):
            assert not {"task_id", "worker_id"} & set(frame)


async def test_a_result_has_the_latencies_of_the_model_and_of_tools(stage: Stage) -> None:
    model = stage.scenario([bash("sleep 0.05")], [say("Done."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.ask(init(), "init_ok")
        result = (await worker.send("s"))[-1]
        total, tool = result["total_latency_ms"], result["tool_latency_ms"]
        # A scenario answers at once: what else the send took is not the model's.
        assert total >= result["model_latency_ms"] + tool
        assert tool >= 50


async def test_heartbeats_come_while_a_send_works_and_not_after_it(stage: Stage) -> None:
    environ = {"HEDDLE_HEARTBEAT_INTERVAL": "50"}
    model = stage.scenario([bash("until [ -e go ]; do sleep 0.02; done")], [say("Done."), end()])
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.ask(init(), "init_ok")
        await worker.say({"type": "send", "id": "s", "message": "go"})
        heard = await worker.until("tool_start")
        for _ in range(2):
            heard += await worker.until("heartbeat")
        (stage.workspace / "go").touch()
        heard += await worker.until("result", "s")
        beats = [event["duration_ms"] for event in events(heard, "heartbeat")]
        assert len(beats) >= 2
        assert beats == sorted(beats)
        assert beats[0] >= 50
        assert [frame["event_seq"] for frame in heard[:-1]] == list(range(len(heard) - 1))
        await asyncio.sleep(0.2)  # nothing is said by itself: only time can show that
        await worker.say(SHUTDOWN)
        assert await worker.rest() == [{"type": "shutdown_ok", "id": "z"}]


async def test_the_first_heartbeat_of_a_send_right_behind_its_init_is_not_left_out(
    stage: Stage,
) -> None:
    model = stage.scenario([bash("sleep 60")])
    environ = {"HEDDLE_HEARTBEAT_INTERVAL": "1000"}
    async with working(stage, "--model", model, environ=environ) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        (beat,) = events(await worker.until("heartbeat"), "heartbeat")
        assert beat["duration_ms"] // 1000 == 1
        await worker.say({"type": "cancel", "id": "c", "target_id": "s"}, SHUTDOWN)
        assert (await worker.rest())[-1] == {"type": "shutdown_ok", "id": "z"}


async def test_a_second_init_replaces_the_session(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        first = await worker.ask(init(task_id="T"), "init_ok")
        await worker.send("s")
        second = await worker.ask(init(request_id="j"), "init_ok")
        assert second["session_id"] != first["session_id"]
        frame = (await worker.send("t"))[-1]
        assert frame["session_id"] == second["session_id"]
        assert "task_id" not in frame
        status = await worker.ask({"type": "status", "id": "q"}, "status_ok")
        assert status["messages_count"] == 3


async def test_another_major_version_is_refused_and_ends_the_process(stage: Stage) -> None:
    async with working(stage) as worker:
        await worker.say(init("1.1.0"), {"type": "send", "id": "s", "message": "go"})
        error = {
            "code": "protocol_version_mismatch",
            "message": "Client requested 1.1.0, server is 0.2.0",
            "retryable": False,
        }
        refusal = {
            "type": "init_ok",
            "id": "i",
            "session_id": "",
            "protocol_version": "0.2.0",
            "error": error,
        }
        assert await worker.rest() == [refusal]
        assert await worker.code() == 1


async def test_a_model_that_cannot_be_reached_is_refused_at_init_and_another_is_taken(
    stage: Stage,
) -> None:
    async with working(stage, environ={"OLLAMA_BASE_URL": "http://127.0.0.1:9"}) as worker:
        refusal = await worker.ask(init(), "result")
        assert refusal["error"]["code"] == "protocol_error"
        assert "OPENROUTER_API_KEY" in refusal["error"]["message"]
        greeted = await worker.ask(init(model="ollama/llama3.1"), "init_ok")
        assert greeted["session_id"]


async def test_a_client_cannot_name_a_file_as_the_model(stage: Stage) -> None:
    model = stage.scenario([say("x"), end()])
    async with working(stage) as worker:
        for name in ("scripted//etc/hostname", model, f" {model}"):
            refusal = await worker.ask(init(model=name), "result")
            assert refusal["error"]["code"] == "protocol_error"
            assert "config.model cannot name a file" in refusal["error"]["message"]
    async with working(stage, environ={"HEDDLE_MODEL": model}) as worker:
        await worker.ask(init(model=""), "init_ok")
        assert (await worker.send("s"))[-1]["response"] == "x"


async def test_a_session_that_cannot_be_opened_is_told_to_each_send(stage: Stage) -> None:
    stage.home.write_text("a file where the store should be")
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        await worker.ask(init(), "init_ok")
        for send_id in ("s", "t"):
            (result,) = await worker.send(send_id)
            assert result["error"]["code"] == "protocol_error"


async def test_a_run_is_in_the_journal_like_any_other(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("Hello."), end()])) as worker:
        await worker.ask(init(), "init_ok")
        await worker.send("s", "greet me")
        await worker.say(SHUTDOWN)
        await worker.rest()
        await worker.code()
    listed = batten(stage, "runs", "--json").stdout
    assert b'"outcome":"completed"' in listed
    run_id = listed.partition(b'"run_id":"')[2].partition(b'"')[0].decode()
    shown = batten(stage, "show", run_id).stdout.decode()
    assert "greet me" in shown
    assert "Hello." in shown
    assert batten(stage, "verify").returncode == 0


async def test_a_signal_ends_the_send_with_its_result(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([bash("sleep 300")])) as worker:
        await worker.say(init(), {"type": "send", "id": "s", "message": "go"})
        await worker.until("tool_start")
        worker.process.send_signal(signal.SIGTERM)
        heard = await worker.until("result", "s")
        assert heard[-1]["error"]["code"] == "cancelled"
        assert await worker.code() == 124


async def test_a_signal_ends_a_worker_that_waits(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        await worker.ask(init(), "init_ok")
        await worker.send("s")
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.code() == 124


async def _doomed(worker: Worker) -> list[Json]:
    await worker.ask(init(max_iterations=10), "init_ok")
    return await worker.send("s")


async def test_three_equal_iterations_are_a_loop_and_two_are_not(stage: Stage) -> None:
    again = [bash("echo again")]
    async with working(stage, "--model", stage.scenario(again, again, again)) as worker:
        heard = await _doomed(worker)
        error = {
            "code": "loop_detected",
            "message": "Doom loop detected: 3 iterations",
            "retryable": False,
        }
        assert events(heard)[-1] == {"event": "error", **error}
        assert (heard[-1]["error"], heard[-1]["iterations"]) == (error, 3)
        assert len(heard[-1]["tool_calls_made"]) == 3
    async with working(stage, "--model", stage.scenario(again, again, [say("x")])) as worker:
        assert (await _doomed(worker))[-1]["status"] == "ok"


@pytest.mark.parametrize(
    ("version", "code"), [("0.2.0", "loop_detected"), ("0.4.0", "max_iterations")]
)
async def test_the_cap_on_iterations_counts(stage: Stage, version: str, code: str) -> None:
    model = stage.scenario([bash("echo 1")], [bash("echo 2")], [say("Never said."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.ask(init(version, max_iterations=1), "init_ok")
        heard = await worker.send("s")
        assert names(heard) == ["tool_start", "tool_end", "error"]
        assert heard[-1]["iterations"] == 1
        assert heard[-1]["error"] == {
            "code": code,
            "message": "Max iterations (1) reached — possible infinite loop",
            "retryable": False,
        }


async def test_a_cap_that_is_none_is_refused(stage: Stage) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        refusal = await worker.ask(init(max_iterations=0), "result")
        assert refusal["error"]["code"] == "protocol_error"
