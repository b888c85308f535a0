"""What a command cannot do: write outside, use the network, keep root's powers."""

import os
import socket
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from batten.contract.errors import CallerError
from batten.workspace import landlock, seccomp
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Mode, Policy, describe, find_bwrap, layers_to_try
from tests.workspace.keepers import BWRAP, CONFINED, elsewhere, keeper_at, run

confined = pytest.mark.parametrize("mode", CONFINED)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has powers to lose")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "workspace"
    root.mkdir()
    return root


@pytest.fixture
def outside() -> Iterator[Path]:
    with elsewhere() as path:
        (path / "kept").write_text("as it was")
        yield path


@pytest.fixture
def tcp() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        yield listener


@pytest.fixture
def udp() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.setblocking(False)
        yield receiver


@confined
async def test_layer_asked_for_is_the_layer_reported(workspace: Path, mode: Mode) -> None:
    async with keeper_at(workspace, mode) as keeper:
        assert (await keeper.ready()).layer == mode
        async with await keeper.spawn("true") as command:
            assert command.launch.sandbox_layer == mode


@confined
@pytest.mark.parametrize(
    "attempt",
    [
        "echo x > {o}/new",
        "echo x > {o}/kept",
        "echo x >> {o}/kept",
        "truncate -s 0 {o}/kept",
        "rm {o}/kept",
        "mkdir {o}/new",
        "mv {o}/kept {w}/taken",
        "echo x > f; mv f {o}/new",
        "ln {o}/kept {w}/linked && echo x > {w}/linked",
        "ln -s {o} {w}/way && echo x > {w}/way/new",
        "cd {o}/..; echo x > $(basename {o})/new",
    ],
)
async def test_writing_outside_is_refused(
    workspace: Path, outside: Path, mode: Mode, attempt: str
) -> None:
    async with keeper_at(workspace, mode) as keeper:
        result = await run(keeper, attempt.format(w=workspace, o=outside))
    assert result.exit.exit_code not in (0, None)
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"kept": "as it was"}


@confined
async def test_writing_inside_works_as_ever(workspace: Path, outside: Path, mode: Mode) -> None:
    script = (
        "set -e; mkdir -p a/b; echo x > a/f; mv a/f a/b/f; ln a/b/f g; ln -s g h; rm a/b/f; "
        "echo y >> h; cat g; echo z > /dev/null; echo t > $TMPDIR/t; cat $TMPDIR/t; "
        f"cat {outside}/kept"
    )
    async with keeper_at(workspace, mode) as keeper:
        result = await run(keeper, script)
    assert (result.exit.exit_code, result.stdout) == (0, "x\ny\nt\nas it was"), result.stderr


@confined
async def test_paths_of_the_policy_are_writable(workspace: Path, outside: Path, mode: Mode) -> None:
    missing = f"{workspace.parent}/missing"
    async with keeper_at(workspace, mode, writable=(str(outside), missing)) as keeper:
        result = await run(keeper, f"echo x > {outside}/new")
    assert result.exit.success
    assert (outside / "new").read_text() == "x\n"


@confined
async def test_network_is_refused_when_off(
    workspace: Path, mode: Mode, tcp: socket.socket, udp: socket.socket
) -> None:
    async with keeper_at(workspace, mode) as keeper:
        sandbox = await keeper.ready()
        connect = await run(keeper, f"echo x > /dev/tcp/127.0.0.1/{tcp.getsockname()[1]}")
        await run(keeper, f"echo x > /dev/udp/127.0.0.1/{udp.getsockname()[1]}")
    assert "network" not in sandbox.uncovered
    assert connect.exit.exit_code == 1
    with pytest.raises(BlockingIOError):
        tcp.accept()
    with pytest.raises(BlockingIOError):
        udp.recv(10)


@confined
@pytest.mark.parametrize("family", ["AF_VSOCK", "AF_PACKET", "AF_ALG"])
async def test_families_that_know_no_namespace_are_refused_when_the_network_is_off(
    workspace: Path, mode: Mode, family: str
) -> None:
    script = f"python3 -c 'import socket; socket.socket(socket.{family}, socket.SOCK_RAW)'"
    async with keeper_at(workspace, mode) as keeper:
        result = await run(keeper, script)
    assert "PermissionError: [Errno 13]" in result.stderr


