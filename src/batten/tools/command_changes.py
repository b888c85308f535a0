"""Records which files each command changed. A large workspace is looked at in a thread, while the
model already works on the command's output, and for at most a tenth of the time.
"""

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from msgspec import UNSET, Struct

from batten.contract.errors import BattenError
from batten.contract.facts.workspace import ChangedFile, WorkspaceChangedByCommand
from batten.tools.contract import ToolContext
from batten.workspace.changes import ChangeRecord, Changes, Interval, clock_ns
from batten.workspace.root import Root

_FACT_BYTES = 64 * 1024
_REST = 9
"""The pause after a look, in times its duration. Commands that end meanwhile share the next one."""


class _Ended(Struct):
    """A command whose changes are not known yet."""

    interval: Interval
    context: ToolContext
    next_began_ns: int | None = None
    """When another command began after it, if one did."""


class CommandChanges:
    """The changes of the commands of one run."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._record = ChangeRecord(root)
        self._ended: list[_Ended] = []
        self._looking: asyncio.Future[list[Changes] | None] | None = None
        self._looked_for: list[_Ended] = []
        self._not_before = 0.0

    async def begin(self) -> int:
        """Prepare for a command that starts now; the time it begins at."""
        if self._looking is None and not self._record.prepare(quick=True):
            await asyncio.to_thread(self._record.prepare)
        began_ns = clock_ns()
        for ended in (*self._looked_for, *self._ended):
            if ended.next_began_ns is None:
                ended.next_began_ns = began_ns
        return began_ns

    def end(self, began_ns: int, context: ToolContext) -> None:
        """Record what a command changed: at once in a small workspace, later in a large one."""
        ended = _Ended(Interval(began_ns, clock_ns()), context)
        self._take_result()
        if self._looking is None and not self._ended:
            changes = self._record.changes_of([ended.interval], quick=True)
            if changes is not None:
                _tell(changes[0], context)
                return
        self._ended.append(ended)
        if self._looking is None and time.monotonic() >= self._not_before:
            self._look()
        context.afterwards(self._finish)

    def note_own(self, paths: Iterable[str]) -> None:
        """A file tool changed these files; no command did."""
        for path in paths:
            with suppress(BattenError):  # gone or swapped meanwhile: then it is no change of ours
                self._record.note_own(self._root.resolve(path).path)

    def _look(self) -> None:
        self._looked_for, self._ended = self._ended, []
        loop = asyncio.get_running_loop()
        self._looking = loop.run_in_executor(None, self._timed, tuple(self._looked_for))

    def _timed(self, commands: Sequence[_Ended]) -> list[Changes] | None:
        began = time.monotonic()
        changes = self._record.changes_of(
            [command.interval for command in commands],
            next_began=lambda: commands[-1].next_began_ns,
        )
        ended = time.monotonic()
        self._not_before = ended + _REST * (ended - began)
        return changes

    def _take_result(self) -> None:
        """Record what a finished look has found."""
        if self._looking is not None and self._looking.done():
            looking, self._looking = self._looking, None
            for changes, ended in zip(looking.result() or (), self._looked_for, strict=False):
                _tell(changes, ended.context)

    async def _finish(self) -> None:
        """Record all that is left, whatever it takes."""
        while self._looking is not None or self._ended:
            if self._looking is None:
                self._look()
            assert self._looking is not None
            await asyncio.wait([self._looking])
            self._take_result()


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
        listed.append(
            ChangedFile(
                change.path,
                change.change,
                size,
                change.executed_by or UNSET,
                change.other_names or UNSET,
            )
        )
    context.record(
        WorkspaceChangedByCommand(
            tool_call_id=context.call_id,
            tool_name=context.tool_name,
            files=listed,
            file_count=changes.count,
            incomplete=changes.incomplete or UNSET,
        )
    )
