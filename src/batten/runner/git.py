"""The git state of a workspace: commit, branch, and whether it is dirty.

The workspace brings the repository's configuration: nothing of it is in force. git is given a
directory of our own that shows it the repository's objects, references and index, and whose
configuration is ours; so no program that the repository names is started.
"""

import asyncio
import os
import select
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from signal import SIGKILL
from tempfile import TemporaryDirectory

from msgspec import UNSET, Struct, UnsetType

from batten.workspace.environment import DEFAULT_PATH, command_environment
from batten.workspace.programs import find_program

DEADLINE_S = 1.0
"""For all git commands together."""
_LONGEST = 1024 * 1024
"""Bytes read of an answer."""

_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}
_HARMLESS = ("--no-pager", "-c", f"core.hooksPath={os.devnull}")
_STATUS = ("status", "--porcelain", "-z", "--ignore-submodules=all")
_HELD_BACK = frozenset(
    {"HEAD", "commondir", "config", "config.worktree", "gitdir", "hooks", "modules", "worktrees"}
)
"""Entries of a repository that git does not see, or as a copy."""
_KEPT_KEYS = frozenset(
    {
        "core.autocrlf",
        "core.eol",
        "core.filemode",
        "core.ignorecase",
        "core.precomposeunicode",
        "core.repositoryformatversion",
        "core.symlinks",
        "extensions.objectformat",
        "extensions.refstorage",
    }
)
"""How the repository is stored. None of these can name a program or a path."""


class GitState(Struct, frozen=True, kw_only=True):
    commit: str | UnsetType = UNSET
    branch: str | UnsetType = UNSET
    """Absent on a detached HEAD."""
    dirty: bool
    """Also true if git did not answer in time: files not known to be clean may need keeping."""


class _Repository(Struct, frozen=True):
    top: str
    """The working tree."""
    own: str
    """The git directory of this working tree."""
    common: str
    """The git directory that all its working trees share."""


async def state_of(directory: str, environ: Mapping[str, str]) -> GitState | UnsetType:
    """UNSET without git or without a repository."""
    return await asyncio.to_thread(_state_of, os.path.realpath(directory), environ)


def _state_of(directory: str, environ: Mapping[str, str]) -> GitState | UnsetType:
    try:
        found = _repository(directory)
        path = environ.get("PATH", DEFAULT_PATH)
        program = None if found is None else find_program("git", path, [directory, found.top])
        if found is None or program is None:
            return UNSET
        with _seen(found, program, environ) as git:
            commit = git.line("rev-parse", "--verify", "-q", "HEAD")
            branch = git.line("symbolic-ref", "--short", "-q", "HEAD")
            dirty = git.answer(*_STATUS, enough=1) if git.has_format else None
    except OSError:
        return UNSET
    if commit is None and branch is None and dirty is None:
        return UNSET
    return GitState(commit=commit or UNSET, branch=branch or UNSET, dirty=dirty != b"")


def _repository(directory: str) -> _Repository | None:
    """The repository that holds a directory, found as git finds it."""
    top = directory
    while not os.path.lexists(os.path.join(top, ".git")):
        if top == "/":
            return None
        top = os.path.dirname(top)
    own = os.path.join(top, ".git")
    if os.path.isfile(own):
        own = os.path.join(top, _text(own).removeprefix("gitdir:").strip())
    shared = os.path.join(own, "commondir")
    common = os.path.join(own, _text(shared).strip()) if os.path.isfile(shared) else own
    return _Repository(top, os.path.realpath(own), os.path.realpath(common))


def _text(path: str) -> str:
    with open(path, errors="surrogateescape") as file:
        return file.read(4096)


@contextmanager
def _seen(found: _Repository, program: str, environ: Mapping[str, str]) -> "Iterator[_Git]":
    """git on a repository, through a directory with a configuration of our own."""
    with TemporaryDirectory(prefix="batten-git-") as aside:
        for folder in dict.fromkeys((found.own, found.common)):
            for name in os.listdir(folder):
                link = os.path.join(aside, name)
                if name not in _HELD_BACK and not os.path.lexists(link):
                    os.symlink(os.path.join(folder, name), link)
        with open(os.path.join(aside, "HEAD"), "w", errors="surrogateescape") as head:
            head.write(_text(os.path.join(found.own, "HEAD")))
        yield _Git(program, found, aside, environ)


class _Git:
    """Runs git commands one after the other."""

    def __init__(
        self, program: str, found: _Repository, aside: str, environ: Mapping[str, str]
    ) -> None:
        self._program = program
        self._found = found
        places = {
            "GIT_DIR": aside,
            "GIT_WORK_TREE": found.top,
            # Not through the link: alternates are relative to the real place.
            "GIT_OBJECT_DIRECTORY": os.path.join(found.common, "objects"),
        }
        self._config = os.path.join(aside, "config")
        self._deadline = time.monotonic() + DEADLINE_S
        self._env = command_environment({**_QUIET, **places}, source=environ).values
        self.has_format = self._keep_format()

    def _keep_format(self) -> bool:
        """Write our configuration: how the repository is stored, and nothing else."""
        config = os.path.join(self._found.common, "config")
        listed = self.answer("config", "--file", config, "--no-includes", "--list", "-z")
        if listed is None:
            return False
        with open(self._config, "w") as ours:
            for pair in listed.decode(errors="replace").split("\0"):
                key, _, value = pair.partition("\n")
                if key in _KEPT_KEYS and value.isascii() and value.isalnum():
                    section, _, name = key.partition(".")
                    ours.write(f"[{section}]\n\t{name} = {value}\n")
        return True

    def line(self, *arguments: str) -> str | None:
        answer = self.answer(*arguments)
        return None if answer is None else answer.decode(errors="replace").strip()

    def answer(self, *arguments: str, enough: int | None = None) -> bytes | None:
        """The output of git, or its first `enough` bytes; None on failure or timeout."""
        try:
            process = subprocess.Popen(
                [self._program, *_HARMLESS, *arguments],
                cwd=self._found.top,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError:
            return None
        try:
            answer, is_whole = _read(process, enough or _LONGEST, self._deadline)
            if not is_whole:
                return answer if enough is not None else None
            code = process.wait(max(0.0, self._deadline - time.monotonic()))
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
