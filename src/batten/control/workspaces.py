"""The directories that a service's tasks work in: checked when a run is queued, made by its worker.

`in_place` is the client's directory itself. `clone` is a folder of the run's own below the home:
`workspaces/TASK/RUN`. `worktree` is a git worktree beside those that `--worktree` makes.
"""

import asyncio
import os
import shutil
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress

from batten.agent.halt import Halt
from batten.contract.envelope import decode
from batten.contract.errors import BattenError, CallerError, NotFound, ProviderError, Refused
from batten.contract.facts import RunCancelRequested, RunStarted, TaskCreated
from batten.contract.ids import is_ulid
from batten.control.directories import unfit_to_write
from batten.journal.contract import Journal, RunRow
from batten.protocols.hecate.creation import named_source, source_of
from batten.session.history import prompts_of
from batten.settings.folders import config_folder
from batten.wiring.worktree import inside
from batten.workspace.clones import clone, copy_directory, repository_at
from batten.workspace.programs import is_below
from batten.workspace.worktrees import Worktrees

PROVIDING_S = 600.0
"""How long the making of one workspace may take."""
FOLDER = "workspaces"
_CANCELS = frozenset({RunCancelRequested.TYPE})
_FIRST_FACTS = 64
_LEAVING_S = (0.01, 0.05, 0.2, 0.5, 1.0)


class Workspaces:
    """The workspaces of one home."""

    def __init__(self, home: str, environ: Mapping[str, str], granted: Sequence[str] = ()) -> None:
        """`granted`: the only directories that tasks may name, if there are any."""
        self._home = os.path.realpath(home)
        self._environ = environ
        self._granted = granted
        self._guarded = [self._home, os.path.realpath(config_folder(environ))]
        self._trees = Worktrees(os.path.join(home, "worktrees"), environ)

    def of_task(self, task_id: str) -> str:
        """The folder for the workspaces of a task."""
        return os.path.join(self._home, FOLDER, _segment(task_id))

    def home_of(self, task: TaskCreated, task_id: str) -> str:
        """The directory whose settings hold for a task: its own, or that of its workspaces."""
        named = named_source(task) if task.workspace_mode == "in_place" else ""
        return named or self.of_task(task_id)

    def path_for(self, task: TaskCreated, task_id: str, run_id: str) -> str:
        """Where a new run of a task works. Raises `CallerError` if the task's source is unfit."""
        source = self.source(task)
        match task.workspace_mode:
            case "in_place":
                return source
            case "worktree":
                return self._worktree_path(source, run_id)
            case _:
                return os.path.join(self.of_task(task_id), _segment(run_id))

    def source(self, task: TaskCreated) -> str:
        """The real path of the directory that a task works in or copies; empty if there is none.

        Raises `CallerError` if it is not there, or belongs to Batten.
        """
        named = source_of(task)
        if not named:
            return ""
        if not os.path.isabs(named) or not os.path.isdir(named):
            raise CallerError(
                f"{named} is not an existing directory on the machine of the service; name one by"
                " its absolute path",
                code="workspace_invalid",
            )
        real = os.path.realpath(named)
        if is_below(real, self._guarded) and not self._is_workspace(real):
            raise CallerError(
                f"{named} belongs to Batten, whose state and settings no run may change",
                code="workspace_invalid",
            )
        if not self._is_workspace(real):
            self._check_granted(task, named, real)
        return real

    def _check_granted(self, task: TaskCreated, named: str, real: str) -> None:
        if self._granted and not is_below(real, self._granted):
            raise CallerError(
                f"{named} is in none of the directories that tasks of this service may use:"
                f" {', '.join(self._granted)} (--allow-task-dir)",
                code="workspace_invalid",
            )
        if task.workspace_mode == "in_place" and (why := self.unfit(real)):
            raise CallerError(f"{named} {why}", code="workspace_invalid")

    def unfit(self, real: str) -> str:
        """Why no client may have files written in a directory; see `unfit_to_write`."""
        ours = [os.path.join(self._home, name) for name in (FOLDER, "worktrees")]
        return unfit_to_write(real, self._environ, (*self._granted, *ours))

    def _is_workspace(self, real: str) -> bool:
        """Whether a directory is the workspace of a run, or in one."""
        below = os.path.relpath(real, os.path.join(self._home, FOLDER)).split("/")
        return len(below) > 1 and all(map(is_ulid, below[:2]))

    def _worktree_path(self, source: str, run_id: str) -> str:
        try:
            path = self._trees.path_of(source, _segment(run_id))
            top = self._trees.repository_of(source)
        except CallerError as error:
            problem = error.message.removeprefix("--worktree").lstrip(" :")
            raise CallerError(
                f"workspace_mode worktree {problem}", code="workspace_invalid"
            ) from error
        return inside(path, source, top)

    async def provide(self, journal: Journal, task: TaskCreated, row: RunRow) -> None:
        """Make the workspace of a run that a worker has claimed, unless it is there.

        Raises `BattenError` if it cannot be made, and `Halt` if the run is cancelled meanwhile.
        A worktree is made when its session is opened.
        """
        if row.workspace_mode == "in_place":
            self._check_again(row.workspace_path)
        if row.workspace_mode == "worktree" or os.path.isdir(row.workspace_path):
            return
        if row.workspace_mode == "in_place":
            raise NotFound(
                f"the directory {row.workspace_path} is gone; make it again, or name another in a"
                " new task",
                code="workspace_gone",
            )
        if await _was_there(journal, row):
            raise NotFound(
                f"the workspace {row.workspace_path} of the runs before this one is gone; retry the"
                " task to begin with a new one",
                code="workspace_gone",
            )
        try:
            async with asyncio.timeout(PROVIDING_S), _until_cancelled(journal, row.run_id):
                await self._make(task, row.workspace_path)
        except TimeoutError:
            raise ProviderError(
                f"the workspace could not be made within {PROVIDING_S:g} s", code="workspace_failed"
            ) from None
        except OSError as error:
            raise ProviderError(
                f"the workspace could not be made: {error}", code="workspace_failed"
            ) from error

    def _check_again(self, path: str) -> None:
        """A command may have put a link there, and the service may allow less than it did."""
        if os.path.realpath(path) != path:
            raise Refused(
                f"{path} has become a link since the run was queued; name the directory itself in"
                " a new task",
                code="workspace_violation",
            )
        if why := self.unfit(path):
            raise Refused(f"{path} {why}", code="workspace_violation")

    async def _make(self, task: TaskCreated, path: str) -> None:
        """Beside its place first, so that what stands there is always whole."""
        source = self.source(task)
        folder, name = os.path.split(path)
        self._check_links(folder)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        await asyncio.to_thread(_remove_left, folder, f".{name}.")
        partial = os.path.join(folder, f".{name}.{os.urandom(4).hex()}")
        try:
            found = repository_at(source) if source else None
            if found is not None:
                branch = task.base_branch or ""
                await clone(found, partial, self._environ, branch=branch)
            elif source:
                await copy_directory(source, partial, left_out=self._guarded)
            else:
                os.mkdir(partial, 0o700)
            os.rename(partial, path)
        except BaseException:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, partial, ignore_errors=True))
            raise

    def _check_links(self, folder: str) -> None:
        """Raises `Refused` if a folder on the way to a workspace is a link."""
        for path in (os.path.dirname(folder), folder):
            if os.path.islink(path):
                raise Refused(f"{path} is a link; remove it", code="workspace_violation")

    def task_ids(self) -> list[str]:
        """The tasks that workspaces were made for."""
        try:
            names = os.listdir(os.path.join(self._home, FOLDER))
        except FileNotFoundError:
            return []
        return [name for name in names if is_ulid(name)]

    def remove(self, task_id: str, paths: "set[str]") -> None:
        """Remove all workspaces of a task that were made for it. Directories that its client named
        stay, and so do the branches of worktrees.
        """
        folder = self.of_task(task_id)
        if os.path.islink(folder):
            os.unlink(folder)
        else:
            _remove(folder)
        for path in paths:
            for pause_s in (0.0, *_LEAVING_S):  # the worker of the last run may be leaving it
                time.sleep(pause_s)
                if self._trees.holding(path) is None or self._trees.forget(path):
                    break
            self._trees.forget(path)

    def worktrees(self) -> dict[str, str]:
        """The worktrees that were made for runs: the id of the first run in each, and its path."""
        paths = {os.path.basename(path): path for path in self._trees.paths()}
        return {name: path for name, path in paths.items() if name[:4] == "run_" and is_ulid(name)}

    def remove_worktree(self, path: str) -> bool:
        """Remove a worktree, unless a process works in it; returns whether it is gone."""
        return self._trees.forget(path)


