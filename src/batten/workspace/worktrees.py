"""Git worktrees for single runs: created beside the repository, kept or removed by their content.

git is run without the repository's configuration and hooks. What a command could have written is
not believed: where a worktree belongs is read from a record that no command can write.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError, Conflict, NotFound, ProviderError
from batten.workspace.git import (
    STATUS,
    Git,
    Repository,
    find_git,
    find_repository,
    first_text,
    open_git,
)

BRANCHES = "batten/"
CREATING_S = 120.0
SETTLING_S = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OWN_NAMES = frozenset({"index"})
_RECORDS = ".records"


class Worktree(Struct, frozen=True):
    """One worktree; stored as its record."""

    path: str
    name: str
    repository: str
    """The working tree it was made from."""
    common: str
    """The git directory that all working trees of the repository share."""
    own: str
    """The git directory of this one."""
    base: str
    """The commit it began at."""

    @property
    def branch(self) -> str:
        return BRANCHES + self.name

    @property
    def git_paths(self) -> tuple[str, ...]:
        """What commands must be able to write for `git commit`; configuration and hooks are not
        among it."""
        shared = ("objects", "refs", "logs", "reftable")
        return (self.own, *(os.path.join(self.common, name) for name in shared))


class Settled(Struct, frozen=True):
    """What became of a worktree when its run was over."""

    kept: bool
    reason: str


class Worktrees:
    """The worktrees in one folder, which is Batten's own."""

    def __init__(self, folder: str, environ: Mapping[str, str]) -> None:
        self._folder = os.path.realpath(folder)
        self._environ = environ

    def path_of(self, directory: str, name: str) -> str:
        """Where the worktree of this name is, or would be, for the repository of a directory."""
        return os.path.join(self._folder, _label(_checked(directory)), name)

    def holding(self, path: str) -> Worktree | None:
        """The worktree that a path is in, there or gone; None if it is in none of ours."""
        if not path.startswith(self._folder + "/"):
            return None
        label, _, rest = path[len(self._folder) + 1 :].partition("/")
        return self._recorded(os.path.join(self._folder, label, rest.partition("/")[0]))

    def repository_of(self, directory: str) -> str:
        """The working tree that holds a directory. Raises `CallerError` without a repository."""
        return _checked(directory).top

    def create(
        self,
        directory: str,
        name: str,
        *,
        again: bool = False,
        branch: str = "",
        commit: str = "",
    ) -> Worktree:
        """A worktree of the repository that holds a directory, at its current commit, at that of a
        branch, or at a given one.

        Raises `CallerError` without a repository or a commit, for a bad name, and `Conflict` if the
        name is in use. With `again`, a branch of that name is checked out instead.
        """
        check_name(name)
        found = _checked(directory)
        path = os.path.join(self._folder, _label(found), name)
        if os.path.lexists(path):
            raise _in_use(name, path, path)
        program = find_git(found, directory, self._environ)
        if program is None:
            raise CallerError("--worktree needs git, and there is none on PATH", code="usage")
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open_git(
            found, program, self._environ, seconds=CREATING_S, with_worktrees=True
        ) as git:
            begin = f"refs/heads/{branch}" if branch else commit or "HEAD"
            made = self._add(git, found, path, name, begin, again=again)
        self._record(made)
        return made

    def _add(
        self, git: Git, found: Repository, path: str, name: str, begin: str, *, again: bool
    ) -> Worktree:
        base = git.line("rev-parse", "--verify", "-q", f"{begin}^{{commit}}")
        if not base and begin.startswith("refs/heads/"):
            missing = begin.removeprefix("refs/heads/")
            raise NotFound(f"{found.top} has no branch {missing!r} to begin at", code="usage")
        if not base:
            raise CallerError(
                f"--worktree needs a commit to begin at: {found.top} has none yet", code="usage"
            )
        branch = f"refs/heads/{BRANCHES}{name}"
        exists = git.answer("rev-parse", "--verify", "-q", branch) is not None
        if exists and not again:
            raise _in_use(name, path, f"branch {BRANCHES}{name}")
        how = [path, BRANCHES + name] if exists else ["-b", BRANCHES + name, path, base]
        if again:
            how.insert(0, "-f")  # git still lists a worktree whose folder was deleted
        if git.answer("worktree", "add", "-q", *how) is None:
            problem = git.problem
            shutil.rmtree(path, ignore_errors=True)
            if not exists:
                git.answer("update-ref", "-d", branch, base)
            raise ProviderError(f"git could not make the worktree: {problem}", code="git_failed")
        link = os.path.join(path, ".git")
        name_in_git = os.path.basename(first_text(link).strip())
        own = os.path.join(found.common, "worktrees", name_in_git)
        with open(link, "w", errors="surrogateescape") as pointer:
            pointer.write(f"gitdir: {own}\n")
        os.makedirs(os.path.join(found.common, "logs"), exist_ok=True)
        return Worktree(path, name, found.top, found.common, own, base)

    def reopen(self, tree: Worktree) -> tuple[Worktree, int]:
        """A worktree that was made before, made again if it is gone, and a hold on it."""
        held = self.hold(tree)
        try:
            if not os.path.isdir(tree.path):
                # Of the main working tree: the one it was made from may be gone as well.
                place = os.path.dirname(tree.common)
                tree = self.create(place, tree.name, again=True, commit=tree.base)
        except BaseException:
            os.close(held)
            raise
        return tree, held

    def hold(self, tree: Worktree) -> int:
        """A descriptor; while it is open, no other process removes the worktree."""
        held = os.open(self._record_of(tree.path), os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(held, fcntl.LOCK_SH)
        return held

    def settle(self, tree: Worktree, held: int) -> Settled:
        """Remove a worktree with its branch if it holds nothing that is not elsewhere too, and
        give up the hold on it.

        Its record stays: a session that goes on gets the worktree back.
        """
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return self._settle(tree)
        except BlockingIOError:
            return Settled(True, "another process works in it")
        finally:
            os.close(held)

    def forget(self, tree: Worktree) -> None:
        """Remove a worktree with what is in it, and its record. Its branch stays."""
        for path in (tree.path, tree.own):
            shutil.rmtree(path, ignore_errors=True)
        with suppress(FileNotFoundError):
            os.unlink(self._record_of(tree.path))

    def _settle(self, tree: Worktree) -> Settled:
        found = Repository(tree.path, tree.own, tree.common)
        program = find_git(found, tree.repository, self._environ)
        if program is None:
            return Settled(True, "there is no git on PATH to look at it")
        try:
            with open_git(
                found, program, self._environ, seconds=SETTLING_S, own_names=_OWN_NAMES
            ) as git:
                reason = _content(git, tree) or _without_branch(git, tree)
            if reason:
                return Settled(True, reason)
            shutil.rmtree(tree.path)
            shutil.rmtree(tree.own)
        except OSError as error:
            return Settled(True, f"it could not be looked at or removed: {error}")
        return Settled(False, "it held nothing new")

    def _record_of(self, path: str) -> str:
        label, name = path[len(self._folder) + 1 :].split("/")
        return os.path.join(self._folder, _RECORDS, label, f"{name}.json")

    def _record(self, tree: Worktree) -> None:
        record = self._record_of(tree.path)
        os.makedirs(os.path.dirname(record), mode=0o700, exist_ok=True)
        with open(record, "wb") as file:
            file.write(msgspec.json.encode(tree))

    def _recorded(self, path: str) -> Worktree | None:
        try:
            with open(self._record_of(path), "rb") as file:
                return msgspec.json.decode(file.read(), type=Worktree)
        except (OSError, ValueError):
            return None


def check_name(name: str) -> None:
    is_good = _NAME.fullmatch(name) and ".." not in name and not name.endswith((".", ".lock"))
    if not is_good:
        raise CallerError(
            f"--worktree {name!r} is no name for a worktree: up to 64 letters, digits, - _ and .; "
            "a prompt goes behind -p",
            code="usage",
        )


def _checked(directory: str) -> Repository:
    """The repository of a directory, if it is one that can have worktrees of ours."""
    try:
        found = find_repository(directory)
    except OSError as error:
        raise CallerError(f"--worktree: the repository of {directory}: {error}") from error
    if found is None:
        raise NotFound(f"--worktree needs a git repository; {directory} is in none", code="usage")
    if not os.path.isdir(os.path.join(found.common, "objects")):
        problem = f"--worktree: {found.common} is not the git directory of a repository"
        raise CallerError(problem, code="usage")
    if os.path.isdir(os.path.join(found.top, ".git")):
        return found
    # A file points to the git directory, which must know of this working tree in turn.
    try:
        known = os.path.realpath(first_text(os.path.join(found.own, "gitdir")).strip())
    except OSError:
        known = ""
    if found.own == found.common or known != os.path.join(os.path.realpath(found.top), ".git"):
        raise CallerError(
            f"--worktree: {found.top} is a submodule, or its git directory is elsewhere; give the "
            "main repository as --workspace",
            code="usage",
        )
    return found


def _label(found: Repository) -> str:
    """The folder for the worktrees of a repository, readable and its own."""
    import hashlib

    top = os.path.dirname(found.common)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.basename(top)).strip("-")[:40] or "repository"
    return f"{plain}-{hashlib.sha256(os.fsencode(found.common)).hexdigest()[:8]}"