@pytest.mark.parametrize("mode", [BWRAP])
async def test_command_in_a_network_of_its_own_can_talk_to_itself(
    workspace: Path, mode: Mode
) -> None:
    (workspace / "echo.py").write_text(
        "import socket\n"
        "with socket.create_server(('127.0.0.1', 0)) as server:\n"
        "    socket.create_connection(server.getsockname()).close()\n"
    )
    async with keeper_at(workspace, mode) as keeper:
        result = await run(keeper, "python3 echo.py")
    assert result.exit.success, result.stderr


@confined
async def test_protected_path_in_the_workspace_is_neither_read_nor_written(
    workspace: Path, mode: Mode
) -> None:
    state = workspace / "deep/state"
    state.mkdir(parents=True)
    (state / "key").write_text("k")
    (workspace / "beside").touch()
    (workspace / "folder").mkdir()
    attempts = ("cat deep/state/key", "echo x >> deep/state/key", "echo x > deep/state/new")
    moves = ("rm deep/state/key", "mv deep/state other", "mv deep other", "ln deep/state/key k")
    async with keeper_at(workspace, mode, hidden=(str(state),)) as keeper:
        sandbox = await keeper.ready()
        for attempt in (*attempts, *moves):
            assert (await run(keeper, attempt)).exit.exit_code not in (0, None), attempt
        assert (await run(keeper, "echo x > beside; echo y > folder/new")).exit.success
        # A right to make files holds for all that is below, so there is none above the path.
        assert (await run(keeper, "echo z > new")).exit.success == (mode == "bwrap")
    assert (state / "key").read_text() == "k"
    assert [path.name for path in state.iterdir()] == ["key"]
    assert "Batten's own files, which are in the workspace" not in sandbox.uncovered
    leading = "new files right in the folders that lead to Batten's home"
    assert any(one.startswith(leading) for one in sandbox.closed) == (mode != "bwrap")


@confined
@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize(
    "attempt",
    [
        "mkdir -p .config/batten; echo x > .config/batten/new",
        "mv .config other; mkdir -p .config/batten; echo x > .config/batten/new",
        "mv .config/batten other; mkdir .config/batten; echo x > .config/batten/new",
        "rm -rf .config; mkdir -p .config/batten; echo x > .config/batten/new",
        "mv .config/batten/state other; mkdir .config/batten/state",
        "ln -sfT /tmp .config; ln -sfT /tmp .config/batten; echo x > .config/batten/new",
    ],
)
async def test_way_to_a_protected_path_cannot_be_replaced(
    workspace: Path, mode: Mode, attempt: str, exists: bool
) -> None:
    config = workspace / ".config/batten"
    if exists:
        (config / "state").mkdir(parents=True)
    protected = (str(config), str(config / "state"))
    async with keeper_at(workspace, mode, hidden=protected) as keeper:
        sandbox = await keeper.ready()
        assert not (await run(keeper, attempt)).exit.success
        if mode == "bwrap":
            assert (await run(keeper, "echo x > .config/beside; echo y > beside")).exit.success
    assert "Batten's own files, which are in the workspace" not in sandbox.uncovered
    if mode == "bwrap" or exists:
        assert sorted(path.name for path in config.iterdir()) == ["state"]
    else:
        assert not config.exists()
    if mode == "bwrap" and not exists:
        assert [path.stat().st_mode & 0o777 for path in (config.parent, config)] == [0o700] * 2


@confined
async def test_protected_path_that_is_not_there_yet_is_not_made_by_a_command(
    workspace: Path, mode: Mode
) -> None:
    async with keeper_at(workspace, mode, hidden=(f"{workspace}/state",)) as keeper:
        sandbox = await keeper.ready()
        done = await run(keeper, "mkdir -p state; echo x > state/new")
    assert not done.exit.success
    assert "Batten's own files, which are in the workspace" not in sandbox.uncovered


@confined
async def test_link_to_a_protected_path_that_could_be_replaced_is_named(
    workspace: Path, outside: Path, mode: Mode
) -> None:
    (workspace / "config").symlink_to(outside)
    async with keeper_at(workspace, mode, hidden=(f"{workspace}/config/batten",)) as keeper:
        sandbox = await keeper.ready()
    assert "Batten's own files, which are in the workspace" in sandbox.uncovered


