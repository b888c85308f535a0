"""The tools that change files: `write_file`, `edit_file` and `multi_edit`.

Each change is first a patch: its exact body sealed, its diff readable, both durable before the
file changes. So every change can be inspected, and reverted to the byte.
"""

from collections.abc import Sequence
from typing import Any

from batten.contract import facts
from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, NotFound, Refused
from batten.contract.facts.tool import ToolKind
from batten.models.contract import ToolSpec
from batten.tools.command_changes import CommandChanges
from batten.tools.contract import Effect, ToolContext, ToolOutput, failure, object_schema
from batten.tools.lent import Documents, change
from batten.tools.paths import (
    REPORTED_ERRORS,
    FileTool,
    check_paths,
    failed,
    subject_of,
    unhurried,
)
from batten.workspace import files, patches
from batten.workspace.batch import BatchFailed, Edit, as_bytes, plan
from batten.workspace.edit import Edited
from batten.workspace.patches import UNDER_REVIEW, PatchBody
from batten.workspace.root import Root

_REPLACEMENT = {
    "old_string": {"type": "string", "description": "The text to replace, as it stands."},
    "new_string": {"type": "string", "description": "The text to put in its place."},
    "replace_all": {"type": "boolean", "description": "Replace every occurrence."},
}


class _EditingTool(FileTool):
    """A tool that changes files, and tells the record of commands which ones."""

    kind: ToolKind

    def __init__(
        self,
        root: Root,
        lent: Documents | None = None,
        changes: CommandChanges | None = None,
    ) -> None:
        super().__init__(root, lent)
        self._changes = changes

    async def _change(self, bodies: Sequence[PatchBody], context: ToolContext) -> list[str]:
        """Propose these patches durably, then apply them; returns the ids of their artifacts.

        Under review they stay proposed: no file is written.
        """
        kept = [await _keep(body, context) for body in bodies]
        ids = [artifact_id for artifact_id, _ in kept]
        if not ids:
            return ids
        summary = kept[0][1]
        if len(kept) > 1:
            changes = zip(bodies, kept, strict=True)
            summary = "; ".join(f"{body.path}: {change}" for body, (_, change) in changes)
        await context.record(_proposed(self.kind, context, bodies[0], ids, summary))
        if not context.auto_apply:
            return ids
        # No cancellation can separate the change from its record: changes on disk await nothing,
        # and a client's `apply` delays cancellation until its result is known.
        try:
            await change(self._lent, self._root, bodies)
        except REPORTED_ERRORS:
            context.record(*_updated(ids, "rejected"))
            raise
        applied = _applied(self.kind, context, bodies[0], ids)
        await context.record(applied, *_updated(ids, "applied"))
        if self._changes is not None:
            self._changes.note_own(body.path for body in bodies)
        return ids


class WriteFile(_EditingTool):
    kind: ToolKind = "file_write"
    effect: Effect = "write"
    spec = ToolSpec(
        name="write_file",
        description="Write a file in the workspace, in place of what was there.",
        parameters=object_schema(
            ["file_path", "content"], file_path={"type": "string"}, content={"type": "string"}
        ),
    )

    access = "write"

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        try:
            place = self._root.resolve(arguments["file_path"], "write")
            after = as_bytes(arguments["content"])
            present = (await self._held([place], context)).get(place.path)
            present = present or files.read_if_present(place)
            if present is None:
                body = patches.propose(place.shown, None, after)
            elif present.data != after:
                body = patches.propose(place.shown, present.data, after, mode=present.mode)
            else:
                return ToolOutput(text=f"Wrote {len(after)} bytes to {place.shown}")
            artifact_id = (await self._change([body], context))[0]
        except Refused as error:
            return failed(error)
        except REPORTED_ERRORS as error:
            reason = error.message.removeprefix("Could not write file: ")
            return failed(error, f"Could not write file: {reason}")
        text = f"Wrote {len(after)} bytes to {place.shown}"
        return ToolOutput(text=_told(text, place.shown, context), artifact_id=artifact_id)


class EditFile(_EditingTool):
    kind: ToolKind = "edit"
    effect: Effect = "write"
    spec = ToolSpec(
        name="edit_file",
        description=(
            "Replace a piece of text in a file. `old_string` must occur exactly once, unless "
            "`replace_all` is true."
        ),
        parameters=object_schema(
            ["file_path", "old_string", "new_string"],
            file_path={"type": "string"},
            **_REPLACEMENT,
        ),
    )

    access = "write"

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        path: str = arguments["file_path"]
        try:
            place = self._root.resolve(path, "write")
            edits = [_edit(path, arguments)]
            theirs = await self._held([place], context)
            planned = await unhurried([place], lambda: plan(self._root, edits, theirs))
            artifact_id = (await self._change(planned.bodies, context))[0]
        except NotFound as error:
            return failed(error, f"File not found: {path}")
        except BatchFailed as error:
            return failure(error.reason.explain(self.subject(arguments)), error.reason.kind)
        except REPORTED_ERRORS as error:
            return failed(error)
        text = _told(_report(planned.edited[0], place.shown), place.shown, context)
        return ToolOutput(text=text, artifact_id=artifact_id)


