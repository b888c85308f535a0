"""One tool call as a block of lines: what was called, its output, how it ended."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET

from batten.contract import facts
from batten.contract.cutting import cut
from batten.contract.facts.tool import ToolCompleted, ToolEnded, ToolFailed, ToolTimedOut
from batten.contract.marks import crowded, exact
from batten.serve.alerts import help_with
from batten.serve.terminal.diffs import diff_lines, path_in
from batten.serve.terminal.excerpt import Excerpt, is_telling
from batten.serve.terminal.lines import ALL_ROWS, Line, line
from batten.serve.terminal.measures import duration

_LONGEST_INPUT = 200
_LONGEST_QUESTION = 16_000
_MOST_FILES = 5
_MOST_WARNINGS = 20
OUTPUT, _RESULT = "  │ ", "  └ "
_MARKS = {"completed": "x", "in_progress": ">", "pending": " "}
_SUBJECTS = ("command", "file_path", "path", "pattern", "url", "query", "prompt", "name")
"""Arguments that say what a call is about, in this order."""
_SHOWN_APART: dict[str, tuple[str, ...]] = {
    "bash": ("description",),
    "edit_file": ("old_string", "new_string", "replace_all"),
    "multi_edit": ("edits",),
    "todo_write": ("todos",),
    "write_file": ("content",),
}
"""Arguments that the block shows in its own way."""
_FOREIGN_KINDS = ("custom", "mcp")
_SLOW_S = 0.1
"""Shorter calls are shown without their duration."""


def arguments_shown(name: str, arguments: dict[str, Any]) -> str:
    """The arguments on one line: the one that the call is about first, the others after it."""
    subject = next((key for key in _SUBJECTS if isinstance(arguments.get(key), str)), None)
    hidden = _SHOWN_APART.get(name, ())
    if name == "agent" and arguments.get("description"):
        subject, hidden = "description", ("prompt",)
    if name == "multi_edit" and subject is None:
        return exact(", ".join(_edited_paths(arguments)))
    rest = {key: value for key, value in arguments.items() if key != subject and key not in hidden}
    texts = [] if subject is None else [_cut(str(arguments[subject]))]
    if len(rest) == 1 and subject is None:
        (only,) = rest.values()
        if isinstance(only, str):
            return _cut(only)
    texts += [f"{key}={_cut(_spelled(value))}" for key, value in rest.items()]
    return "  ".join(texts)


def call_title(name: str, arguments: dict[str, Any]) -> str:
    """Name and arguments on one line."""
    return f"{exact(name)} {arguments_shown(name, arguments)}".rstrip()


def _edited_paths(arguments: dict[str, Any]) -> list[str]:
    """The files of a `multi_edit`, each once; its arguments may have any shape."""
    try:
        edits = msgspec.convert(arguments.get("edits"), list[dict[str, Any]])
    except msgspec.ValidationError:
        return []
    paths = (str(edit.get("file_path", edit.get("path", "?"))) for edit in edits)
    return list(dict.fromkeys(paths))


def _spelled(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _cut(text: str) -> str:
    return exact(cut(text, _LONGEST_INPUT))


def changed_files(fact: facts.WorkspaceChangedByCommand) -> str:
    """The files that a command changed, the first few by name."""
    names = ", ".join(exact(file.path) for file in fact.files[:_MOST_FILES])
    more = fact.file_count - min(len(fact.files), _MOST_FILES)
    return f"changed by the command: {names}" + (f" and {more} more" if more > 0 else "")


def run_later(fact: facts.WorkspaceChangedByCommand) -> Iterator[str]:
    """Of the files that a command changed, those to look at before anything else is done there."""
    for file in fact.files[:_MOST_WARNINGS]:
        if file.executed_by is not UNSET:
            yield f"{file.executed_by} executes what a command has {file.change}: {file.path}"
        elif file.other_names is not UNSET:
            yield f"{file.path} changed under {file.other_names} other names too (hard links)"


class CallBlock:
    """The lines of one call, in order. The owner decides when they are written."""

    def __init__(self, name: str, arguments: dict[str, Any], *, whole: bool) -> None:
        self.name = exact(name)
        self.arguments = arguments
        self._whole = whole
        self._excerpt = Excerpt(whole=whole)
        self._is_cut = False
        self._touched: list[Line] = []
        """The files that a command changed, for the end of its output."""

    def header(self, at: str) -> Line:
        shown = arguments_shown(self.name, self.arguments)
        about = self.arguments.get("description") if self.name == "bash" else None
        pieces = (
            (self.name, "bold cyan"),
            (f" {shown}" if shown else "", ""),
            (f"  # {about}" if about else "", "dim"),
        )
        return Line(pieces, "● ", at, "call")

    def report(self, fact: facts.Fact, patches: dict[str, str]) -> list[Line]:
        """The lines of a fact between start and end; `patches` by artifact."""
        match fact:
            case facts.ToolShellOutputChunk():
                return _outputs(self._excerpt.feed(fact.stream, fact.data))
            case facts.ToolShellExited():
                self._is_cut = fact.truncated
                return _outputs(self._excerpt.finish())
            case facts.ToolEditApplied() | facts.ToolFileWriteApplied():
                return self._changed([fact.patch_artifact_id], patches)
            case facts.ToolMultiEditApplied():
                return self._changed(fact.patch_artifact_ids, patches)
            case facts.ToolTodoWriteUpdated():
                texts = (f"[{_MARKS[todo.status]}] {todo.content}" for todo in fact.todos)
                return [line(text, prefix=OUTPUT) for text in texts]
            case facts.WorkspaceChangedByCommand() if fact.files:
                self._touched.append(line(changed_files(fact), prefix=OUTPUT))
                self._touched += [line(each, "yellow", prefix="! ") for each in run_later(fact)]
                return []
            case facts.ToolStarted() if fact.child_run_id is not UNSET:
                return [line(f"child run {fact.child_run_id}", "dim", prefix=OUTPUT)]
            case _:
                return []

    def _changed(self, artifacts: list[str], patches: dict[str, str]) -> list[Line]:
        lines: list[Line] = []
        for artifact_id in artifacts:
            text = patches.pop(artifact_id, "")
            if len(artifacts) > 1:
                lines.append(line(path_in(text), "bold", prefix=OUTPUT))
            lines += diff_lines(text, OUTPUT, whole=self._whole)
        return lines

    def end(self, fact: ToolEnded) -> list[Line]:
        """The rest of the output, and how the call ended."""
        failed = not isinstance(fact, ToolCompleted)
        output = fact.output if isinstance(fact.output, str) else ""
        if self._is_cut:
            self._excerpt.replace_tail(output)
        lines = _outputs(self._excerpt.rest(failed=failed), failed)
        summary = fact.summary
        if fact.kind in _FOREIGN_KINDS and "\n" in output.strip():
            excerpt = Excerpt(whole=self._whole)
            lines += _outputs(excerpt.feed("", output) + excerpt.finish())
            lines += _outputs(excerpt.rest(failed=failed), failed)
            summary = "" if output.startswith(summary.rstrip("…")) else summary
        took_s = fact.duration_ms / 1000
        took = f" · {duration(took_s)}" if took_s >= _SLOW_S else ""
        return [*lines, *self._touched, *_result(fact, summary, took)]

    def question(self, fact: facts.ApprovalRequested, *, by_itself: bool) -> list[Line]:
        """A pending approval: all that would run, and the command that answers."""
        summary = crowded(cut(fact.summary, _LONGEST_QUESTION))
        asked = arguments_shown(self.name, self.arguments)
        shown = f": {summary}" if by_itself or summary != asked else ""
        subject = f"{self.name} needs approval" if by_itself else "needs approval"
        prefix = "? " if by_itself else OUTPUT
        answer = f"batten answer {fact.approval_id} allow|deny"
        return [
            Line(((subject, "bold yellow"), (shown, "yellow")), prefix, most_rows=ALL_ROWS),
            line(answer, prefix="  " if by_itself else OUTPUT),
        ]

    def blocked(self, fact: facts.PolicyToolBlocked) -> list[Line]:
        lines = [Line((("denied: ", "bold red"), (fact.reason, "red")), _RESULT)]
        if flag := help_with(fact):
            lines.append(line(flag, prefix=" " * len(_RESULT)))
        return lines


def _result(fact: ToolEnded, summary: str, took: str) -> list[Line]:
    match fact:
        case ToolCompleted(kind="shell"):
            return [Line((("ok", "green"), (took, "dim")), _RESULT)]
        case ToolCompleted():
            text = summary.splitlines()[0] if summary else "ok"
            return [Line(((text, "dim"), (took, "dim")), _RESULT)]
        case ToolFailed():
            text = summary.removeprefix("Error: ") or "failed"
            return [Line(((text, "red"), (took, "dim")), _RESULT)]
        case ToolTimedOut():
            return [Line(((summary or "timed out", "red"),), _RESULT)]
        case _:
            return [Line(((summary or "cancelled", "yellow"), (took, "dim")), _RESULT)]


def _outputs(texts: list[str], failed: bool = False) -> list[Line]:
    """Lines of output; those that tell why it failed stand out."""
    return [
        line(text, "red" if failed and is_telling(text) else "dim", prefix=OUTPUT) for text in texts
    ]
