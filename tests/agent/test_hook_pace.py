"""Hooks that nobody waits for, and the end of those that are waited for."""

import asyncio
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batten.agent.hooks import pool as hook_pool
from batten.agent.hooks.hooks import ClientHook, Hooks
from batten.agent.hooks.pool import AT_ONCE, Pool
from batten.contract.facts import HookCompleted, HookDispatched, ToolInvoked
from batten.session.history import facts_of
from batten.session.session import Session

from .acting import Acting
from .hooking import Fifo, deciding, hook, hooks_of, saying
from .stage import Stage, call, finish, say


async def session_facts(session: Session) -> list[HookCompleted]:
    stream = session.session_id.replace("chat_", "run_")
    return [f async for f in facts_of(session.deps.journal, stream) if isinstance(f, HookCompleted)]


def until_file(path: Path) -> str:
    """Shell words that wait until a file is there."""
    return f"until [ -e {shlex.quote(str(path))} ]; do sleep 0.02; done"


async def test_an_async_hook_has_two_facts_and_what_it_decides_does_not_count(
    stage: Stage,
) -> None:
    done = stage.directory / "done"
    command = f"touch {shlex.quote(str(done))}; {saying(deciding('deny', 'no'))}"
    model = stage.scenario(
        [call("acting", "c1", act="x")], [call("acting", act="y")], [say("done")]
    )
    tool = Acting()
    hooks = hooks_of(stage, hook("PreToolUse", command, is_async=True, condition="acting(x)"))
    async with stage.session(
        "--model", model, "--allow", "acting", tools=[tool], hooks=hooks
    ) as session:
        played = await finish(session, await session.prompt("go"))
        await hooks.settle()
        completed = [*played.all(HookCompleted), *await session_facts(session)]
    assert tool.acts == ["x", "y"]
    assert done.exists()
    dispatched = played.one(HookDispatched)
    (fact,) = completed
    assert (dispatched.pace, dispatched.tool_call_id) == ("async", "c1")
    assert (fact.pace, fact.hook_call_id) == ("async", dispatched.hook_call_id)
    assert (fact.router_decision, fact.decision) == ("none", "allow")
    assert played.types.index("hook.dispatched") < played.types.index("tool.invoked")


async def test_a_run_does_not_wait_for_an_async_hook(stage: Stage) -> None:
    go = stage.directory / "go"
    hooks = hooks_of(stage, hook("PreToolUse", until_file(go), is_async=True))
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    async with stage.session(
        "--model", model, "--allow", "acting", tools=[Acting()], hooks=hooks
    ) as session:
        played = await finish(session, await session.prompt("go"))
        assert played.all(HookCompleted) == []
        go.touch()
        await hooks.settle()
        (fact,) = await session_facts(session)
    assert fact.hook_call_id == played.one(HookDispatched).hook_call_id
    assert (fact.exit_code, bool(fact.failure)) == (0, False)


async def test_an_async_hook_that_does_not_end_is_ended_with_the_session(stage: Stage) -> None:
    pid = stage.directory / "pid"
    command = f"echo $$ > {shlex.quote(str(pid))}; exec sleep 600"
    hooks = hooks_of(stage, hook("PreToolUse", command, is_async=True, timeout_s=600))
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    async with stage.session(
        "--model", model, "--allow", "acting", tools=[Acting()], hooks=hooks
    ) as session:
        await finish(session, await session.prompt("go"))
        await session.close()
        (fact,) = await session_facts(session)
    assert fact.failure == "it was ended with the session"
    assert not is_alive(int(pid.read_text()))


async def test_an_async_hook_of_a_session_that_must_end_now_still_has_its_completion(
    stage: Stage,
) -> None:
    hooks = hooks_of(stage, hook("SessionEnd", "sleep 600", is_async=True, timeout_s=600))
    async with stage.session("--model", stage.scenario([say("one")]), hooks=hooks) as session:
        await finish(session, await session.prompt("go"))
        await session.close(within_s=0)
        (fact,) = await session_facts(session)
    assert fact.failure  # its own deadline and the end of the session come together


