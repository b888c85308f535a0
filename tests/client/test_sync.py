"""The client without `async`: the same names, on a thread that ends with the worker."""

import inspect
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from msgspec import Struct

import batten.client
from batten.client import sync
from batten.client.sync import (
    ApprovalAsked,
    CallerError,
    Conflict,
    Ended,
    History,
    Launch,
    NoAnswer,
    NotStarted,
    QuestionAsked,
    Request,
    Result,
    TextDelta,
    ToolStarted,
    Worker,
    WorkerClosed,
    client_tool,
    own_process,
)
from batten.embedded import in_process
from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.client.working import PATIENCE_S

DONE = [say("Done."), end()]
FOREVER = [bash("sleep 1000")]


class Verdict(Struct):
    cause: str


@contextmanager
def working(
    stage: Stage, *frames: list[Statement], launch: Launch = in_process, **more: Any
) -> Generator[Worker, None, None]:
    with Worker.start(
        model=stage.scenario(*frames),
        workspace=stage.workspace,
        env={"BATTEN_HOME": str(stage.home), "HOME": str(stage.directory)},
        flags=["--sandbox", "none"],
        launch=launch,
        starts_within_s=PATIENCE_S,
        **more,
    ) as worker:
        yield worker


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Generator[None, None, None]:
    before = set(threading.enumerate())
    yield
    left = [one.name for one in set(threading.enumerate()) - before if "client" in one.name]
    assert left == []


def _public(module: ModuleType) -> set[str]:
    names = {name for name in vars(module) if not name.startswith("_")}
    return {name for name in names if not isinstance(getattr(module, name), ModuleType)}


def test_it_has_the_same_names() -> None:
    assert _public(sync) == _public(batten.client)
    for name in ("Worker", "Run", "Command", "Watch", "History", "Request"):
        ours, theirs = getattr(sync, name), getattr(batten.client, name)
        public = {one for one in dir(theirs) if not one.startswith("_")}
        public -= {"complete", "leave", "take", "fail", "started", "reply"}
        assert public <= set(dir(ours)), name


@pytest.mark.parametrize(
    "name", ["start", "prompt", "run_command", "read_file", "watch", "command"]
)
def test_methods_take_the_same_arguments(name: str) -> None:
    theirs = inspect.signature(getattr(batten.client.Worker, name))
    assert inspect.signature(getattr(sync.Worker, name)) == theirs


def test_a_prompt_is_asked_and_answered(stage: Stage, launch: Launch) -> None:
    with working(stage, DONE, [say('{"cause": "x"}'), end()], launch=launch) as worker:
        result = worker.ask("go")
        assert (result.outcome, result.text, worker.is_working) == ("completed", "Done.", False)
        assert worker.ask("why?", schema=Verdict).output == Verdict("x")
        assert worker.about.workspace == str(stage.workspace)
        assert [run.run_id for run in worker.history.runs()][-1] == result.run_id
        assert worker.history.run(result.run_id).state == "completed"
        first = next(iter(worker.history.events(result.run_id)))
        assert first.sequence == 0


def test_events_are_iterated_and_requests_answered(stage: Stage, launch: Launch) -> None:
    question = call("ask_user", question="Which?", options=["red", "blue"])
    frames = [bash("touch made.txt")], [question], DONE
    more: dict[str, Any] = {"approvals": "ask", "resolves": ["user_input"], "launch": launch}
    seen: list[type] = []
    with working(stage, *frames, **more) as worker, worker.prompt("go") as run:
        for event in run:
            seen.append(type(event))
            match event:
                case ApprovalAsked():
                    assert event.arguments == {"command": "touch made.txt"}
                    event.allow()
                    with pytest.raises(Conflict):
                        event.deny()
                case QuestionAsked():
                    assert (event.question, event.options) == ("Which?", ["red", "blue"])
                    event.answer("red")
                case _:
                    pass
        assert run.result.completed
    assert (stage.workspace / "made.txt").exists()
    assert {ApprovalAsked, QuestionAsked, TextDelta, Ended} <= set(seen)


def test_requests_of_ask_go_to_a_function_in_the_calling_thread(stage: Stage) -> None:
    threads: list[threading.Thread] = []

    def allow(request: Request) -> None:
        threads.append(threading.current_thread())
        assert isinstance(request, ApprovalAsked)
        request.allow()

    with working(stage, [bash("touch made.txt")], DONE, approvals="ask") as worker:
        assert worker.ask("go", answer=allow).calls_succeeded == 1
    assert threads == [threading.current_thread()]


def test_an_error_of_the_answering_function_ends_the_run_and_is_raised(stage: Stage) -> None:
    mine = ValueError("mine")

    def give_up(request: Request) -> None:
        raise mine

    with working(stage, [bash("true")], DONE, approvals="ask") as worker:
        with pytest.raises(ValueError, match="mine") as raised:
            worker.ask("go", answer=give_up)
        assert raised.value is mine
        assert worker.ask("go").completed


def test_leaving_a_run_early_interrupts_it(stage: Stage, launch: Launch) -> None:
    with working(stage, FOREVER, DONE, approvals="allow", launch=launch) as worker:
        with worker.prompt("go") as run:
            for event in run:
                if isinstance(event, ToolStarted):
                    break
        assert run.result.outcome == "cancelled"
        assert worker.ask("go").completed
        assert {one.state for one in worker.history.runs()} == {"cancelled", "completed"}


