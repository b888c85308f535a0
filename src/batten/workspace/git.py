"""Runs git on a repository without trusting it.

The workspace brings the repository's configuration: nothing of it is in force. git is given a
directory of our own that shows it the repository's objects, references and index, and whose
configuration is ours; so no program that the repository names is started.
"""

import os
import select
import stat
import subprocess
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from signal import SIGKILL
from typing import IO

from batten.workspace.environment import DEFAULT_PATH, command_environment
from batten.workspace.private_directory import scratch_directory
from batten.workspace.programs import find_program
from batten.workspace.repository import Repository, first_text

_LONGEST = 1024 * 1024
"""Bytes read of an answer."""
_LONGEST_PROBLEM = 2000

_QUIET = {
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}
HARMLESS = ("--no-pager", "-c", f"core.hooksPath={os.devnull}")
STATUS = ("status", "--porcelain", "-z", "--ignore-submodules=all")
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


def quiet_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of git without the user's and the machine's configuration."""
    return command_environment(_QUIET, source=environ)


def find_git(found: Repository, directory: str, environ: Mapping[str, str]) -> str | None:
    """The path of git, never one in the repository."""
    return find_program("git", environ.get("PATH", DEFAULT_PATH), [directory, found.top])


@contextmanager
def open_git(
    found: Repository,
    program: str,
    environ: Mapping[str, str],
    *,
    seconds: float,
    own_names: frozenset[str] | None = None,
    with_worktrees: bool = False,
) -> "Generator[Git]":
    """git on a repository, through a directory with a configuration of our own.

    `seconds` is for all its commands together. `own_names` limits what is seen of the working
    tree's git directory. `with_worktrees` shows git the list of working trees, to change it.
    """
    with scratch_directory(environ.get("TMPDIR", "")) as aside:
        for folder in dict.fromkeys((found.own, found.common)):
            for name in os.listdir(folder):
                link = os.path.join(aside, name)
                if folder != found.common and own_names is not None and name not in own_names:
                    continue
                if name not in _HELD_BACK and not os.path.lexists(link):
                    _show(os.path.join(folder, name), link)
        if with_worktrees:
            worktrees = os.path.join(found.common, "worktrees")
            os.makedirs(worktrees, exist_ok=True)
            os.symlink(worktrees, os.path.join(aside, "worktrees"))
        with open(os.path.join(aside, "HEAD"), "w", errors="surrogateescape") as head:
            head.write(first_text(os.path.join(found.own, "HEAD")))
        yield Git(program, found, aside, environ, seconds, with_worktrees=with_worktrees)


def _show(path: str, link: str) -> None:
    """Neither pipes nor devices, which git would wait for until its deadline."""
    mode = os.stat(path, follow_symlinks=True).st_mode if os.path.exists(path) else 0
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode) or not mode:
        os.symlink(path, link)


class Git:
    """Runs git commands one after the other."""

    def __init__(
        self,
        program: str,
        found: Repository,
        aside: str,
        environ: Mapping[str, str],
        seconds: float,
        *,
        with_worktrees: bool,
    ) -> None:
        self._program = program
        self._found = found
        self.directory = aside
        """The directory that shows git the repository, with our configuration."""
        self._seconds = seconds
        places = {
            "GIT_DIR": aside,
            # git starts itself for a new working tree, and must not find the real configuration.
            **({"GIT_COMMON_DIR": aside} if with_worktrees else {"GIT_WORK_TREE": found.top}),
            # Not through the link: alternates are relative to the real place.
            "GIT_OBJECT_DIRECTORY": os.path.join(found.common, "objects"),
        }
        self._config = os.path.join(aside, "config")
        self._deadline = time.monotonic() + seconds
        self.problem = ""
        """Why the last command gave no answer."""
        self._env = command_environment({**_QUIET, **places}, source=environ)
        self.has_format = self._keep_format()

    def _keep_format(self) -> bool:
        """Write our configuration: how the repository is stored, and nothing else."""
        config = os.path.join(self._found.common, "config")
        if not os.path.isfile(config):
            self.problem = "the repository has no configuration"
            return False
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
        from tempfile import (
            TemporaryFile,
        )  # finding a repository, at the start of a run, needs none

        with TemporaryFile() as errors:
            self.problem = ""
            answer = self._answer(arguments, enough, errors)
            if answer is None and not self.problem:
                errors.seek(0)
                text = errors.read(_LONGEST_PROBLEM).decode(errors="replace")
                self.problem = " ".join(text.split()) or "git failed"
            return answer

    def _answer(
        self, arguments: tuple[str, ...], enough: int | None, errors: IO[bytes]
    ) -> bytes | None:
        try:
            process = subprocess.Popen(
                [self._program, *HARMLESS, *arguments],
                cwd=self._found.top,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        except OSError as error:
            self.problem = str(error)
            return None
        try:
            answer, is_whole = _read(process, enough or _LONGEST, self._deadline, self._seconds)
            if not is_whole:
                self.problem = "the answer is too long"
                return answer if enough is not None else None
            code = process.wait(max(0.0, self._deadline - time.monotonic()))
            return answer if code == 0 else None
        except subprocess.TimeoutExpired:
            self.problem = f"git did not answer within {self._seconds:g} s"
            return None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, SIGKILL)
                process.wait()


def _read(
    process: subprocess.Popen[bytes], most: int, deadline: float, seconds: float
) -> tuple[bytes, bool]:
    """The output up to the deadline, and whether it is complete."""
    assert process.stdout is not None
    answer = b""
    with process.stdout as pipe:
        readable = select.poll()
        readable.register(pipe, select.POLLIN)
        while len(answer) < most:
            if not readable.poll(max(0.0, deadline - time.monotonic()) * 1000):
                raise subprocess.TimeoutExpired("git", seconds)
            piece = os.read(pipe.fileno(), min(most - len(answer), 65536))
            if not piece:
                return answer, True
            answer += piece
    return answer, False
