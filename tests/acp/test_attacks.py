"""Editors that do not do what they lend, servers that do not start, agents that are killed."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from acp import RequestError, schema
from batten.contract.facts import (
    RunFinished,
    ToolCompleted,
    ToolFailed,
    ToolInvoked,
    ToolTimedOut,
)
from tests.acp import broken_tool
from tests.acp.editor import desk, facts
from tests.acp.wire import Json, Wire, fresh, greeted, text, wire
from tests.agent.stage import Stage, bash, call, end, say

LENT: Json = {
    "protocolVersion": 1,
    "clientCapabilities": {"fs": {"readTextFile": True}, "terminal": True},
}
READ = call("read_file", file_path="a.txt")
QUICK = ("--request-seconds", "0.3", "--permission-mode", "dontAsk")


async def until_asked(at: Wire, stage: Stage, method: str) -> tuple[int, Json]:
    """The id of a prompt, and the first thing of this kind that its run asks the editor."""
    session_id = await fresh(at, stage)
    prompt = at.send("session/prompt", {"sessionId": session_id, "prompt": [text("go")]})
    while (message := await at.next()).get("method") != method:
        pass
    return prompt, message


def reply(at: Wire, question: Json, **said: object) -> None:
    at.write(msgspec.json.encode({"jsonrpc": "2.0", "id": question["id"], **said}) + b"\n")


async def test_a_file_of_a_hundred_megabytes_is_refused_and_the_turn_goes_on(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    (stage.workspace / "a.txt").write_text("saved\n")
    async with wire(stage, model=stage.scenario([READ], [say("ok"), end()])) as at:
        await greeted(at, LENT)
        prompt, question = await until_asked(at, stage, "fs/read_text_file")
        assert at.process.stdin is not None
        at.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":"' % question["id"])
        for _ in range(100):
            at.write(b"x" * (1 << 20))
            await at.process.stdin.drain()
        at.write(b'"}}\n')
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
        prompt, question = await until_asked(at, stage, "fs/read_text_file")
        reply(at, question, result={"content": "x" * (9 << 20)})
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
    whys = [str(fact.output) for fact in await facts(stage, ToolFailed)]
    assert ["67108864" in whys[0], "8388608" in whys[1]] == [True, True]
    assert len(await facts(stage, RunFinished)) == 2


async def test_a_request_that_is_too_long_is_refused_by_its_id(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with wire(stage) as at:
        await greeted(at)
        assert at.process.stdin is not None
        at.official.client_said({"id": "mine", "method": "session/prompt"})
        at.write(b'{"jsonrpc":"2.0","id":"mine","method":"session/prompt","params":{"x":"')
        for _ in range(65):
            at.write(b"x" * (1 << 20))
            await at.process.stdin.drain()
        at.write(b'"}}\n')
        assert (await at.answer("mine"))["error"]["code"] == -32600
        assert "result" in await at.ask("session/list")


async def test_a_file_that_the_editor_cannot_give_is_the_disk_s(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (stage.workspace / "a.txt").write_text("saved\n")
    async with wire(stage, model=stage.scenario([READ], [say("ok"), end()])) as at:
        await greeted(at, LENT)
        prompt, question = await until_asked(at, stage, "fs/read_text_file")
        reply(at, question, error={"code": -32603, "message": "no buffer"})
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
        prompt, question = await until_asked(at, stage, "fs/read_text_file")
        reply(at, question, result={"text": "what was not asked for"})
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
    assert [fact.output for fact in await facts(stage, ToolCompleted)] == ["saved\n"]
    assert len(await facts(stage, ToolFailed)) == 1


async def test_an_editor_that_never_answers_holds_nothing_up(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (stage.workspace / "a.txt").write_text("saved\n")
    model = stage.scenario([READ, bash("true")], [say("ok"), end()])
    async with wire(stage, *QUICK, model=model) as at:
        await greeted(at, LENT)
        prompt, reading = await until_asked(at, stage, "fs/read_text_file")
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
        asked = [one for one in at.heard if "id" in one and "method" in one]
        assert {one["method"] for one in asked} == {"fs/read_text_file", "terminal/create"}
        withdrawn = [one for one in at.heard if one.get("method") == "$/cancel_request"]
        assert [one["params"]["requestId"] for one in withdrawn] == [one["id"] for one in asked]
        # A terminal that comes after all is nobody's.
        reply(at, asked[-1], result={"terminalId": "late"})
        reply(at, reading, result={"content": "late"})
        assert "result" in await at.ask("session/list")
    assert ["within 0.3 s" in str(one.output) for one in await facts(stage, ToolFailed)] == [
        True,
        True,
    ]


async def test_a_terminal_that_vanishes_is_a_failed_call(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("true")], [say("ok"), end()])
    gone: Json = {"code": -32002, "message": "no such terminal"}
    async with wire(stage, "--permission-mode", "dontAsk", model=model) as at:
        await greeted(at, LENT)
        prompt, creating = await until_asked(at, stage, "terminal/create")
        reply(at, creating, result={"terminalId": "t"})
        while "result" not in (message := await at.next()) or message["id"] != prompt:
            if "id" in message and "method" in message:
                reply(at, message, error=gone)
        methods = [one["method"] for one in at.heard if one.get("method", "").startswith("term")]
        assert methods == ["terminal/create", "terminal/wait_for_exit", "terminal/release"]
        prompt, creating = await until_asked(at, stage, "terminal/create")
        reply(at, creating, error=gone)
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
    assert len(await facts(stage, ToolFailed)) == 2


async def test_a_terminal_that_neither_ends_nor_answers_ends_with_the_call_s_time(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    slow = call("bash", command="sleep 60", timeout=0.2)
    flags = ("--request-seconds", "2", "--permission-mode", "dontAsk")
    async with wire(stage, *flags, model=stage.scenario([slow], [say("ok"), end()])) as at:
        await greeted(at, LENT)
        prompt, creating = await until_asked(at, stage, "terminal/create")
        reply(at, creating, result={"terminalId": "t"})
        assert (await at.answer(prompt))["result"] == {"stopReason": "end_turn"}
        asked = {one["method"] for one in at.heard if "id" in one and "method" in one}
        assert {"terminal/kill", "terminal/release"} < asked
    assert len([*await facts(stage, ToolTimedOut), *await facts(stage, ToolFailed)]) == 1


async def test_sessions_that_work_in_turns_never_mix(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario(
        [say("One. "), bash("pwd")], [say("Two."), end()], [say("Three. "), bash("pwd")], [end()]
    )
    places = [tmp_path / name for name in ("a", "b")]
    async with desk(stage, model) as at:
        asked: dict[str, asyncio.Event] = {}

        async def in_turns(question: schema.ToolCallUpdate) -> str | None:
            """Each waits until the other one is asked too."""
            asked.setdefault(question.tool_call_id, asyncio.Event())
            async with at.editor.heard:
                at.editor.heard.notify_all()
                await at.editor.heard.wait_for(lambda: len(asked) % 2 == 0)
            return "allow_once"

        at.editor.decide = in_turns
        await at.greet()
        for place in places:
            place.mkdir()
        opened = [(await at.agent.new_session(cwd=str(place))).session_id for place in places]
        for _ in range(2):
            async with asyncio.TaskGroup() as group:
                turns = [group.create_task(at.prompt(one)) for one in opened]
            assert [turn.result() for turn in turns] == ["end_turn", "end_turn"]
        for session_id, place in zip(opened, places, strict=True):
            assert at.editor.text(session_id) == "One. Two.Three. "
            ended: list[Any] = [
                one
                for one in at.editor.of(schema.ToolCallProgress, session_id)
                if one.status == "completed"
            ]
            assert [one.content[0].content.text for one in ended] == [str(place)] * 2


async def test_a_session_whose_agent_was_killed_in_a_tool_is_loaded_and_goes_on(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo x >> times; echo begun; sleep 60")], [say("Here."), end()])
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.begun(session_id)
        async with desk(stage, model) as other:
            await other.greet()
            with pytest.raises(RequestError) as held:
                await other.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
            assert held.value.code == -32600
            at.process.kill()
            with pytest.raises(ConnectionError):
                await turn
            await at.process.wait()
            await other.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
            assert other.editor.of(schema.ToolCallProgress)[-1].status == "failed"
            assert await other.prompt(session_id) == "end_turn"
            assert other.editor.text() == "Here."
    assert (stage.workspace / "times").read_text() == "x\n"
    assert len(await facts(stage, ToolInvoked)) == 1


async def test_what_nobody_foresaw_is_an_error_of_its_request_and_ends_no_other_session(
    tmp_path: Path,
) -> None:
    stage = Stage(tmp_path)
    program = (sys.executable, broken_tool.__file__)
    async with wire(stage, program=program) as at:
        await greeted(at)
        session_id = await fresh(at, stage)
        (stage.directory / "broken").touch()
        new: Json = {"cwd": str(stage.workspace), "mcpServers": []}
        for _ in range(2):
            refused = (await at.ask("session/new", new))["error"]
            assert (refused["code"], "ValueError" in refused["data"]["details"]) == (-32603, True)
        (stage.directory / "broken").unlink()
        prompt = {"sessionId": session_id, "prompt": [text("go")]}
        assert (await at.ask("session/prompt", prompt))["result"] == {"stopReason": "end_turn"}
        # What was half open is free again.
        listed: list[Json] = (await at.ask("session/list"))["result"]["sessions"]
        for one in listed:
            assert "result" in await at.ask("session/resume", {**new, **one})


async def test_a_server_that_does_not_start_is_told_and_the_session_works(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("Without it."), end()])
    missing = schema.McpServerStdio(name="gone", command="/nowhere/server", args=[], env=[])
    dies = schema.McpServerStdio(
        name="dies", command=sys.executable, args=["-c", "raise SystemExit(3)"], env=[]
    )
    away = schema.HttpMcpServer(type="http", name="away", url="http://127.0.0.1:9/", headers=[])
    async with desk(stage, model) as at:
        await at.greet()
        opened = await at.agent.new_session(
            cwd=str(stage.workspace), mcp_servers=[missing, dies, away]
        )
        meta: Any = opened.field_meta
        states = {one["name"]: one["status"] for one in meta["batten"]["mcpServers"]}
        assert states == {"gone": "failed", "dies": "failed", "away": "failed"}
        assert await at.prompt(opened.session_id) == "end_turn"
        assert at.editor.text() == "Without it."
