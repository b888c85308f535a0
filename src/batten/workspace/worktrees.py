"""Git worktrees for single runs: created beside the repository, kept or removed by their content.

git is run without the repository's configuration and hooks. What a command could have written is
not believed: where a worktree belongs is read from a record that no command can write.
"""

import fcntl
import os
import re
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError, Conflict, NotFound, ProviderError
from batten.workspace.git import STATUS, Git, find_git, open_git
from batten.workspace.repository import Repository, find_repository, first_text

BRANCHES = "batten/"
WORKTREE_BUSY = "worktree_busy"
"""The code of the conflict with another process that makes the same worktree."""
CREATING_S = 120.0
SETTLING_S = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_OWN_NAMES = frozenset({"index"})
_RECORDS = ".records"
_RECORD = ".json"
_MARK = ".making"


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
        program = find_git(found, directory, self._environ)
        if program is None:
            raise CallerError("--worktree needs git, and there is none on PATH", code="usage")
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with (
            self._making(path),
            open_git(found, program, self._environ, seconds=CREATING_S, with_worktrees=True) as git,
        ):
            begin = f"refs/heads/{branch}" if branch else commit or "HEAD"
            if again:
                _remove_left(path)
            with _aside(path) as aside:
                made = self._add(git, found, path, aside, begin, again=again)
                self._record(made)
                os.rename(aside, path)
        return made

    @contextmanager
    def _making(self, path: str) -> Generator[None]:
        """Mark a worktree as half made meanwhile, and remove what a killed process left of it.

        Raises `Conflict` if something else is there, or another process makes it.
        """
        mark, name = self._mark_of(path), os.path.basename(path)
        os.makedirs(os.path.dirname(mark), mode=0o700, exist_ok=True)
        is_left = os.path.lexists(mark)
        held = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    f"--worktree {name}: another process makes it now", code=WORKTREE_BUSY
                ) from None
            if is_left and os.fstat(held).st_nlink:
                shutil.rmtree(path, ignore_errors=True)
            if os.path.lexists(path):
                if not is_left:
                    os.unlink(mark)
                raise _in_use(name, path, path)
            try:
                yield
            except BaseException:
                shutil.rmtree(path, ignore_errors=True)
                raise
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(mark)
        finally:
            os.close(held)

    def _add(
        self, git: Git, found: Repository, path: str, aside: str, begin: str, *, again: bool
    ) -> Worktree:
        """Make a worktree aside that gets its place afterwards."""
        name = os.path.basename(path)
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
        how = [aside, BRANCHES + name] if exists else ["-b", BRANCHES + name, aside, base]
        if again:
            # git still lists a worktree whose folder was deleted, as locked if that was half made.
            how = ["-f", "-f", *how]
        if git.answer("worktree", "add", "-q", *how) is None:
            problem = git.problem
            if not exists:
                git.answer("update-ref", "-d", branch, base)
            raise ProviderError(f"git could not make the worktree: {problem}", code="git_failed")
        link = os.path.join(aside, ".git")
        name_in_git = os.path.basename(first_text(link).strip())
        own = os.path.join(found.common, "worktrees", name_in_git)
        _write_line(link, f"gitdir: {own}")
        _write_line(os.path.join(own, "gitdir"), os.path.join(path, ".git"))
        os.makedirs(os.path.join(found.common, "logs"), exist_ok=True)
        return Worktree(path, name, found.top, found.common, own, base)

    def reopen(self, tree: Worktree) -> tuple[Worktree, int]:
        """A worktree that was made before, made again if it is gone, and a hold on it."""
        held = self.hold(tree)
        try:
            if not os.path.isdir(tree.path) or os.path.lexists(self._mark_of(tree.path)):
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

    def forget(self, path: str) -> bool:
        """Remove the worktree that a path is in, with what is in it, and its record. Its branch
        stays. False if a process works in it, or if it is none of ours.
        """
        label, _, rest = path.removeprefix(self._folder + "/").partition("/")
        top = os.path.join(self._folder, label, rest.partition("/")[0])
        if not path.startswith(top) or not rest:
            return False
        for known in (self._record_of(top), self._mark_of(top)):
            with suppress(FileNotFoundError), open(known, "rb") as held:
                try:
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return False
                tree = self._recorded(top)
                for folder in (top,) if tree is None else (top, tree.own):
                    shutil.rmtree(folder, ignore_errors=True)
                os.unlink(known)
        _remove_left(top)
        return True

    def paths(self) -> list[str]:
        """The worktrees that there are records of, also of half made ones."""
        records = os.path.join(self._folder, _RECORDS)
        found: set[str] = set()
        with suppress(FileNotFoundError):
            for label in os.listdir(records):
                for file in os.listdir(os.path.join(records, label)):
                    name = file.removesuffix(_RECORD).removesuffix(_MARK)
                    found.add(os.path.join(self._folder, label, name))
        return sorted(found)

    def _settle(self, tree: Worktree) -> Settled:
        found = Repository(tree.path, tree.own, tree.common)
        program = find_git(found, tree.repository, self._environ)
        if program is None:
            return Settled(True, "there is no git on PATH to look at it")
        try:
            with open_git(
                found, program, self._environ, seconds=SETTLING_S, own_names=_OWN_NAMES
            ) as git:
                if reason := _content(git, tree):
                    return Settled(True, reason)
                with self._removing(tree.path):
                    if reason := _without_branch(git, tree):
                        return Settled(True, reason)
                    shutil.rmtree(tree.path)
                    shutil.rmtree(tree.own)
        except OSError as error:
            return Settled(True, f"it could not be looked at or removed: {error}")
        return Settled(False, "it held nothing new")

    @contextmanager
    def _removing(self, path: str) -> Generator[None]:
        """Mark a worktree as half removed meanwhile: after a kill, who goes on makes it again."""
        mark = self._mark_of(path)
        held = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
            os.unlink(mark)
        finally:
            os.close(held)

    def _record_of(self, path: str) -> str:
        label, name = path[len(self._folder) + 1 :].split("/")
        return os.path.join(self._folder, _RECORDS, label, name + _RECORD)

    def _mark_of(self, path: str) -> str:
        """A file that is there while the worktree is being made or removed."""
        return self._record_of(path).removesuffix(_RECORD) + _MARK

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


@contextmanager
def _aside(path: str) -> Generator[str]:
    """A place for a worktree that is being made, removed in the end with what is there.

    It is each maker's own: the git of a killed process may go on in its place for a while.
    """
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name}.{os.urandom(4).hex()}")
    os.mkdir(beside, 0o700)
    try:
        yield os.path.join(beside, name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _remove_left(path: str) -> None:
    """Remove what killed processes left beside a worktree's place."""
    folder, name = os.path.split(path)
    left = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}")
    with suppress(FileNotFoundError):
        for found in os.listdir(folder):
            if left.fullmatch(found):
                shutil.rmtree(os.path.join(folder, found), ignore_errors=True)


def _write_line(path: str, line: str) -> None:
    with open(path, "w", errors="surrogateescape") as file:
        file.write(f"{line}\n")


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
