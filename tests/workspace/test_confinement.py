"""What the sandbox refuses besides writing and the network, and what if it cannot start."""

import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from batten.contract.errors import CallerError
from batten.workspace import landlock, process_tree
from batten.workspace.programs import find_program, safe_path
from batten.workspace.sandbox import HALF_OF_FREE, Limits, Mode, find_bwrap
from tests.workspace.keepers import (
    BWRAP,
    CONFINED,
    EVERY_LAYER,
    LANDLOCK,
    elsewhere,
    eventually,
    has_ended,
    keeper_at,
    keeper_process,
    run,
    shims,
)

pytestmark = pytest.mark.attack

confined = pytest.mark.parametrize("mode", CONFINED)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")

WITHOUT_LANDLOCK = """
    import asyncio, ctypes, struct, sys
    from batten.workspace.keeper import Keeper
    from batten.workspace.sandbox import Policy

    # As on a kernel without it: landlock_create_ruleset is not implemented.
    refuse, allow = (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), refuse, allow]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    prctl = ctypes.CDLL(None).prctl
    assert prctl(38, 1, 0, 0, 0) == 0
    assert prctl(22, 2, struct.pack("@HP", len(steps), ctypes.addressof(code)), 0, 0) == 0

    async def main():
        keeper = Keeper(sys.argv[1], Policy(mode=sys.argv[2]), {"PATH": "/nowhere"})
        try:
            async with await keeper.spawn(["/bin/touch", "ran"]) as command:
                await command.wait()
                print("layer", command.launch.sandbox_layer)
        except Exception as error:
            print(getattr(error, "code", ""), error)
        await keeper.close()

    asyncio.run(main())
"""


