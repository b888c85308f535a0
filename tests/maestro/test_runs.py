"""Prompts and what they set going: settings, attachments, interrupts, endings, usage."""

import asyncio
import signal

import msgspec
import pytest

from batten.contract.facts import SessionConfigured, UserMessage
from batten.contract.ids import SessionId, session_stream
from batten.protocols.maestro.frames import MaestroFrames
from batten.session.history import envelopes_of, facts_of
from tests.agent.stage import Stage, bash, call, end, fail, say
from tests.maestro.schemas import Json
from tests.maestro.speaking import BATTEN, Speaker, speaking
from tests.models.server import ModelServer, answer
from tests.models.wire import (
    anthropic_block,
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    sse,
)

DONE = [say("Done."), end()]
WORKING = "Headless runtime is already processing a prompt"


async def settings_of(stage: Stage, client: Speaker) -> Json:
    """The settings the session was last given."""
    session_id = client.of("session_info")[0]["session_id"]
    journal = stage.journal()
    facts = [one async for one in facts_of(journal, session_stream(SessionId(session_id)))]
    journal.close()
    return [fact for fact in facts if isinstance(fact, SessionConfigured)][-1].settings


async def prompts_of(stage: Stage) -> list[str]:
    journal = stage.journal()
    facts = [fact for run in await journal.runs() async for fact in facts_of(journal, run.run_id)]
    journal.close()
    return [fact.text for fact in facts if isinstance(fact, UserMessage)]


async def test_init_changes_the_settings_and_names_what_it_changed(stage: Stage) -> None:
    said: list[str] = []
    settings: list[Json] = []
    async with speaking(stage, DONE) as client:
        await client.hello()
        for init in (
            {"append_system_prompt": "More."},
            {"system_prompt": "Own.", "append_system_prompt": "Added."},
            {"append_system_prompt": "Last.", "thinking_level": "low", "approval_mode": "auto"},
            {},
        ):
            client.say("init", **init)
            said.append((await client.until("status"))["message"])
            settings.append(await settings_of(stage, client))
    assert said == [
        "Initialized: append_system_prompt",
        "Initialized: system_prompt, append_system_prompt",
        "Initialized: append_system_prompt, thinking_level, approval_mode",
        "Init received with no changes",
    ]
    first, last = settings[0], settings[-1]
    assert (first["system"], first["append_system"]) == (None, "More.")
    assert (last["system"], last["append_system"]) == ("Own.\n\nAdded.\n\nLast.", "")
    assert (last["thinking_tokens"], last["mode"]) == (2048, "dontAsk")