async def test_hooks_of_a_session_s_end_are_told_at_the_same_time(stage: Stage) -> None:
    there = stage.directory / "there"
    hooks = hooks_of(
        stage,
        hook("SessionEnd", until_file(there)),
        hook("SessionEnd", f"touch {shlex.quote(str(there))}"),
    )
    async with stage.session("--model", stage.scenario([say("one")]), hooks=hooks) as session:
        await finish(session, await session.prompt("go"))
        await session.close()
        facts = await session_facts(session)
    assert [(fact.exit_code, bool(fact.failure)) for fact in facts] == [(0, False)] * 2


async def test_hooks_of_a_session_s_end_get_no_longer_than_whoever_closes_it_gives(
    stage: Stage,
) -> None:
    hooks = hooks_of(stage, *[hook("SessionEnd", "sleep 600", timeout_s=600)] * 3)
    async with stage.session("--model", stage.scenario([say("one")]), hooks=hooks) as session:
        await finish(session, await session.prompt("go"))
        await session.close("asked to", within_s=0.2)
        failures = [fact.failure for fact in await session_facts(session)]
    assert failures == ["it did not answer within 0.2 s"] * 3


async def test_so_many_async_hooks_run_at_once_and_the_rest_wait() -> None:
    pool = Pool()
    running, most, full, go = 0, 0, asyncio.Event(), asyncio.Event()

    async def work() -> None:
        nonlocal running, most
        async with pool.places:
            running += 1
            most = max(most, running)
            if running == AT_ONCE:
                full.set()
            await go.wait()
            running -= 1

    for _ in range(AT_ONCE * 2):
        pool.start(work())
    await full.wait()
    go.set()
    await pool.close()
    assert (most, running) == (AT_ONCE, 0)


async def test_what_is_too_much_for_the_pool_is_recorded_as_not_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hook_pool, "MOST", 3)
    hooks = hooks_of(stage, hook("PreToolUse", "sleep 600", is_async=True))
    model = stage.scenario([call("acting", act=str(n)) for n in range(5)], [say("done")])
    async with stage.session(
        "--model", model, "--allow", "acting", tools=[Acting()], hooks=hooks
    ) as session:
        played = await finish(session, await session.prompt("go"))
    assert len(played.all(HookDispatched)) == 5
    refused = [fact for fact in played.all(HookCompleted) if fact.failure]
    assert [fact.failure for fact in refused] == ["too many hooks wait already"] * 2


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_hook_is_ended_with_a_run_that_is_cancelled(stage: Stage) -> None:
    pid = Fifo(stage.directory / "pid")
    command = f"echo $$ > {pid.path}; sleep 600"
    hooks = hooks_of(stage, hook("PreToolUse", command, timeout_s=600))
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    tool = Acting()
    async with stage.session(
        "--model", model, "--allow", "acting", tools=[tool], hooks=hooks
    ) as session:
        execution = await session.prompt("go")
        async with asyncio.TaskGroup() as group:
            finishing = group.create_task(finish(session, execution))
            number = int(await pid.line())
            await execution.cancel("operator", "enough")
        played = finishing.result()
    assert played.ended.outcome == "cancelled"
    assert not is_alive(number)
    assert played.one(HookCompleted).failure == "it was ended with its run"
    assert played.all(ToolInvoked) == []
    assert tool.acts == []