def python(script: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr


def test_without_any_layer_auto_refuses_commands(tmp_path: Path) -> None:
    said = python(WITHOUT_LANDLOCK, str(tmp_path), "auto")
    assert said.startswith("sandbox_unavailable ")
    assert "--sandbox none" in said
    assert not (tmp_path / "ran").exists()


def test_without_any_layer_commands_run_if_none_was_said(tmp_path: Path) -> None:
    assert python(WITHOUT_LANDLOCK, str(tmp_path), "none") == "layer none\n"
    assert (tmp_path / "ran").exists()


def plant(folder: Path, name: str) -> Path:
    """A program that leaves a mark if it is started."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\ntouch {folder}/started\nexit 1\n")
    program.chmod(0o755)
    return program


def test_programs_are_not_found_where_a_command_can_write(tmp_path: Path) -> None:
    workspace, elsewhere = tmp_path / "workspace", tmp_path / "elsewhere"
    plant(workspace / "bin", "tool")
    kept = plant(elsewhere, "tool")
    (tmp_path / "way").symlink_to(workspace / "bin")
    (workspace / "out").symlink_to(elsewhere)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "tool").symlink_to(workspace / "bin" / "tool")
    unsafe = f"bin:.::{workspace}/bin:{tmp_path}/way:{workspace}/out"
    writable = [str(workspace)]
    assert find_program("tool", f"{unsafe}:{tmp_path}/links", writable) is None
    assert find_program("tool", f"{unsafe}:{elsewhere}", writable) == str(kept)
    assert safe_path(f"{unsafe}:/usr/bin", writable) == "/usr/bin"


def test_programs_of_the_system_are_found_though_the_workspace_holds_them(tmp_path: Path) -> None:
    plant(tmp_path, "sh")
    path = f"{tmp_path}:/usr/bin:/bin"
    for workspace in ("/", "/usr"):
        found = find_program("sh", path.removeprefix(f"{tmp_path}:"), [workspace])
        assert found is not None
        assert found == os.path.realpath("/usr/bin/sh")
    assert safe_path(path, ["/"]) == "/usr/bin:/bin"
    assert safe_path("/usr/local/src/a/bin:/usr/bin", ["/usr/local/src/a"]) == "/usr/bin"


@confined
async def test_workspace_that_holds_the_system_is_confined_and_named(mode: Mode) -> None:
    async with keeper_at(Path("/"), mode) as keeper:
        found = await keeper.ready()
        seen = await run(keeper, f"kill -0 {os.getpid()} || echo refused")
    assert found.layer == mode
    assert "the system's own programs, which are in the workspace" in found.uncovered
    assert seen.stdout == "refused\n"


async def test_bwrap_that_a_command_could_have_written_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = plant(tmp_path / "bin", "bwrap")
    monkeypatch.setenv("PATH", f"{planted.parent}:/usr/bin:/bin")
    monkeypatch.setattr("batten.workspace.keeper_channel._unusable", {})
    assert find_bwrap(os.environ["PATH"], [str(tmp_path)]) != str(planted)
    async with keeper_at(tmp_path) as keeper:
        assert (await run(keeper, "echo works")).stdout == "works\n"
    assert not (planted.parent / "started").exists()


@confined
async def test_limits_of_other_processes_cannot_be_changed(tmp_path: Path, mode: Mode) -> None:
    script = (
        "import os, resource\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))\n"
    )
    (tmp_path / "limit.py").write_text(script)
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, ["python3", "limit.py"])
        assert (await run(keeper, "echo alive")).stdout == "alive\n"
    assert result.exit.exit_code == 1
    assert "line 3" in result.stderr
    assert "PermissionError" in result.stderr


@confined
async def test_keyring_is_out_of_reach(tmp_path: Path, mode: Mode) -> None:
    script = (
        "import ctypes; libc = ctypes.CDLL(None, use_errno=True); "
        "numbers = {'x86_64': 248, 'aarch64': 217}; import os; "
        "print(libc.syscall(numbers[os.uname().machine], b'user', b'x', b'y', 1, -3), "
        "ctypes.get_errno())"
    )
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, ["python3", "-c", script])
    assert result.stdout == "-1 38\n", result.stderr


@pytest.mark.parametrize("mode", [LANDLOCK])
async def test_extended_attributes_outside_are_not_changed(tmp_path: Path, mode: Mode) -> None:
    outside, workspace = tmp_path / "outside", tmp_path / "workspace"
    outside.write_text("")
    workspace.mkdir()
    script = f"import os; os.setxattr({str(outside)!r}, 'user.mark', b'x')"
    async with keeper_at(workspace, mode) as keeper:
        result = await run(keeper, ["python3", "-c", script])
        copied = await run(keeper, "echo x > a && cp -a a b && cat b")
    assert "OSError" in result.stderr
    assert os.listxattr(outside) == []
    assert copied.stdout == "x\n"


@needs_root
def test_keeper_that_cannot_see_processes_does_not_start(tmp_path: Path) -> None:
    script = """
        import asyncio, os, sys
        from batten.workspace.keeper import Keeper
        from batten.workspace.sandbox import Policy

        async def main():
            keeper = Keeper(sys.argv[1], Policy(mode="none"), {"PATH": "/usr/bin:/bin"})
            try:
                await keeper.ready()
            except Exception as error:
                print(error.code)
            await keeper.close()

        asyncio.run(main())
    """
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    done = subprocess.run(
        [*hidden, sys.executable, "-c", textwrap.dedent(script), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("mounts are not allowed here")
    assert done.stdout == "sandbox_unavailable\n", done.stderr


def test_command_is_killed_though_processes_cannot_be_listed() -> None:
    script = """
        import os, resource, subprocess
        from batten.workspace import process_tree

        process_tree.adopt_orphans()
        child = subprocess.Popen(["sleep", "600"], start_new_session=True)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
        try:
            process_tree.descendants()
        except OSError as error:
            print("unreadable", error.errno)
        print(process_tree.kill_all(None, known=(child.pid,)) == {child.pid: 9})
    """
    assert python(script) == "unreadable 24\nTrue\n"


@pytest.mark.parametrize("mode", EVERY_LAYER)
async def test_keeper_and_shim_killed_together_leave_no_command(tmp_path: Path, mode: Mode) -> None:
    async with keeper_at(tmp_path, mode) as keeper:
        line = "setsid sleep 600 & echo $$ $!; sleep 600"
        async with await keeper.spawn(line) as command:
            inner: list[bytes] = []
            async for _, chunk in command.output():
                inner = chunk.split()
                break
            (shim,) = shims(tmp_path)
            known = process_tree.descendants(of=shim.pid)
            assert len(inner) == 2
            assert len(known) >= 2
            killed = keeper_process(tmp_path).pid
            os.kill(shim.pid, signal.SIGKILL)
            os.kill(killed, signal.SIGKILL)
            assert eventually(lambda: all(has_ended(pid) for pid, _ in known))


CONNECT = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"


@contextmanager
def served(*paths: Path) -> Generator[None]:
    with ExitStack() as opened:
        for path in paths:
            server = opened.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            server.listen()
        yield


@confined
@pytest.mark.parametrize("network", [False, True])
async def test_sockets_of_others_are_reached_only_if_they_are_allowed(
    tmp_path: Path, mode: Mode, network: bool
) -> None:
    """In /tmp, which is empty for commands, as well as where each is covered."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    with elsewhere() as other:
        paths = [tmp_path / "agent", other / "database", workspace / "editor"]
        with served(*paths):
            for allowed in ((), tuple(map(str, paths))):
                async with keeper_at(workspace, mode, sockets=allowed, network=network) as keeper:
                    for path in paths:
                        result = await run(keeper, ["python3", "-c", CONNECT, str(path)])
                        assert result.exit.success == bool(allowed), (path, result.stderr)


@confined
@pytest.mark.parametrize("network", [False, True])
async def test_sockets_without_a_path_are_out_of_reach(
    tmp_path: Path, mode: Mode, network: bool
) -> None:
    name = f"\0batten-test-{os.urandom(6).hex()}"
    connect = f"import socket; socket.socket(socket.AF_UNIX).connect({name!r})"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        async with keeper_at(tmp_path, mode, sockets=("/run/x",), network=network) as keeper:
            result = await run(keeper, ["python3", "-c", connect])
    assert "PermissionError" in result.stderr or "ConnectionRefused" in result.stderr


@confined
async def test_command_talks_to_itself_by_pairs_and_in_bubblewrap_by_paths(
    tmp_path: Path, mode: Mode
) -> None:
    pair = "import socket; a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))"
    datagrams = (
        "import socket, sys\n"
        "one, other = socket.socketpair(type=socket.SOCK_DGRAM)\n"
        "one.sendto(b'x', sys.argv[1])\n"
    )
    managed = (
        "import multiprocessing\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.Manager() as shared: print(list(shared.list([1])))\n"
    )
    (tmp_path / "managed.py").write_text(managed)
    with elsewhere() as other, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(other / "log"))
        server.setblocking(False)
        async with keeper_at(tmp_path, mode) as keeper:
            assert (await run(keeper, ["python3", "-c", pair])).stdout == "b'x'\n"
            await run(keeper, ["python3", "-c", datagrams, str(other / "log")])
            result = await run(keeper, ["python3", "managed.py"])
        with pytest.raises(BlockingIOError):
            server.recv(1)
    assert result.exit.success == (mode == "bwrap" or landlock.abi() >= landlock.REFUSES_SOCKETS)


