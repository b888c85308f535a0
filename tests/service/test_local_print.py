"""`batten -p` with `BATTEN_SERVER=local`: a warm process of the service runs it, seen from outside
as if it ran here.
"""

import asyncio
import os
import re
import select
import signal
import sys

import pytest

from tests.agent.stage import bash, end, fail, say
from tests.service.commanding import BATTEN, Printed, batten, started
from tests.service.serving import PATIENCE_S, Service

LOCAL = "local"
FLAGS = ("--auto-allow", "--sandbox", "none")


@pytest.fixture
async def home(service: Service) -> Service:
    """A service whose warm process listens."""
    path = service.stage.home / "print.sock"
    async with asyncio.timeout(PATIENCE_S):
        while not path.exists():  # noqa: ASYNC110  # nothing tells when a file appears
            await asyncio.sleep(0.01)
    return service


async def executor(service: Service) -> int:
    """The process that executes, or executed, the last run."""
    events = (await batten(service, "events", "last")).lines
    (begun,) = [event for event in events if event["type"] == "run.started"]
    return int(begun["data"]["worker_id"].split("-")[2])


def plain(printed: Printed) -> tuple[int, bytes, str]:
    """All that is seen, with ids and times replaced."""

    def without(text: str) -> str:
        text = re.sub(r"(run|chat|evt|task|art|ckpt)_[0-9A-HJKMNP-TV-Z]{26}", r"\1", text)
        text = re.sub(r'"(duration_ms|occurred_at|lease_until|worker_id)":("[^"]*"|\d+)', "", text)
        return re.sub(r"worker-[0-9a-f]{12}-\d+-\d+|time_to_first_token_ms\":\d+", "", text)

    return printed.code, without(printed.out.decode()).encode(), without(printed.err)


@pytest.mark.parametrize("output_format", ["text", "json", "stream-json", "events"])
@pytest.mark.parametrize("ending", ["success", "tool", "failure", "usage", "max_turns"])
async def test_frames_and_exit_codes_are_those_of_a_process_of_its_own(
    home: Service, output_format: str, ending: str
) -> None:
    turns = {
        "success": [[say("All done."), end()]],
        "tool": [[bash("echo hi; pwd; echo $WORD", "c1")], [say("Ran."), end()]],
        "failure": [[fail("authentication", "no such key")]],
        "usage": [[say("never"), end()]],
        "max_turns": [[bash("true", "c1")], [say("never"), end()]],
    }[ending]
    more = {"usage": ["--no-such-flag"], "max_turns": ["--max-turns", "1"]}.get(ending, [])
    model = home.stage.scenario(*turns)
    argv = ("-p", "go", "--model", model, "--output-format", output_format, *FLAGS, *more)
    environ = {"WORD": "of the caller", "NO_COLOR": "1"}

    served = await batten(home, *argv, server=LOCAL, environ=environ)
    own = await batten(home, *argv, environ=environ)

    assert plain(served) == plain(own)


async def test_the_run_is_executed_by_the_service_and_not_by_the_caller(home: Service) -> None:
    model = home.stage.scenario([bash("echo $PPID", "c1")], [say("Ran."), end()])
    caller = await started(home, "-p", "go", "--model", model, *FLAGS, server=LOCAL)
    async with asyncio.timeout(PATIENCE_S):
        out, err = await caller.communicate()
    assert (caller.returncode, out) == (0, b"Ran.\n"), err.decode()

    assert await executor(home) != caller.pid


async def test_the_caller_loads_next_to_nothing(home: Service) -> None:
    model = home.stage.scenario([say("Done."), end()])
    argv = ("-p", "go", "--model", model, *FLAGS)

    ended = await batten(home, *argv, server=LOCAL, environ={"PYTHONPROFILEIMPORTTIME": "1"})

    loaded = {line.rpartition("|")[2].strip() for line in ended.err.splitlines()}
    assert (ended.code, ended.out) == (0, b"Done.\n")
    assert "batten.cli.local.caller" in loaded
    assert loaded & {"asyncio", "msgspec", "argparse", "typing", "json", "apsw", "logging"} == set()


