"""The keeper: nothing it starts outlives its owner, whoever is killed, and it is cheap to start."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from batten.contract.errors import ProviderError
from batten.workspace import keeper_messages as wire
from batten.workspace import landlock, process_tree
from batten.workspace.commands import Exit
from batten.workspace.control import Control
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Mode, Policy
from tests.workspace.keepers import (
    BWRAP,
    CONFINED,
    EVERY_LAYER,
    children_of,
    eventually,
    has_ended,
    keeper_at,
    keeper_process,
    processes_mentioning,
    run,
    shims,
)

every_layer = pytest.mark.parametrize("mode", EVERY_LAYER)

OWNER = """
import asyncio, os, sys
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Policy

async def main(root, mode, script):
    keeper = Keeper(root, Policy(mode=mode), os.environ)
    print("starting", flush=True)
    command = await keeper.spawn(script)
    async for _ in command.output():
        pass

asyncio.run(main(*sys.argv[1:]))
"""
WAIT = "tail -qf /dev/null"


def a_tree(mark: str) -> str:
    """bash; beside it one in its group, one in a session of its own, a daemon, one in front."""
    return (
        f"{WAIT} {mark}/same-group & setsid {WAIT} {mark}/own-session & "
        f"(setsid sh -c '{WAIT} {mark}/daemon & exit' &) ; {WAIT} {mark}/in-front"
    )


def owner(root: Path, mode: str, script: str) -> "subprocess.Popen[bytes]":
    argv = [sys.executable, "-c", OWNER, str(root), mode, script]
    return subprocess.Popen(argv, stdout=subprocess.PIPE)


def waiting_at(mark: str) -> list[str]:
    found = (p.line.strip() for p in processes_mentioning(mark))
    return sorted(line.rpartition("/")[2] for line in found if line.startswith(WAIT))


@every_layer
async def test_a_numbered_command_has_the_pid_by_which_we_know_it(
    tmp_path: Path, mode: Mode
) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        command = await keeper.spawn(["tail", "-f", f"{tmp_path}/none", "/dev/null"], numbered=True)
        async with command:
            pid = command.pid
            assert pid is not None
            # A moment later at the latest: it may not have become its program yet.
            assert eventually(lambda: str(tmp_path).encode() in process_tree.name_of(pid))
        assert has_ended(pid)
        for _ in range(20):  # also if it has ended before anybody looked
            async with await keeper.spawn(["true"], numbered=True) as short:
                assert short.pid is not None
                assert await short.wait() == Exit(0)


@every_layer
def test_nothing_survives_20_kills_of_the_owner(tmp_path: Path, mode: str) -> None:
    whole = ["daemon", "in-front", "own-session", "same-group"]
    for _ in range(20):
        process = owner(tmp_path, mode, a_tree(str(tmp_path)))
        with process:
            assert eventually(lambda: waiting_at(str(tmp_path)) == whole)
            process.kill()
        assert eventually(lambda: processes_mentioning(str(tmp_path)) == [])


@every_layer
def test_nothing_survives_a_kill_while_starting(tmp_path: Path, mode: str) -> None:
    for step in range(10):
        process = owner(tmp_path, mode, a_tree(str(tmp_path)))
        with process:
            assert process.stdout is not None
            process.stdout.readline()
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(step * 0.005)
            process.kill()
        assert eventually(lambda: processes_mentioning(str(tmp_path)) == [])


@every_layer
async def test_killed_keeper_is_a_typed_error_and_the_next_command_works(
    tmp_path: Path, mode: Mode
) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        async with await keeper.spawn(a_tree(str(tmp_path))) as command:
            assert eventually(lambda: len(waiting_at(str(tmp_path))) == 4)
            os.kill(keeper_process(tmp_path).pid, signal.SIGKILL)
            with pytest.raises(ProviderError) as lost:
                await command.wait()
            assert (lost.value.code, lost.value.retriable) == ("keeper_lost", True)
            with pytest.raises(ProviderError):
                async for _ in command.output():
                    pass
        assert eventually(lambda: waiting_at(str(tmp_path)) == [])
        assert (await run(keeper, "echo again")).stdout == "again\n"


@every_layer
async def test_killed_attendant_loses_its_command_and_no_other(tmp_path: Path, mode: Mode) -> None:
    async with (
        keeper_at(tmp_path, mode) as keeper,
        await keeper.spawn("cat", stdin="open") as other,
    ):
        known = {p.pid for p in shims(tmp_path)}
        async with await keeper.spawn(a_tree(str(tmp_path))) as command:
            assert eventually(lambda: len(waiting_at(str(tmp_path))) == 4)
            (mine,) = [p for p in shims(tmp_path) if p.pid not in known]
            os.kill(mine.pid, signal.SIGKILL)
            with pytest.raises(ProviderError, match="ended"):
                await command.wait()
        assert eventually(lambda: waiting_at(str(tmp_path)) == [])
        await other.write_stdin(b"alive")
        await other.close_stdin()
        assert [chunk async for chunk in other.output()] == [("stdout", b"alive")]
        assert await other.wait() == Exit(0)


@every_layer
async def test_command_given_to_an_attendant_that_dies_before_it_reads_runs_once(
    tmp_path: Path, mode: Mode
) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        await keeper.ready()
        above = keeper_process(tmp_path).pid
        assert eventually(lambda: len(children_of(above, tmp_path)) == 1)
        (waiting,) = children_of(above, tmp_path)
        # The keeper would wake a shim that was stopped, and its guard the keeper.
        stopped = [above] if mode == "bwrap" else [keeper_process(tmp_path).parent, above]
        for pid in (*stopped, waiting):
            os.kill(pid, signal.SIGSTOP)
        asked = asyncio.create_task(run(keeper, "echo once >> count; cat count"))
        await asyncio.wait([asked], timeout=0.1)
        assert not asked.done()
        os.kill(waiting, signal.SIGKILL)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        assert (await asked).stdout == "once\n"


@pytest.mark.parametrize("mode", CONFINED)
async def test_command_that_ends_all_it_can_reach_leaves_us_and_ours_alone(
    tmp_path: Path, mode: Mode
) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as bystander:  # noqa: ASYNC220
        async with keeper_at(tmp_path, mode) as keeper:
            await keeper.ready()
            reached = keeper_process(tmp_path)
            with pytest.raises(ProviderError):
                await run(keeper, "kill -KILL -1")
            if mode == "bwrap" or landlock.abi() >= 6:
                assert not has_ended(reached.pid)
            assert (await run(keeper, "echo again")).stdout == "again\n"
        assert bystander.poll() is None
        bystander.communicate()


KEEPER_OF_MINE = "K=$(awk '{print $4}' /proc/$PPID/stat)"


@pytest.mark.parametrize("mode", CONFINED)
async def test_daemon_does_not_outlive_a_run_by_killing_those_who_keep_it(
    tmp_path: Path, mode: Mode
) -> None:
    script = (
        f"(setsid {WAIT} {tmp_path}/daemon >&- 2>&- &); {KEEPER_OF_MINE}; "
        "read -r all < /proc/$K/task/$K/children; kill -KILL $K; kill -KILL $all; "
        f"exec {WAIT} {tmp_path}/in-front"
    )
    async with keeper_at(tmp_path, mode) as keeper:
        with pytest.raises(ProviderError):
            await run(keeper, script)
        assert eventually(lambda: waiting_at(str(tmp_path)) == [])
    assert processes_mentioning(str(tmp_path)) == []


@pytest.mark.parametrize("mode", CONFINED)
async def test_stopped_keeper_is_gone_after_closing(tmp_path: Path, mode: Mode) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        command = await keeper.spawn(a_tree(str(tmp_path)))
        assert eventually(lambda: len(waiting_at(str(tmp_path))) == 4)
        for process in [*shims(tmp_path), keeper_process(tmp_path)]:
            os.kill(process.pid, signal.SIGSTOP)
    assert processes_mentioning(str(tmp_path)) == []
    await command.close()


@pytest.mark.parametrize("mode", CONFINED)
async def test_command_that_stops_its_attendant_ends_as_ever(tmp_path: Path, mode: Mode) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, "kill -STOP $PPID; echo hi")
    assert (result.exit, result.stdout) == (Exit(0), "hi\n")


def test_tree_below_a_keeper_that_never_answers_is_killed_whole(tmp_path: Path) -> None:
    script = f"import time; open({str(tmp_path / 'ready')!r}, 'w'); time.sleep(600)"
    shell = f'setsid {sys.executable} -c "{script}" {tmp_path} & exec sleep 600'
    with subprocess.Popen(["sh", "-c", shell], start_new_session=True) as keeper:
        assert eventually((tmp_path / "ready").exists)
        process_tree.kill_below(keeper.pid)
        assert keeper.wait() == -signal.SIGKILL
    assert eventually(lambda: processes_mentioning(str(tmp_path)) == [])


@pytest.mark.parametrize("said", [b"\x63\xff\xff\xff\xff", wire.message(wire.STARTED, b"x")])
async def test_attendant_that_speaks_nonsense_is_lost(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        control = Control(ours)
        theirs.send(said)
        await control.until_over()
    assert control.lost


@every_layer
async def test_descriptors_of_keeper_and_attendant_cannot_be_taken(
    tmp_path: Path, mode: Mode
) -> None:
    # Root keeps its power over other processes where there is no sandbox.
    if mode == "none" and os.geteuid() == 0:
        pytest.skip("root may look into everything")
    (tmp_path / "take.py").write_text(
        "import ctypes, os\n"
        "call = ctypes.CDLL(None).syscall\n"
        "up = lambda pid: int(open(f'/proc/{pid}/stat').read().rpartition(')')[2].split()[1])\n"
        "mine = os.getppid()\n"
        "for pid in (mine, up(mine), up(up(mine))):\n"
        "    handle = os.pidfd_open(pid)\n"
        "    print(sum(call(438, handle, fd, 0) >= 0 for fd in range(20)) > 0)\n"
    )
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, f"{sys.executable} take.py; true")
    assert result.stdout.split() == ["True", "False", "False"], result.stderr


@every_layer
async def test_closing_leaves_no_process_no_descriptor_and_no_directory(
    tmp_path: Path, mode: Mode
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async with keeper_at(tmp_path, mode) as keeper:
        script = (
            "mkdir -p $TMPDIR/a/b; ln -s / $TMPDIR/a/root; echo x > $TMPDIR/a/f; pwd > $TMPDIR/g"
        )
        await run(keeper, script)
        private = Path((await run(keeper, "printf %s $TMPDIR")).stdout)
        assert (private / "a" / "f").read_text() == "x\n"
    assert not private.exists()
    assert processes_mentioning(str(tmp_path)) == []
    assert len(os.listdir("/proc/self/fd")) == before


async def test_closing_that_is_cancelled_anywhere_leaves_nothing(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for turns in range(4):
        keeper = Keeper(str(tmp_path), Policy(mode="none"), os.environ)
        await keeper.spawn("trap '' TERM; sleep 60; true", stdin="open")
        closing = asyncio.ensure_future(keeper.close())
        for _ in range(turns + 1):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert processes_mentioning(str(tmp_path)) == []
        assert len(os.listdir("/proc/self/fd")) == before, turns


async def test_directories_of_killed_owners_are_swept_up_later(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        private = Path((await run(keeper, "printf %s $TMPDIR")).stdout)
        abandoned = private.with_name("batten-0000000000000000")
        abandoned.mkdir(0o700, exist_ok=True)
        async with keeper_at(tmp_path, network=True) as other:
            await other.ready()
        assert private.exists()
        assert not abandoned.exists()


async def test_commands_run_beside_each_other(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        os.mkfifo(tmp_path / "meeting")
        results = await asyncio.gather(
            run(keeper, "cat meeting"), run(keeper, "echo met > meeting")
        )
    assert [result.stdout for result in results] == ["met\n", ""]


async def test_first_commands_wait_for_one_start(tmp_path: Path) -> None:
    async with keeper_at(tmp_path) as keeper:
        await asyncio.gather(*(run(keeper, "true") for _ in range(8)))
        assert keeper_process(tmp_path)


@every_layer
async def test_keepers_of_one_workspace_and_policy_share_a_process(
    tmp_path: Path, mode: Mode
) -> None:
    async with keeper_at(tmp_path, mode) as first:
        mine = await first.spawn(f"{WAIT} {tmp_path}/mine")
        async with keeper_at(tmp_path, mode) as second:
            theirs = await second.spawn(f"{WAIT} {tmp_path}/theirs")
            assert len(shims(tmp_path)) == 2  # below one process: `keeper_process` finds one
        # Closing one ends its commands and no others.
        assert theirs.over
        assert not mine.over
        assert (await run(first, "echo on")).stdout == "on\n"
    assert eventually(lambda: processes_mentioning(str(tmp_path)) == [])


async def test_commands_of_a_shared_process_have_the_environment_of_their_own_keeper(
    tmp_path: Path,
) -> None:
    def keeper(name: str) -> Keeper:
        policy = Policy(added={"ADDED": name})
        return Keeper(str(tmp_path), policy, {**os.environ, "USER": name})

    both = keeper("one"), keeper("two")
    said = [(await run(one, "echo $USER $ADDED")).stdout for one in both]
    assert keeper_process(tmp_path)
    for one in both:
        await one.close()
    assert said == ["one one\n", "two two\n"]


async def test_another_policy_has_a_process_of_its_own(tmp_path: Path) -> None:
    async with keeper_at(tmp_path, "none"), keeper_at(tmp_path, "none", network=True) as other:
        await other.ready()
        own = [
            process
            for process in processes_mentioning(str(tmp_path))
            if process.parent == os.getpid() and "keeper_process" in process.line
        ]
        assert len(own) == 2


async def test_closing_while_it_starts_leaves_nothing(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    keeper = Keeper(str(tmp_path), environ=os.environ)
    keeper.start()
    await asyncio.sleep(0)
    assert await keeper.close() == ()
    assert processes_mentioning(str(tmp_path)) == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_keeper_program_imports_little() -> None:
    source = str(Path(wire.__file__).parents[2])
    program = (
        f"import sys; sys.path.append({source!r}); import batten.workspace.keeper_process; "
        "print(*sorted(m for m in sys.modules if not m.startswith('_')))"
    )
    argv = [sys.executable, "-I", "-S", "-c", program]
    loaded = set(subprocess.run(argv, capture_output=True, check=True, text=True).stdout.split())
    ours = {name for name in loaded if name.startswith("batten")}
    assert ours == {
        "batten",
        "batten.workspace",
        "batten.workspace.capabilities",
        "batten.workspace.keeper_messages",
        "batten.workspace.keeper_process",
        "batten.workspace.landlock",
        "batten.workspace.process_tree",
        "batten.workspace.seccomp",
    }
    assert loaded.isdisjoint({"json", "subprocess", "socket", "signal", "enum", "typing", "re"})


@pytest.mark.parametrize("mode", [BWRAP])
def test_keeper_compiles_its_program_once_though_it_cannot_write_there(
    tmp_path: Path, mode: str
) -> None:
    package = tmp_path / "lib" / "batten"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(wire.__file__).parents[1], package, ignore=ignored)
    root = tmp_path / "root"
    root.mkdir()
    program = f"import sys; sys.path.insert(0, {str(package.parent)!r}); {OWNER}"
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    argv = [sys.executable, "-c", program, str(root), mode, "true"]
    subprocess.run(argv, check=True, capture_output=True, env=environ)
    cached = {path.name.partition(".")[0] for path in package.glob("workspace/__pycache__/*.pyc")}
    loaded = {"keeper_process", "keeper_messages", "landlock", "limits", "process_tree", "seccomp"}
    assert loaded <= cached
    late = next(package.glob("workspace/__pycache__/seccomp.*"))
    os.utime(package / "workspace" / "seccomp.py")
    before = late.read_bytes()
    subprocess.run(argv, check=True, capture_output=True, env=environ)
    assert late.read_bytes() != before
