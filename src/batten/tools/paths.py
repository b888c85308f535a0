"""What the file tools share: the path that rules are matched against, and telling of failures."""

import asyncio
import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from batten.contract.errors import BattenError, CallerError, ProviderError, Refused
from batten.tools.contract import ToolOutput
from batten.workspace.root import ResolvedPath, Root

TOLD = (CallerError, ProviderError, Refused)
"""What goes wrong in a call and the model is told of. Anything else ends the run."""

_BRIEF_BYTES = 256 * 1024

Result = TypeVar("Result")


def subject_of(root: Root, path: str) -> str:
    """The path as rules see it: without links and detours, so that no spelling slips past."""
    try:
        return root.resolve(path).shown
    except BattenError:
        return path


def failed(error: BattenError, message: str | None = None) -> ToolOutput:
    text = error.message if message is None else message
    return ToolOutput(
        text=f"Error: {text}",
        ending="failed",
        summary=text.partition("\n")[0],
        error_kind=error.code,
    )


async def unhurried(places: Iterable[ResolvedPath], work: Callable[[], Result]) -> Result:
    """Do `work` on these files: at once if they are small, else without holding up the loop."""
    if sum(map(_size, places)) <= _BRIEF_BYTES:
        return work()
    return await asyncio.to_thread(work)


def _size(place: ResolvedPath) -> int:
    try:
        return os.lstat(place.path).st_size
    except OSError:
        return 0