async def test_piped_text_joins_the_prompt(home: Service) -> None:
    model = home.stage.scenario([say("Read."), end()])

    ended = await batten(home, "-p", "sum", "--model", model, server=LOCAL, stdin=b"of the pipe\n")

    assert (ended.code, ended.out) == (0, b"Read.\n"), ended.err
    shown = await batten(home, "show", "last", "--verbose")
    assert b"of the pipe" in shown.out


async def test_a_silent_pipe_of_the_callers_parent_is_not_waited_for(home: Service) -> None:
    model = home.stage.scenario([say("Done."), end()])
    caller = await started(
        home,
        *("-p", "go", "--model", model, *FLAGS),
        server=LOCAL,
        environ={"BATTEN_STDIN_S": "0.2"},
        stdin=asyncio.subprocess.PIPE,
    )
    assert caller.stdout is not None
    assert caller.stderr is not None

    async with asyncio.timeout(PATIENCE_S):
        assert await caller.stdout.read() == b"Done.\n"

    assert b"nothing came on standard input in 0.2 s" in await caller.stderr.read()


async def test_ctrl_c_cancels_the_run(home: Service) -> None:
    model = home.stage.scenario([bash("mkfifo pipe; cat pipe", "c1")], [say("x"), end()])
    caller = await started(
        home, *("-p", "go", "--model", model, "--output-format", "events", *FLAGS), server=LOCAL
    )
    await _until(caller, b'"tool.shell.command"')

    caller.send_signal(signal.SIGINT)

    async with asyncio.timeout(PATIENCE_S):
        out, err = await caller.communicate()
    assert caller.returncode == 124, err.decode()
    assert b'"run.cancelled"' in out.splitlines()[-1]


async def test_the_run_survives_its_caller(home: Service) -> None:
    model = home.stage.scenario([bash("mkfifo pipe; cat pipe", "c1")], [say("x"), end()])
    caller = await started(
        home, *("-p", "go", "--model", model, "--output-format", "events", *FLAGS), server=LOCAL
    )
    await _until(caller, b'"tool.shell.command"')
    follower = await started(home, "events", "last", "--follow")

    caller.kill()  # its pipes stay open: the run has them too

    await asyncio.to_thread((home.stage.workspace / "pipe").write_bytes, b"go on\n")
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await follower.communicate()
    assert b'"run.finished"' in out.splitlines()[-1]


async def test_no_process_of_the_service_survives_it(home: Service) -> None:
    model = home.stage.scenario([bash("mkfifo pipe; cat pipe", "c1")], [say("x"), end()])
    caller = await started(
        home, *("-p", "go", "--model", model, "--output-format", "events", *FLAGS), server=LOCAL
    )
    await _until(caller, b'"tool.shell.command"')
    process = os.pidfd_open(await executor(home))

    await home.kill()

    async with asyncio.timeout(PATIENCE_S):
        _, err = await caller.communicate()
        await asyncio.to_thread(select.select, [process], [], [], PATIENCE_S)
    os.close(process)
    assert (caller.returncode, "the service ended" in err.decode()) == (1, True)


async def test_without_a_service_the_process_runs_the_prompt_itself(home: Service) -> None:
    await home.stop()
    model = home.stage.scenario([say("Alone."), end()])

    ended = await batten(home, "-p", "go", "--model", model, server=LOCAL)

    assert (ended.code, ended.out, ended.err) == (0, b"Alone.\n", "")


async def test_a_confined_caller_gets_no_process_outside_its_confinement(home: Service) -> None:
    """Otherwise a command in its sandbox could leave it through the socket."""
    model = home.stage.scenario([say("Confined."), end()])
    confine = (
        "import ctypes, os, sys; assert not ctypes.CDLL(None).prctl(38, 1, 0, 0, 0);"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    caller = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", confine, BATTEN, "-p", "go", "--model", model, *FLAGS),
        env={**home.stage.environ, "BATTEN_SERVER": LOCAL},
        cwd=home.stage.workspace,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await caller.communicate()

    assert (caller.returncode, out) == (0, b"Confined.\n")
    assert await executor(home) == caller.pid


async def test_the_socket_is_for_its_owner_only(home: Service) -> None:
    mode = (home.stage.home / "print.sock").stat().st_mode

    assert oct(mode & 0o777) == "0o600"


async def _until(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        while word not in (line := await process.stdout.readline()):
            assert line, await process.stderr.read() if process.stderr else b""