@pytest.mark.parametrize("mode", EVERY_LAYER)
async def test_limits_hold_for_each_command(tmp_path: Path, mode: Mode) -> None:
    limits = Limits(
        processes=4000, memory_bytes=512 * 1024 * 1024, open_files=64, file_bytes=1024 * 1024
    )
    async with keeper_at(tmp_path, mode, limits=limits) as keeper:
        shown = await run(keeper, "ulimit -u; ulimit -d; ulimit -n; ulimit -Hn; ulimit -f")
        large = await run(keeper, ["python3", "-c", "bytearray(1024 * 1024 * 1024)"])
        written = await run(keeper, "head -c 2000000 /dev/zero > file")
        raised = await run(keeper, "ulimit -n 65")
    processes, *others = shown.stdout.split()
    assert int(processes) >= 4000
    assert others == ["524288", "64", "64", "1024"]
    assert "MemoryError" in large.stderr
    assert not written.exit.success
    assert (tmp_path / "file").stat().st_size == 1024 * 1024
    if os.geteuid() != 0:
        assert not raised.exit.success


@pytest.mark.parametrize("mode", EVERY_LAYER)
async def test_limits_follow_what_the_machine_has(tmp_path: Path, mode: Mode) -> None:
    limits = Limits(file_bytes=HALF_OF_FREE, open_files=1 << 20)
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    free = shutil.disk_usage(tmp_path).free
    async with keeper_at(tmp_path, mode, limits=limits) as keeper:
        shown = await run(keeper, "ulimit -f; ulimit -n; cat /proc/self/oom_score_adj")
    size, files, score = map(int, shown.stdout.split())
    assert 0.25 * free < size * 1024 < 0.75 * free
    assert files == soft
    assert score == 500