@pytest.mark.parametrize("mode", [BWRAP])
async def test_protected_path_that_cannot_be_made_is_named(workspace: Path, mode: Mode) -> None:
    (workspace / "file").write_text("")
    async with keeper_at(workspace, mode, hidden=(f"{workspace}/file/state",)) as keeper:
        assert "Batten's own files, which are in the workspace" in (await keeper.ready()).uncovered
        assert (await run(keeper, "true")).exit.success


@confined
async def test_workspace_inside_a_protected_path_stays_writable(
    workspace: Path, mode: Mode
) -> None:
    for protected in (workspace, workspace.parent):
        async with keeper_at(
            workspace, mode, writable=("/tmp",), hidden=(str(protected),)
        ) as keeper:
            assert (await run(keeper, "echo x > inside")).exit.success


@confined
async def test_network_works_when_on(
    workspace: Path, mode: Mode, tcp: socket.socket, udp: socket.socket
) -> None:
    async with keeper_at(workspace, mode, network=True) as keeper:
        sandbox = await keeper.ready()
        connect = await run(keeper, f"echo x > /dev/tcp/127.0.0.1/{tcp.getsockname()[1]}")
        await run(keeper, f"echo x > /dev/udp/127.0.0.1/{udp.getsockname()[1]}")
    assert "network" in sandbox.uncovered
    assert connect.exit.success
    tcp.accept()[0].close()
    assert udp.recv(10) == b"x\n"


@confined
async def test_terminal_and_shell_features_work_inside(workspace: Path, mode: Mode) -> None:
    script = "cat <(echo a) - <<< b; echo c > /dev/stderr; echo d | tee /dev/tty | cat"
    async with keeper_at(workspace, mode) as keeper:
        result = await run(keeper, script, pty=(80, 24))
    assert sorted(result.stdout.split()) == ["a", "b", "c", "d", "d"]


@needs_root
@confined
@pytest.mark.parametrize(
    "attempt",
    [
        "mknod disk b 8 0",
        "mount -t tmpfs none .",
        "mount -o remount,rw /",
        "echo 1 > /proc/sys/vm/drop_caches",
        "unshare --mount true",
    ],
)
async def test_root_has_no_way_around(workspace: Path, mode: Mode, attempt: str) -> None:
    async with keeper_at(workspace, mode) as keeper:
        result = await run(keeper, attempt)
    assert result.exit.exit_code not in (0, None)


@needs_root
@confined
async def test_root_can_still_work_with_files_of_others(workspace: Path, mode: Mode) -> None:
    (workspace / "theirs").write_text("old")
    os.chown(workspace / "theirs", 1234, 1234)
    (workspace / "theirs").chmod(0o600)
    async with keeper_at(workspace, mode) as keeper:
        result = await run(keeper, "echo new > theirs; chown 4321 theirs")
    assert result.exit.success, result.stderr
    assert (workspace / "theirs").stat().st_uid == 4321


@confined
async def test_our_environment_cannot_be_read_and_we_cannot_be_signalled(
    workspace: Path, mode: Mode
) -> None:
    async with keeper_at(workspace, mode) as keeper:
        read = await run(keeper, f"cat /proc/{os.getpid()}/environ")
        signalled = await run(keeper, f"kill -0 {os.getpid()}")
    assert (read.exit.exit_code, read.stdout) == (1, "")
    assert signalled.exit.exit_code == 1


async def test_without_a_sandbox_it_says_so(workspace: Path, outside: Path) -> None:
    async with keeper_at(workspace, "none") as keeper:
        sandbox = await keeper.ready()
        assert (await run(keeper, f"echo x > {outside}/new")).exit.success
    assert sandbox.layer == "none"
    assert set(sandbox.uncovered) >= {"writing outside the workspace", "network"}


