"""A process that is killed, and the next one that goes on with its session."""

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

import pytest

from batten.contract.facts import (
    AssistantTextDelta,
    GapRunDisconnected,
    SessionUtilityStarted,
    ToolInvoked,
)
from batten.contract.ids import SessionId, session_stream
from batten.session.history import facts_of
from tests.agent.stage import Stage, Statement, bash, end, say
from tests.maestro.asking import CLASSES, LOOKUP, PLAIN, answer, asked, mcp, talking
from tests.maestro.schemas import Json
from tests.maestro.speaking import BATTEN, PATIENCE_S, Speaker, speaking

DONE = [say("Done."), end()]
GOING_ON = "Going on after the process that ran this was gone"


async def kill(client: Speaker) -> str:
    """End the process with no chance to say anything; the id of its session."""
    client.signal(signal.SIGKILL)
    await client.gone()
    session_id: str = client.of("ready")[0]["session_id"]
    return session_id


def again(
    stage: Stage,
    session_id: str,
    *frames: Sequence[Statement],
    flags: tuple[str, ...] = PLAIN,
) -> AbstractAsyncContextManager[Speaker]:
    return speaking(stage, *frames, flags=(*flags, "--resume", session_id))


async def facts(stage: Stage) -> list[object]:
    """Those of the one run there is."""
    journal = stage.journal()
    (run,) = await journal.runs()
    found: list[object] = [one async for one in facts_of(journal, run.run_id)]
    assert run.outcome == "completed"
    assert [
        one.status for one in await journal.requests(run.run_id) if one.status == "pending"
    ] == []
    journal.close()
    return found


async def test_a_request_before_its_effect_waits_on_and_is_answered_later(stage: Stage) -> None:
    kind = "approval"
    frames = [[CLASSES[kind].asks], DONE]
    async with talking(stage, kind) as client:
        before = await asked(client, kind)
        session_id = await kill(client)
    async with again(stage, session_id, *frames) as client:
        await client.hello(kind)
        after = await client.until("server_request")
        assert client.of("ready")[0]["session_id"] == session_id
        assert after == before
        client.say("prompt", content="something else")
        await client.until("error", message="Headless runtime is already processing a prompt")
        answer(client, after)
        await client.until("response_end")
        assert [one["message"] for one in client.of("status")].count(GOING_ON) == 1
        (resolved,) = client.of("server_request_resolved")
        assert (resolved["resolution"], resolved["resolved_by"]) == CLASSES[kind].answered
        assert [one["content"] for one in client.of("response_chunk")] == ["Done."]
        await client.prompt("and now")  # the session goes on
    stored = await facts_of_first(stage)
    assert sum(isinstance(fact, ToolInvoked) for fact in stored) == 1


async def facts_of_first(stage: Stage) -> list[object]:
    journal = stage.journal()
    run = (await journal.runs())[-1]
    found: list[object] = [one async for one in facts_of(journal, run.run_id)]
    journal.close()
    return found


WITHIN = ("client_tool", "user_input", "mcp_elicitation", "tool_retry")


@pytest.mark.parametrize("kind", WITHIN)
async def test_a_request_within_or_after_its_call_is_cancelled_and_the_run_goes_on(
    stage: Stage, kind: str
) -> None:
    flags = mcp() if kind == "mcp_elicitation" else PLAIN
    async with talking(stage, kind) as client:
        request = await asked(client, kind)
        session_id = await kill(client)
    async with again(stage, session_id, [CLASSES[kind].asks], DONE, flags=flags) as client:
        await client.hello(kind)
        if not client.of("response_end"):
            await client.until("response_end")
        answer(client, request)
        await client.until("error", message=CLASSES[kind].not_pending + request["request_id"])
    (resolved,) = client.of("server_request_resolved")
    assert resolved["request_id"] == request["request_id"]
    assert (resolved["resolution"], resolved["resolved_by"]) == ("cancelled", "runtime")
    (ended,) = client.of("tool_end")
    failed = "exit_status" if kind == "tool_retry" else "outcome_unknown"
    assert (ended["call_id"], ended["success"], ended["error_code"]) == ("c1", False, failed)
    if kind != "tool_retry":  # which comes after its call; the others are part of it
        assert client.heard.index(resolved) < client.heard.index(ended)
    assert len([fact for fact in await facts(stage) if isinstance(fact, GapRunDisconnected)]) == 1


