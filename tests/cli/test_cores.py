"""No process of ours leaves a core file: the keys of providers are in its memory."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.agent.stage import Stage, bash, say
from tests.runner.remote import RunnerProcess
from tests.serve.conversing import eventually
from tests.session.processes import environment, until

pytestmark = pytest.mark.attack

PATIENCE_S = 30
_ABORTING = (sys.executable, "-c", "import os; os.abort()")
INITIALIZE: dict[str, object] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture(autouse=True)
def cores_wanted() -> Iterator[None]:
    """Everything that is started may leave a core, unless it says otherwise."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


@contextmanager
def _started(stage: Stage, *argv: str) -> "Generator[subprocess.Popen[bytes]]":
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "batten", *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(stage),
        cwd=stage.workspace,
    ) as process:
        try:
            yield process
        finally:
            for pid in (*_below(process.pid), process.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


def _below(pid: int) -> list[int]:
    """The processes below this one."""
    parents = dict[int, int]()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        parents[int(name)] = int(fields[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def _core_limit(pid: int) -> int:
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/limits").read_text().splitlines()
        if line.startswith("Max core file size")
    )
    soft = line.split()[4]
    return -1 if soft == "unlimited" else int(soft)


def _leaves_core(directory: Path) -> bool:
    """Whether this machine writes a core where the process was."""
    subprocess.run(_ABORTING, cwd=directory, check=False, timeout=PATIENCE_S)
    cores = _cores(directory)
    for core in cores:
        core.unlink()
    return bool(cores)


def _cores(directory: Path) -> list[Path]:
    return [one for one in directory.iterdir() if "core" in one.name]


def _is_limited(pids: list[int]) -> None:
    most = resource.getrlimit(resource.RLIMIT_CORE)[1]
    assert {_core_limit(pid) for pid in pids} == {1 if most else 0}


def _crashed(stage: Stage, pids: list[int]) -> None:
    """End these processes as a fault in an extension would; no core is left."""
    for number, pid in enumerate(pids):
        os.kill(pid, (signal.SIGSEGV, signal.SIGABRT)[number % 2])


SERVING = {
    "serve": ("serve", "--port", "0", "--workers", "1", "--sandbox", "none"),
    "runtime": ("runtime", "--bind", "127.0.0.1:0"),
}


@pytest.mark.parametrize("kind", SERVING)
def test_a_service_that_crashes_leaves_no_core_and_nor_do_its_workers(
    stage: Stage, kind: str
) -> None:
    if not _leaves_core(stage.workspace):
        pytest.skip("cores are not written here")
    with _started(stage, *SERVING[kind]) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"listening on ")
        if kind == "serve":
            eventually(lambda: _below(process.pid) != [])
        every = [process.pid, *_below(process.pid)]
        _is_limited(every)
        _crashed(stage, every[::-1])
        assert process.wait(PATIENCE_S) in (-signal.SIGSEGV, -signal.SIGABRT)
    assert _cores(stage.workspace) == []


def test_a_run_that_crashes_leaves_no_core(stage: Stage) -> None:
    if not _leaves_core(stage.workspace):
        pytest.skip("cores are not written here")
    model = stage.scenario([bash("sleep 60", "c1")], [say("Done.")])
    flags = ("-p", "go", "--sandbox", "none", "--output-format", "events", "--model", model)
    with _started(stage, *flags, "--permission-mode", "dontAsk") as process:
        until(process, "tool.invoked")
        every = [process.pid, *_below(process.pid)]
        assert len(every) > 1  # the keeper, too
        _is_limited(every)
        _crashed(stage, [process.pid])
        assert process.wait(PATIENCE_S) == -signal.SIGSEGV
    assert _cores(stage.workspace) == []


def test_a_worker_on_pipes_is_limited(stage: Stage) -> None:
    with _started(stage, "headless", "--protocol", "acp") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(INITIALIZE).encode() + b"\n")
        process.stdin.flush()
        assert b"protocolVersion" in process.stdout.readline()
        _is_limited([process.pid])


def test_a_hosted_runner_and_its_session_are_limited(stage: Stage) -> None:
    flags = ("--runner-session-id", "mrs_1", "--owner-instance-id", "pod_1", "--sandbox", "none")
    model = stage.scenario([say("Done.")])
    runner = RunnerProcess.start(
        stage, *flags, "--workspace-root", str(stage.workspace), "--model", model
    )
    try:
        assert runner.post("/api/headless/connections").status == 200
        sessions = runner.session_processes()
        assert sessions
        _is_limited([runner.process.pid, *sessions])
    finally:
        runner.end()


def test_a_program_that_embeds_us_keeps_its_limit(stage: Stage) -> None:
    program = (
        "import resource, sys\n"
        "before = resource.getrlimit(resource.RLIMIT_CORE)\n"
        "import batten.client, batten.embedded\n"
        "from batten.cli import run\n"
        "run(['version'])\n"
        "sys.exit(before != resource.getrlimit(resource.RLIMIT_CORE))\n"
    )
    subprocess.run(
        [sys.executable, "-P", "-c", program],
        env=environment(stage),
        cwd=stage.workspace,
        stdout=subprocess.DEVNULL,
        check=True,
        timeout=PATIENCE_S,
    )