def _in_use(name: str, path: str, what: str) -> Conflict:
    return Conflict(
        f"--worktree {name}: the name is in use ({what}); choose another, go on with its session "
        f"by --resume, or remove it: git worktree remove {path}; git branch -D {BRANCHES}{name}",
        code="usage",
    )


def _content(git: Git, tree: Worktree) -> str:
    """What a worktree holds that would be lost with it, in words; empty if nothing."""
    head = first_text(os.path.join(tree.own, "HEAD")).strip()
    branch = f"refs/heads/{tree.branch}"
    if head != f"ref: {branch}":
        return "another branch or commit is checked out in it"
    status = git.answer(*STATUS)
    if status is None or not git.has_format:
        return f"git did not say whether it holds changes: {git.problem or 'no answer'}"
    changed = len([entry for entry in status.split(b"\0") if entry])
    others = ("--not", tree.base, f"--exclude={tree.branch}", "--branches", "--tags", "--remotes")
    counted = git.line("rev-list", "--count", branch, *others)
    if counted is None or not counted.isdigit():
        return f"git did not say whether it holds commits: {git.problem or 'no answer'}"
    holds = [_number(changed, "changed file"), _number(int(counted), "new commit")]
    return " and ".join(part for part in holds if part)


def _without_branch(git: Git, tree: Worktree) -> str:
    """Remove the branch, if it is still where it was looked at; why not, in words."""
    branch = f"refs/heads/{tree.branch}"
    at = git.line("rev-parse", "--verify", "-q", branch)
    if at and git.answer("update-ref", "-d", branch, at) is not None:
        return ""
    return f"its branch could not be removed: {git.problem}"


def _number(count: int, what: str) -> str:
    return "" if not count else f"{count} {what}{'' if count == 1 else 's'}"
