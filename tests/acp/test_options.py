"""Config options: mode, model and thinking, chosen by the editor and kept with the session."""

from pathlib import Path
from typing import Any

import pytest

from acp import RequestError, schema
from batten.contract.facts import SessionConfigured, TurnStarted
from batten.contract.ids import SessionId, session_stream
from batten.session.history import facts_of
from tests.acp.editor import desk, facts
from tests.agent.stage import Stage, bash, end, say
from tests.models.server import ModelServer, answer, refusal
from tests.models.wire import anthropic_turn


def held(options: Any) -> dict[str, str]:
    return {one.id: one.current_value for one in options}


def values(options: Any, option_id: str) -> list[str]:
    (found,) = (one for one in options if one.id == option_id)
    return [choice.value for choice in found.options]


async def test_options_are_offered_with_what_holds_and_their_categories(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("ok"), end()])
    other = stage.scenario([say("ok"), end()], name="other")
    async with desk(stage, model, "--fallback-model", other) as at:
        await at.greet()
        opened = await at.agent.new_session(cwd=str(stage.workspace))
        options: list[Any] = opened.config_options or []
        assert held(options) == {"mode": "default", "model": model, "thinking": "off"}
        assert values(options, "model") == [model, other]
        assert [one.category for one in options] == ["mode", "model", "thought_level"]
        assert opened.modes is not None
        modes = [mode.id for mode in opened.modes.available_modes]
        assert values(options, "mode") == modes


async def test_the_mode_is_the_same_in_both_of_its_places(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([bash("touch made")], [say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        await at.agent.set_session_mode(session_id=session_id, mode_id="plan")
        told = await at.editor.until(schema.ConfigOptionUpdate)
        assert held(told.config_options)["mode"] == "plan"
        changed = await at.agent.set_config_option("mode", session_id, "dontAsk")
        assert held(changed.config_options)["mode"] == "dontAsk"
        await at.editor.until(
            schema.CurrentModeUpdate, lambda one: one.current_mode_id == "dontAsk"
        )
        assert await at.prompt(session_id) == "end_turn"
        assert at.editor.questions == []
        again = await at.agent.resume_session(cwd=str(stage.workspace), session_id=session_id)
        assert again.modes is not None
        assert again.modes.current_mode_id == "dontAsk"
        assert held(again.config_options)["mode"] == "dontAsk"
    assert (stage.workspace / "made").exists()


async def test_a_model_is_chosen_for_the_next_turn_also_while_one_works(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    other = stage.scenario([end()], [say("The other one."), end()], name="other")
    model = stage.scenario([bash("true")], [say("The first one."), end()])
    async with desk(stage, model, "--fallback-model", other) as at:

        async def choose(question: schema.ToolCallUpdate) -> str | None:
            changed = await at.agent.set_config_option("model", session_id, other)
            assert held(changed.config_options)["model"] == other
            return "allow_once"

        at.editor.decide = choose
        await at.greet()
        session_id = await at.new()
        assert await at.prompt(session_id) == "end_turn"
        assert at.editor.text() == "The other one."
    named = [f"scripted/{fact.model}" for fact in await facts(stage, TurnStarted)]
    assert named == [model, other]


async def test_thinking_is_kept_with_the_session(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    model = stage.scenario([say("ok"), end()])
    async with desk(stage, model) as at:
        await at.greet()
        session_id = await at.new()
        await at.agent.set_config_option("thinking", session_id, "high")
    async with desk(stage, model) as at:
        await at.greet()
        loaded = await at.agent.load_session(cwd=str(stage.workspace), session_id=session_id)
        assert held(loaded.config_options)["thinking"] == "high"
    journal = stage.journal()
    stream = session_stream(SessionId(session_id))
    told = [one async for one in facts_of(journal, stream) if isinstance(one, SessionConfigured)]
    journal.close()
    assert told[-1].settings["thinking_tokens"] == 32_768


async def test_what_is_no_choice_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    async with desk(stage, stage.scenario([say("ok"), end()])) as at:
        await at.greet()
        session_id = await at.new()
        wrong: list[tuple[str, str | bool]] = [
            ("nonsense", "x"),
            ("mode", "bypassPermissions"),
            ("mode", True),
            ("model", "anthropic/unheard-of"),
            ("model", "scripted//etc/hostname"),
            ("thinking", "12"),
        ]
        for option_id, value in wrong:
            with pytest.raises(RequestError) as refused:
                await at.agent.set_config_option(option_id, session_id, value)
            assert refused.value.code == -32602
        with pytest.raises(RequestError) as unknown:
            await at.agent.set_config_option("mode", "nobody", "plan")
        assert unknown.value.code == -32002
        again = await at.agent.resume_session(cwd=str(stage.workspace), session_id=session_id)
        assert held(again.config_options)["mode"] == "default"


async def test_another_model_that_answers_is_told_while_it_does(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    first, second = "anthropic/claude-sonnet-4-5", "anthropic/claude-haiku-4-5"
    replies = [
        refusal(404, {"error": {"type": "not_found_error", "message": "gone"}}),
        answer(anthropic_turn("Here.")),
    ]
    async with (
        ModelServer(replies) as server,
        desk(stage, first, "--fallback-model", second, **server.environ()) as at,
    ):
        await at.greet()
        opened = await at.agent.new_session(cwd=str(stage.workspace))
        assert {first, second} < set(values(opened.config_options, "model"))
        assert await at.prompt(opened.session_id) == "end_turn"
        assert at.editor.text() == "Here."
        told = [
            held(one.config_options)["model"] for one in at.editor.of(schema.ConfigOptionUpdate)
        ]
        assert told == [second, first]