async def test_layer_that_cannot_start_is_refused_by_name_and_replaced_by_auto(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin" / "bwrap"
    broken.parent.mkdir()
    broken.write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("batten.workspace.keeper_channel._unusable", {})
    assert find_bwrap(os.environ["PATH"]) == str(broken)
    async with keeper_at(workspace, "bwrap") as keeper:
        with pytest.raises(CallerError, match="no namespaces here") as refused:
            await keeper.ready()
    assert refused.value.code == "sandbox_unavailable"
    async with keeper_at(workspace) as keeper:
        assert (await keeper.ready()).layer == ("landlock" if landlock.abi() else "none")
        assert (await run(keeper, "echo works")).stdout == "works\n"


def test_layers_are_tried_from_the_strongest() -> None:
    assert find_bwrap("/nowhere") is None
    assert layers_to_try("auto", None) == ("landlock",)
    assert layers_to_try("auto", "/usr/bin/bwrap") == ("bwrap", "landlock")
    assert layers_to_try("bwrap", None) == ("bwrap",)


def test_gaps_of_older_kernels_and_other_machines_are_named() -> None:
    assert seccomp.program("riscv64") is None
    assert seccomp.program("aarch64") not in (None, seccomp.program("x86_64"))
    policy = Policy()
    old = describe("landlock", policy, landlock_version=2, filtered=False)
    new = describe("landlock", policy, landlock_version=7, filtered=True)
    assert set(old.uncovered) - set(new.uncovered) == {
        "named local sockets",
        "truncating files outside",
        "device controls",
        "signals to other processes",
        "commands that kill their keeper to live on",
        "keyring",
        "limits of other processes",
        "extended attributes and flags outside",
        "network",
    }
    assert describe("landlock", policy, landlock_version=4, filtered=False).uncovered[-1] == (
        "network other than TCP"
    )


@pytest.mark.parametrize("mode", CONFINED)
async def test_a_read_only_workspace_stays_as_it_is(tmp_path: Path, mode: Mode) -> None:
    (tmp_path / "a").write_text("whole\n")
    (tmp_path / "a").chmod(0o644)
    (tmp_path / "folder").mkdir()
    before = (tmp_path / "a").stat()
    lines = [
        "echo x > a",
        "echo x > new",
        "rm a",
        "mv a b",
        "chmod 600 a",
        "touch -d 2001-01-01 a",
        "truncate -s 0 a",
        "rmdir folder",
        "ln -s a link",
    ]
    policy = Policy(mode=mode, read_only=True, writable=(str(tmp_path.parent),))
    keeper = Keeper(str(tmp_path), policy, os.environ)
    try:
        for line in lines:
            async with await keeper.spawn(line) as command:
                assert not (await command.wait()).success, line
        async with await keeper.spawn('cat a && echo x > "$TMPDIR/own"') as command:
            assert (await command.wait()).success
    finally:
        await keeper.close()
    after = (tmp_path / "a").stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)
    assert (tmp_path / "a").read_text() == "whole\n"
    assert sorted(os.listdir(tmp_path)) == ["a", "folder"]


async def test_a_read_only_workspace_needs_a_sandbox(tmp_path: Path) -> None:
    keeper = Keeper(str(tmp_path), Policy(mode="none", read_only=True), os.environ)
    try:
        with pytest.raises(CallerError) as refused:
            await keeper.spawn("true")
    finally:
        await keeper.close()
    assert refused.value.code == "sandbox_unavailable"


@confined
@pytest.mark.parametrize("at", ["beside", "below"])
async def test_a_hidden_folder_does_not_exist_for_commands(mode: Mode, at: str) -> None:
    """Neither its files nor its sockets, by whatever name; what is beside it, and a workspace in
    it, are there as ever.
    """
    with elsewhere() as top, socket.socket(socket.AF_UNIX) as server:
        home = top / "home"
        workspace = {"beside": top / "workspace", "below": home / "workspaces" / "one"}[at]
        for folder in (workspace, home / "keys", home / "trusted", top / "other"):
            folder.mkdir(parents=True)
        for file in ("home/seal.key", "home/keys/a", "home/trusted/a", "other/a", "b"):
            (top / file).write_text("text")
        server.bind(str(home / "serve.sock"))
        server.listen()
        (top / "link").symlink_to(home)
        connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
        async with keeper_at(
            workspace,
            mode,
            hidden=(str(top / "link"),),
            readable=(f"{home}/trusted",),
            sockets=("/run/x",),
        ) as keeper:
            for spelled in (
                home,
                top / "link",
                f"/proc/self/root{home}",
                f"/proc/$PPID/root{home}",
            ):
                shown = await run(keeper, f"cat {spelled}/seal.key {spelled}/keys/*")
                assert (shown.exit.exit_code, shown.stdout) == (1, ""), spelled
            assert not (
                await run(keeper, f"echo x > {home}/new || echo x > {home}/keys/a")
            ).exit.success
            assert not (await run(keeper, f"ln {home}/seal.key mine && cat mine")).exit.success
            connected = await run(keeper, ["python3", "-c", connect, str(home / "serve.sock")])
            shown = await run(
                keeper, f"cat {top}/other/a {top}/b {home}/trusted/a; echo x > f; cat f"
            )
        assert not (home / "new").exists()
        assert shown.stdout == "texttexttextx\n", shown.stderr
        if mode == "bwrap" or landlock.abi() >= landlock.REFUSES_SOCKETS:
            assert not connected.exit.success


