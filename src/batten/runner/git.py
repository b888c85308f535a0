"""The git state of a workspace: commit, branch, and whether it is dirty.

The workspace brings the repository's configuration: no program that it names is started.
"""

import asyncio
import os
import select
import subprocess
import time
from collections.abc import Mapping
from signal import SIGKILL

from msgspec import UNSET, Struct, UnsetType

from batten.workspace.environment import command_environment

DEADLINE_S = 1.0
"""For each git command."""
_LONGEST = 1024 * 1024
"""Bytes read of an answer."""

_QUIET = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
_HARMLESS = (
    "--no-pager",
    "-c",
    "core.fsmonitor=false",
    "-c",
    f"core.hooksPath={os.devnull}",
    "-c",
    "status.submoduleSummary=false",
)


class GitState(Struct, frozen=True, kw_only=True):
    commit: str | UnsetType = UNSET
    branch: str | UnsetType = UNSET
    """Absent on a detached HEAD."""
    dirty: bool
    """Also true if git did not answer in time: files not known to be clean may need keeping."""


async def state_of(directory: str, environ: Mapping[str, str]) -> GitState | UnsetType:
    """UNSET without git or without a repository."""
    commit, branch, dirty = await asyncio.gather(
        asyncio.to_thread(_line, directory, environ, "rev-parse", "--verify", "-q", "HEAD"),
        asyncio.to_thread(_line, directory, environ, "symbolic-ref", "--short", "-q", "HEAD"),
        asyncio.to_thread(_is_dirty, directory, environ),
    )
    if commit is None and branch is None and dirty is None:
        return UNSET
    return GitState(commit=commit or UNSET, branch=branch or UNSET, dirty=dirty is not False)


def _line(directory: str, environ: Mapping[str, str], *arguments: str) -> str | None:
    answer = _answer(directory, environ, arguments)
    return None if answer is None else answer.decode(errors="replace").strip()


def _is_dirty(directory: str, environ: Mapping[str, str]) -> bool | None:
    names = _answer(directory, environ, ("config", "--list", "--includes", "--name-only", "-z"))
    if names is None:
        return None
    filters = [
        option
        for name in names.decode(errors="replace").split("\0")
        if name.startswith("filter.")
        for option in ("-c", f"{name}={'false' if name.endswith('.required') else ''}")
    ]
    status = ("status", "--porcelain", "-z", "--ignore-submodules=all")
    answer = _answer(directory, environ, (*filters, *status), enough=1)
    return None if answer is None else bool(answer)


def _answer(
    directory: str,
    environ: Mapping[str, str],
    arguments: tuple[str, ...],
    enough: int | None = None,
) -> bytes | None:
    """The output of git, or its first `enough` bytes; None on failure or timeout."""
    deadline = time.monotonic() + DEADLINE_S
    try:
        process = subprocess.Popen(
            ["git", *_HARMLESS, *arguments],
            cwd=directory,
            env=command_environment(_QUIET, source=environ).values,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        answer, is_whole = _read(process, enough or _LONGEST, deadline)
        if not is_whole:
            return answer if enough is not None else None
        code = process.wait(max(0.0, deadline - time.monotonic()))
        return answer if code == 0 else None
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, SIGKILL)
            process.wait()


def _read(process: subprocess.Popen[bytes], most: int, deadline: float) -> tuple[bytes, bool]:
    """The output up to the deadline, and whether it is complete."""
    assert process.stdout is not None
    answer = b""
    with process.stdout as pipe:
        readable = select.poll()
        readable.register(pipe, select.POLLIN)
        while len(answer) < most:
            if not readable.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise subprocess.TimeoutExpired("git", DEADLINE_S)
            piece = os.read(pipe.fileno(), min(most - len(answer), 65536))
            if not piece:
                return answer, True
            answer += piece
    return answer, False
