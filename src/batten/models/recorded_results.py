"""What the facts of a run say for its recording: results of calls, files, the outcome.

Reads the files that it changed or read once, when a run has ended.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

import msgspec
from msgspec import UNSET, Struct

from batten.contract import facts
from batten.contract.calls import end_of
from batten.contract.outcomes import Outcome, ending_of
from batten.models.scenario import Assertion, SeenResult
from batten.settings.regular import read_regular

LARGEST_FILE = 64 * 1024
"""Bytes of a file whose content is compared."""
MOST_FILES = 200
_LONGEST_OUTPUT = 2000


class _Edit(Struct):
    file_path: str = ""


class _Edits(_Edit):
    edits: tuple[_Edit, ...] = ()


class RecordedResults:
    """Takes the facts of all runs of a session, in order."""

    def __init__(self, workspace: str, recording: str) -> None:
        """`recording` is the file being written: no result of the run."""
        self._workspace = os.path.realpath(workspace)
        self._recording = os.path.realpath(recording)
        self._endings: dict[str, tuple[str, str]] = {}
        """Ending and output of calls, by id."""
        self._begun: set[str] = set()
        """Calls that were allowed to start, by id."""
        self._exit_codes: dict[str, int] = {}
        self._files: dict[str, None] = {}
        """That the run changed."""
        self._read: dict[str, None] = {}
        self.prompts: list[str] = []
        self.outcome: Outcome | None = None
        """Of the last run; None while it works."""

    def take(self, fact: facts.Fact) -> None:
        match fact:
            case facts.UserMessage(turn_index=0):
                self.prompts.append(fact.text)
                self.outcome = None
            case facts.ToolStarted():
                self._begun.add(fact.tool_call_id)
            case facts.ToolShellExited():
                self._exit_codes[fact.tool_call_id] = fact.exit_code
            case facts.ToolEditProposed() | facts.ToolFileWriteProposed():
                self._files[fact.path] = None
            case facts.ToolFileReadCompleted():
                self._read[fact.path] = None
            case facts.WorkspaceChangedByCommand():
                self._files |= dict.fromkeys(changed.path for changed in fact.files)
            case facts.ToolEnded() | facts.PolicyToolBlocked():
                # A child's words belong to its own recording.
                output = "" if fact.output is UNSET or fact.kind == "agent" else fact.output
                self._endings[fact.tool_call_id] = end_of(fact).status, output
            case facts.RunFinished() | facts.RunFailed() | facts.RunCancelled():
                self.outcome = ending_of(fact).outcome
            case _:
                pass

    def name_files(self, arguments: object) -> None:
        """Files that a call names, of a tool whose facts name only their patches."""
        with suppress(msgspec.ValidationError):
            named = msgspec.convert(arguments, _Edits)
            paths = (named.file_path, *(edit.file_path for edit in named.edits))
            self._files |= dict.fromkeys(path for path in paths if path)

    def stop(self, call_id: str) -> None:
        """Forget how a call ended that was cancelled or out of time together with its run."""
        if call_id in self._endings and self._endings[call_id][0] in ("timed_out", "cancelled"):
            del self._endings[call_id]
            self._exit_codes.pop(call_id, None)

    def result(self, call_id: str) -> SeenResult | None:
        """How a call ended; None if it works, or was stopped together with its run."""
        ending, output = self._endings.get(call_id, ("cancelled", ""))
        if ending == "cancelled":
            # Its approval was pending, perhaps: a replay, which allows every call, must not run it.
            was_kept_back = self.outcome is not None and call_id not in self._begun
            return SeenResult(ending="denied") if was_kept_back else None
        code = self._exit_codes.get(call_id)
        return SeenResult(ending=ending, exit_code=code, output=output[:_LONGEST_OUTPUT] or None)

    def assertions(self, outcome: Outcome) -> Iterator[Assertion]:
        """On the outcome of a replay, the exit codes and the files; none while a run works."""
        if self.outcome is None:
            return
        note = None if self.outcome == outcome else f"the recorded run ended in {self.outcome}"
        yield Assertion(id="outcome", kind="outcome", outcome=outcome, note=note)
        for call_id, code in self._exit_codes.items():
            yield Assertion(
                id=f"exit:{call_id}", kind="exit_code", tool_call_id=call_id, exit_code=code
            )
        changed = self._inside(self._files)
        read = self._inside(self._read) - changed
        for path in (*sorted(changed), *sorted(read))[:MOST_FILES]:
            yield self._of_file(path)

    def _inside(self, paths: Iterable[str]) -> set[str]:
        """The files, relative to the workspace; those outside are left out."""
        found: set[str] = set()
        for path in paths:
            place = os.path.normpath(os.path.join(self._workspace, path))
            relative = os.path.relpath(place, self._workspace)
            is_folder = path.endswith("/") or relative == "."
            # The draft of the recording has a longer name.
            is_ours = place == self._recording or place.startswith(f"{self._recording}.")
            if not (is_folder or is_ours or relative.startswith("..") or "\0" in path):
                found.add(relative)
        return found

    def _of_file(self, path: str) -> Assertion:
        """Text is compared; of other files, which builds rarely repeat, only the existence."""
        name = f"file:{path}"
        place = os.path.join(self._workspace, path)
        if not os.path.lexists(place):
            return Assertion(id=name, kind="file_missing", path=path)
        try:
            status = os.stat(place)
            if stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_FILE:
                content = read_regular(place, LARGEST_FILE + 1).decode()
                return Assertion(id=name, kind="file_contents", path=path, equals=content)
        except (OSError, UnicodeDecodeError):
            pass
        return Assertion(id=name, kind="file_exists", path=path)
