"""Fills a new directory: with a clone of a repository, or with a copy of any other directory.

Nothing of the repository's configuration or hooks is in force, and the clone shares no file with
it. A copy keeps links as links, and leaves out what is neither a file, a link nor a directory.
"""

import asyncio
import os
import signal
import stat
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from threading import Event

from batten.contract.errors import CallerError, ProviderError
from batten.workspace.git import HARMLESS, Git, find_git, open_git, quiet_environment
from batten.workspace.repository import Repository, find_repository

_CHUNK = 1024 * 1024
_OPENING_S = 10.0
CLONING_S = 600.0
_LONGEST_PROBLEM = 2000
_KEPT_BITS = 0o777


def repository_at(directory: str) -> Repository | None:
    """The repository whose working tree, or whose bare folder, this directory is."""
    if os.path.lexists(os.path.join(directory, ".git")):
        return find_repository(directory)
    parts = (os.path.join(directory, name) for name in ("HEAD", "objects", "refs"))
    if all(map(os.path.exists, parts)):
        return Repository(directory, directory, directory)
    return None


async def clone(
    found: Repository,
    target: str,
    environ: Mapping[str, str],
    *,
    branch: str = "",
    seconds: float = CLONING_S,
) -> None:
    """Clone a repository into a directory that does not exist yet; `branch` is checked out there.

    Raises `ProviderError` with what git says. Cancelling ends git.
    """
    program = find_git(found, found.top, environ)
    if program is None:
        raise ProviderError("a clone needs git, and there is none on PATH", code="workspace_failed")
    with ExitStack() as opened:
        git: Git = await asyncio.to_thread(
            opened.enter_context, open_git(found, program, environ, seconds=_OPENING_S)
        )
        if not git.has_format:
            problem = f"git cannot read the repository {found.top}: {git.problem}"
            raise ProviderError(problem, code="workspace_failed")
        ours = [program, *HARMLESS]
        chosen = ["--branch", branch] if branch else []
        options = ["--quiet", "--no-local", "--no-hardlinks", "--template=", *chosen]
        try:
            async with asyncio.timeout(seconds):
                await _run_git([*ours, "clone", *options, "--", git.directory, target], environ)
        except TimeoutError:
            problem = f"git took longer than {seconds:g} s to clone {found.top}"
            raise ProviderError(problem, code="workspace_failed") from None
    config = os.path.join(target, ".git", "config")
    await _run_git([*ours, "config", "--file", config, "remote.origin.url", found.top], environ)


async def _run_git(argv: list[str], environ: Mapping[str, str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=quiet_environment(environ),
        cwd="/",
        start_new_session=True,
        preexec_fn=_end_with_parent,
    )
    assert process.stderr is not None
    try:
        said = await process.stderr.read(_LONGEST_PROBLEM)
        while await process.stderr.read(_CHUNK):
            pass
        code = await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if code != 0:
        problem = " ".join(said.decode(errors="replace").split()) or f"git ended with {code}"
        raise ProviderError(f"git could not clone: {problem}", code="workspace_failed")


def _end_with_parent() -> None:
    """Let the kernel kill git with the process that started it, where it can."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


async def copy_directory(source: str, target: str, *, left_out: Collection[str] = ()) -> None:
    """Copy a directory into one that does not exist yet, without the real paths of `left_out`.

    Raises `CallerError` for a file that cannot be copied. Cancelling stops the copying.
    """
    stop = Event()
    copying = _Copying(stop.is_set, frozenset(left_out))
    loop = asyncio.get_running_loop()
    work = loop.run_in_executor(None, copying.tree, source, target)
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([work])  # nothing is written any more when this returns
        raise


class _Copying:
    def __init__(self, is_stopped: Callable[[], bool], left_out: frozenset[str]) -> None:
        self._is_stopped = is_stopped
        self._left_out = left_out

    def tree(self, source: str, target: str) -> None:
        if self._is_stopped():
            return
        try:
            mode = os.stat(source).st_mode
            os.mkdir(target, 0o700)
            with os.scandir(source) as entries:
                for entry in entries:
                    if self._is_stopped():
                        return
                    self._entry(entry, os.path.join(target, entry.name))
            os.chmod(target, (mode & _KEPT_BITS) | 0o700)
        except OSError as error:
            reason = f"{error.filename or source}: {error.strerror or error}"
            raise CallerError(
                f"{source} cannot be copied: {reason}", code="workspace_failed"
            ) from (error)

    def _entry(self, entry: "os.DirEntry[str]", target: str) -> None:
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), target)
        elif entry.is_dir(follow_symlinks=False):
            if os.path.realpath(entry.path) not in self._left_out:
                self.tree(entry.path, target)
        elif entry.is_file(follow_symlinks=False):
            self._file(entry.path, target)

    def _file(self, source: str, target: str) -> None:
        # A link or a pipe put there meanwhile is refused, or left out.
        reading = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(reading, "rb") as old:
            held = os.fstat(reading)
            if not stat.S_ISREG(held.st_mode):
                return
            with open(target, "xb") as new:
                while (piece := old.read(_CHUNK)) and not self._is_stopped():
                    new.write(piece)
                os.fchmod(new.fileno(), held.st_mode & _KEPT_BITS)
            os.utime(target, ns=(time.time_ns(), held.st_mtime_ns))
