"""The bare wire: what is no message, names nothing, or does not fit is answered with its code."""

import base64
from pathlib import Path

import msgspec

from batten.contract.facts import RunCancelled
from tests.acp.editor import facts
from tests.acp.wire import HELLO, Json, Wire, fresh, greeted, opened, text, wire
from tests.agent.stage import Stage, bash, end, say

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()


async def test_every_version_is_answered_with_ours(tmp_path: Path) -> None:
    async with wire(Stage(tmp_path)) as at:
        greeted = await at.ask("initialize", {"protocolVersion": 99})
        assert greeted["result"]["protocolVersion"] == 1
        assert greeted["result"]["agentCapabilities"]["loadSession"] is True
        assert await at.code("initialize", HELLO) == -32600


NO_MESSAGES: list[tuple[bytes, int]] = [
    (b"nonsense", -32700),
    (b'{"jsonrpc":"2.0","id":1,', -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', -32700),
    (b"[" * 100_000, -32700),
    (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', -32600),
    (b'"text"', -32600),
    (b'{"id":1,"method":"initialize"}', -32600),
    (b'{"jsonrpc":"2.0","id":1}', -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"initialize"}', -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"initialize"}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":[]}', -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":null}', -32602),
]


async def test_what_is_no_message_is_answered_and_the_next_one_is_read(tmp_path: Path) -> None:
    async with wire(Stage(tmp_path)) as at:
        for line, code in NO_MESSAGES:
            at.write(line + b"\n\n")
            assert (await at.next())["error"]["code"] == code, line[:80]
        assert (await at.ask("initialize", HELLO))["result"]["protocolVersion"] == 1


async def test_a_line_beyond_the_limit_is_skipped_and_the_next_one_is_read(tmp_path: Path) -> None:
    async with wire(Stage(tmp_path)) as at:
        assert at.process.stdin is not None
        for _ in range(65):
            at.write(b"x" * (1 << 20))
            await at.process.stdin.drain()
        at.write(b"\n")
        assert (await at.next())["error"]["code"] == -32600
        assert (await at.ask("initialize", HELLO))["result"]["protocolVersion"] == 1


async def test_wrong_requests_are_typed_and_the_session_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    here = str(stage.workspace)
    async with wire(stage) as at:
        assert await at.code("session/new", {"cwd": here, "mcpServers": []}) == -32600
        session_id = await opened(at, stage)
        assert await at.code("session/nonsense") == -32601
        assert await at.code("_custom/method") == -32601
        assert await at.code("session/cancel", {"sessionId": session_id}) == -32601
        assert await at.code("session/new", {"cwd": "relative", "mcpServers": []}) == -32602
        assert await at.code("session/new", {"cwd": here}) == -32602
        (stage.workspace / "file").touch()
        for place in (f"{here}/none", f"{here}/file", "", "/\0"):
            assert await at.code("session/new", {"cwd": place, "mcpServers": []}) == -32602, place
        for place in ("relative", "/\0"):
            assert await at.code("session/list", {"cwd": place}) == -32602, place
        odd: Json = {"name": "a", "command": "/bin/\0", "args": ["\0"], "env": []}
        made = await at.ask("session/new", {"cwd": here, "mcpServers": [odd]})
        assert made["result"]["_meta"]["batten"]["mcpServers"][0]["status"] == "failed"
        assert await at.code("session/load", {**made["result"], "cwd": "/\0"}) == -32602
        away: Json = {"name": "a", "type": "acp", "url": "http://127.0.0.1:1", "headers": []}
        assert await at.code("session/new", {"cwd": here, "mcpServers": [away]}) == -32602
        for beside in ("relative", f"{here}/none", f"{here}/file", "/", str(stage.home), "/\0"):
            more: Json = {"cwd": here, "mcpServers": [], "additionalDirectories": [beside]}
            assert await at.code("session/new", more) == -32602, beside
        assert await at.code("logout") == -32601
        for wrong in (
            *({"sessionId": session_id}, {"sessionId": session_id, "cwd": "relative"}),
            {"sessionId": session_id, "cwd": here, "additionalDirectories": ["/"]},
        ):
            assert await at.code("session/fork", wrong) == -32602
        assert await at.code("session/fork", {"sessionId": "nobody", "cwd": here}) == -32002
        twice: list[Json] = [{"name": "a", "command": "/bin/true", "args": [], "env": []}] * 2
        assert await at.code("session/new", {"cwd": here, "mcpServers": twice}) == -32602
        assert await at.code("session/prompt", {"sessionId": "x", "prompt": [text("go")]}) == -32002
        several: list[list[Json]] = [
            [],
            [{"type": "nonsense"}],
            [{"type": "text"}],
            [text("  ")],
            [{"type": "audio", "data": "", "mimeType": "audio/wav"}],
            [{"type": "image", "data": "***", "mimeType": "image/png"}],
            [{"type": "image", "data": PNG, "mimeType": "image/tiff"}],
            [{"type": "resource", "resource": {"uri": "file:///a"}}],
        ]
        for blocks in several:
            params = {"sessionId": session_id, "prompt": blocks}
            assert await at.code("session/prompt", params) == -32602
        right = {"sessionId": session_id, "prompt": [text("go")]}
        answered = await at.ask("session/prompt", right)
        assert answered["result"] == {"stopReason": "end_turn"}


async def test_notifications_and_answers_that_mean_nothing_are_passed_over(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with wire(stage) as at:
        several: list[Json] = [
            {"method": "_custom/thing"},
            {"method": "session/cancel", "params": {"sessionId": "nobody"}},
            {"method": "session/cancel", "params": 7},
            {"method": "session/prompt", "params": {}},
            {"method": "$/cancel_request", "params": {"requestId": 99}},
            {"id": 7, "result": {}},
            {"id": "x", "error": {"code": -1, "message": "no"}},
            {"id": "x", "error": "no"},
        ]
        for said in several:
            at.write(msgspec.json.encode({"jsonrpc": "2.0", **said}) + b"\n")
        await opened(at, stage)
        assert len(at.heard) == 2


async def test_a_prompt_that_is_withdrawn_as_a_request_is_cancelled(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo begun; sleep 60")], [say("no"), end()])
    async with wire(stage, "--permission-mode", "dontAsk", model=model) as at:
        session_id = await opened(at, stage)
        asked = at.send("session/prompt", {"sessionId": session_id, "prompt": [text("go")]})
        while "begun" not in str(await at.next()):
            pass
        at.notify("$/cancel_request", {"requestId": asked})
        assert (await at.answer(asked))["result"] == {"stopReason": "cancelled"}


async def test_a_request_that_is_withdrawn_in_the_same_write_is_answered(tmp_path: Path) -> None:
    """Both are read before the request has begun to be carried out."""
    stage = Stage(tmp_path)
    async with wire(stage) as at:
        await at.ask("initialize", HELLO)
        for _ in range(2):  # its id is free again
            several: list[Json] = [
                {"id": "same", "method": "session/list", "params": {}},
                {"method": "$/cancel_request", "params": {"requestId": "same"}},
            ]
            at.write(
                b"".join(
                    msgspec.json.encode({"jsonrpc": "2.0", **said}) + b"\n" for said in several
                )
            )
            answered = await at.next()
            assert (answered["id"], answered["error"]["code"]) == ("same", -32800)


async def test_a_client_that_stops_reading_for_good_ends_the_run(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo begun; sleep 60")], [say("no"), end()])
    async with wire(stage, "--permission-mode", "dontAsk", model=model) as at:
        session_id = await opened(at, stage)
        at.send("session/prompt", {"sessionId": session_id, "prompt": [text("go")]})
        while "begun" not in str(await at.next()):
            pass
        at.reading.close()
        at.send("session/list")
        await at.process.wait()
    assert len(await facts(stage, RunCancelled)) == 1


async def test_a_deleted_session_is_listed_no_more_until_it_is_gone_on_with(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with wire(stage, "--permission-mode", "dontAsk") as at:
        kept, gone = await opened(at, stage), await fresh(at, stage)
        prompt: Json = {"sessionId": gone, "prompt": [text("go")]}
        await at.ask("session/prompt", prompt)
        for _ in range(2):
            assert (await at.ask("session/delete", {"sessionId": gone}))["result"] == {}
            assert await listed(at) == [kept]
        assert (await at.ask("session/delete", {"sessionId": "nobody"}))["result"] == {}
        assert await at.code("session/prompt", prompt) == -32002
        async with wire(stage) as other:
            await greeted(other)
            assert await other.code("session/delete", {"sessionId": kept}) == -32600
        here: Json = {"sessionId": gone, "cwd": str(stage.workspace), "mcpServers": []}
        assert "result" in await at.ask("session/load", here)
        assert "user_message_chunk" in str(at.heard[-3:])
        await at.ask("session/close", {"sessionId": gone})
        assert set(await listed(at)) == {kept, gone}
    journal = stage.journal()
    assert [await journal.verify(run.run_id) for run in await journal.runs()] == [[]]
    journal.close()


async def listed(at: Wire) -> list[str]:
    return [one["sessionId"] for one in (await at.ask("session/list"))["result"]["sessions"]]


async def test_a_session_that_is_loaded_while_it_is_closed_is_open_then(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with wire(stage) as at:
        session_id = await opened(at, stage)
        known: Json = {"sessionId": session_id, "cwd": str(stage.workspace), "mcpServers": []}
        at.send("session/close", {"sessionId": session_id})
        assert "result" in await at.ask("session/load", known)
        prompted = {"sessionId": session_id, "prompt": [text("go")]}
        answered = await at.ask("session/prompt", prompted)
        assert answered["result"] == {"stopReason": "end_turn"}


async def test_nothing_but_messages_is_on_standard_output(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with wire(stage) as at:
        session_id = await opened(at, stage)
        await at.ask("session/prompt", {"sessionId": session_id, "prompt": [text("go")]})
        at.write(b'{"jsonrpc":"2.0","id":5,"method":"session/list"')
        assert at.process.stdin is not None
        at.process.stdin.close()
        rest = (await at.reader.read()).splitlines()
    assert [msgspec.json.decode(line)["error"]["code"] for line in rest] == [-32700]