async def test_an_answer_that_came_while_nobody_ran_is_used(stage: Stage) -> None:
    async with talking(stage, "approval") as client:
        request = await asked(client, "approval")
        session_id = await kill(client)
    environ = {**stage.environ, "BATTEN_HOME": str(stage.home)}
    answering = await asyncio.create_subprocess_exec(
        *(BATTEN, "answer", request["request_id"], "allow"),
        env=environ,
        stdout=asyncio.subprocess.DEVNULL,
    )
    assert await answering.wait() == 0
    async with again(stage, session_id, [CLASSES["approval"].asks], DONE) as client:
        await client.hello("approval")
        if not client.of("response_end"):
            await client.until("response_end")
    (resolved,) = client.of("server_request_resolved")
    assert (resolved["request_id"], resolved["resolution"]) == (request["request_id"], "approved")
    assert client.of("tool_output")[0]["content"] == "ran\n"


async def test_what_was_shown_is_stored_and_nothing_is_done_twice(stage: Stage) -> None:
    frames = [[say("Let me see. "), bash("echo once >> log; echo begun; sleep 60", "c1")], DONE]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="auto")
        client.say("utility_command_start", command_id="u1", command="sleep 60")
        utility = await client.until("utility_command_started")
        client.say("prompt", content="go")
        await client.until("tool_output")
        shown = client.heard[client.kinds().index("response_start") :]
        session_id = await kill(client)
    async with again(stage, session_id, *frames) as client:
        await client.hello()
        if not client.of("response_end"):
            await client.until("response_end")
    told = client.heard[client.kinds().index("response_start") :]
    assert told[: len(shown)] == shown  # the same response, from its beginning
    (ended,) = client.of("tool_end")
    assert (ended["success"], ended["error_code"]) == (False, "outcome_unknown")
    assert (stage.workspace / "log").read_text() == "once\n"
    texts = [fact.delta for fact in await facts(stage) if isinstance(fact, AssistantTextDelta)]
    assert "".join(texts) == "Let me see. Done."
    # Nothing that was started outlives the process, and that it was started is known.
    await until_gone(utility["pid"])
    journal = stage.journal()
    kept = [one async for one in facts_of(journal, session_stream(SessionId(session_id)))]
    journal.close()
    started = [fact for fact in kept if isinstance(fact, SessionUtilityStarted)]
    assert [fact.utility_id for fact in started] == ["u1"]


async def until_gone(pid: int) -> None:
    """The keeper ends what it started when its socket closes, a moment after the kill."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(descriptor, ended.set)
    async with asyncio.timeout(PATIENCE_S):
        await ended.wait()
    asyncio.get_running_loop().remove_reader(descriptor)
    os.close(descriptor)


async def test_a_session_that_ended_well_goes_on_with_the_next_prompt(stage: Stage) -> None:
    frames = [
        [say("One."), {"kind": "wait_for_user"}],
        [bash("echo no", "c1")],
        [say("Two."), end()],
    ]
    async with speaking(stage, *frames) as client:
        await client.hello()
        client.say("init", approval_mode="fail")
        await client.prompt()
        session_id = client.of("ready")[0]["session_id"]
    async with again(stage, session_id, *frames) as client:
        await client.hello("client_tool")
        client.say("init", client_tools=[LOOKUP])
        shown = await client.prompt()
        assert client.of("response_chunk")[0]["content"] == "Two."
        assert client.of("session_info")[0]["session_id"] == session_id
        assert len([one for one in shown if one["type"] == "response_end"]) == 1
        (refused,) = client.of("tool_end")
        assert refused["details"]["summary"] == "Denied by approval policy", "as it was set before"


async def test_a_session_that_cannot_be_gone_on_with_is_a_fatal_start(stage: Stage) -> None:
    async with speaking(stage, DONE) as client:
        await client.hello()
        held = client.of("ready")[0]["session_id"]
        for name in (held, "chat_01M7H4ZMG4E8KVCTNT2SQABE0B"):
            async with again(stage, name, DONE) as other:
                other.say("hello")
                assert await other.rest() != 0
                assert other.of("ready") == []
                error: Json = other.heard[-1]
                assert error["message"].startswith("Headless startup failed: ")
                assert (error["fatal"], error["error_type"]) == (True, "fatal")
        await client.prompt()
