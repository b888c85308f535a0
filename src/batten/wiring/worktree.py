"""The git worktree that a session works in: found or made when it opens, settled when it closes."""

import asyncio
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.journal.contract import SessionRow
from batten.wiring.home import absolute
from batten.wiring.spec import SessionSpec
from batten.workspace.worktrees import Settled, Worktree, Worktrees, check_name

T = TypeVar("T")


class SessionWorktree(Struct, frozen=True):
    tree: Worktree
    all: Worktrees
    workspace: str
    """The working directory in it: the folder that the repository's was."""
    held: int
    """The hold on it, given up by `settle` or `abandon`."""
    is_new: bool

    async def abandon(self, spec: SessionSpec) -> None:
        """No session was opened: leave a worktree that was there as it is."""
        if self.is_new:
            await self.settle(spec)
        else:
            os.close(self.held)

    async def settle(self, spec: SessionSpec, *, is_awaited: bool = False) -> None:
        """Remove the worktree if it holds nothing, and say what became of it.

        One that patches await stays: they are applied in it.
        """
        tree = self.tree
        if is_awaited:
            os.close(self.held)
            settled = Settled(True, "proposed patches wait for review")
        else:
            settled = await asyncio.to_thread(self.all.settle, tree, self.held)
        if not settled.kept:
            spec.warn(f"worktree {tree.name} is removed, with its branch: {settled.reason}")
            return
        spec.warn(f"worktree {tree.name} is kept: {settled.reason}")
        spec.warn(f"  look:   git -C {tree.path} status; git log -p ..{tree.branch}")
        spec.warn(f"  merge:  git merge {tree.branch}, after a commit in the worktree")
        spec.warn(
            f"  remove: git worktree remove --force {tree.path} && git branch -D {tree.branch}"
        )


def worktrees_of(spec: SessionSpec, home: str) -> Worktrees:
    return Worktrees(os.path.join(home, "worktrees"), spec.environ)


def continued_workspace(spec: SessionSpec, home: str) -> str | None:
    """The workspace in which `--continue` looks for the newest session, if a worktree is named."""
    if not spec.worktree or not spec.resume_newest:
        return spec.workspace
    check_name(spec.worktree)
    place, known = _place(spec), worktrees_of(spec, home)
    path = known.path_of(place, spec.worktree)
    tree = known.holding(path)
    return inside(path, place, place if tree is None else tree.repository)


async def open_worktree(
    spec: SessionSpec, earlier: SessionRow | None, home: str
) -> SessionWorktree | None:
    """The worktree of the session, made if it is new or gone; None if it works in place."""
    known = worktrees_of(spec, home)
    if spec.worktree is None:
        tree = None
        if earlier is not None and not spec.workspace:
            tree = known.holding(earlier.workspace_path)
        if earlier is None or tree is None:
            return None
        again, held = await _in_thread(partial(known.reopen, tree))
        return _opened(spec, known, again, earlier.workspace_path, held, is_new=False)
    place = _place(spec)
    name = spec.worktree or f"run-{os.urandom(4).hex()}"
    check_name(name)
    found = None if earlier is None else known.holding(known.path_of(place, name))
    if found is None:
        found = await _in_thread(
            partial(known.create, place, name, again=earlier is not None, branch=spec.worktree_base)
        )
        workspace = inside(found.path, place, found.repository)
        return _opened(spec, known, found, workspace, known.hold(found), is_new=True)
    workspace = inside(found.path, place, found.repository)
    again, held = await _in_thread(partial(known.reopen, found))
    return _opened(spec, known, again, workspace, held, is_new=False)


async def _in_thread(make: Callable[[], T]) -> T:
    """Call `make` in a thread. Cancelling waits for it: nothing may be half made after that."""
    work = asyncio.get_running_loop().run_in_executor(None, make)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled() and work.exception() is None:
            _let_go(work.result())
        raise


def _let_go(made: object) -> None:
    """Give up the hold on a worktree that nobody waits for any more."""
    if isinstance(made, tuple):
        os.close(cast("tuple[Worktree, int]", made)[1])


def _opened(
    spec: SessionSpec, known: Worktrees, tree: Worktree, workspace: str, held: int, *, is_new: bool
) -> SessionWorktree:
    os.makedirs(workspace, exist_ok=True)
    spec.warn(f"worktree {tree.name}: {tree.path}, on branch {tree.branch}")
    return SessionWorktree(tree, known, workspace, held, is_new)


def _place(spec: SessionSpec) -> str:
    path = os.path.realpath(absolute(spec.workspace or ".", spec.cwd))
    if not os.path.isdir(path):
        raise CallerError(f"--workspace {path} is not a directory", code="usage")
    return path


def inside(path: str, place: str, top: str) -> str:
    """The folder in a worktree that corresponds to a place in the repository at `top`."""
    below = os.path.relpath(place, top)
    return path if below == "." or below.startswith("..") else os.path.join(path, below)
