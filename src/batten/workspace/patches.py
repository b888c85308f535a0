"""File changes as values: storable, applied once, reverted exactly.

One patch is one file's change. The caller stores the sealed body and the readable diff, and
records each transition.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.errors import BattenError, Conflict, PeerError
from batten.workspace import diff, files
from batten.workspace.root import ResolvedPath, Root

UNDER_REVIEW = {"auto_apply": False}
"""Metadata of a patch that is not applied before a client decides so."""


class PatchBody(Struct, frozen=True):
    """A complete change, with the file's contents before and after: must be sealed when stored."""

    path: str
    """As the root displays it."""
    before: bytes | None
    """None: the file did not exist."""
    after: bytes | None
    """None: the file is deleted."""
    mode: int | None = None
    """Permission bits of the original file, used to recreate it."""

    @property
    def base_digest(self) -> str | None:
        return None if self.before is None else files.digest(self.before)


class BaseChanged(Conflict):
    """Files differ from what the patches expect. Nothing was written."""

    code = "base_changed"

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        super().__init__(f"Changed since the patch was made: {', '.join(self.paths)}")


def encode(body: PatchBody) -> bytes:
    return msgspec.msgpack.encode(body)


def decode(data: bytes) -> PatchBody:
    try:
        return msgspec.msgpack.decode(data, type=PatchBody)
    except (msgspec.MsgspecError, ValueError) as error:
        raise PeerError(f"not a patch body: {error}") from error


def propose(
    path: str, before: bytes | None, after: bytes | None, *, mode: int | None = None
) -> PatchBody:
    """The change from `before` to `after`; `Conflict` if they are equal."""
    if before == after:
        raise Conflict(f"Nothing would change in {path}", code="unchanged")
    return PatchBody(path, before, after, mode)


def readable(body: PatchBody) -> diff.Diff:
    """The change as a unified diff, not redacted: redact it before storing it."""
    return diff.unified(body.path, body.before, body.after)


def metadata(body: PatchBody, stats: diff.Stats) -> dict[str, Any]:
    return {
        "target_path": body.path,
        "base_revision": body.base_digest,
        "stats": msgspec.to_builtins(stats),
    }


def inverse(body: PatchBody) -> PatchBody:
    """The patch that undoes this one."""
    return PatchBody(body.path, body.after, body.before, body.mode)


def revert(root: Root, bodies: Sequence[PatchBody]) -> tuple[PatchBody, ...]:
    """The patches that undo `bodies` (given in the order of application), last one first.

    Raises `BaseChanged` naming every file that was changed since. Writes nothing: store the
    inverse patches, then `apply` them.
    """
    inverses = tuple(inverse(body) for body in reversed(bodies))
    _changes(root, inverses)
    return inverses


def apply(root: Root, bodies: Sequence[PatchBody]) -> None:
    """Make all these changes, in order, or none of them.

    Raises `BaseChanged` naming every file that differs from its patch's base. All new content is
    on disk before the first file changes, so a full disk changes nothing.
    """
    changes = _changes(root, bodies)
    staged: list[tuple[_Change, files.Staged | None]] = []
    try:
        staged.extend((change, change.stage()) for change in changes)
    except BaseException:
        _discard(staged)
        raise
    done: list[_Change] = []
    try:
        for change, content in staged:
            if content is None:
                files.remove(change.place)
            else:
                content.commit()
            done.append(change)
    except BaseException:
        _discard(staged[len(done) :])
        for change in reversed(done):
            change.restore()
        raise


def _discard(staged: Iterable[tuple["_Change", files.Staged | None]]) -> None:
    for _, content in staged:
        if content is not None:
            content.discard()


class _Change(Struct):
    """The combined effect of a set of patches on one file."""

    place: ResolvedPath
    shown: str
    before: bytes | None
    after: bytes | None
    mode: int | None
    broken: bool = False

    def stage(self) -> files.Staged | None:
        return None if self.after is None else files.Staged(self.place, self.after, self.mode)

    def restore(self) -> None:
        if self.before is None:
            files.remove(self.place)
        else:
            files.write(self.place, self.before, mode=self.mode)

    def fits(self) -> bool:
        if self.broken:
            return False
        try:
            present = files.read_if_present(self.place)
        except BattenError:
            return False  # a directory, a pipe or a huge file: certainly different
        return (None if present is None else present.data) == self.before


def _changes(root: Root, bodies: Sequence[PatchBody]) -> list[_Change]:
    """One change per file, checked against the current files."""
    by_path: dict[str, _Change] = {}
    for body in bodies:
        place = root.resolve(body.path, "write")
        change = by_path.get(place.path)
        if change is None:
            by_path[place.path] = _Change(place, body.path, body.before, body.after, body.mode)
        else:
            change.broken = change.broken or change.after != body.before
            change.after = body.after
            change.mode = body.mode if change.mode is None else change.mode
    differing = [change.shown for change in by_path.values() if not change.fits()]
    if differing:
        raise BaseChanged(differing)
    return [change for change in by_path.values() if change.before != change.after]
