"""What the commands of a run changed, folded from its facts: files to name, not to revert."""

from collections.abc import Iterable

from msgspec import UNSET, Struct

from batten.contract.cutting import shortened
from batten.contract.facts import GapRunDisconnected, ToolShellCommand, WorkspaceChangedByCommand
from batten.contract.facts.tool import ToolEnded, ToolStarted
from batten.contract.facts.workspace import ChangedFile
from batten.journal.contract import Journal
from batten.session.history import facts_of

_BECOMES = {
    ("created", "modified"): "created",
    ("created", "deleted"): "",
    ("deleted", "created"): "modified",
}
"""Two changes of one file, as one; otherwise the later counts. Empty: nothing is left of it."""
_LONGEST_COMMAND = 80


class CommandChange(Struct, frozen=True):
    path: str
    change: str
    size_bytes: int | None
    command: str
    """The last command that changed it."""
    executed_by: str = ""
    other_names: int = 0


class CommandRecord(Struct, frozen=True):
    files: tuple[CommandChange, ...] = ()
    """By path, each once."""
    unlisted: int = 0
    """Changed files that the facts only count."""
    incomplete: tuple[str, ...] = ()
    """Why files may be missing."""

    def of(self, paths: Iterable[str]) -> list[CommandChange]:
        """The changes of these files, or of those in new folders."""
        wanted = list(paths)
        return [
            change
            for change in self.files
            if change.path in wanted
            or (change.path.endswith("/") and any(p.startswith(change.path) for p in wanted))
        ]


async def changed_by_commands(journal: Journal, run_id: str) -> CommandRecord:
    """The files that commands of this run changed, with the state after the last of them."""
    lines: dict[str, str] = {}
    found: dict[str, CommandChange] = {}
    unlisted, reasons = 0, dict[str, None]()
    working, lost = dict[str, None](), list[str]()
    async for fact in facts_of(journal, run_id):
        match fact:
            case ToolStarted(kind="shell"):
                # The command itself may not have been stored before its worker was killed.
                lines[fact.tool_call_id] = fact.tool_name
                working[fact.tool_call_id] = None
            case ToolShellCommand():
                lines[fact.tool_call_id] = fact.argv[-1] if fact.argv else ""
            case ToolEnded():
                working.pop(fact.tool_call_id, None)
            case GapRunDisconnected():
                lost += working
                working.clear()
            case WorkspaceChangedByCommand():
                unlisted += max(0, fact.file_count - len(fact.files))
                if fact.incomplete is not UNSET:
                    reasons[fact.incomplete] = None
                for file in fact.files:
                    _fold(found, file, lines.get(fact.tool_call_id, fact.tool_name))
            case _:
                pass
    for call_id in (*lost, *working):
        command = shortened(lines[call_id], _LONGEST_COMMAND)
        reasons[f"nobody saw the end of this command: {command}"] = None
    files = tuple(found[path] for path in sorted(found))
    return CommandRecord(files, unlisted, tuple(reasons))


def _fold(found: dict[str, CommandChange], file: ChangedFile, command: str) -> None:
    before = found.pop(file.path, None)
    change = file.change
    if before is not None:
        change = _BECOMES.get((before.change, file.change), file.change)
    if change:
        size = None if file.size_bytes is UNSET else file.size_bytes
        found[file.path] = CommandChange(
            file.path, change, size, command, file.executed_by or "", file.other_names or 0
        )