async def test_files_come_with_a_prompt_and_those_that_cannot_are_named(stage: Stage) -> None:
    (stage.workspace / "notes.md").write_text("remember the milk")
    (stage.workspace / "exact.txt").write_bytes(b"x" * (10 * 1024 * 1024))
    (stage.workspace / "large.txt").write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    (stage.workspace / "binary.dat").write_bytes(b"\0\1\2")
    (stage.workspace / "pixel.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (stage.directory / "home.txt").write_text("from the home")
    paths = [
        *("notes.md", "exact.txt", "pixel.png", "~/home.txt"),
        *("large.txt", "binary.dat", "missing.txt"),
    ]
    async with speaking(stage, DONE, DONE) as client:
        await client.hello()
        await client.prompt("Look.", attachments=paths)
        await client.prompt("Again.", attachments=["missing.txt"])
    assert client.of("status")[0]["message"] == "Loaded 4 attachment(s)"
    refused = [one["message"] for one in client.of("error")]
    named = ["large.txt", "binary.dat", "missing.txt", "missing.txt"]
    assert [one.split(":")[0].removeprefix("Attachment ") for one in refused] == named
    assert not any(one["fatal"] for one in client.of("error"))
    second, first = await prompts_of(stage)
    assert first.startswith("Look.\n\n[Attached file: notes.md]\nremember the milk")
    assert second == "Again."


async def test_one_prompt_is_worked_on_at_a_time_and_an_interrupt_ends_it(stage: Stage) -> None:
    frames = [[bash("echo begun; sleep 60", "c1")], DONE, DONE]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("interrupt")  # with nothing to end, it changes nothing
        client.say("init", approval_mode="auto")
        client.say("prompt", content="go")
        await client.until("tool_output")
        client.say("prompt", content="also")
        error = await client.until("error")
        assert (error["message"], error["fatal"]) == (WORKING, False)
        client.say("cancel")
        client.say("prompt", content="next")  # at once: the one before is ended first
        await client.until("response_end")
        ended = client.of("tool_end")[0]
        assert (ended["success"], ended["error_code"]) == (False, "cancelled")
        await client.until("response_end")
    assert len(client.of("response_start")) == len(client.of("response_end")) == 2
    assert len(client.of("error")) == 1
    assert await prompts_of(stage) == ["next", "go"]


async def test_shutdown_ends_everything_and_leaves_with_success(stage: Stage) -> None:
    frames = [[bash("echo begun; sleep 60", "c1")], DONE]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        client.say("utility_command_start", command_id="u1", command="sleep 60")
        client.say("utility_file_watch_start", watch_id="w1")
        await client.until("utility_file_watch_started")
        client.say("prompt", content="go")
        await client.until("tool_output")
        client.say("shutdown")
        client.say("prompt", content="too late")
        assert await client.rest() == 0
    exited = client.of("utility_command_exited")[0]
    assert exited["reason"] == "Headless runtime shutdown while utility command was still running"
    stopped = client.of("utility_file_watch_stopped")[0]
    assert stopped["reason"] == "Headless runtime shutdown while file watch was still running"
    assert len(client.of("response_end")) == 1


async def test_a_run_that_fails_says_why_before_its_end(stage: Stage) -> None:
    frames = [[fail("fatal", "the model gave up")]]
    async with speaking(stage, *frames) as client:
        await client.hello()
        shown = await client.prompt()
    assert [one["type"] for one in shown] == ["response_start", "error", "response_end"]
    assert shown[1]["message"] == "the model gave up"
    assert shown[1]["fatal"] is False
    assert "ttft_ms" not in shown[2]


async def test_a_signal_ends_the_run_and_the_process(stage: Stage) -> None:
    frames = [[bash("echo begun; sleep 60", "c1")], DONE]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        client.say("prompt", content="go")
        await client.until("tool_output")
        client.signal(signal.SIGTERM)
        assert await client.rest() == 124
    assert client.kinds()[-1] == "response_end"
    assert client.of("error")[0]["error_type"] == "cancelled"


async def test_a_replayed_scenario_goes_on_from_prompt_to_prompt(stage: Stage) -> None:
    frames = [[say("One."), {"kind": "wait_for_user"}], [say("Two."), end()]]
    async with speaking(stage, *frames) as client:
        await client.hello()
        texts: list[str] = []
        for _ in range(3):
            shown = await client.prompt()
            chunks = [one["content"] for one in shown if one["type"] == "response_chunk"]
            texts.append("".join(chunks))
    assert texts == ["One.", "Two.", "Scripted scenario scenario complete."]


async def test_usage_and_thinking_come_from_the_model(stage: Stage) -> None:
    thinking = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see."},
        {"type": "signature_delta", "signature": "s"},
    )
    said = sse(
        anthropic_start(input_tokens=10, cache_read_input_tokens=4, cache_creation_input_tokens=2),
        *thinking,
        *anthropic_text_block(1, "It is so."),
        *anthropic_end(output_tokens=7),
        named=True,
    )
    async with ModelServer([answer(said)]) as server:
        environ = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "k"}
        model = "anthropic/claude-sonnet-4-5"
        async with speaking(stage, model=model, environ=environ) as client:
            await client.hello()
            client.say("init", thinking_level="high")
            shown = await client.prompt()
    assert client.of("ready")[0]["executor_type"] == "live"
    assert client.of("ready")[0]["provider"] == "anthropic"
    chunks = [one for one in shown if one["type"] == "response_chunk"]
    thought = [one["content"] for one in chunks if one["is_thinking"]]
    assert "".join(thought) == "Let me see."
    assert "".join(one["content"] for one in chunks if not one["is_thinking"]) == "It is so."
    assert chunks[0]["is_thinking"]
    usage = shown[-1]["usage"]
    assert (usage["input_tokens"], usage["output_tokens"]) == (10, 7)
    assert (usage["cache_read_tokens"], usage["cache_write_tokens"]) == (4, 2)
    assert usage["total_tokens"] == 23
    assert usage["total_cost_usd"] > 0
    assert usage["provider"] == "anthropic"
    assert server.requests[0].json()["thinking"]["budget_tokens"] == 16_384


