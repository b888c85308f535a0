"""Sessions: several at once, loaded, resumed, listed, closed, and their modes."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from acp import RequestError, schema
from batten.contract.facts import RunQueued, SessionConfigured
from batten.contract.ids import SessionId, session_stream
from batten.session.history import facts_of
from tests.acp.editor import BATTEN, Editor, desk, facts
from tests.acp.http_server import http_server, sse_server
from tests.agent.stage import Stage, bash, call, end, say

SERVER = Path(__file__).with_name("asking_server.py")


def told(editor: Editor) -> list[tuple[str, str]]:
    """What was said and done, in the order it was shown; pieces of one message together."""
    said: list[tuple[str, str]] = []
    message: str | None = None
    for _, update in editor.updates:
        match update:
            case schema.UserMessageChunk() | schema.AgentMessageChunk():
                kind = update.session_update.removesuffix("_message_chunk")
                text = update.content.text
                if update.message_id == message:
                    text = said.pop()[1] + text
                message = update.message_id
                said.append((kind, text))
            case schema.ToolCallStart():
                said.append(("call", update.title))
            case schema.ToolCallProgress() if update.status in ("completed", "failed"):
                said.append((update.status, ""))
            case _:
                pass
    return said


async def test_a_loaded_session_shows_all_that_was_said_and_done(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    edit = call("write_file", file_path="a.txt", content="one\n")
    model = stage.scenario(
        [say("Let me write."), edit, bash("false")], [say("Done."), end()], [say("Again."), end()]
    )
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        session_id = await at.new()
        await at.prompt(session_id, "write it")
        await at.prompt(session_id, "and now?")
        first = told(at.editor)
    async with desk(stage, model) as at:
        await at.greet()
        loaded = await at.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
        assert loaded.modes is not None
        assert loaded.modes.current_mode_id == "dontAsk"
        again = told(at.editor)
        assert [one for one in again if one[0] != "user"] == first
        assert [text for kind, text in again if kind == "user"] == ["write it", "and now?"]
        (diff,) = at.editor.contents("diff")
        assert (diff.path, diff.old_text, diff.new_text) == (
            str(stage.workspace / "a.txt"),
            None,
            "one\n",
        )
        at.editor.updates.clear()
        assert await at.prompt(session_id, "more") == "end_turn"
        assert "complete" in at.editor.text()


async def test_a_resumed_session_goes_on_and_shows_nothing_again(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("First."), end()], [say("Second."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        await at.prompt(session_id)
    async with desk(stage, model) as at:
        await at.greet()
        await at.agent.resume_session(cwd=str(stage.workspace), session_id=session_id)
        assert at.editor.updates == []
        assert await at.prompt(session_id) == "end_turn"
        assert at.editor.text() == "Second."


async def test_a_session_in_use_elsewhere_is_not_loaded(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("First."), end()])
    async with desk(stage, model) as at, desk(stage, model) as other:
        await at.greet()
        await other.greet()
        session_id = await at.new()
        with pytest.raises(RequestError) as refused:
            await other.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
        assert refused.value.code == -32600
        with pytest.raises(RequestError) as unknown:
            await other.agent.load_session(cwd=str(stage.workspace), session_id="nobody")
        assert unknown.value.code == -32002


async def test_sessions_are_listed_newest_first_with_what_was_asked(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    model = stage.scenario([say("Hello."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        first, second = await at.new(), await at.new()
        elsewhere = (await at.agent.new_session(cwd=str(other))).session_id
        await at.prompt(first, "the first\nthing")
        await at.prompt(second, "the second thing")
        listed = (await at.agent.list_sessions()).sessions
        assert {one.session_id for one in listed} == {first, second, elsewhere}
        here = (await at.agent.list_sessions(cwd=str(stage.workspace))).sessions
        assert [(one.session_id, one.title) for one in here] == [
            (second, "the second thing"),
            (first, "the first thing"),
        ]
        assert here[0].cwd == str(stage.workspace)
        with pytest.raises(RequestError):
            await at.agent.list_sessions(cursor="nonsense")


async def test_several_sessions_work_at_once(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    wait = "touch here; while [ ! -e go ]; do sleep 0.05; done"
    model = stage.scenario([bash(wait)], [say("Done."), end()])
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        places = [tmp_path / name for name in ("a", "b", "c")]
        for place in places:
            place.mkdir()
        opened = [(await at.agent.new_session(cwd=str(place))).session_id for place in places]
        turns = [asyncio.ensure_future(at.prompt(one)) for one in opened]
        for place in reversed(places):
            (place / "go").touch()
        assert [await turn for turn in turns] == ["end_turn"] * 3
        for one in opened:
            assert at.editor.text(one) == "Done."
    assert all((place / "here").exists() for place in places)
    assert {fact.workspace_path for fact in await facts(stage, RunQueued)} == set(map(str, places))


async def test_a_prompt_does_not_overlap_another_of_its_session(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo begun; sleep 60")], [say("no"), end()])
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        await at.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.begun(session_id)
        with pytest.raises(RequestError) as refused:
            await at.prompt(session_id, "me too")
        assert refused.value.code == -32600
        with pytest.raises(RequestError):
            await at.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"


async def test_a_closed_session_cancels_its_turn_and_is_free_for_others(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo begun; sleep 60")], [say("Here."), end()])
    async with (
        desk(stage, model, "--permission-mode", "dontAsk") as at,
        desk(stage, model) as other,
    ):
        await at.greet()
        await other.greet()
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await at.editor.begun(session_id)
        await at.agent.close_session(session_id=session_id)
        assert await turn == "cancelled"
        with pytest.raises(RequestError) as gone:
            await at.prompt(session_id)
        assert gone.value.code == -32002
        await other.agent.resume_session(cwd=str(stage.workspace), session_id=session_id)
        assert await other.prompt(session_id) == "end_turn"


async def test_a_mode_holds_at_once_and_is_kept_with_the_session(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch made")], [say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet()
        opened = await at.agent.new_session(cwd=str(stage.workspace))
        assert opened.modes is not None
        assert opened.modes.current_mode_id == "default"
        offered = [mode.id for mode in opened.modes.available_modes]
        assert offered == ["default", "acceptEdits", "plan", "auto", "dontAsk"]
        await at.agent.set_session_mode(session_id=opened.session_id, mode_id="plan")
        (changed,) = at.editor.of(schema.CurrentModeUpdate)
        assert changed.current_mode_id == "plan"
        assert await at.prompt(opened.session_id) == "end_turn"
        assert at.editor.questions == []
        for wrong in ("bypassPermissions", "nonsense"):
            with pytest.raises(RequestError) as refused:
                await at.agent.set_session_mode(session_id=opened.session_id, mode_id=wrong)
            assert refused.value.code == -32602
    assert not (stage.workspace / "made").exists()
    journal = stage.journal()
    stream = session_stream(SessionId(opened.session_id))
    configured = [
        one async for one in facts_of(journal, stream) if isinstance(one, SessionConfigured)
    ]
    assert configured[-1].settings["mode"] == "plan"
    journal.close()


async def test_servers_that_the_client_passes_in_are_used(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([call("mcp__notes__greeting")], [say("ok"), end()])
    server = schema.McpServerStdio(
        name="notes",
        command=sys.executable,
        args=[str(SERVER)],
        env=[schema.EnvVariable(name="GREETING", value="${HOME} *")],
    )
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new(mcp_servers=[server])
        assert await at.prompt(session_id) == "end_turn"
        (started,) = at.editor.of(schema.ToolCallStart)
        assert started.kind == "other"
        last: Any = at.editor.of(schema.ToolCallProgress)[-1]
        assert last.status == "completed"
        assert last.content[0].content.text == "${HOME} *"


async def test_servers_that_listen_elsewhere_are_used_with_their_headers(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([call("mcp__away__team")], [say("ok"), end()])
    async with http_server() as url, desk(stage, model) as at:
        await at.greet()
        header = schema.HttpHeader(name="X-Team", value="blue ${HOME}")
        server = schema.HttpMcpServer(type="http", name="away", url=url, headers=[header])
        session_id = await at.new(mcp_servers=[server])
        assert await at.prompt(session_id) == "end_turn"
        last: Any = at.editor.of(schema.ToolCallProgress)[-1]
        assert (last.status, last.content[0].content.text) == ("completed", "blue ${HOME}")


async def test_servers_over_sse_are_used_with_their_headers(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([call("mcp__away__team")], [say("ok"), end()])
    async with sse_server() as url, desk(stage, model) as at:
        await at.greet()
        header = schema.HttpHeader(name="X-Team", value="red ${HOME}")
        server = schema.SseMcpServer(type="sse", name="away", url=url, headers=[header])
        session_id = await at.new(mcp_servers=[server])
        assert await at.prompt(session_id) == "end_turn"
        last: Any = at.editor.of(schema.ToolCallProgress)[-1]
        assert (last.status, last.content[0].content.text) == ("completed", "red ${HOME}")


async def test_what_is_not_supported_is_said_in_the_capabilities(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with desk(stage, stage.scenario([end()])) as at:
        agent = (await at.greet()).agent_capabilities
        assert agent is not None
        told = agent.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert told == {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "mcpCapabilities": {"http": True, "sse": True, "acp": False},
        "sessionCapabilities": {
            name: {}
            for name in ("list", "resume", "fork", "close", "delete", "additionalDirectories")
        },
        "auth": {"logout": None},
    }


async def test_directories_that_the_client_adds_are_the_session_s_too(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    beside = tmp_path / "beside"
    beside.mkdir()
    paths = (beside / "new.txt", tmp_path / "no.txt")
    writes = [call("write_file", file_path=str(path), content="x") for path in paths]
    model = stage.scenario(writes, [say("done"), end()])
    async with desk(stage, model) as at:
        await at.greet()
        new = await at.agent.new_session(
            cwd=str(stage.workspace), mcp_servers=[], additional_directories=[str(beside)]
        )
        await at.agent.set_session_mode(session_id=new.session_id, mode_id="acceptEdits")
        await at.prompt(new.session_id)
    assert (beside / "new.txt").read_text() == "x"
    assert not (tmp_path / "no.txt").exists()


async def test_a_fork_shares_the_history_and_leaves_the_original_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("First."), end()], [say("Second."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        original = await at.new()
        await at.prompt(original, "one")
        await at.agent.set_session_mode(session_id=original, mode_id="plan")
        at.editor.updates.clear()
        here = str(stage.workspace)
        fork = await at.agent.fork_session(session_id=original, cwd=here, mcp_servers=[])
        assert at.editor.updates == []
        assert fork.session_id != original
        assert fork.modes is not None
        assert fork.modes.current_mode_id == "plan"
        assert await at.prompt(fork.session_id, "two") == "end_turn"
        assert at.editor.text(fork.session_id) == "Second."
        listed = {one.session_id for one in (await at.agent.list_sessions()).sessions}
        assert listed == {original, fork.session_id}
    expected = [("user", "one"), ("agent", "First.")]
    more = [("user", "two"), ("agent", "Second.")]
    for session_id, said in ((original, expected), (fork.session_id, expected + more)):
        async with desk(stage, model) as at:
            await at.greet()
            await at.agent.load_session(cwd=here, session_id=session_id)
            assert told(at.editor) == said


async def test_a_session_without_prompts_can_be_forked(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with desk(stage, stage.scenario([say("First."), end()])) as at:
        await at.greet()
        original, here = await at.new(), str(stage.workspace)
        await at.agent.set_session_mode(session_id=original, mode_id="plan")
        fork = await at.agent.fork_session(session_id=original, cwd=here, mcp_servers=[])
        assert fork.session_id != original
        assert fork.modes is not None
        assert fork.modes.current_mode_id == "plan"
        for session_id in (fork.session_id, original):
            assert await at.prompt(session_id) == "end_turn"


async def test_authenticate_knows_the_one_method_there_is(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with desk(stage, stage.scenario([end()])) as at:
        greeted = await at.greet()
        assert [one.id for one in greeted.auth_methods or []] == ["environment"]
        await at.agent.authenticate(method_id="environment")
        with pytest.raises(RequestError) as refused:
            await at.agent.authenticate(method_id="nonsense")
        assert refused.value.code == -32602


async def test_requests_are_answered_and_modes_hold_while_a_prompt_works(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch a", "a")], [bash("touch b", "b")], [say("ok"), end()])
    async with desk(stage, model) as at:

        async def let_go(asked: schema.ToolCallUpdate) -> str | None:
            listed = await at.agent.list_sessions()
            assert [one.session_id for one in listed.sessions] == [session_id]
            await at.agent.set_session_mode(session_id=session_id, mode_id="dontAsk")
            return "allow_once"

        at.editor.decide = let_go
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id) == "end_turn"
        assert [asked.title for asked in at.editor.questions] == ["touch a"]
    assert (stage.workspace / "b").exists()


async def test_a_branch_is_loaded_with_what_came_before_it(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("First."), end()], [say("Second."), end()], [say("Third."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        original = await at.new()
        await at.prompt(original, "one")
        await at.prompt(original, "two")
    await batten(stage, "-p", "three", "--resume", original, "--fork-session")
    async with desk(stage, model) as at:
        await at.greet()
        listed = (await at.agent.list_sessions()).sessions
        (branch,) = [one.session_id for one in listed if one.session_id != original]
        await at.agent.load_session(cwd=str(stage.workspace), session_id=branch)
        assert told(at.editor) == [
            ("user", "one"),
            ("agent", "First."),
            ("user", "two"),
            ("agent", "Second."),
            ("user", "three"),
            ("agent", "Third."),
        ]


async def test_a_run_of_an_editor_is_a_run_like_any_other(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("echo hi")], [say("Done."), end()])
    async with desk(stage, model) as at:
        await at.greet()
        await at.prompt(await at.new())
    journal = stage.journal()
    (run,) = await journal.runs()
    journal.close()
    assert "echo hi" in await batten(stage, "show", run.run_id)
    await batten(stage, "verify")


async def batten(stage: Stage, *words: str) -> str:
    """What the command line says; it must end well."""
    process = await asyncio.create_subprocess_exec(
        str(BATTEN),
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        env={**stage.environ, "BATTEN_HOME": str(stage.home)},
        cwd=str(stage.workspace),
    )
    said, _ = await process.communicate()
    assert process.returncode == 0
    return said.decode()
