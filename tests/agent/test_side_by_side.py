"""Read-only calls of one message run side by side; what may change anything stays in order."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from batten.agent.progress import Progress
from batten.contract import facts as f
from batten.contract.conversation import ToolResult
from batten.contract.errors import JournalError
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.session.history import envelopes_of
from batten.session.requests import resolve
from batten.tools.contract import Effect, ToolContext, ToolOutput

from .stage import Played, Stage, Statement, call, finish, say

PATIENCE_S = 20
ALLOWED = ("--permission-mode", "dontAsk")


class Meeting:
    """A tool whose calls wait for each other, or for ever."""

    kind: ToolKind = "custom"

    def __init__(self, effect: Effect = "read", name: str = "look") -> None:
        parameters = {"type": "object", "properties": {"wait_for": {"type": "integer"}}}
        self.effect: Effect = effect
        self.spec = ToolSpec(name=name, description="Meets others.", parameters=parameters)
        self.running = self.most = self.begun = 0
        self.changed = asyncio.Event()
        self.log: list[str] = []

    def subject(self, arguments: dict[str, Any]) -> str:
        return str(arguments.get("wait_for", 0))

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.log.append(f"{context.call_id} begins")
        self._tell()
        try:
            await self.until(lambda: self.begun >= arguments.get("wait_for", 0))
            if arguments.get("wait_for") == -1:
                raise JournalError("its effect cannot be stored")
        finally:
            self.running -= 1
            self.log.append(f"{context.call_id} ends")
        return ToolOutput(text=f"saw {context.call_id}")

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                await self.changed.wait()

    def _tell(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


def looks(*waits: int) -> list[Statement]:
    return [call("look", f"c{number}", wait_for=wait) for number, wait in enumerate(waits, 1)]


async def play(stage: Stage, statements: list[Statement], *flags: str, **tools: Meeting) -> Played:
    model = stage.scenario(statements, [say("done")])
    return await stage.run("--model", model, *ALLOWED, *flags, tools=list(tools.values()))


def results(played: Played) -> list[tuple[str, str]]:
    """The results as the model gets them."""
    return [(one.tool_call_id, str(one.output)) for one in played.all(f.ToolCompleted)]


async def test_read_only_calls_of_a_message_overlap_and_their_results_keep_the_order(
    stage: Stage,
) -> None:
    look = Meeting()
    model = stage.scenario(looks(3, 3, 3), [say("done")])
    async with stage.session("--model", model, *ALLOWED, tools=[look]) as session:
        execution = await session.prompt("go")
        played = await finish(session, execution)
    assert look.most == 3
    assert [one.tool_call_id for one in played.all(f.ToolInvoked)] == ["c1", "c2", "c3"]
    answers = execution.conversation.messages[2].blocks
    assert [one.call_id for one in answers if isinstance(one, ToolResult)] == ["c1", "c2", "c3"]
    assert [one.output for one in answers if isinstance(one, ToolResult)] == [
        "saw c1",
        "saw c2",
        "saw c3",
    ]


async def test_a_call_that_may_change_anything_waits_and_is_waited_for(stage: Stage) -> None:
    look = Meeting()
    change = Meeting("write", "change")
    change.log = look.log
    statements = [
        *looks(2, 2),
        call("change", "w1"),
        call("change", "w2"),
        *(call("look", f"d{number}", wait_for=4) for number in (1, 2)),
    ]
    played = await play(stage, statements, look=look, change=change)
    assert played.ended.outcome == "completed"
    assert (look.most, change.most) == (2, 1)
    first, second = look.log.index("w1 begins"), look.log.index("w2 ends")
    assert look.log[first : second + 1] == ["w1 begins", "w1 ends", "w2 begins", "w2 ends"]
    assert {one.partition(" ")[0] for one in look.log[:first]} == {"c1", "c2"}
    assert {one.partition(" ")[0] for one in look.log[second + 1 :]} == {"d1", "d2"}


@pytest.mark.parametrize("effect", ["write", "execute", "network", "none"])
async def test_other_effects_never_overlap(stage: Stage, effect: Effect) -> None:
    look = Meeting(effect)
    played = await play(stage, looks(0, 0, 0), look=look)
    assert [one[0] for one in results(played)] == ["c1", "c2", "c3"]
    assert look.most == 1


@pytest.mark.parametrize(("most", "waits"), [(1, (0, 0, 0)), (2, (2, 2, 4, 4))])
async def test_the_settings_bound_how_many_overlap(
    stage: Stage, most: int, waits: tuple[int, ...]
) -> None:
    look = Meeting()
    played = await play(
        stage, looks(*waits), "--settings", f'{{"parallel_reads": {most}}}', look=look
    )
    assert played.ended.outcome == "completed"
    assert look.most == most


async def test_eight_is_the_bound_by_default(stage: Stage) -> None:
    look = Meeting()
    await play(stage, looks(*[8] * 8, *[0] * 8), look=look)
    assert look.most == 8


async def test_denied_wrong_and_failed_calls_do_not_disturb_the_others(stage: Stage) -> None:
    look = Meeting()
    statements = [
        call("look", "c1", wait_for=2),
        call("look", "no", wait_for=7),
        call("look", "odd", wait_for="x"),
        call("look", "c2", wait_for=2),
    ]
    played = await play(stage, statements, "--deny", "look(7)", look=look)
    assert played.one(f.PolicyToolBlocked).tool_call_id == "no"
    assert played.one(f.ToolFailed).error_kind == "invalid_arguments"
    assert sorted(one[0] for one in results(played)) == ["c1", "c2"]


@asynccontextmanager
async def begun(
    stage: Stage, look: Meeting, count: int, *flags: str
) -> AsyncGenerator[tuple[Any, "asyncio.Task[Played]"], None]:
    """A run whose calls wait for ever, once so many of them have begun."""
    model = stage.scenario(looks(*[99] * count), [say("never said")])
    async with stage.session("--model", model, *ALLOWED, *flags, tools=[look]) as session:
        execution = await session.prompt("go")
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            ending = group.create_task(finish(session, execution))
            await look.until(lambda: look.begun == count)
            yield execution, ending


async def test_a_cancel_ends_all_of_them(stage: Stage) -> None:
    look = Meeting()
    async with begun(stage, look, 3) as (execution, ending):
        await execution.cancel("operator", "enough")
    played = ending.result()
    assert played.ended.outcome == "cancelled"
    assert {one.tool_call_id for one in played.all(f.ToolCancelled)} == {"c1", "c2", "c3"}
    assert look.running == 0


async def test_a_time_limit_ends_all_of_them(stage: Stage) -> None:
    look = Meeting()
    async with begun(stage, look, 3, "--max-seconds", "0.5") as (_, ending):
        pass
    played = ending.result()
    assert played.ended.outcome == "timeout"
    assert {one.tool_call_id for one in played.all(f.ToolTimedOut)} == {"c1", "c2", "c3"}
    assert look.running == 0


async def test_a_call_that_breaks_the_run_ends_the_others_and_each_has_its_end(
    stage: Stage,
) -> None:
    look = Meeting()
    model = stage.scenario(looks(99, -1, 99, 99), [say("never said")])
    async with stage.session("--model", model, *ALLOWED, tools=[look]) as session:
        execution = await session.prompt("go")
        ended = await execution.finish()
        envelopes = envelopes_of(session.deps.journal, ended.run_id)
        stored = [envelope.data async for envelope in envelopes]
    assert ended.outcome == "store"
    invoked = [one.tool_call_id for one in stored if isinstance(one, f.ToolInvoked)]
    cancelled = [one.tool_call_id for one in stored if isinstance(one, f.ToolCancelled)]
    assert sorted([*cancelled, "c2"]) == invoked
    assert look.running == 0


async def test_a_call_that_needs_approval_is_asked_about_after_those_before_it(
    stage: Stage,
) -> None:
    look = Meeting()
    statements = [*looks(2, 2), call("look", "asked", wait_for=1), call("look", "last")]
    model = stage.scenario(statements, [say("done")])
    flags = ("--model", model, "--allow", "look", "--ask", "look(1)", "--ask-operator")
    async with stage.session(*flags, tools=[look]) as session:
        journal = session.deps.journal
        execution = await session.prompt("go")
        async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
            ending = group.create_task(finish(session, execution))
            async for page in journal.follow(execution.run_id):
                if any(stored.type == "approval.requested" for stored in page):
                    break
            assert look.running == 0
            assert look.begun == 2
            (request,) = await journal.requests(execution.run_id)
            await resolve(
                journal, session.deps.redactor, request.request_id, granted=False, by="operator"
            )
    played = ending.result()
    assert played.one(f.PolicyToolBlocked).tool_call_id == "asked"
    assert [one[0] for one in results(played)][-1] == "last"


async def test_a_hook_that_ends_the_run_ends_the_others(stage: Stage) -> None:
    look = Meeting()
    stop = 'echo \'{"continue": false, "stopReason": "enough"}\''
    hook = {"matcher": "look", "hooks": [{"type": "command", "command": stop}]}
    settings = msgspec.json.encode({"hooks": {"PostToolUse": [hook]}}).decode()
    played = await play(stage, looks(2, 99, 99), "--settings", settings, look=look)
    assert played.ended.outcome == "hook_denied"
    assert [one.tool_call_id for one in played.all(f.ToolCompleted)] == ["c1"]
    others = {one.tool_call_id for one in played.all(f.ToolInvoked)} - {"c1"}
    assert {one.tool_call_id for one in played.all(f.ToolCancelled)} == others >= {"c2"}


def test_all_calls_that_run_are_known_until_each_has_ended() -> None:
    progress = Progress()
    begun = [f.ToolInvoked(call, "look", "custom", turn_index=1) for call in ("a", "b", "c")]
    for fact in begun:
        progress.observe(fact)
    progress.observe(f.ToolCompleted("b", "look", "custom", 1))
    progress.observe(f.ToolTimedOut("a", "look", "custom", 1, after_ms=1))
    assert progress.running == {"c": begun[2]}


async def test_real_files_are_read_side_by_side(stage: Stage) -> None:
    for number in range(4):
        (stage.workspace / f"{number}.txt").write_text(f"file {number}\n")
    statements = [call("read_file", f"c{number}", file_path=f"{number}.txt") for number in range(4)]
    statements += [call("grep", "g", pattern="file"), call("glob", "l", pattern="*.txt")]
    played = await stage.play(statements, [say("done")])
    assert played.ended.outcome == "completed"
    outputs = dict(results(played))
    assert all(f"file {number}" in outputs[f"c{number}"] for number in range(4))
    assert "3.txt" in outputs["l"]
