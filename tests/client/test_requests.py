"""What a run asks its embedder: each class answered, refused, answered twice, and never."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.client import (
    ApprovalAsked,
    ClientTool,
    ClientToolCalled,
    Conflict,
    ElicitationAsked,
    Ended,
    Event,
    Launch,
    Picture,
    QuestionAsked,
    Request,
    RequestResolved,
    RetryAsked,
    ToolEnded,
    ToolOutput,
    Worker,
    client_tool,
)
from batten.embedded import in_process
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.client.working import of, until, working

DONE = [say("Done."), end()]
SCHEMA = {"properties": {"key": {"type": "string"}}, "required": ["key"]}
LOOKUP = ClientTool(name="lookup", description="Looks something up.", schema=SCHEMA)
FRAMES: dict[type[Request], list[Statement]] = {
    ApprovalAsked: [bash("echo ran", "c1")],
    ClientToolCalled: [call("lookup", "c1", key="k")],
    QuestionAsked: [call("ask_user", "c1", question="Which one?", options=["a", "b"])],
    RetryAsked: [bash("echo tried; exit 3", "c1")],
}
OPTIONS: dict[type[Request], dict[str, Any]] = {
    ApprovalAsked: {"approvals": "ask"},
    ClientToolCalled: {"approvals": "allow", "tools": [LOOKUP]},
    QuestionAsked: {"approvals": "allow", "resolves": ["user_input"]},
    RetryAsked: {"approvals": "allow", "resolves": ["tool_retry"]},
}
SERVER = Path(__file__).parents[1] / "maestro" / "asking_server.py"
each_kind = pytest.mark.parametrize("kind", list(FRAMES), ids=lambda kind: kind.__name__)


async def say_yes(request: Request) -> None:
    match request:
        case ApprovalAsked():
            await request.allow()
        case ClientToolCalled():
            await request.answer(f"the value of {request.arguments['key']}")
        case QuestionAsked():
            assert (request.question, request.options) == ("Which one?", ["a", "b"])
            await request.answer("the second")
        case RetryAsked():
            await request.decide("skip", "not worth it")
        case _:
            raise AssertionError(request)


RESOLVED: dict[type[Request], tuple[str, str]] = {
    ApprovalAsked: ("approved", "denied"),
    ClientToolCalled: ("completed", "failed"),
    QuestionAsked: ("answered", "failed"),
    RetryAsked: ("skipped", "skipped"),
}
TOLD: dict[type[Request], list[str]] = {
    ApprovalAsked: ["ran\n"],
    ClientToolCalled: ["the value of k"],
    QuestionAsked: ["the second"],
    RetryAsked: ["tried\n"],
}


@each_kind
async def test_a_request_is_an_event_that_is_answered_through_itself(
    stage: Stage, launch: Launch, kind: type[Request]
) -> None:
    events: list[Event] = []
    async with (
        working(stage, FRAMES[kind], DONE, launch=launch, **OPTIONS[kind]) as worker,
        worker.prompt("go") as run,
    ):
        async for event in run:
            events.append(event)
            if isinstance(event, Request):
                assert type(event) is kind
                await say_yes(event)
                with pytest.raises(Conflict, match="is over"):
                    await event.refuse()
    (resolved,) = of(events, RequestResolved)
    assert resolved.resolution == RESOLVED[kind][0]
    assert [output.text for output in of(events, ToolOutput)] == TOLD[kind]
    assert run.result.completed


@each_kind
async def test_a_request_can_be_refused_and_the_run_goes_on(
    stage: Stage, launch: Launch, kind: type[Request]
) -> None:
    events: list[Event] = []
    async with (
        working(stage, FRAMES[kind], DONE, launch=launch, **OPTIONS[kind]) as worker,
        worker.prompt("go") as run,
    ):
        async for event in run:
            events.append(event)
            if isinstance(event, Request):
                await event.refuse("Not today")
    (resolved,) = of(events, RequestResolved)
    assert resolved.resolution == RESOLVED[kind][1]
    assert not of(events, ToolEnded)[0].success
    assert (run.result.outcome, run.result.text) == ("completed", "Done.")


@each_kind
async def test_a_request_that_nobody_answers_ends_in_time_and_is_over_then(
    stage: Stage, launch: Launch, kind: type[Request]
) -> None:
    options: dict[str, Any] = {**OPTIONS[kind], "answers_within_s": 0.3}
    async with (
        working(stage, FRAMES[kind], DONE, launch=launch, **options) as worker,
        worker.prompt("go") as run,
    ):
        asked = await until(run, kind)
        await until(run, RequestResolved)
        with pytest.raises(Conflict):
            await say_yes(asked)
        await until(run, Ended)


@each_kind
async def test_asking_without_an_answerer_refuses_what_is_asked(
    stage: Stage, launch: Launch, kind: type[Request]
) -> None:
    async with working(stage, FRAMES[kind], DONE, launch=launch, **OPTIONS[kind]) as worker:
        result = await worker.ask("go")
    assert (result.outcome, result.calls_succeeded) == ("completed", 0)


@each_kind
async def test_asking_with_an_answerer_puts_what_is_asked_to_it(
    stage: Stage, kind: type[Request]
) -> None:
    async with working(stage, FRAMES[kind], DONE, **OPTIONS[kind]) as worker:
        result = await worker.ask("go", answer=say_yes)
    assert result.calls_succeeded == (kind is not RetryAsked)


async def test_nothing_is_asked_of_an_embedder_that_answers_nothing(
    stage: Stage, launch: Launch
) -> None:
    frames = FRAMES[ApprovalAsked], FRAMES[QuestionAsked], FRAMES[RetryAsked], DONE
    async with working(stage, *frames, launch=launch) as worker, worker.prompt("go") as run:
        events = [event async for event in run]
    assert of(events, Request) == []
    assert [event.error_code for event in of(events, ToolEnded)] == [
        "permission_denied",
        "nobody_answers",
        "permission_denied",
    ]


async def test_a_denied_call_never_begins_and_the_model_is_told_why(
    stage: Stage, launch: Launch
) -> None:
    frames = [bash("touch ran", "c1")], DONE
    async with (
        working(stage, *frames, launch=launch, approvals="ask") as worker,
        worker.prompt("go") as run,
    ):
        asked = await until(run, ApprovalAsked)
        assert (asked.tool, asked.arguments) == ("bash", {"command": "touch ran"})
        await asked.deny("not on a Monday")
        ended = await until(run, ToolEnded)
    assert ended.error_code == "permission_denied"
    assert "not on a Monday" in ended.summary
    assert not (stage.workspace / "ran").exists()


async def test_a_retry_is_tried_again_and_an_abort_ends_the_run(
    stage: Stage, launch: Launch
) -> None:
    frames = [bash("echo x >> tries; exit 3", "c1")], DONE
    options = OPTIONS[RetryAsked]
    async with (
        working(stage, *frames, launch=launch, **options) as worker,
        worker.prompt("go") as run,
    ):
        await (await until(run, RetryAsked)).decide("retry")
        await (await until(run, RetryAsked)).decide("abort", "enough")
        await until(run, Ended)
    assert not run.result.completed
    assert (stage.workspace / "tries").read_text() == "x\nx\n"


@client_tool("Looks something up.", SCHEMA)
async def lookup(key: str) -> str:
    if key == "bad":
        raise LookupError(f"no {key}")
    if key == "left":
        raise asyncio.CancelledError
    return f"the value of {key}"


@client_tool("Draws.", name="draw")
async def picture() -> list[str | Picture]:
    return ["see", Picture(b"\x89PNG", "image/png")]


async def test_a_function_is_a_tool(stage: Stage, launch: Launch) -> None:
    keys = ("k", "bad", "left")
    calls = [[call("lookup", f"c{number}", key=key)] for number, key in enumerate(keys)]
    frames = *calls, [call("draw", "c9")], DONE
    async with (
        working(stage, *frames, launch=launch, tools=[lookup, picture]) as worker,
        worker.prompt("go") as run,
    ):
        events = [event async for event in run]
    assert of(events, Request) == []
    assert [event.success for event in of(events, ToolEnded)] == [True, False, False, True]
    told = [event.text for event in of(events, ToolOutput)]
    assert told[:2] == ["the value of k", "LookupError: no bad"]
    assert told[3].startswith("see")
    assert run.result.completed


async def test_a_function_ends_with_its_run(stage: Stage, launch: Launch) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    @client_tool("Waits.")
    async def wait() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    async with working(stage, [call("wait", "c1")], DONE, launch=launch, tools=[wait]) as worker:
        async with worker.prompt("go"):
            await began.wait()
        await ended.wait()
        assert (await worker.ask("go on")).completed


async def test_a_tool_that_cannot_be_lent_keeps_the_worker_from_starting(
    stage: Stage, launch: Launch
) -> None:
    taken = ClientTool(name="bash", description="Mine.")
    with pytest.raises(Exception, match="the name bash is taken"):
        async with working(stage, DONE, launch=launch, tools=[taken]):
            pass


async def test_a_tool_server_asks_the_embedder(stage: Stage) -> None:
    server = {"command": sys.executable, "args": [str(SERVER)]}
    config = msgspec.json.encode({"mcpServers": {"tiny": server}}).decode()
    frames = [call("mcp__tiny__ask", "c1")], [call("mcp__tiny__ask", "c2")], DONE
    options: dict[str, Any] = {"approvals": "allow", "resolves": ["mcp_elicitation"]}
    flags = ("--sandbox", "none", "--mcp-config", config)
    async with (
        working(stage, *frames, flags=flags, **options) as worker,
        worker.prompt("go") as run,
    ):
        asked = await until(run, ElicitationAsked)
        assert asked.arguments["message"] == "Which word?"
        await asked.answer({"word": "weft"})
        assert (await until(run, ToolOutput)).text == "weft"
        await (await until(run, ElicitationAsked)).refuse()
        assert (await until(run, ToolOutput)).text == "decline"


async def test_two_things_at_once_a_request_waits_while_commands_run(
    stage: Stage, launch: Launch
) -> None:
    async def shown(worker: Worker) -> str:
        return (await worker.run_command("cat seen")).stdout

    frames = [bash("cat seen", "c1")], DONE
    async with (
        working(stage, *frames, launch=launch, approvals="ask") as worker,
        worker.prompt("go") as run,
    ):
        asked = await until(run, ApprovalAsked)
        await worker.run_command("echo here > seen")
        assert await shown(worker) == "here\n"
        await asked.allow()
        assert (await until(run, ToolOutput)).text == "here\n"


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError


async def raise_silently() -> str:
    raise Silent


async def raise_half_a_character() -> str:
    raise ValueError("\ud800")


def returning(value: Any) -> Any:
    async def tool() -> Any:
        return value

    return tool


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (returning({"price": 5}), "type dict"),
        (returning(None), "type NoneType"),
        (returning([b"x"]), "type bytes"),
        (returning(Picture("text", "image/png")), "type Picture"),  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
        (returning("\ud800"), "surrogates not allowed"),
        (returning("x" * (64 << 20)), "at most 67108864 are taken"),
        (lambda: "at once", "no async function"),
        (raise_silently, "Silent: it cannot say why"),
        (raise_half_a_character, r"ValueError: \ud800"),
    ],
)
async def test_what_a_function_cannot_answer_with_is_told_to_the_model_at_once(
    stage: Stage, function: Any, told: str
) -> None:
    tool = ClientTool(name="lookup", description="Looks something up.", run=function)
    frames = [call("lookup", "c1")], DONE
    async with (
        working(stage, *frames, launch=in_process, approvals="allow", tools=[tool]) as worker,
        worker.prompt("go") as run,
    ):
        events = [event async for event in run]
    (output,) = of(events, ToolOutput)
    assert told in output.text
    (ended,) = of(events, ToolEnded)
    assert (ended.success, run.result.outcome) == (False, "completed")
