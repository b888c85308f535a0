"""Plans several edits, of one or more files, as one: either all of them apply or none does."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.workspace import files, patches
from batten.workspace.edit import Edited, EditFailed, replace
from batten.workspace.root import Root


class Edit(Struct, frozen=True):
    path: str
    old: str
    new: str
    replace_all: bool = False


class BatchFailed(CallerError):
    """One of the edits does not match its file. Nothing was changed."""

    code = "edit_failed"

    def __init__(self, number: int, reason: EditFailed, shown: str) -> None:
        self.number = number
        """The number of the failing edit, counted from 1."""
        self.reason = reason
        super().__init__(f"Edit {number}: {reason.explain(shown)}")


class Planned(Struct, frozen=True):
    bodies: tuple[patches.PatchBody, ...]
    """One patch per changed file, in the order the files were first named."""
    edited: tuple[Edited, ...]
    """The result of each edit."""


class _Draft(Struct):
    shown: str
    before: bytes
    text: str
    mode: int


def plan(
    root: Root, edits: Sequence[Edit], held: Mapping[str, files.Content] | None = None
) -> Planned:
    """The patches that result from these edits, made in order: later ones see earlier ones.

    `held` maps paths to contents that replace those on disk, such as a client's unsaved buffers.
    Writes nothing. Raises `NotFound`, `Refused` or `BatchFailed`.
    """
    drafts: dict[str, _Draft] = {}
    edited: list[Edited] = []
    for number, edit in enumerate(edits, 1):
        place = root.resolve(edit.path, "write")
        draft = drafts.get(place.path)
        if draft is None:
            content = (held or {}).get(place.path) or files.read(place)
            text = as_text(content.data)
            draft = drafts[place.path] = _Draft(place.shown, content.data, text, content.mode)
        try:
            outcome = replace(draft.text, edit.old, edit.new, replace_all=edit.replace_all)
        except EditFailed as reason:
            raise BatchFailed(number, reason, draft.shown) from reason
        draft.text = outcome.text
        edited.append(outcome)
    bodies = [
        patches.propose(draft.shown, draft.before, as_bytes(draft.text), mode=draft.mode)
        for draft in drafts.values()
        if draft.before != as_bytes(draft.text)
    ]
    return Planned(tuple(bodies), tuple(edited))


def as_text(data: bytes) -> str:
    """Decode so that `as_bytes` restores the same bytes, also where they are not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise CallerError(f"Text is not valid Unicode: {error.reason}") from None
