"""A question on the bare wire: answered twice, late, never, wrongly, or by somebody else."""

import asyncio
from pathlib import Path

import msgspec

from batten.contract.facts import ApprovalResolved, ApprovalTimedOut, ToolInvoked
from tests.acp.editor import BATTEN, facts
from tests.acp.wire import Json, Wire, opened, text, wire
from tests.agent.stage import Stage, bash, end, say

ASK = "session/request_permission"
ALLOW: Json = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
REJECT: Json = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}


def scenario(stage: Stage) -> str:
    return stage.scenario([bash("touch made")], [say("ok"), end()])


async def asked(at: Wire, stage: Stage) -> tuple[int, Json]:
    """The id of a prompt, and the question that its run asks."""
    session_id = await opened(at, stage)
    prompt = at.send("session/prompt", {"sessionId": session_id, "prompt": [text("go")]})
    while (message := await at.next()).get("method") != ASK:
        pass
    return prompt, message


def reply(at: Wire, question: Json, **said: object) -> None:
    at.write(msgspec.json.encode({"jsonrpc": "2.0", "id": question["id"], **said}) + b"\n")


async def test_the_first_answer_counts_and_a_second_means_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with wire(stage, model=scenario(stage)) as at:
        prompt, question = await asked(at, stage)
        reply(at, question, result=REJECT)
        reply(at, question, result=ALLOW)
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
    assert [fact.decision for fact in facts(stage, ApprovalResolved)] == ["rejected"]
    assert not (stage.workspace / "made").exists()


async def test_a_question_nobody_answers_is_withdrawn_and_denied_in_time(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    flags = ("--request-seconds", "0.3")
    async with wire(stage, *flags, model=scenario(stage)) as at:
        prompt, question = await asked(at, stage)
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
        withdrawn = [one for one in at.heard if one.get("method") == "$/cancel_request"]
        assert [one["params"]["requestId"] for one in withdrawn] == [question["id"]]
        reply(at, question, result=ALLOW)
        assert "result" in await at.ask("session/list")
    assert len(facts(stage, ApprovalTimedOut)) == 1
    assert facts(stage, ToolInvoked) == []


async def test_an_answer_that_is_none_denies(tmp_path: Path) -> None:
    wrong: list[Json] = [
        {"result": {"outcome": "yes"}},
        {"result": None},
        {"result": {"outcome": {"outcome": "selected", "optionId": "nonsense"}}},
        {"error": {"code": -32601, "message": "no such method"}},
    ]
    for number, said in enumerate(wrong):
        stage = Stage(tmp_path / str(number))
        async with wire(stage, model=scenario(stage)) as at:
            prompt, question = await asked(at, stage)
            reply(at, question, **said)
            assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert [fact.decision for fact in facts(stage, ApprovalResolved)] == ["rejected"]
        assert facts(stage, ToolInvoked) == []


async def test_somebody_else_may_answer_first_and_the_client_is_asked_no_more(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    async with wire(stage, model=scenario(stage)) as at:
        prompt, _ = await asked(at, stage)
        journal = stage.journal()
        (run,) = journal.runs()
        (waiting,) = journal.requests(run.run_id)
        journal.close()
        elsewhere = await asyncio.create_subprocess_exec(
            str(BATTEN),
            "answer",
            waiting.request_id,
            "allow",
            env={**stage.environ, "BATTEN_HOME": str(stage.home)},
        )
        assert await elsewhere.wait() == 0
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
        assert any(one.get("method") == "$/cancel_request" for one in at.heard)
    assert [fact.by for fact in facts(stage, ApprovalResolved)] == ["operator"]
    assert (stage.workspace / "made").exists()


async def test_a_run_whose_agent_was_killed_is_loaded_with_its_call_failed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = scenario(stage)
    async with wire(stage, model=model) as at:
        _, question = await asked(at, stage)
        session_id = question["params"]["sessionId"]
        at.process.kill()
        await at.process.wait()
    async with wire(stage, model=model) as at:
        await at.ask("initialize", {"protocolVersion": 1})
        here: Json = {"sessionId": session_id, "cwd": str(stage.workspace), "mcpServers": []}
        assert "result" in await at.ask("session/load", here)
        told = [one["params"]["update"] for one in at.heard if one.get("method")]
        assert [one["sessionUpdate"] for one in told] == [
            "user_message_chunk",
            "tool_call",
            "tool_call_update",
        ]
        assert told[-1]["status"] == "failed"
        prompt = {"sessionId": session_id, "prompt": [text("and now?")]}
        assert (await at.ask("session/prompt", prompt))["result"] == {"stopReason": "end_turn"}
    assert not (stage.workspace / "made").exists()