@confined
async def test_open_files_of_a_process_outside_do_not_show_a_hidden_folder(mode: Mode) -> None:
    with elsewhere() as top:
        home, workspace = top / "home", top / "workspace"
        home.mkdir()
        workspace.mkdir()
        (home / "seal.key").write_text("text")
        with (
            (home / "seal.key").open() as held,
            subprocess.Popen(["sleep", "600"], stdin=held, cwd=home) as holder,  # noqa: ASYNC220
        ):
            try:
                async with keeper_at(workspace, mode, hidden=(str(home),)) as keeper:
                    for path in ("fd/0", "cwd/seal.key", f"root{home}/seal.key", "environ", "mem"):
                        shown = await run(keeper, f"cat /proc/{holder.pid}/{path}")
                        assert (shown.exit.success, shown.stdout) == (False, ""), path
            finally:
                holder.kill()


@needs_root
@confined
async def test_another_mount_of_a_hidden_folder_is_hidden_too(mode: Mode) -> None:
    program = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from tests.workspace.keepers import keeper_at, run\n"
        "async def main(top, mode):\n"
        "    async with keeper_at(top / 'workspace', mode, hidden=(f'{top}/home',)) as keeper:\n"
        "        for line in ('cat ../other/home/key', 'cat ../home/key', 'cat ../other/beside'):\n"
        "            print((await run(keeper, line)).stdout)\n"
        "asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))\n"
    )
    with elsewhere() as top:
        for folder in ("home", "other", "workspace"):
            (top / folder).mkdir()
        (top / "home" / "key").write_text("key")
        (top / "beside").write_text("beside")
        line = f'mount --bind {top} {top}/other && exec "$@"'
        shown = subprocess.run(  # noqa: ASYNC221
            ["unshare", "-m", "sh", "-c", line, "sh", sys.executable, "-c", program, top, mode],
            capture_output=True,
            text=True,
            cwd=Path(__file__).parents[2],
            check=False,
            timeout=60,
        )
    assert shown.stdout == "\n\nbeside\n", shown.stderr


@confined
async def test_fresh_folders_have_what_commands_need_and_nothing_else(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository, programs, other = tmp_path / "repository", tmp_path / "bin", tmp_path / "other"
    workspace = repository / "part"
    for folder in (workspace, programs, other):
        folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", repository], check=True)  # noqa: ASYNC221
    (programs / "tool").write_text("#!/bin/sh\necho tool\n")
    (programs / "tool").chmod(0o755)
    (other / "text").write_text("other\n")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{programs}")
    async with keeper_at(workspace, mode) as keeper:
        shown = await run(keeper, f"tool; git rev-parse --show-toplevel; cat {other}/text")
        written = await run(keeper, "echo x > /tmp/new")
    seen = ["tool", str(repository)] + (["other"] if mode != "bwrap" else [])
    assert shown.stdout.splitlines() == seen, shown.stderr
    assert not written.exit.success


@confined
async def test_a_python_environment_in_a_fresh_folder_has_its_packages(
    tmp_path: Path, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment, workspace = tmp_path / "environment", tmp_path / "workspace"
    workspace.mkdir()
    venv.create(environment, symlinks=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "a_package.py").write_text("print('found')\n")
    monkeypatch.setenv("PATH", f"{environment}/bin:{os.environ['PATH']}")
    async with keeper_at(workspace, mode) as keeper:
        shown = await run(keeper, "python3 -c 'import a_package'")
        written = await run(keeper, f"echo x > {packages}/a_package.py")
    assert shown.stdout == "found\n", shown.stderr
    assert not written.exit.success
