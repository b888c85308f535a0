"""The diff of a proposed edit, for the permission request. Writes nothing."""

from typing import Any

from batten.agent.deps import RunDeps
from batten.contract.errors import BattenError
from batten.protocols.acp.content import Diff, ToolContent
from batten.serve.acp.sources import texts_of
from batten.tools.lent import Documents, held
from batten.workspace import files
from batten.workspace.batch import Edit, as_bytes, plan
from batten.workspace.patches import PatchBody
from batten.workspace.root import Root


async def preview(deps: RunDeps, tool: str, arguments: dict[str, Any]) -> list[ToolContent] | None:
    """The files before and after; None if the call is no edit or cannot be applied."""
    try:
        root = Root(deps.workspace_path, writable=deps.directories)
        bodies = await _bodies(root, deps.lent.documents, tool, arguments)
        diffs = [_diff(root, body, texts_of(body, deps.redactor)) for body in bodies]
    except BattenError:
        return None  # the call itself will report the error
    return [diff for diff in diffs if diff is not None] or None


async def _bodies(
    root: Root, lent: Documents | None, tool: str, arguments: dict[str, Any]
) -> tuple[PatchBody, ...]:
    match tool:
        case "write_file":
            place = root.resolve(arguments["file_path"], "write")
            present = (await held(lent, [place])).get(place.path) or files.read_if_present(place)
            before = None if present is None else present.data
            return (PatchBody(place.shown, before, as_bytes(arguments["content"])),)
        case "edit_file":
            edits = [arguments]
        case "multi_edit":
            edits = arguments["edits"]
        case _:
            return ()
    wanted = [_edit(edit, arguments.get("file_path", "")) for edit in edits]
    places = [root.resolve(edit.path, "write") for edit in wanted]
    return plan(root, wanted, await held(lent, places)).bodies


def _edit(edit: dict[str, Any], path: str) -> Edit:
    named: str = edit.get("file_path") or path
    return Edit(named, edit["old_string"], edit["new_string"], edit.get("replace_all", False))


def _diff(root: Root, body: PatchBody, texts: tuple[str | None, str] | None) -> Diff | None:
    if texts is None:
        return None
    before, after = texts
    return Diff(path=root.resolve(body.path).path, old_text=before, new_text=after)