async def test_a_tool_has_one_name_whatever_the_model_called_it(stage: Stage) -> None:
    (stage.workspace / "notes.md").write_text("alpha")
    async with speaking(stage, [call("Read", "c1", file_path="notes.md")], DONE) as client:
        await client.hello()
        ended = (await client.prompt())[-1]
    names = [one["tool"] for one in (*client.of("tool_call"), *client.of("tool_end"))]
    assert [*names, *ended["tools_summary"]["tools_used"]] == ["read_file"] * 3


async def test_its_runs_are_runs_like_any_other(stage: Stage) -> None:
    async with speaking(stage, [bash("echo hi", "c1")], DONE) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        await client.prompt("show me")
    journal = stage.journal()
    (run,) = await journal.runs()
    again = MaestroFrames()
    told = [said async for one in envelopes_of(journal, run.run_id) for said in again.feed(one)]
    shown = [msgspec.json.decode(msgspec.json.encode(one)) for one in told]
    start = client.kinds().index("response_start")
    assert shown == client.heard[start:]  # what was shown is what is stored
    session = await journal.session(client.of("session_info")[0]["session_id"])
    journal.close()
    assert session is not None
    assert (session.surface, session.closed) == ("maestro", True)
    assert (run.session_id, run.outcome) == (session.session_id, "completed")
    environ = {**stage.environ, "BATTEN_HOME": str(stage.home)}
    showing = await asyncio.create_subprocess_exec(
        *(BATTEN, "show", run.run_id), env=environ, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await showing.communicate()
    assert b"show me" in output
    assert b"echo hi" in output


@pytest.mark.parametrize("opted_out", [False, True])
async def test_a_conversation_that_outgrows_its_window_is_compacted_and_told_so(
    stage: Stage, opted_out: bool
) -> None:
    prices = stage.directory / "prices.json"
    rows = {"anthropic": [[["=small"], 1000, ["1", "2"]]]}
    prices.write_bytes(msgspec.json.encode({"as_of": "2026-02-03", "providers": rows}))
    replies = [answer(anthropic_turn("a" * 440)) for _ in range(3)]
    summary = answer(anthropic_turn("we talked", input_tokens=700))
    flags = ["--system", "Be brief.", "--no-instructions", "--tools", "todo_write"]
    async with ModelServer([*replies, summary, answer(anthropic_turn("the end"))]) as server:
        environ = {**server.environ(), "BATTEN_PRICES": str(prices)}
        flags += ["--max-output-tokens", "50"]
        async with speaking(stage, model="anthropic/small", environ=environ, flags=flags) as client:
            more = {"opt_out_notifications": ["compaction"]} if opted_out else {}
            await client.hello(**more)
            for number in range(4):
                await client.prompt(f"prompt {number} {'x' * 440}")
    said = "".join(one["content"] for one in client.of("response_chunk"))
    assert said.endswith("the end")
    if opted_out:
        assert client.of("compaction") == []
        return
    (told,) = client.of("compaction")
    assert (told["summary"], told["auto"]) == ("we talked", True)
    assert told["tokens_before"] > 0
    usage = client.of("response_end")[-1]["usage"]
    assert usage["input_tokens"] > 700  # what it cost to compact counts
