"""Questions on the bare wire, of each kind: answered, answered twice, late, never, wrongly, with an
error, by somebody else, or by a client that is gone.
"""

import asyncio
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from batten.contract.facts import (
    ApprovalResolved,
    ApprovalTimedOut,
    Fact,
    RequestClosed,
    ToolCompleted,
)
from tests.acp.editor import BATTEN, facts
from tests.acp.wire import Json, Wire, fresh, greeted, text, wire
from tests.agent.stage import Stage, Statement, bash, call, end, say

FORMS: Json = {"protocolVersion": 1, "clientCapabilities": {"elicitation": {"form": {}}}}


class Kind(NamedTuple):
    """One kind of question: what has it asked, and what a yes and a no are."""

    method: str
    asks: Statement
    yes: Json
    no: Json
    malformed: list[Json]


def chosen(option_id: str) -> Json:
    return {"outcome": {"outcome": "selected", "optionId": option_id}}


KINDS = {
    "permission": Kind(
        "session/request_permission",
        bash("touch made"),
        chosen("allow_once"),
        chosen("reject_once"),
        [{"outcome": "yes"}, {"outcome": {"outcome": "perhaps"}}, chosen("nonsense"), {}],
    ),
    "elicitation": Kind(
        "elicitation/create",
        call("ask_user", question="Which colour?"),
        {"action": "accept", "content": {"answer": "red"}},
        {"action": "decline"},
        [{"action": 7}, {"action": "accept", "content": {}}, {"action": "perhaps"}, {}],
    ),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


def scenario(stage: Stage, kind: Kind) -> str:
    return stage.scenario([kind.asks], [say("ok"), end()])


async def asked(at: Wire, stage: Stage, kind: Kind) -> tuple[int, Json]:
    """The id of a prompt in a session of its own, and the question that its run asks."""
    session_id = await fresh(at, stage)
    prompt = at.send("session/prompt", {"sessionId": session_id, "prompt": [text("go")]})
    while (message := await at.next()).get("method") != kind.method:
        pass
    assert message["params"]["sessionId"] == session_id
    return prompt, message


def reply(at: Wire, question: Json, **said: object) -> None:
    at.write(msgspec.json.encode({"jsonrpc": "2.0", "id": question["id"], **said}) + b"\n")


async def stop_reason(at: Wire, prompt: int) -> str:
    reason: str = (await at.answer(prompt))["result"]["stopReason"]
    return reason


async def endings(stage: Stage) -> list[str]:
    """How each question ended, oldest first, in the words of an approval."""
    words = {"answered": "approved", "failed": "rejected"}
    ended: list[str] = []
    for fact in await facts(stage, Fact):
        match fact:
            case ApprovalResolved():
                ended.append(fact.decision)
            case RequestClosed():
                ended.append(words.get(fact.resolution, fact.resolution))
            case ApprovalTimedOut():
                ended.append("timed_out")
            case _:
                pass
    return ended


@each_kind
async def test_each_question_has_one_answer_and_what_is_none_denies(
    tmp_path: Path, kind: Kind
) -> None:
    stage = Stage(tmp_path)
    async with wire(stage, model=scenario(stage, kind)) as at:
        await greeted(at, FORMS)
        answered, question = await asked(at, stage, kind)
        reply(at, question, result=kind.yes)
        assert await stop_reason(at, answered) == "end_turn"

        twice, question = await asked(at, stage, kind)
        reply(at, question, result=kind.no)
        reply(at, question, result=kind.yes)
        assert await stop_reason(at, twice) == "end_turn"

        odd: list[object] = [None, "yes", 7, [1], *kind.malformed]
        wrong: list[Json] = [
            *({"result": said} for said in odd),
            {"error": {"code": -32601, "message": "no such method"}},
            {"error": "no"},
        ]
        for said in wrong:
            prompt, question = await asked(at, stage, kind)
            reply(at, question, **said)
            assert await stop_reason(at, prompt) == "end_turn"
    assert await endings(stage) == ["approved", *["rejected"] * (1 + len(wrong))]
    assert len(await facts(stage, ToolCompleted)) == 1


@each_kind
async def test_an_answer_that_comes_after_a_cancel_is_nothing_to_anybody(
    tmp_path: Path, kind: Kind
) -> None:
    stage = Stage(tmp_path)
    async with wire(stage, model=scenario(stage, kind)) as at:
        await greeted(at, FORMS)
        prompt, question = await asked(at, stage, kind)
        session_id = question["params"]["sessionId"]
        at.notify("session/cancel", {"sessionId": session_id})
        at.notify("session/cancel", {"sessionId": session_id})
        assert await stop_reason(at, prompt) == "cancelled"
        reply(at, question, result=kind.yes)
        reply(at, question, error={"code": -32800, "message": "Request cancelled"})
        again = {"sessionId": session_id, "prompt": [text("and now?")]}
        assert (await at.ask("session/prompt", again))["result"] == {"stopReason": "end_turn"}
    assert await endings(stage) == ["cancelled"]
    assert await facts(stage, ToolCompleted) == []


@each_kind
async def test_a_question_nobody_answers_is_withdrawn_and_denied_in_time(
    tmp_path: Path, kind: Kind
) -> None:
    stage = Stage(tmp_path)
    async with wire(stage, "--request-seconds", "1", model=scenario(stage, kind)) as at:
        await greeted(at, FORMS)
        prompt, question = await asked(at, stage, kind)
        assert await stop_reason(at, prompt) == "end_turn"
        withdrawn = [one for one in at.heard if one.get("method") == "$/cancel_request"]
        assert [one["params"]["requestId"] for one in withdrawn] == [question["id"]]
        reply(at, question, result=kind.yes)
        assert "result" in await at.ask("session/list")
    assert await endings(stage) == ["timed_out"]
    assert await facts(stage, ToolCompleted) == []


@each_kind
async def test_a_client_that_is_gone_gives_no_answer(tmp_path: Path, kind: Kind) -> None:
    stage = Stage(tmp_path)
    async with wire(stage, model=scenario(stage, kind)) as at:
        await greeted(at, FORMS)
        prompt, _ = await asked(at, stage, kind)
        assert at.process.stdin is not None
        at.process.stdin.close()
        assert await stop_reason(at, prompt) == "cancelled"
        assert await at.process.wait() == 0
    (ended,) = await endings(stage)
    assert ended in ("cancelled", "rejected")
    assert await facts(stage, ToolCompleted) == []


@each_kind
async def test_somebody_else_may_answer_first_and_the_client_is_asked_no_more(
    tmp_path: Path, kind: Kind
) -> None:
    stage = Stage(tmp_path)
    async with wire(stage, model=scenario(stage, kind)) as at:
        await greeted(at, FORMS)
        prompt, question = await asked(at, stage, kind)
        journal = stage.journal()
        (run,) = await journal.runs()
        (waiting,) = await journal.requests(run.run_id)
        journal.close()
        elsewhere = await asyncio.create_subprocess_exec(
            str(BATTEN),
            "answer",
            waiting.request_id,
            "allow",
            env={**stage.environ, "BATTEN_HOME": str(stage.home)},
        )
        assert await elsewhere.wait() == 0
        assert await stop_reason(at, prompt) == "end_turn"
        withdrawn = [one for one in at.heard if one.get("method") == "$/cancel_request"]
        assert [one["params"]["requestId"] for one in withdrawn] == [question["id"]]
    assert await endings(stage) == ["approved"]
    assert len(await facts(stage, ToolCompleted)) == 1


async def test_a_run_whose_agent_was_killed_is_loaded_with_its_call_failed(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    kind = KINDS["permission"]
    model = scenario(stage, kind)
    async with wire(stage, model=model) as at:
        await greeted(at)
        _, question = await asked(at, stage, kind)
        session_id = question["params"]["sessionId"]
        at.process.kill()
        await at.process.wait()
    async with wire(stage, model=model) as at:
        await greeted(at)
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
        assert [one for one in at.heard if one.get("method") == kind.method] == []
    assert not (stage.workspace / "made").exists()
