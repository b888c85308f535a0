"""Hooks that a client brings with its config: told by variables and on standard input."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from batten.protocols.heddle.hooks import Hook, Matchers
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.heddle.working import Json, Worker, events, init, working
from tests.session.processes import batten

TELL = 'cat > "told.$HEDDLE_HOOK_EVENT"; env | grep ^HEDDLE_HOOK_ | sort > "env.$HEDDLE_HOOK_EVENT"'
RUN = bash("echo ran > ran.txt", "c1")


@asynccontextmanager
async def hooked(
    stage: Stage, hooks: Json, *calls: Statement, version: str = "0.4.0"
) -> AsyncGenerator[Worker, None]:
    model = stage.scenario(list(calls) or [say("x")], [say("So it is."), end()])
    async with working(stage, "--model", model) as worker:
        await worker.ask(init(version, tools=["bash", "write_file"], hooks=hooks), "init_ok")
        yield worker


def told(stage: Stage, event: str) -> Any:
    return msgspec.json.decode((stage.workspace / f"told.{event}").read_bytes())


async def test_each_event_is_told_to_its_commands(stage: Stage) -> None:
    every = ["session_start", "session_end", "pre_prompt", "pre_tool", "post_tool", "post_turn"]
    async with hooked(stage, {event: [{"command": TELL}] for event in every}, RUN) as worker:
        session_id = (await worker.ask({"type": "status", "id": "q"}, "status_ok"))["session_id"]
        heard = await worker.send("s", "do it")
        assert heard[-1]["status"] == "ok"
        await worker.rest()
        assert await worker.code() == 0
    assert told(stage, "pre_prompt") == {"user_input": "do it"}
    assert told(stage, "pre_tool") == {"tool_args": {"command": "echo ran > ran.txt"}}
    assert set(told(stage, "post_tool")) == {"tool_args", "tool_result"}
    for event in ("session_start", "session_end", "post_turn"):
        assert told(stage, event) == {}
    variables = (stage.workspace / "env.pre_tool").read_text().splitlines()
    assert "HEDDLE_HOOK_EVENT=pre_tool" in variables
    assert "HEDDLE_HOOK_TOOL_NAME=bash" in variables
    assert f"HEDDLE_HOOK_PROJECT={stage.workspace}" in variables
    assert f"HEDDLE_HOOK_SESSION_ID={session_id}" in variables


async def test_a_send_that_ends_badly_is_told_as_an_error(stage: Stage) -> None:
    again = bash("echo again")
    model = stage.scenario([again], [again], [again])
    async with working(stage, "--model", model) as worker:
        await worker.ask(init("0.4.0", hooks={"error": [{"command": TELL}]}), "init_ok")
        assert (await worker.send("s"))[-1]["error"]["code"] == "loop_detected"
    assert told(stage, "error") == {}


async def test_a_hook_that_fails_before_a_tool_blocks_it_with_its_words(stage: Stage) -> None:
    no = {"command": "echo not today >&2; exit 7"}
    async with hooked(stage, {"pre_tool": [no]}, RUN) as worker:
        heard = await worker.send("s")
        denied = {
            "event": "permission_denied",
            "name": "bash",
            "reason": "Blocked by hook — not today",
        }
        assert events(heard, "permission_denied") == [denied]
        assert (heard[-1]["status"], heard[-1]["tool_calls_made"]) == ("ok", [])
    assert not (stage.workspace / "ran.txt").exists()


async def test_a_hook_that_fails_before_a_prompt_ends_the_send(stage: Stage) -> None:
    async with hooked(stage, {"pre_prompt": [{"command": "echo no >&2; exit 1"}]}) as worker:
        error = (await worker.send("s"))[-1]["error"]
        assert error["code"] == "tool_error"
        assert "Blocked by hook — no" in error["message"]


@pytest.mark.parametrize(
    "hook",
    [
        {"command": "sleep 60; exit 1", "timeout": 100},
        {"command": "exit 1", "mode": "interactive"},
        {"command": "exit 1", "matchers": {"tool": "write_file"}},
        {"command": "exit 1", "matchers": {"tool": ["bash"], "match_args": "nowhere"}},
        {"command": "exit 1", "matchers": {"match_path": "*.py"}},
        {"command": "sleep 1; exit 1", "async": True},
    ],
)
async def test_a_hook_that_is_late_or_about_something_else_blocks_nothing(
    stage: Stage, hook: Json
) -> None:
    async with hooked(stage, {"pre_tool": [hook]}, RUN) as worker:
        assert (await worker.send("s"))[-1]["tool_calls_made"]


async def test_all_matchers_must_fit(stage: Stage) -> None:
    write = call("write_file", "c1", file_path="src/a.py", content="secret plan")
    matchers = {"tool": ["edit_file", "write_file"], "match_path": "*.py", "match_args": "secret"}
    async with hooked(
        stage, {"pre_tool": [{"command": "exit 1", "matchers": matchers}]}, write
    ) as worker:
        assert (await worker.send("s"))[-1]["tool_calls_made"] == []


async def test_what_a_hook_prints_is_told_to_the_model(stage: Stage) -> None:
    async with hooked(stage, {"post_tool": [{"command": "echo well done"}]}, RUN) as worker:
        await worker.send("s")
    (run,) = batten(stage, "runs", "--json").stdout.splitlines()
    stored = batten(stage, "events", msgspec.json.decode(run)["run_id"]).stdout.decode()
    assert "[hook feedback] well done" in stored


NONSENSE: list[tuple[Any, str]] = [
    ({"odd": []}, "'odd' is not an event"),
    ({"pre_tool": [{}]}, "command"),
    ({"pre_tool": [{"command": "x", "timeout": 0}]}, "timeout"),
    ({"pre_tool": [{"command": "x", "mode": "odd"}]}, "mode"),
    ([], "hooks"),
]


@pytest.mark.parametrize(("hooks", "problem"), NONSENSE)
async def test_hooks_that_make_no_sense_are_refused(stage: Stage, hooks: Any, problem: str) -> None:
    async with working(stage, "--model", stage.scenario([say("x"), end()])) as worker:
        refusal = await worker.ask(init("0.4.0", hooks=hooks), "result")
        assert problem in refusal["error"]["message"]


def test_what_a_user_asked_is_matched_too() -> None:
    hook = Hook(command="x", matchers=Matchers(match_input="deploy"))
    assert hook.fits({"prompt": "please deploy it"})
    assert not hook.fits({"prompt": "please wait"})
    assert not hook.fits({"tool_input": {"command": "deploy"}})
