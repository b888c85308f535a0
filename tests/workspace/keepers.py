"""What the tests of commands share: keepers by layer, whole commands, a look at /proc."""

import os
import time
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec import Struct

from batten.workspace import landlock
from batten.workspace.commands import Exit
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Limits, Mode, Policy, find_bwrap

BWRAP = pytest.param(
    "bwrap",
    marks=pytest.mark.skipif(
        find_bwrap(os.environ["PATH"]) is None, reason="bwrap is not installed"
    ),
)
LANDLOCK = pytest.param(
    "landlock",
    marks=pytest.mark.skipif(landlock.abi() == 0, reason="this kernel has no Landlock"),
)
CONFINED = [BWRAP, LANDLOCK]
EVERY_LAYER = [BWRAP, LANDLOCK, "none"]


class Result(Struct, frozen=True):
    exit: Exit
    stdout: str
    stderr: str
    killed: tuple[str, ...] = ()


@contextmanager
def elsewhere() -> Generator[Path]:
    """A directory that commands see and may not write: bubblewrap empties /tmp."""
    with TemporaryDirectory(prefix="batten-test-", dir="/var/tmp") as path:
        yield Path(path)


@asynccontextmanager
async def keeper_at(
    root: Path,
    mode: Mode = "auto",
    *,
    network: bool = False,
    writable: tuple[str, ...] = (),
    inherit: tuple[str, ...] = (),
    hidden: tuple[str, ...] = (),
    readable: tuple[str, ...] = (),
    editable: tuple[str, ...] = (),
    limits: Limits = Limits(),  # noqa: B008 - it is frozen
    sockets: tuple[str, ...] = (),
) -> AsyncGenerator[Keeper, None]:
    policy = Policy(
        mode=mode,
        network=network,
        writable=writable,
        inherit=inherit,
        hidden=hidden,
        readable=readable,
        editable=editable,
        limits=limits,
        sockets=sockets,
    )
    keeper = Keeper(str(root), policy, os.environ)
    keeper.start()
    try:
        yield keeper
    finally:
        await keeper.close()


async def run(
    keeper: Keeper,
    command: str | Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    pty: tuple[int, int] | None = None,
) -> Result:
    seen = {"stdout": bytearray(), "stderr": bytearray()}
    async with await keeper.spawn(command, cwd=cwd, env=env, pty=pty) as started:
        async for stream, chunk in started.output():
            seen[stream] += chunk
        ended = await started.wait()
    return Result(ended, seen["stdout"].decode(), seen["stderr"].decode(), started.killed)


class Process(Struct, frozen=True):
    pid: int
    parent: int
    line: str


def processes_mentioning(text: str) -> list[Process]:
    """Every process on this machine with the text in its command line, ours excepted."""
    found: list[Process] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                stat = (entry / "stat").read_text()
            except (OSError, UnicodeDecodeError):
                continue
            if text in line:
                parent = int(stat.rpartition(")")[2].split()[1])
                found.append(Process(int(entry.name), parent, line))
    return found


def keeper_process(root: Path) -> Process:
    """The keeper itself: what its guard, or bubblewrap, leads to."""
    known = processes_mentioning(str(root))
    parent = os.getpid()
    guarded = True
    while True:
        (child,) = [p for p in known if p.parent == parent and "keeper_process" in p.line]
        if "bwrap" in child.line.split()[0]:
            guarded = False
        elif guarded and parent == os.getpid():
            guarded = False  # the guard
        else:
            return child
        parent = child.pid


def shims(root: Path) -> list[Process]:
    """Those that have a command; one more waits for the next."""
    keeper = keeper_process(root)
    there = processes_mentioning(str(root))
    return [p for p in there if p.parent == keeper.pid and has_children(p.pid)]


def children_of(pid: int, root: Path) -> list[int]:
    return [p.pid for p in processes_mentioning(str(root)) if p.parent == pid]


def has_children(pid: int) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/task/{pid}/children").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return False


def has_ended(pid: int) -> bool:
    """Gone, or waiting to be reaped: either way it holds nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def eventually(reached: Callable[[], bool], patience_s: float = 10.0) -> bool:
    """Look until it is so. The kernel tells nobody when somebody else's child is gone."""
    deadline = time.monotonic() + patience_s
    while not reached():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
