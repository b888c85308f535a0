"""`batten -p` with `BATTEN_SERVER=local`: a warm process of the service runs it, seen from outside
as if it ran here.
"""

import asyncio
import os
import re
import select
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, aclosing, closing
from pathlib import Path

import pytest
from msgspec import Struct

from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import Statement, bash, end, fail, say
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_turn
from tests.protocols.transcripts import PRICES
from tests.service.commanding import BATTEN, Printed, batten, started
from tests.service.crowd import tree
from tests.service.serving import PATIENCE_S, Service

LOCAL = "local"
FLAGS = ("--auto-allow", "--sandbox", "none")


@pytest.fixture
async def home(service: Service) -> Service:
    """A service whose warm process listens."""
    await _answered(service.stage.home / "print.sock")
    return service


async def _answered(path: Path) -> None:
    """Wait until a process listens on this socket."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(path)
            except OSError:
                await asyncio.sleep(0.01)  # nothing tells when a file appears
            else:
                writer.close()
                return


async def executor(service: Service) -> int:
    """The process that executes, or executed, the last run."""
    events = (await batten(service, "events", "last")).lines
    (begun,) = [event for event in events if event["type"] == "run.started"]
    return int(begun["data"]["worker_id"].split("-")[2])


_ID = re.compile(r"\b(run|chat|evt|task|art|ckpt)_[0-9A-HJKMNP-TV-Z]{26}")
_WORKER = re.compile(r"worker-[0-9a-f]{12}-\d+-\d+")
_TIME = re.compile(r'"(\w*duration_ms|time_to_first_token_ms|occurred_at|lease_until)":[^,}]+')


def plain(printed: Printed) -> tuple[int, str, str]:
    """The exit code and both outputs, with ids and times replaced and nothing else."""

    def without(text: str) -> str:
        text = _WORKER.sub("WORKER", _ID.sub(r"\1_ID", text))
        return _TIME.sub(r'"\1":TIME', text)

    return printed.code, without(printed.out.decode()), without(printed.err)


FORMATS = ("text", "json", "stream-json", "events")


class Case(Struct, frozen=True):
    """One way a run ends."""

    code: int
    frames: tuple[list[Statement], ...] = ([say("never"), end()],)
    flags: tuple[str, ...] = FLAGS


ENDINGS = {
    "success": Case(0, ([say("All done."), end()],)),
    "tool": Case(0, ([bash('echo "hi $PWD $WORD"', "c1")], [say("Ran."), end()])),
    "denial": Case(
        0, ([bash("rm x", "c1")], [say("Denied."), end()]), ("--sandbox", "none", "--deny", "bash")
    ),
    "denial by nobody": Case(0, ([bash("rm x", "c1")], [say("No."), end()]), ("--sandbox", "none")),
    "denial that fails": Case(
        2, ([bash("rm x", "c1")], [say("x"), end()]), ("--sandbox", "none", "--fail-on", "denied")
    ),
    "failure": Case(78, ([fail("authentication", "no such key")],)),
    "model error": Case(1, ([fail("fatal", "the model broke")],)),
    "usage": Case(64, flags=(*FLAGS, "--no-such-flag")),
    "max_turns": Case(75, ([bash("true", "c1")],), (*FLAGS, "--max-turns", "1")),
}


@pytest.mark.parametrize("ending", ENDINGS)
async def test_frames_and_exit_codes_are_those_of_a_process_of_its_own(
    home: Service, ending: str
) -> None:
    case = ENDINGS[ending]
    model = home.stage.scenario(*case.frames)
    environ = {"WORD": "of the caller", "NO_COLOR": "1"}
    for output_format in FORMATS:
        argv = ("-p", "go", "--model", model, "--output-format", output_format, *case.flags)

        served = await batten(home, *argv, server=LOCAL, environ=environ)
        own = await batten(home, *argv, environ=environ)

        assert plain(served) == plain(own)
        assert own.code == case.code, own.err


async def test_a_spent_budget_ends_as_in_a_process_of_its_own(home: Service) -> None:
    prices = home.stage.directory / "prices.json"
    prices.write_text(PRICES)
    turn = answer(anthropic_turn(calls=[("c1", "todo_write", {"todos": []})]))
    async with ModelServer([turn] * 2 * len(FORMATS)) as model:
        environ = {**model.environ(), "BATTEN_PRICES": str(prices)}
        for output_format in FORMATS:
            budget = ("--model", "anthropic/m", "--max-budget-usd", "0.01")
            argv = ("-p", "go", *budget, "--output-format", output_format)

            served = await batten(home, *argv, server=LOCAL, environ=environ)
            own = await batten(home, *argv, environ=environ)

            assert plain(served) == plain(own)
            assert own.code == 137, own.err


@pytest.mark.parametrize("output_format", FORMATS)
async def test_ctrl_c_ends_as_in_a_process_of_its_own(home: Service, output_format: str) -> None:
    begun = home.stage.workspace / "begun"
    os.mkfifo(begun)
    os.mkfifo(home.stage.workspace / "never")
    model = home.stage.scenario([bash("echo > begun; cat never", "c1")], [say("x"), end()])
    argv = ("-p", "go", "--model", model, "--output-format", output_format, *FLAGS)

    async def interrupted(server: str | None) -> Printed:
        caller = await started(home, *argv, server=server)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.to_thread(begun.read_bytes)
            await _recorded(home, "tool.shell.command")
            caller.send_signal(signal.SIGINT)
            out, err = await caller.communicate()
        return Printed(caller.returncode or 0, out, err.decode())

    served, own = await interrupted(LOCAL), await interrupted(None)

    assert plain(served) == plain(own)
    assert own.code == 124


async def test_the_run_is_executed_by_the_service_and_not_by_the_caller(home: Service) -> None:
    model = home.stage.scenario([bash("echo $PPID", "c1")], [say("Ran."), end()])
    caller = await started(home, "-p", "go", "--model", model, *FLAGS, server=LOCAL)
    async with asyncio.timeout(PATIENCE_S):
        out, err = await caller.communicate()
    assert (caller.returncode, out) == (0, b"Ran.\n"), err.decode()

    assert await executor(home) != caller.pid


@pytest.mark.parametrize(
    ("words", "is_served"),
    [
        (("--server", "local"), True),
        (("--server=local",), True),
        (("--append-system-prompt", "what --server local does"), False),
        ((), False),
    ],
)
async def test_only_a_caller_that_asks_for_the_service_gets_it(
    home: Service, words: tuple[str, ...], is_served: bool
) -> None:
    model = home.stage.scenario([say("Done."), end()])
    caller = await started(home, "-p", "go", *words, "--model", model, *FLAGS)
    async with asyncio.timeout(PATIENCE_S):
        out, err = await caller.communicate()
    assert (caller.returncode, out) == (0, b"Done.\n"), err.decode()

    assert (await executor(home) != caller.pid) == is_served


async def test_the_caller_loads_next_to_nothing(home: Service) -> None:
    model = home.stage.scenario([say("Done."), end()])
    argv = ("-p", "go", "--model", model, *FLAGS)

    ended = await batten(home, *argv, server=LOCAL, environ={"PYTHONPROFILEIMPORTTIME": "1"})

    loaded = {line.rpartition("|")[2].strip() for line in ended.err.splitlines()}
    assert (ended.code, ended.out) == (0, b"Done.\n")
    assert "batten.cli.local.caller" in loaded
    assert loaded & {"asyncio", "msgspec", "argparse", "typing", "json", "apsw", "logging"} == set()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
async def test_a_closed_standard_stream_ends_as_in_a_process_of_its_own(
    home: Service, closed: str
) -> None:
    model = home.stage.scenario([say("Done."), end()])
    ends: list[tuple[int | None, bytes, bytes]] = []
    for server in ({}, {"BATTEN_SERVER": LOCAL}):
        process = await asyncio.create_subprocess_exec(
            *("sh", "-c", f'exec "$0" "$@" {closed}', BATTEN, "-p", "go", "--model", model),
            env={**home.stage.environ, **server},
            cwd=home.stage.workspace,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(PATIENCE_S):
            out, err = await process.communicate()
        ends.append((process.returncode, out, err))
    own, served = ends
    assert served == own
    assert (own[0] == 0) == (closed != ">&-")


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
    assert await caller.wait() == 0


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
        assert await caller.wait() == -signal.SIGKILL
    assert b'"run.finished"' in out.splitlines()[-1]


@pytest.mark.own_service
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


@pytest.mark.own_service
@pytest.mark.parametrize("end_first", [Service.stop, Service.kill])
async def test_of_two_services_the_one_that_remains_has_both_sockets(
    home: Service, end_first: Callable[[Service], Awaitable[object]]
) -> None:
    second = Service(home.stage, ())
    await second.start()
    try:
        model = home.stage.scenario([say("Warm."), end()])
        argv = ("-p", "go", "--model", model, *FLAGS)

        with ExitStack() as stack:
            processes = [_watched(pid, stack) for pid in tree(home.pid)[1:]]
            await end_first(home)
            for process in processes:  # its fork server listens until it has ended
                await asyncio.to_thread(select.select, [process], [], [], PATIENCE_S)

        await _answered(home.stage.home / "print.sock")
        caller = await started(home, *argv, server=LOCAL)
        async with asyncio.timeout(PATIENCE_S):
            out, _ = await caller.communicate()
        assert (caller.returncode, out) == (0, b"Warm.\n")
        assert await executor(home) != caller.pid
        await _answered(home.stage.home / "serve.sock")
        listed = await batten(home, "runs", "--json", server=f"unix:{home.stage.home}/serve.sock")
        assert (listed.code, len(listed.lines)) == (0, 1), listed.err
    finally:
        await second.stop()
    assert not list(home.stage.home.glob("*.sock"))


@pytest.mark.own_service
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


def _watched(pid: int, stack: ExitStack) -> int:
    """A descriptor that can be read when the process has ended."""
    descriptor = os.pidfd_open(pid)
    stack.callback(os.close, descriptor)
    return descriptor


async def _recorded(service: Service, type_: str) -> None:
    """Wait until the newest run has an event of this type."""
    with closing(SqliteJournal.open(str(service.stage.home), read_only=True)) as journal:
        (row,) = await journal.runs(limit=1)
        async with aclosing(journal.follow(row.run_id)) as pages:
            async for page in pages:
                if any(stored.type == type_ for stored in page):
                    return


async def _until(process: asyncio.subprocess.Process, word: bytes) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        while word not in (line := await process.stdout.readline()):
            assert line, await process.stderr.read() if process.stderr else b""
