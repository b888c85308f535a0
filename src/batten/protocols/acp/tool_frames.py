"""Translates the tool calls of a run to updates: each call once, then its changes."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from batten.contract import calls, facts
from batten.contract.envelope import Envelope
from batten.protocols.acp.content import Diff, Location, Terminal, ToolContent, ToolStatus, shown
from batten.protocols.acp.tool_calls import absolute, kind_of, locations_of, title_of
from batten.protocols.acp.updates import AnyUpdate, ToolCallFields, ToolCallProgress, ToolCallStart

_LONGEST_TEXT = 64 * 1024
_LONGEST_TAIL = 8 * 1024
_MOST_LOCATIONS = 64
_EACH_BYTES = 16 * 1024
"""Up to this size every new piece of output is shown at once."""
_ENOUGH_BYTES = 1024
"""Beyond that, new output of this size is shown at once."""
_ENOUGH_MS = 200


class Patch(Struct, frozen=True):
    """A change of one file, without secrets."""

    path: str
    before: str | None = None
    after: str | None = None
    """None: too long to show, or the file was deleted; `diff` then shows the change."""
    diff: str = ""


Patches = Callable[[str], Patch | None]
"""The change behind a patch artifact, if it can be read."""


class _Call:
    def __init__(self, fields: ToolCallFields) -> None:
        self.fields = fields
        self.keeps_content = False
        """The content shown is more useful than the output."""
        self.output = ""
        self.output_size = 0
        self.shown_size = 0
        self.shown_at = ""
        self.exit: dict[str, Any] | None = None

    def is_due(self, at: str) -> bool:
        """Whether to show new output now, or with a later update."""
        new = self.output_size - self.shown_size
        if self.output_size <= _EACH_BYTES or new >= _ENOUGH_BYTES:
            return True
        return _milliseconds(at) - _milliseconds(self.shown_at) >= _ENOUGH_MS


class ToolFrames:
    """Follows the calls of one run after the other."""

    def __init__(self, workspace: str, patches: Patches, *, replays: bool) -> None:
        self._workspace = workspace
        self._patches = patches
        self._replays = replays
        self._fold = calls.CallFold()
        self._calls: dict[str, _Call] = {}
        """The calls that are shown and have no end."""
        self._uses: Counter[str] = Counter()
        self._children: dict[str, str] = {}

    def begin(self) -> None:
        """Start another run: its ids name other calls."""
        self._fold = calls.CallFold()
        self._calls.clear()
        self._uses.clear()
        self._children.clear()

    def fields(self, call_id: str) -> ToolCallFields | None:
        """A call with the fields shown so far."""
        call = self._calls.get(call_id)
        return None if call is None else call.fields

    def parent_of(self, child_run_id: str) -> ToolCallFields | None:
        return self.fields(self._children.get(child_run_id, ""))

    def leave_none_open(self) -> list[AnyUpdate]:
        """Fail the calls that have no end when the run ends."""
        left = list(self._calls)
        return [update for call_id in left for update in self._end(call_id)]

    def feed(self, envelope: Envelope) -> list[AnyUpdate]:
        fact: facts.Fact = envelope.data
        match self._fold.take(fact):
            case calls.CallProposed(call):
                return [self._start(envelope.run_id, call)]
            case calls.CallStarted(call):
                return self._invoke(envelope.run_id, call, envelope.data.kind)
            case calls.CallEnded(call, end):
                return self._end(call.id, end)
            case calls.AnswerRetracted(calls=void):
                return [update for call in void for update in self._end(call.id)]
            case _:
                return self._report(fact, envelope.occurred_at)

    def _report(self, fact: facts.Fact, at: str) -> list[AnyUpdate]:
        """What a call tells between its start and its end."""
        match fact:
            case facts.ToolStarted() if isinstance(fact.child_run_id, str):
                self._children[fact.child_run_id] = fact.tool_call_id
                return []
            case facts.ToolShellCommand() | facts.ToolShellOutputChunk() | facts.ToolShellExited():
                return self._shell(fact, at)
            case facts.ToolEditProposed() | facts.ToolFileWriteProposed():
                return self._edit(fact.tool_call_id, [fact.patch_artifact_id])
            case facts.ToolMultiEditProposed():
                return self._edit(fact.tool_call_id, fact.patch_artifact_ids)
            case facts.ToolFileReadCompleted():
                return self._locate(fact.tool_call_id, [(fact.path, None)])
            case facts.ToolGlobCompleted():
                return self._locate(fact.tool_call_id, [(path, None) for path in fact.matches])
            case facts.ToolGrepCompleted():
                found = [(match.path, match.line) for match in fact.matches]
                return self._locate(fact.tool_call_id, found)
            case _:
                return []

    def _start(self, run_id: str, call: calls.Call, kind: str = "") -> ToolCallStart:
        """Show a new call under a unique id: a model may reuse an id, and other runs may too."""
        self._uses[call.id] += 1
        again = f":{self._uses[call.id]}" if self._uses[call.id] > 1 else ""
        arguments = call.input or {}
        start = ToolCallStart(
            tool_call_id=f"{run_id}:{call.id}{again}",
            title=title_of(call.tool, arguments),
            kind=kind_of(call.tool, kind or None),
            status="pending",
            locations=locations_of(self._workspace, arguments),
            raw_input=arguments,
        )
        self._calls[call.id] = _Call(start)
        return start

    def _invoke(self, run_id: str, call: calls.Call, kind: str) -> list[AnyUpdate]:
        if call.id in self._calls:
            title = None if call.changed is None else title_of(call.tool, call.changed)
            return self._tell(call.id, status="in_progress", raw_input=call.changed, title=title)
        started = self._start(run_id, call, kind)
        return [started, *self._tell(call.id, status="in_progress")]

    def _tell(self, call_id: str, **changes: Any) -> list[AnyUpdate]:
        call = self._calls.get(call_id)
        if call is None:
            return []
        return [ToolCallProgress(tool_call_id=call.fields.tool_call_id, **changes)]

    def _shell(
        self,
        fact: facts.ToolShellCommand | facts.ToolShellOutputChunk | facts.ToolShellExited,
        at: str,
    ) -> list[AnyUpdate]:
        call = self._calls.get(fact.tool_call_id)
        if call is None:
            return []
        match fact:
            case facts.ToolShellCommand():
                if self._replays or not isinstance(fact.terminal_id, str):
                    return []
                call.keeps_content = True
                return self._tell(
                    fact.tool_call_id, content=[Terminal(terminal_id=fact.terminal_id)]
                )
            case facts.ToolShellOutputChunk():
                return [] if self._replays else self._output(call, fact, at)
            case facts.ToolShellExited():
                call.exit = {
                    "exitCode": None if fact.signal else fact.exit_code,
                    "signal": fact.signal,
                    "truncated": fact.truncated,
                }
                return []

    def _output(self, call: _Call, fact: facts.ToolShellOutputChunk, at: str) -> list[AnyUpdate]:
        call.output_size += len(fact.data)
        call.output = (call.output + fact.data)[-_LONGEST_TAIL:]
        if call.keeps_content or not call.is_due(at):
            return []
        call.shown_size, call.shown_at = call.output_size, at
        return self._tell(fact.tool_call_id, content=[shown(call.output)])

    def _edit(self, call_id: str, artifact_ids: list[str]) -> list[AnyUpdate]:
        """The files before and after, where they can be shown."""
        call = self._calls.get(call_id)
        if call is None:
            return []
        found = [self._patches(artifact_id) for artifact_id in artifact_ids]
        patches = [patch for patch in found if patch is not None]
        call.keeps_content = bool(patches)
        return self._tell(
            call_id,
            kind="edit",
            content=[self._change(patch) for patch in patches] or None,
            locations=[Location(path=absolute(self._workspace, one.path)) for one in patches]
            or None,
        )

    def _change(self, patch: Patch) -> ToolContent:
        if patch.after is None:
            return shown(patch.diff[:_LONGEST_TEXT])
        path = absolute(self._workspace, patch.path)
        return Diff(path=path, old_text=patch.before, new_text=patch.after)

    def _locate(self, call_id: str, found: Sequence[tuple[str, int | None]]) -> list[AnyUpdate]:
        places = dict.fromkeys(found)
        locations = [
            Location(path=absolute(self._workspace, path), line=line)
            for path, line in list(places)[:_MOST_LOCATIONS]
        ]
        return self._tell(call_id, locations=locations) if locations else []

    def _end(self, call_id: str, end: calls.CallEnd | None = None) -> list[AnyUpdate]:
        """Without an end it was taken back, or cut off by the end of its run."""
        call = self._calls.pop(call_id, None)
        if call is None:
            return []
        status: ToolStatus = "failed" if end is None or end.is_error else "completed"
        text = "" if end is None else end.text
        content: list[ToolContent] | None = None
        if text and (status == "failed" or not call.keeps_content):
            content = [shown(text[:_LONGEST_TEXT])]
        if call.keeps_content and call.exit is not None:
            content = None  # the client's own terminal shows it
        return [
            ToolCallProgress(
                tool_call_id=call.fields.tool_call_id,
                status=status,
                content=content,
                raw_output=call.exit,
            )
        ]


def _milliseconds(at: str) -> int:
    """The milliseconds of a stored time within its day: enough to compare two close times."""
    if len(at) < 23:
        return -_ENOUGH_MS
    hours, minutes, seconds, rest = int(at[11:13]), int(at[14:16]), int(at[17:19]), int(at[20:23])
    return ((hours * 60 + minutes) * 60 + seconds) * 1000 + rest
