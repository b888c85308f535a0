"""Permission requests: answered by the client, by the operator, twice, late, by nobody, wrongly."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.heddle.working import Json, Worker, events, init, names, working
from tests.session.processes import batten

RUN = bash("echo ran >> ran.txt", "c1")
AGAIN = bash("echo again >> ran.txt", "c2")
REASON = "bash (execute) requires approval in suggest mode"
SUGGEST = {"HEDDLE_APPROVAL_MODE": "suggest"}
NOT_WAITING = "No permission request {} waits for an answer"


@asynccontextmanager
async def asking(
    stage: Stage, *calls: Statement, approvals: Json | None = None, flags: tuple[str, ...] = ()
) -> AsyncGenerator[Worker, None]:
    """A worker in suggest mode whose model makes these calls, one a turn, and then answers."""
    model = stage.scenario(*([one] for one in calls), [say("So it is."), end()])
    async with working(stage, "--model", model, *flags, environ=SUGGEST) as worker:
        config: dict[str, Any] = {} if approvals is None else {"approvals": approvals}
        await worker.ask(init(tools=["bash", "write_file"], **config), "init_ok")
        yield worker


async def asked(worker: Worker) -> Json:
    """The next permission request, of a send that was just made or goes on."""
    event: Json = (await worker.until("permission_request"))[-1]["event"]
    return event


def permission(request_id: str, decision: str, answer_id: str = "p", **more: str) -> Json:
    return {
        "type": "permission",
        "id": answer_id,
        "request_id": request_id,
        "decision": decision,
        **more,
    }


async def go(worker: Worker) -> Json:
    await worker.say({"type": "send", "id": "s", "message": "go"})
    return await asked(worker)


def decisions(stage: Stage) -> list[tuple[str, Any]]:
    """What became of each question, and who answered it."""
    (run,) = batten(stage, "runs", "--json").stdout.splitlines()
    lines = batten(stage, "events", msgspec.json.decode(run)["run_id"]).stdout.splitlines()
    stored = [msgspec.json.decode(line) for line in lines]
    assert batten(stage, "verify").returncode == 0
    return [
        (one["type"].removeprefix("approval."), one["data"].get("by"))
        for one in stored
        if one["type"] in ("approval.resolved", "approval.timed_out")
    ]


async def test_a_client_that_answers_is_told_what_and_until_when(stage: Stage) -> None:
    async with asking(stage, RUN, approvals={}) as worker:
        request = await go(worker)
        assert (request["name"], request["reason"]) == ("bash", REASON)
        assert request["deadline_at"].endswith("Z")
        answered = await worker.ask(permission(request["request_id"], "allow"), "permission_ok")
        assert answered["request_id"] == request["request_id"]
        result = (await worker.until("result", "s"))[-1]
        assert [made["name"] for made in result["tool_calls_made"]] == ["bash"]
    assert (stage.workspace / "ran.txt").read_text() == "ran\n"
    assert decisions(stage) == [("resolved", "client")]


@pytest.mark.parametrize("more", [{}, {"reason": "Not now"}])
async def test_a_denial_is_told_with_the_reason_of_who_denied(
    stage: Stage, more: dict[str, str]
) -> None:
    reason = more.get("reason", "User denied")
    async with asking(stage, RUN, approvals={}) as worker:
        request = await go(worker)
        await worker.say(permission(request["request_id"], "deny", **more))
        heard = await worker.until("result", "s")
        denied = {"event": "permission_denied", "name": "bash", "reason": reason}
        assert events(heard, "permission_denied") == [denied]
        assert heard[-1]["status"] == "ok"
    assert not (stage.workspace / "ran.txt").exists()


async def test_an_answer_for_always_is_asked_for_once(stage: Stage) -> None:
    write = call("write_file", "c3", file_path="new.txt", content="x")
    async with asking(stage, RUN, AGAIN, write, approvals={}) as worker:
        request = await go(worker)
        await worker.say(permission(request["request_id"], "always"))
        other = await asked(worker)
        assert other["name"] == "write_file", "another tool is asked for"
        await worker.say(permission(other["request_id"], "allow"))
        await worker.until("result", "s")
    assert (stage.workspace / "ran.txt").read_text() == "ran\nagain\n"
    assert decisions(stage) == [("resolved", "client")] * 2


async def test_an_answer_for_always_does_not_reach_what_is_protected(stage: Stage) -> None:
    async with asking(stage, RUN, bash("rm -r build", "c2"), approvals={}) as worker:
        request = await go(worker)
        await worker.say(permission(request["request_id"], "always"))
        heard = await worker.until("result", "s")
        assert [made["args"] for made in heard[-1]["tool_calls_made"]] == [
            {"command": "echo ran >> ran.txt"}
        ]
        assert len(events(heard, "permission_denied")) == 1


async def test_a_second_answer_is_refused_and_the_first_one_stands(stage: Stage) -> None:
    async with asking(stage, RUN, approvals={}) as worker:
        request = (await go(worker))["request_id"]
        await worker.say(permission(request, "allow"), permission(request, "deny", "q"))
        heard = await worker.until("result", "q")
        if not any(frame.get("id") == "s" for frame in heard):
            heard += await worker.until("result", "s")
        (refusal,) = [frame for frame in heard if frame.get("id") == "q"]
        assert refusal["error"] == {
            "code": "protocol_error",
            "message": NOT_WAITING.format(request),
            "retryable": False,
        }
        assert "permission_denied" not in names(heard)
    assert decisions(stage) == [("resolved", "client")]


async def test_an_answer_after_its_time_is_refused_and_policy_has_said_no(stage: Stage) -> None:
    async with asking(stage, RUN, approvals={"timeout_ms": 100}) as worker:
        request = (await go(worker))["request_id"]
        heard = await worker.until("result", "s")
        (denied,) = events(heard, "permission_denied")
        assert denied["reason"] == "nobody answered in time"
        refusal = await worker.ask(permission(request, "always"), "result")
        assert refusal["error"]["message"] == NOT_WAITING.format(request)
        assert (await worker.ask({"type": "status", "id": "q"}, "status_ok"))["active"] is False
    assert decisions(stage) == [("timed_out", None)]
    assert not (stage.workspace / "ran.txt").exists()


async def test_an_answer_to_nothing_is_refused_and_the_question_waits_on(stage: Stage) -> None:
    async with asking(stage, RUN, approvals={}) as worker:
        early = await worker.ask(permission("odd", "allow", "e"), "result")
        request = (await go(worker))["request_id"]
        wrong = await worker.ask(permission("odd", "allow"), "result")
        problem = NOT_WAITING.format("odd")
        assert early["error"]["message"] == wrong["error"]["message"] == problem
        unclear = await worker.ask(permission(request, "perhaps", "u"), "result")
        assert unclear["error"]["message"].startswith("Invalid permission request")
        await worker.say(permission(request, "allow", "v"))
        assert (await worker.until("result", "s"))[-1]["tool_calls_made"]


@pytest.mark.parametrize("farewell", [b"", b'{"type":"shutdown","id":"z"}\n'])
async def test_a_client_that_leaves_is_waited_for_no_longer(stage: Stage, farewell: bytes) -> None:
    async with asking(stage, RUN, AGAIN, approvals={}) as worker:
        await go(worker)
        await worker.write(farewell)
        heard = await worker.rest()
        gone = "nobody is there to give approval"
        assert [one["reason"] for one in events(heard, "permission_denied")] == [gone] * 2
        (result,) = [frame for frame in heard if frame["type"] == "result"]
        assert (result["status"], result["response"]) == ("ok", "So it is.")
        assert await worker.code() == 0
    assert decisions(stage) == [("resolved", "policy")]


async def test_a_cancel_ends_a_send_that_waits_for_an_answer(stage: Stage) -> None:
    async with asking(stage, RUN, approvals={}) as worker:
        request = (await go(worker))["request_id"]
        await worker.say({"type": "cancel", "id": "c", "target_id": "s"})
        (result,) = await worker.until("result", "s")
        assert result["error"]["code"] == "cancelled"
        late = await worker.ask(permission(request, "allow"), "result")
        assert late["error"]["message"] == NOT_WAITING.format(request)
    assert decisions(stage) == [("resolved", "runtime")]


async def test_a_client_that_did_not_say_so_cannot_answer(stage: Stage) -> None:
    async with asking(stage, RUN) as worker:
        heard = await worker.send("s")
        assert names(heard)[:2] == ["permission_request", "permission_denied"]
        assert "request_id" not in events(heard, "permission_request")[0]
        refusal = await worker.ask(permission("any", "allow"), "result")
        assert refusal["error"]["message"] == "Unknown message type: permission"


async def test_the_operator_may_answer_for_a_client_that_does_not(stage: Stage) -> None:
    async with asking(stage, RUN, flags=("--ask-operator",)) as worker:
        request = await go(worker)
        assert "request_id" not in request
        waiting = (await asyncio.to_thread(batten, stage, "requests", "--json")).stdout
        request_id = msgspec.json.decode(waiting.splitlines()[0])["request_id"]
        ended = await asyncio.to_thread(batten, stage, "answer", request_id, "allow")
        assert ended.returncode == 0
        assert (await worker.until("result", "s"))[-1]["tool_calls_made"]
        twice = await asyncio.to_thread(batten, stage, "answer", request_id, "deny")
        assert twice.returncode != 0
    assert decisions(stage) == [("resolved", "operator")]


async def test_a_worker_killed_while_it_waits_leaves_a_question_that_can_be_answered(
    stage: Stage,
) -> None:
    async with asking(stage, RUN, approvals={}) as worker:
        await go(worker)
        worker.process.kill()
        await worker.process.wait()
    assert batten(stage, "verify").returncode == 0
    (waiting,) = batten(stage, "requests", "--json").stdout.splitlines()
    assert msgspec.json.decode(waiting)["status"] == "pending"