@pytest.mark.parametrize("event", ["SessionStart", "UserPromptSubmit", "Stop", "StopFailure"])
async def test_a_run_is_cancelled_wherever_a_hook_holds_it_up(stage: Stage, event: str) -> None:
    asked = asyncio.Event()

    async def hold(payload: object, call_id: str | None) -> dict[str, object]:
        asked.set()
        await asyncio.Event().wait()
        return {}

    client = ClientHook(event=event, callback_id="hook_0", call=hold, timeout_s=600)  # type: ignore[arg-type]
    frames = [{"kind": "error", "type": "fatal", "message": "broken"}]
    model = stage.scenario(frames if event == "StopFailure" else [say("done")])
    async with stage.session("--model", model, hooks=Hooks(clients=[client])) as session:
        execution = await session.prompt("go")
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            finishing = group.create_task(finish(session, execution))
            await asked.wait()
            await execution.cancel("operator", "enough")
        outcome = finishing.result().ended.outcome
    assert outcome == ("model_error" if event == "StopFailure" else "cancelled")


async def test_what_a_hook_leaves_running_is_ended_with_it(stage: Stage) -> None:
    pid = stage.directory / "pid"
    command = f"sleep 600 >/dev/null 2>&1 & echo $! > {shlex.quote(str(pid))}; exit 0"
    hooks = hooks_of(stage, hook("PreToolUse", command))
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    tool = Acting()
    await stage.run("--model", model, "--allow", "acting", tools=[tool], hooks=hooks)
    assert tool.acts == ["x"]
    assert not is_alive(int(pid.read_text()))


async def test_a_hook_may_have_secrets_of_the_call_but_what_is_stored_has_not(
    tmp_path: Path,
) -> None:
    secret = "zq8-live-0123456789-abcdefghij"
    stage = Stage(tmp_path, {"SERVICE_TOKEN": secret})
    told = stage.directory / "told"
    reply = deciding("allow", f"uses {secret}", updatedInput={"act": f"with {secret}"})
    command = f"cat > {shlex.quote(str(told))}; {saying(reply)}"
    model = stage.scenario([call("acting", "c1", act=f"use {secret}")], [say("done")])
    tool = Acting()
    hooks = hooks_of(stage, hook("PreToolUse", command))
    played = await stage.run("--model", model, "--allow", "acting", tools=[tool], hooks=hooks)
    assert tool.acts == [f"with {secret}"]
    assert secret in told.read_text()
    invoked = played.one(ToolInvoked)
    assert invoked.input == {"act": "with <redacted>"}
    assert invoked.sealed_artifact_id
    for path in stage.home.rglob("*"):
        assert path.is_dir() or b"zq8-live" not in path.read_bytes(), path


def test_a_kill_of_ours_leaves_no_hook_behind(stage: Stage) -> None:
    """In a process of its own, killed while a hook runs and one runs beside it."""
    sync, aside = Fifo(stage.directory / "sync"), Fifo(stage.directory / "aside")
    program = f"""
import asyncio
from pathlib import Path
from tests.agent.acting import Acting
from tests.agent.hooking import hook, hooks_of
from tests.agent.stage import Stage, call, say

async def main():
    stage = Stage(Path({str(stage.directory)!r}))
    model = stage.scenario([call("acting", "c1", act="x")], [say("done")])
    hooks = hooks_of(
        stage,
        hook("PreToolUse", "echo $$ > {aside.path}; sleep 600 & sleep 600", is_async=True),
        hook("PreToolUse", "echo $$ > {sync.path}; setsid sleep 600 & sleep 600", timeout_s=600),
    )
    await stage.run("--model", model, "--allow", "acting", tools=[Acting()], hooks=hooks)

asyncio.run(main())
"""
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "HOOK_MARK": str(stage.directory)}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, cwd=root) as process:
        try:
            assert sync.line_now()
            assert aside.line_now()
        finally:
            process.kill()
    assert process.wait() == -9
    until = time.monotonic() + 10
    while left := _marked(f"HOOK_MARK={stage.directory}".encode()):
        assert time.monotonic() < until, left
        time.sleep(0.02)


def _marked(mark: bytes) -> list[str]:
    """Processes whose environment holds the mark: hooks inherit ours."""
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (path / "environ").read_bytes().split(b"\0"):
                found.append(path.name)
        except OSError:
            continue
    return found
