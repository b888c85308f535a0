"""What the page on the client shows works, and so do the examples."""

import ast
import asyncio
import importlib.util
import inspect
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, ModuleType

import pytest

import batten.client
from batten.client import Result, Worker, WorkerError, client_tool
from batten.client.errors import NotStarted
from tests.agent.stage import Stage, bash, call, end, say
from tests.client.test_death import children, is_worker
from tests.client.working import PATIENCE_S, working

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text()
EXAMPLES = ROOT / "examples"
PIECES = re.findall(
    r"(?<!<!-- not run: needs a running service -->\n)^```python\n(.*?)^```",
    PAGE,
    re.DOTALL | re.MULTILINE,
)
DONE = [say("Done."), end()]


def environment(stage: Stage) -> dict[str, str]:
    return {**os.environ, "BATTEN_HOME": str(stage.home), "HOME": str(stage.directory)}


def played(
    stage: Stage, name: str, *flags: str, typed: str = ""
) -> "subprocess.CompletedProcess[str]":
    """An example as somebody runs it, to its end."""
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *flags],
        input=typed,
        cwd=stage.workspace,
        env=environment(stage),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("piece", PIECES, ids=lambda piece: piece.splitlines()[-1].strip()[:30])
async def test_each_piece_of_the_page_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, piece: str
) -> None:
    (stage.workspace / "README.md").write_text("# Looms\n")
    asking = call("ask_user", "c2", question="Which?", options=["a", "b"])
    answer = [say('{"cause": "It rained.", "files": []}'), end()]
    model = stage.scenario([bash("echo one", "c1"), asking], answer)
    for name, value in environment(stage).items():
        monkeypatch.setenv(name, value)
    text = on_stage(piece, stage, model)
    code = compile(text, "client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    assert isinstance(code, CodeType)
    assert code.co_flags & inspect.CO_COROUTINE
    await eval(code, {})


def on_stage(piece: str, stage: Stage, model: str) -> str:
    text = piece.replace('"anthropic/claude-sonnet-4-5"', repr(model))
    return text.replace('workspace="repo"', f"workspace={str(stage.workspace)!r}")


def test_the_piece_without_async_runs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (piece,) = re.findall(r"^```python sync\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for name, value in environment(stage).items():
        monkeypatch.setenv(name, value)
    frames = [bash("echo one", "c1")], DONE, [call("price", "c2", article="loom")], DONE
    exec(on_stage(piece, stage, stage.scenario(*frames)), {})
    assert capsys.readouterr().out == "Done. completed\nDone.\n"


def test_the_verdict_has_its_type(stage: Stage) -> None:
    done = played(stage, "verdict.py")
    assert done.stderr == ""
    assert done.stdout.startswith("There is no Makefile.\n  Makefile\n   0 run.")
    assert "run.finished" in done.stdout


def test_the_page_names_every_event_and_error_there_is() -> None:
    told = {
        name
        for name, kind in vars(batten.client).items()
        if isinstance(kind, type)
        and issubclass(kind, batten.client.Event | batten.client.WorkerError)
    } - {"Event"}
    assert {name for name in told if f"`{name}" not in PAGE} == set()


def test_ask_shows_what_happens_and_asks_before_it_does(stage: Stage) -> None:
    def ask(answer: str, *flags: str) -> str:
        return played(stage, "ask.py", *flags, typed=answer).stdout

    assert "completed in" in ask("", "--yes")
    refused = ask("n\n")
    assert "allow? [y/N]" in refused
    assert "the user said no" in refused


@pytest.mark.parametrize("flags", [[], ["--in-process"]], ids=["process", "in_process"])
def test_the_pool_works_through_its_prompts(stage: Stage, flags: list[str]) -> None:
    prompts = [f"number {number}" for number in range(7)]
    done = played(stage, "pool.py", "--workers", "2", *flags, typed="\n".join(prompts))
    assert done.stderr == ""
    told = sorted(line.partition(": ")[::2] for line in done.stdout.splitlines())
    assert [prompt for prompt, _ in told] == prompts
    assert all(result.startswith("completed: ") for _, result in told)


def test_the_audience_misses_nothing_when_desk_and_runtime_change(stage: Stage) -> None:
    done = played(stage, "audience.py")
    assert done.stderr == ""
    words = "Let me look at the clock. Good day."
    for line in (
        "the first controller has the lease: False; bash waits for the second",
        f"gallery: {words}",
        f"stalls: {words}",
        "stalls: Drained",
        "the same session: True",
        "gallery: Good day again.",
    ):
        assert line in done.stdout.splitlines()
    assert "Restored from snapshot, after cursor" in done.stdout


async def test_the_pool_replaces_a_worker_that_dies(stage: Stage) -> None:
    deaths: list[int] = []

    @client_tool("Ends it all, once.")
    async def die() -> str:
        if deaths:
            return "not again"
        (pid,) = [child for child in children() if is_worker(child)]
        os.kill(pid, signal.SIGKILL)
        deaths.append(pid)
        await asyncio.Event().wait()
        return ""

    def start() -> object:
        return working(stage, [call("die", "c1")], DONE, tools=[die])

    told: dict[str, Result | WorkerError] = {}
    await load("pool").pool(iter(["a", "b"]), 1, start, told.__setitem__)
    assert len(deaths) == 1
    assert [getattr(result, "outcome", None) for result in told.values()] == ["completed"] * 2


async def test_the_pool_gives_up_what_no_worker_can_be_started_for(stage: Stage) -> None:
    @asynccontextmanager
    async def start() -> AsyncGenerator[Worker, None]:
        async with Worker.start(command=["/nowhere/batten"]) as worker:
            yield worker

    told: dict[str, Result | WorkerError] = {}
    await load("pool").pool(iter(["a", "b", "c"]), 2, start, told.__setitem__)
    assert {prompt: type(result) for prompt, result in told.items()} == dict.fromkeys(
        "abc", NotStarted
    )