def test_a_run_that_takes_too_long_is_interrupted(stage: Stage) -> None:
    with working(stage, FOREVER, DONE, approvals="allow") as worker:
        with pytest.raises(NoAnswer):
            worker.ask("go", within_s=0.5)
        assert worker.ask("go").completed


def test_functions_are_tools_and_may_use_the_worker(stage: Stage) -> None:
    workers: list[Worker] = []

    @client_tool("The price of an article.", {"properties": {"article": {"type": "string"}}})
    def price(article: str) -> str:
        return workers[0].run_command(f"echo {article} costs 3").stdout

    @client_tool("Fails.")
    def broken() -> str:
        raise StopIteration("no more")

    frames = [call("price", article="loom"), call("broken")], DONE
    with working(stage, *frames, tools=[price, broken]) as worker:
        workers.append(worker)
        result = worker.ask("go")
    assert (result.calls_succeeded, result.calls_failed) == (1, 1)


def test_an_async_function_is_no_tool_here() -> None:
    async def wait() -> str:
        return ""

    with pytest.raises(CallerError, match=r"use batten\.client"):
        client_tool("Waits.")(wait)  # type: ignore[arg-type]


def test_utilities_run_beside_a_prompt_from_other_threads(stage: Stage, launch: Launch) -> None:
    (stage.workspace / "notes.txt").write_text("one\ntwo\n")
    with (
        working(stage, FOREVER, approvals="allow", launch=launch) as worker,
        ThreadPoolExecutor(4) as pool,
        worker.prompt("go"),
    ):
        commands = [pool.submit(worker.run_command, f"echo {n}") for n in range(8)]
        assert [one.result(PATIENCE_S).stdout for one in commands] == [f"{n}\n" for n in range(8)]
        assert worker.search_files("notes").paths == ("notes.txt",)
        assert worker.read_file("notes.txt", limit=1).text.strip() == "one"
        with worker.command("cat", stdin=True) as command:
            command.write("hello", eof=True)
            assert "".join(output.text for output in command) == "hello"
            assert command.exit.success
        with worker.watch(include=["*.md"]) as watch:
            (stage.workspace / "new.md").write_text("x")
            assert next(iter(watch)).path == "new.md"


def test_a_closed_worker_refuses_every_call(stage: Stage) -> None:
    with working(stage, DONE) as worker:
        pass
    with pytest.raises(WorkerClosed):
        worker.ask("go")
    with pytest.raises(WorkerClosed), worker.prompt("go"):
        pass


def test_closing_ends_the_calls_of_other_threads(stage: Stage) -> None:
    with ThreadPoolExecutor(1) as pool:
        with working(stage, FOREVER, approvals="allow") as worker:
            asking = pool.submit(worker.ask, "go")
            while not worker.is_working:
                worker.run_command("true")
        with pytest.raises(WorkerClosed):
            asking.result(PATIENCE_S)


def test_a_worker_that_does_not_start_leaves_nothing(stage: Stage, launch: Launch) -> None:
    with pytest.raises(NotStarted), working(stage, DONE, launch=launch, allow=["bash(("]):
        pass
    with pytest.raises(CallerError), Worker.start(max_turns=-1):
        pass


def test_an_error_in_the_block_is_raised_as_it_is(stage: Stage) -> None:
    mine = KeyError("mine")
    with pytest.raises(KeyError) as raised, working(stage, DONE) as worker, worker.prompt("go"):
        raise mine
    assert raised.value is mine


@pytest.mark.parametrize("where", ["ask", "iterate", "answer", "body"])
def test_ctrl_c_ends_the_run_and_the_worker(stage: Stage, where: str, launch: Launch) -> None:
    """The run's own command sends the signal, so that it arrives while the program waits."""
    command = "sleep 1000" if where == "body" else f"kill -INT {os.getpid()}; sleep 1000"

    def stop(request: Request) -> None:
        raise KeyboardInterrupt

    def work(worker: Worker) -> None:
        if where in ("ask", "answer"):
            worker.ask("go", answer=stop)
            return
        with worker.prompt("go") as run:
            if where == "body":
                signal.raise_signal(signal.SIGINT)
            for _ in run:
                pass

    more: dict[str, Any] = {"approvals": "ask" if where == "answer" else "allow", "launch": launch}
    with pytest.raises(KeyboardInterrupt), working(stage, [bash(command)], **more) as worker:
        work(worker)
    (run_info,) = History(env={"BATTEN_HOME": str(stage.home)}).runs()
    assert run_info.outcome == "cancelled"


def test_a_program_that_never_closes_its_worker_exits(stage: Stage, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import sys\n"
        "from batten.client.sync import Worker\n"
        "scope = Worker.start(model=sys.argv[1], workspace=sys.argv[2])\n"
        "worker = scope.__enter__()\n"
        "print(worker.ask('go').text, flush=True)\n"
    )
    model = stage.scenario(DONE)
    done = subprocess.run(
        [sys.executable, str(program), model, str(stage.workspace)],
        env={**os.environ, "BATTEN_HOME": str(stage.home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr


def test_results_are_those_of_the_client() -> None:
    assert sync.Result is batten.client.Result is Result
    assert own_process is batten.client.own_process
