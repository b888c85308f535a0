"""Questions in words: the editor's user is asked with a form or an address, if it has such."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from acp import schema
from batten.contract.facts import RequestClosed, RequestOpened, ToolCompleted, ToolFailed
from tests.acp.editor import desk, facts, filling_in
from tests.agent.stage import Stage, call, end, say

SERVER = Path(__file__).with_name("asking_server.py")
ASK = call("ask_user", "c1", question="Which colour?", options=["red", "blue"])


async def test_a_question_of_the_model_is_a_form_and_its_answer_is_told(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([ASK], [say("Blue it is."), end()])
    async with desk(stage, model) as at:
        at.editor.fill_in = filling_in(answer="blue")
        await at.greet(forms=True)
        session_id = await at.new()
        assert await at.prompt(session_id) == "end_turn"
        ((message, mode),) = at.editor.forms
        (started,) = at.editor.of(schema.ToolCallStart)
        assert isinstance(mode, schema.ElicitationFormSessionMode)
        assert (message, mode.session_id) == ("Which colour?", session_id)
        assert mode.tool_call_id == started.tool_call_id
        properties: Any = mode.requested_schema.properties
        assert properties["answer"].enum == ["red", "blue"]
        assert mode.requested_schema.required == ["answer"]
    (opened,) = await facts(stage, RequestOpened)
    (closed,) = await facts(stage, RequestClosed)
    assert (opened.request_class, closed.resolution, closed.by) == (
        "user_input",
        "answered",
        "client",
    )
    (told,) = await facts(stage, ToolCompleted)
    assert told.output == "blue"


async def test_a_user_who_declines_or_looks_away_gives_no_answer(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([ASK], [say("Then not."), end()])
    said: list[Any] = [
        schema.DeclineElicitationResponse(action="decline"),
        schema.CancelElicitationResponse(action="cancel"),
    ]
    async with desk(stage, model) as at:
        for one in tuple(said):

            async def fill_in(message: str, mode: Any, one: Any = one) -> Any:
                return one

            at.editor.fill_in = fill_in
            if not at.editor.forms:
                await at.greet(forms=True)
            assert await at.prompt(await at.new()) == "end_turn"
        assert at.editor.text() == "Then not." * 2
    assert [fact.resolution for fact in await facts(stage, RequestClosed)] == ["failed", "failed"]
    assert len(await facts(stage, ToolFailed)) == 2


async def test_an_editor_without_forms_is_not_asked(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([ASK], [say("Then not."), end()])
    async with desk(stage, model) as at:
        await at.greet(urls=True)
        assert await at.prompt(await at.new()) == "end_turn"
        assert at.editor.forms == []
    assert await facts(stage, RequestOpened) == []
    assert len(await facts(stage, ToolFailed)) == 1


async def test_a_cancel_ends_the_form_that_waits(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([ASK], [say("no"), end()])
    asked, answered = asyncio.Event(), asyncio.Event()

    async def fill_in(message: str, mode: Any) -> Any:
        asked.set()
        await answered.wait()
        return schema.AcceptElicitationResponse(action="accept", content={"answer": "red"})

    async with desk(stage, model) as at:
        at.editor.fill_in = fill_in
        await at.greet(forms=True)
        session_id = await at.new()
        turn = asyncio.ensure_future(at.prompt(session_id))
        await asked.wait()
        await at.agent.cancel(session_id=session_id)
        assert await turn == "cancelled"
        answered.set()
        assert await at.prompt(session_id) == "end_turn"
    assert [fact.resolution for fact in await facts(stage, RequestClosed)] == ["cancelled"]


async def test_a_server_s_questions_are_put_as_it_asks_them(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario(
        [call("mcp__tiny__ask_word"), call("mcp__tiny__visit")], [say("ok"), end()]
    )
    server = schema.McpServerStdio(name="tiny", command=sys.executable, args=[str(SERVER)], env=[])
    async with desk(stage, model, "--permission-mode", "dontAsk") as at:
        at.editor.fill_in = filling_in(word="weft")
        await at.greet(forms=True, urls=True)
        session_id = await at.new(mcp_servers=[server])
        assert await at.prompt(session_id) == "end_turn"
        (first, form), (second, address) = at.editor.forms
        assert (first, second) == ("Which word?", "Please look here.")
        assert isinstance(form, schema.ElicitationFormSessionMode)
        assert list(form.requested_schema.properties or {}) == ["word"]
        assert isinstance(address, schema.ElicitationUrlSessionMode)
        assert (str(address.url), address.elicitation_id) == ("https://example.test/look", "e1")
    assert [fact.request_class for fact in await facts(stage, RequestOpened)] == [
        "mcp_elicitation"
    ] * 2
    assert [fact.output for fact in await facts(stage, ToolCompleted)] == ["weft", "accept"]
