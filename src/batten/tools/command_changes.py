"""Records which files each command changed, beside the run: a large workspace is looked at in a
thread, while the model already works on the command's output."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress

from msgspec import UNSET

from batten.contract.errors import BattenError
from batten.contract.facts.workspace import ChangedFile, WorkspaceChangedByCommand
from batten.tools.contract import ToolContext
from batten.workspace.changes import ChangeRecord, Changes, clock_ns
from batten.workspace.root import Root

_FACT_BYTES = 64 * 1024


class CommandChanges:
    """The changes of the commands of one run."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._record = ChangeRecord(root)

    async def begin(self) -> int:
        """Prepare for a command that starts now; the time it begins at."""
        if not self._record.prepare(quick=True):
            await asyncio.to_thread(self._record.prepare)
        return clock_ns()

    def end(self, began_ns: int, context: ToolContext) -> None:
        """Record what a command changed: at once in a small workspace, later in a large one."""
        changes = self._record.changes_since(began_ns, quick=True)
        if changes is not None:
            _tell(changes, context)
            return
        looking = asyncio.get_running_loop().run_in_executor(
            None, self._record.changes_since, began_ns
        )

        async def finish() -> None:
            found = await looking
            assert found is not None
            _tell(found, context)

        context.afterwards(finish)

    def note_own(self, paths: Iterable[str]) -> None:
        """A file tool changed these files; no command did."""
        for path in paths:
            with suppress(BattenError):  # gone or swapped meanwhile: then it is no change of ours
                self._record.note_own(self._root.resolve(path).path)


def _tell(changes: Changes, context: ToolContext) -> None:
    if not changes.count and not changes.incomplete:
        return
    room = _FACT_BYTES
    listed: list[ChangedFile] = []
    for change in changes.files:
        room -= len(os.fsencode(change.path)) + 64
        if room < 0:
            break
        size = UNSET if change.size_bytes is None else change.size_bytes
        listed.append(ChangedFile(change.path, change.change, size))
    context.record(
        WorkspaceChangedByCommand(
            tool_call_id=context.call_id,
            tool_name=context.tool_name,
            files=listed,
            file_count=changes.count,
            incomplete=changes.incomplete or UNSET,
        )
    )
