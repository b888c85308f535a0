"""Calls to the platform's gateway carry the ids of their run, and nothing of its content."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.stage import Stage
from tests.models.server import ModelServer, answer
from tests.models.wire import chat_turn
from tests.session.processes import batten

LAUNCHED = {
    "MAESTRO_EVALOPS_ORG_ID": "org_1",
    "MAESTRO_EVALOPS_WORKSPACE_ID": "ws_1",
    "MAESTRO_AGENT_ID": "agent_1",
    "MAESTRO_OBJECTIVE_ID": "objective_1",
    "MAESTRO_AGENT_RUN_STEP_ID": "step_1",
    "MAESTRO_USER_ID": "user_1",
    "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
}


async def ask(stage: Stage, *flags: str) -> str:
    """One run to its end; the id of the newest."""
    said = ("-p", "a secret plan", "--sandbox", "none", "--auto-allow")
    ended = await asyncio.to_thread(batten, stage, *said, *flags)
    assert ended.returncode == 0, ended.stderr.decode()
    listed = await asyncio.to_thread(batten, stage, "runs", "--json")
    return listed.stdout.decode().partition('"run_id":"')[2].partition('"')[0]


@pytest.mark.parametrize("named", [{}, {"MAESTRO_AGENT_RUN_ID": "ar_1", "MAESTRO_SURFACE": "ide"}])
async def test_each_call_names_the_run_the_turn_and_the_launcher(
    tmp_path: Path, named: dict[str, str]
) -> None:
    replies = [
        answer(chat_turn("", [("call_1", "bash", {"command": "true"})])),
        answer(chat_turn("Done.")),
    ]
    async with ModelServer(replies) as server:
        environ = {
            "MAESTRO_LLM_GATEWAY_URL": f"{server.url}/v1",
            "MAESTRO_EVALOPS_ACCESS_TOKEN": "gateway-token",
            **LAUNCHED,
            **named,
        }
        run_id = await ask(Stage(tmp_path, environ), "--model", "evalops/any-model")
        bodies = [one.json() for one in server.requests]
        headers = server.requests[0].headers
    assert (headers["authorization"], headers["x-organization-id"]) == (
        "Bearer gateway-token",
        "org_1",
    )
    found = [body["metadata"] for body in bodies]
    assert [one.pop("turn_id") for one in found] == ["1", "2"]
    session = found[0].pop("session_id")
    assert found[0].pop("maestro_session_id") == session
    assert session.startswith("chat_")
    assert found[0] == {
        "agent_id": "agent_1",
        "workspace_id": "ws_1",
        "objective_id": "objective_1",
        "run_id": run_id,
        "agent_run_id": named.get("MAESTRO_AGENT_RUN_ID", run_id),
        "agent_run_step_id": "step_1",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "surface": named.get("MAESTRO_SURFACE", "maestro"),
    }


async def test_other_providers_are_told_none_of_it(tmp_path: Path) -> None:
    async with ModelServer([answer(chat_turn("Done."))]) as server:
        environ = {"COMPAT_BASE_URL": f"{server.url}/v1", **LAUNCHED}
        await ask(Stage(tmp_path, environ), "--model", "compat/any-model")
        [request] = server.requests
    assert "metadata" not in request.json()
    assert b"org_1" not in request.body
    assert "x-organization-id" not in request.headers


async def test_a_child_names_the_call_that_started_it(tmp_path: Path) -> None:
    replies = [
        answer(chat_turn("", [("call_1", "agent", {"prompt": "look"})])),
        answer(chat_turn("Seen.")),
        answer(chat_turn("Done.")),
    ]
    async with ModelServer(replies) as server:
        environ = {"MAESTRO_LLM_GATEWAY_URL": f"{server.url}/v1"}
        child_id = await ask(Stage(tmp_path, environ), "--model", "evalops/any-model")
        first, child, last = [one.json()["metadata"] for one in server.requests]
    assert child["run_id"] == child_id
    assert first["run_id"] == last["run_id"] != child_id
    assert (first["turn_id"], child["turn_id"], last["turn_id"]) == ("1", "1", "2")
    assert [one.get("tool_call_id") for one in (first, child, last)] == [None, "call_1", None]
