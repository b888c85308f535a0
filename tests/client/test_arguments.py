"""What makes no sense is said at once, by name, with what would be right; nothing is started."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from batten.client import (
    CallerError,
    ClientTool,
    Conflict,
    Launch,
    Result,
    Start,
    Transport,
    Worker,
    client_tool,
)
from batten.client import encoding as client_encoding
from batten.embedded import in_process
from batten.serve import stdio
from tests.agent.stage import Stage, bash, end, say
from tests.client.working import working

HALF = "\ud800"


def nowhere(start: Start) -> AbstractAsyncContextManager[Transport]:
    raise AssertionError(start)


async def lent() -> str:
    return ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"approvals": "maybe"}, "approvals is 'maybe'; it must be one of ask, allow, deny"),
        ({"thinking": "huge"}, "thinking is 'huge'; it must be one of off, minimal"),
        ({"resolves": "user_input"}, "a list of some of user_input, mcp_elicitation, tool_retry"),
        ({"resolves": ["approval"]}, "resolves is \\['approval'\\]"),
        ({"tools": lent}, "tools is <function lent"),
        ({"tools": [lent]}, "@client_tool\\(description\\)"),
        ({"tools": [ClientTool(name="t", description="", schema={"x": object()})]}, "init: "),
        ({"model": 5}, "model is 5; it must be provider/model"),
        ({"resume": 5}, "resume is 5"),
        ({"workspace": 5}, "workspace is 5; it must be the path of a directory"),
        ({"flags": "--sandbox none"}, "flags is '--sandbox none'; it must be a list of words"),
        ({"flags": ["--protocol", "acp"]}, "flags has --protocol"),
        ({"flags": ["--protocol=acp"]}, "flags has --protocol"),
        ({"command": "batten"}, "command is 'batten'; it must be a list of words"),
        ({"env": {"DEPTH": 1}}, "env\\['DEPTH'\\] is 1; it must be text"),
        ({"answers_within_s": "5"}, "answers_within_s is '5'; it must be a number of seconds"),
        ({"answers_within_s": 0}, "answers_within_s is 0; it must be a number of seconds"),
        ({"system_prompt": HALF}, "init: .*surrogates not allowed"),
        ({"system_prompt": 5}, "init: Expected `str | null`, got `int`"),
    ],
)
async def test_a_start_that_makes_no_sense_starts_nothing(given: Any, said: str) -> None:
    with pytest.raises(CallerError, match=said):
        async with Worker.start(launch=nowhere, **given):
            pass


async def test_a_worker_in_this_process_is_no_other_program() -> None:
    with pytest.raises(CallerError, match="leave `command` out"):
        async with Worker.start(launch=in_process, command=["batten"]):
            pass


def test_a_tool_is_an_async_function_with_a_description() -> None:
    decorate: Any = client_tool
    with pytest.raises(CallerError, match="@client_tool"):
        decorate(lent)
    with pytest.raises(CallerError, match="no async function"):
        decorate("A tool.")(lambda: "")


async def test_what_cannot_be_said_is_not_said_and_the_worker_goes_on(stage: Stage) -> None:
    asked: list[Callable[[Any], Any]] = [
        lambda worker: worker.ask(None),
        lambda worker: worker.ask(HALF),
        lambda worker: worker.ask("x" * (client_encoding.LONGEST_PROMPT + 1)),
        lambda worker: worker.run_command("x" * stdio.LONGEST_LINE),
        lambda worker: worker.ask("x", "notes.txt"),
        lambda worker: worker.ask("x", [5]),
        lambda worker: worker.read_file(None),
        lambda worker: worker.search_files(None),
        lambda worker: worker.run_command(None),
        lambda worker: worker.run_command(["sleep", 1]),
        lambda worker: worker.run_command("true", cwd=5),
    ]
    assert client_encoding.LONGEST_LINE == stdio.LONGEST_LINE
    async with working(stage, [say("Done."), end()], launch=in_process) as worker:
        for ask in asked:
            with pytest.raises(CallerError):
                await ask(worker)
        assert not worker.is_working
        assert (await worker.ask("go")).completed


async def test_an_attachment_that_is_not_there_is_said_of_in_the_result(
    stage: Stage, launch: Launch
) -> None:
    async with working(stage, [say("Done."), end()], launch=launch) as worker:
        result = await worker.ask("go", ["missing.txt"])
    assert result.completed
    (problem,) = result.problems
    assert "missing.txt" in problem


async def test_an_error_of_who_answers_is_raised_as_it_is(stage: Stage) -> None:
    mine = TimeoutError("mine")

    async def give_up(request: object) -> None:
        raise mine

    frames = [bash("true")], [bash("true")]
    async with working(stage, *frames, launch=in_process, approvals="ask") as worker:
        for within_s in (None, 600.0):
            with pytest.raises(TimeoutError) as raised:
                await worker.ask("go", answer=give_up, within_s=within_s)
            assert raised.value is mine


async def test_a_worker_is_used_on_the_loop_it_was_started_on(stage: Stage) -> None:
    async with working(stage, [say("Done."), end()], launch=in_process) as worker:

        async def ask_elsewhere() -> None:
            for asked in (worker.ask("go"), worker.run_command("true"), worker.read_file("f")):
                with pytest.raises(Conflict, match="another event loop"):
                    await asked

        await asyncio.to_thread(asyncio.run, ask_elsewhere())
        result: Result = await worker.ask("go")
        assert result.completed