async def test_batten_installed_in_the_workspace_is_named(tmp_path: Path) -> None:
    package = Path(landlock.__file__).parents[3]
    async with keeper_at(tmp_path, "none", writable=(str(package),)) as keeper:
        inside = await keeper.ready()
    async with keeper_at(tmp_path, "none") as keeper:
        outside = await keeper.ready()
    assert set(inside.uncovered) - set(outside.uncovered) == {
        "Batten's own program, installed in the workspace"
    }


async def test_layer_by_name_that_is_missing_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("batten.workspace.keeper_channel._unusable", {})
    async with keeper_at(tmp_path, "bwrap") as keeper:
        with pytest.raises(CallerError, match="--sandbox none"):
            await keeper.ready()


@pytest.mark.parametrize("mode", [BWRAP])
async def test_no_process_of_the_namespace_is_without_the_filter(
    tmp_path: Path, mode: Mode
) -> None:
    """A command could make the first one's system calls, if it had none."""
    script = (
        "import ctypes, os\n"
        "for name in filter(str.isdigit, os.listdir('/proc')):\n"
        "    status = open(f'/proc/{name}/status').read().splitlines()\n"
        "    print(name, *(line for line in status if line.startswith('Seccomp:')))\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "held = ctypes.create_string_buffer(b'AAAAAAAA')\n"
        "ours = (ctypes.c_void_p * 2)(ctypes.addressof(held), 8)\n"
        "theirs = (ctypes.c_void_p * 2)(0x400000, 8)\n"
        "calls = (libc.process_vm_writev, libc.process_vm_readv)\n"
        "one, none = ctypes.c_ulong(1), ctypes.c_ulong(0)\n"
        "done = [call(1, ours, one, theirs, one, none) for call in calls]\n"
        "refused = {ctypes.get_errno()}\n"
        "for name in ('mem', 'environ', 'maps'):\n"
        "    try: done.append(len(open(f'/proc/1/{name}', 'rb').read(1)))\n"
        "    except OSError as error: refused.add(error.errno)\n"
        "print(libc.ptrace(16, 1, None, None), libc.ptrace(0x4206, 1, None, None), done)\n"
        "assert refused <= {1, 13}, refused\n"
    )
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, ["python3", "-c", script])
    *processes, traced = result.stdout.splitlines()
    assert processes[0] == "1 Seccomp:\t2", result.stderr
    assert {line.split("\t")[1] for line in processes} == {"2"}
    assert traced == "-1 -1 [-1, -1]", result.stderr
    assert result.exit.success, result.stderr


@pytest.mark.parametrize("mode", EVERY_LAYER)
async def test_a_crash_leaves_no_core_file(tmp_path: Path, mode: Mode) -> None:
    """1 byte also keeps the kernel from feeding a program that collects them; 0 does not."""
    async with keeper_at(tmp_path, mode) as keeper:
        result = await run(keeper, "ulimit -c unlimited; grep core /proc/self/limits; kill -11 $$")
    assert result.exit.signal == "SIGSEGV"
    assert result.stdout.split()[:6] == ["Max", "core", "file", "size", "1", "1"]
    assert list(tmp_path.iterdir()) == []