def _remove_left(folder: str, prefix: str) -> None:
    """Remove what a worker left that was killed while it made a workspace."""
    for name in os.listdir(folder):
        if name.startswith(prefix):
            _remove(os.path.join(folder, name))


def _remove(folder: str) -> None:
    """Also what its owner made unwritable."""

    def retry(function: object, path: str, error: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(path), 0o700)
            os.unlink(path) if not os.path.isdir(path) or os.path.islink(path) else os.rmdir(path)

    shutil.rmtree(folder, onerror=retry)


def _segment(name: str) -> str:
    """An id of ours, which is a single name in a path."""
    if not is_ulid(name):
        raise Refused(f"{name!r} is no id", code="workspace_violation")
    return name


def worktree_of(row: RunRow) -> str:
    """The name of the worktree that a run works in: the id of the first run that did."""
    return next(
        part for part in row.workspace_path.split("/") if part[:4] == "run_" and is_ulid(part)
    )


async def _was_there(journal: Journal, row: RunRow) -> bool:
    """Whether a run that worked in the same place has begun before."""
    for prior in await prompts_of(journal, row.session_id or ""):
        if prior.run_id == row.run_id or prior.workspace_path != row.workspace_path:
            continue
        facts = await journal.read(prior.run_id, limit=_FIRST_FACTS)
        if any(isinstance(decode(stored.body).data, RunStarted) for stored in facts):
            return True
    return False


@asynccontextmanager
async def _until_cancelled(journal: Journal, run_id: str) -> AsyncGenerator[None]:
    """Cancel the block, and raise `Halt`, once a cancel of the run is requested."""

    async def watch() -> None:
        async with aclosing(journal.follow(run_id, types=_CANCELS)) as pages:
            async for page in pages:
                asked = decode(page[0].body).data
                assert isinstance(asked, RunCancelRequested)
                raise Halt("cancelled", asked.reason, by=asked.by)

    try:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(watch())
            yield
            watching.cancel()
    except BaseExceptionGroup as failed:
        raise _first(failed) from failed


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that the client is told: a cancel before its consequences."""
    halts = [error for error in failed.exceptions if isinstance(error, Halt)]
    ours = [error for error in failed.exceptions if isinstance(error, BattenError)]
    return (halts or ours or list(failed.exceptions))[0]
