"""Shared by the file tools: the path that rules match, and failures as outputs."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from batten.contract.errors import BattenError, CallerError, ProviderError, Refused
from batten.tools.contract import ToolContext, ToolOutput
from batten.tools.lent import Documents, held
from batten.workspace import files
from batten.workspace.root import Access, ResolvedPath, Root

REPORTED_ERRORS = (CallerError, ProviderError, Refused)
"""Errors of a call that the model sees. Any other ends the run."""

_BRIEF_BYTES = 256 * 1024

Result = TypeVar("Result")


class FileTool:
    """A tool on one path of the workspace, or on the files that a client lends."""

    path_argument = "file_path"
    access: Access = "read"

    def __init__(self, root: Root, lent: Documents | None = None) -> None:
        self._root = root
        self._lent = lent

    @property
    def root(self) -> Root:
        return self._root

    async def _held(
        self, places: Sequence[ResolvedPath], context: ToolContext
    ) -> dict[str, files.Content]:
        """Contents that count instead of those on disk, by path: the client's, or proposed ones."""
        contents = await held(self._lent, places)
        if not context.auto_apply:
            proposals = await context.proposals()
            for place in places:
                data = proposals.get(place.shown)
                if data is not None:
                    contents[place.path] = files.Content(data, files.mode_of(place))
        return contents

    def subject(self, arguments: dict[str, Any]) -> str:
        return subject_of(self._root, arguments.get(self.path_argument, "."))

    async def check_bounds(self, arguments: dict[str, Any]) -> None:
        check_paths(self._root, [arguments.get(self.path_argument, ".")], self.access)


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
