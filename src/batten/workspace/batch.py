"""Several edits, of one or more files, worked out as one: all of them fit or none is made."""

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
    """One of the edits does not fit. Nothing was changed."""

    code = "edit_failed"

    def __init__(self, number: int, reason: EditFailed, shown: str) -> None:
        self.number = number
        """Which edit, counted from 1."""
        self.reason = reason
        super().__init__(f"Edit {number}: {reason.explain(shown)}")


class Planned(Struct, frozen=True):
    bodies: tuple[patches.PatchBody, ...]
    """One patch for each file that changes, in the order they were first named."""
    edited: tuple[Edited, ...]
    """What each edit did."""


class _Draft(Struct):
    shown: str
    before: bytes
    text: str
    mode: int


def plan(
    root: Root, edits: Sequence[Edit], held: Mapping[str, files.Content] | None = None
) -> Planned:
    """What these edits, made in order, come to. Later ones see what earlier ones wrote.

    `held` are files, by their paths, whose text is elsewhere than on the disk. Writes nothing.
    Raises `NotFound`, `Refused` or `BatchFailed`.
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
    """Bytes as text that gives back the same bytes, also where they are not UTF-8."""
    return data.decode("utf-8", "surrogateescape")


def as_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise CallerError(f"Text is not valid Unicode: {error.reason}") from None