class MultiEdit(_EditingTool):
    """Edits of one or several files, all or none."""

    kind: ToolKind = "multi_edit"
    effect: Effect = "write"
    spec = ToolSpec(
        name="multi_edit",
        description=(
            "Make several replacements at once, in order: all of them or, if one does not fit, "
            "none. Each names its file, or all are in `file_path`."
        ),
        parameters=object_schema(
            ["edits"],
            file_path={"type": "string"},
            edits={
                "type": "array",
                "minItems": 1,
                "items": object_schema(
                    ["old_string", "new_string"], file_path={"type": "string"}, **_REPLACEMENT
                ),
            },
        ),
    )

    def subject(self, arguments: dict[str, Any]) -> str:
        """The path of every file it would change, one per line."""
        paths = (_path_of(edit, arguments) for edit in arguments["edits"])
        return "\n".join(dict.fromkeys(subject_of(self._root, path) for path in paths))

    async def check_bounds(self, arguments: dict[str, Any]) -> None:
        paths = [_path_of(edit, arguments) for edit in arguments["edits"]]
        check_paths(self._root, paths, "write")

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        try:
            edits = [_edit(_path_of(edit, arguments), edit) for edit in arguments["edits"]]
            places = [self._root.resolve(edit.path, "write") for edit in edits]
            theirs = await self._held(places, context)
            planned = await unhurried(places, lambda: plan(self._root, edits, theirs))
            await self._change(planned.bodies, context)
        except REPORTED_ERRORS as error:
            return failed(error)
        paths = ", ".join(body.path for body in planned.bodies)
        text = f"Applied {len(edits)} edits to {paths or 'nothing'}"
        return ToolOutput(text=_told(text, paths, context))


def _path_of(edit: dict[str, Any], arguments: dict[str, Any]) -> str:
    path: str = edit.get("file_path", edit.get("path", arguments.get("file_path", "")))
    return path


def _edit(path: str, arguments: dict[str, Any]) -> Edit:
    if not path:
        raise CallerError("an edit names no file: give it a file_path")
    replace_all = arguments.get("replace_all", False)
    return Edit(path, arguments["old_string"], arguments["new_string"], replace_all)


def _report(edited: Edited, path: str) -> str:
    if edited.count > 1:
        return f"Replaced {edited.count} occurrences in {path}"
    loosely = "" if edited.level == "exact" else f" ({edited.level} match)"
    return f"Applied edit to {path}{loosely}"


def _told(text: str, paths: str, context: ToolContext) -> str:
    """What the model is told of a change: whether files were written."""
    if context.auto_apply or not paths:
        return text
    return (
        f"Proposed a change to {paths}. Nothing is written: the change waits for review. "
        "`read_file` and further edits see the proposed content, commands see the old one."
    )


async def _keep(body: PatchBody, context: ToolContext) -> tuple[str, str]:
    """Store a patch artifact; returns its id and what it changes, in a few words."""
    diff = patches.readable(body)
    added, removed = diff.stats.additions, diff.stats.deletions
    if body.before is None:
        change = f"new file, {_count(added, 'line')}"
    else:
        change = f"{_count(diff.stats.hunks, 'hunk')}, +{added}/-{removed}"
    summary = f"{body.path}: {change}"
    sealed_id = await context.seal(patches.encode(body), summary=f"exact patch of {body.path}")
    artifact_id = await context.artifact(
        "patch",
        context.redact(diff.text).encode(),
        mime_type="text/x-diff",
        summary=summary,
        status="proposed",
        metadata={
            **patches.metadata(body, diff.stats),
            "produced_by_tool_call_id": context.call_id,
            "sealed_artifact_id": sealed_id,
            **({} if context.auto_apply else UNDER_REVIEW),
        },
    )
    if body.before is not None:
        change += " line" if max(added, removed) == 1 else " lines"
    return artifact_id, change


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _proposed(
    kind: ToolKind, context: ToolContext, first: PatchBody, ids: list[str], summary: str
) -> facts.Fact:
    call_id, name, applies = context.call_id, context.tool_name, context.auto_apply
    if kind == "multi_edit":
        return facts.ToolMultiEditProposed(call_id, ids, summary, applies, tool_name=name)
    proposed = facts.ToolFileWriteProposed if first.before is None else facts.ToolEditProposed
    return proposed(call_id, first.path, ids[0], summary, applies, tool_name=name)


def _applied(kind: ToolKind, context: ToolContext, first: PatchBody, ids: list[str]) -> facts.Fact:
    call_id, name = context.call_id, context.tool_name
    if kind == "multi_edit":
        return facts.ToolMultiEditApplied(call_id, ids, timestamp(), tool_name=name)
    applied = facts.ToolFileWriteApplied if first.before is None else facts.ToolEditApplied
    return applied(call_id, ids[0], timestamp(), tool_name=name)


def _updated(ids: list[str], status: str) -> list[facts.Fact]:
    return [facts.ArtifactUpdated(each, "status", "proposed", status) for each in ids]
