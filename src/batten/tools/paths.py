"""Shared by the file tools: the path that rules match, and failures as outputs."""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from batten.contract.errors import BattenError, CallerError, ProviderError, Refused
from batten.tools.contract import ToolOutput
from batten.workspace.root import Access, ResolvedPath, Root

REPORTED_ERRORS = (CallerError, ProviderError, Refused)
"""Errors of a call that the model sees. Any other ends the run."""

_BRIEF_BYTES = 256 * 1024

Result = TypeVar("Result")


def subject_of(root: Root, path: str) -> str:
    """The canonical path for rules, without links or `..`, so that no spelling evades a rule."""
    try:
        return root.resolve(path).shown
    except BattenError:
        return path


def check_paths(root: Root, paths: Iterable[str], access: Access) -> None:
    """Raises `Refused` if a path is outside the roots; other faults are the call's own."""
    for path in paths:
        try:
            root.resolve(path, access)
        except Refused:
            raise
        except BattenError:
            continue


def failed(error: BattenError, message: str | None = None) -> ToolOutput:
    text = error.message if message is None else message
    return ToolOutput(
        text=f"Error: {text}",
        ending="failed",
        summary=text.partition("\n")[0],
        error_kind=error.code,
    )


async def unhurried(places: Iterable[ResolvedPath], work: Callable[[], Result]) -> Result:
    """Run `work` inline if these files are small, else in a thread, to keep the loop responsive."""
    if sum(map(_size, places)) <= _BRIEF_BYTES:
        return work()
    return await asyncio.to_thread(work)


def _size(place: ResolvedPath) -> int:
    try:
        return os.lstat(place.path).st_size
    except OSError:
        return 0
