"""Rewinds the files of a session to before a prompt, all or none, and previews that.

The changes of several runs are undone, the latest run first, as `reverting` undoes each.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

from msgspec import Struct

from batten.contract.errors import BattenError
from batten.journal.contract import Journal, RunRow
from batten.journal.recorder import open_sealed
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.session.reverting import applied_patches, revert_run, root_of
from batten.workspace import diff, files, patches
from batten.workspace.root import ResolvedPath


class Rewind(Struct, frozen=True):
    """The net effect of a rewind on the files."""

    paths: tuple[str, ...]
    insertions: int
    """Lines that the rewind adds; those of binary files are not counted."""
    deletions: int


class _File(Struct):
    shown: str
    present: bytes | None
    """The content now; None if there is no such file."""
    left: bytes | None
    """The content after the runs that were looked at are undone."""
    fits: bool


async def preview_rewind(
    journal: Journal, key: Callable[[], SealKey], runs: Sequence[RunRow], *, home: str
) -> Rewind:
    """What `rewind_files` would do with these runs, oldest first; changes nothing.

    Raises `BaseChanged` naming every file that was changed since.
    """
    found: dict[str, _File] = {}
    for run in reversed(runs):
        rows = await applied_patches(journal, run.run_id, [])
        if not rows:
            continue
        root = await root_of(journal, run, home)
        chains: dict[str, list[patches.PatchBody]] = {}
        for row in rows:
            sealed = await open_sealed(journal, key(), str(row.metadata["sealed_artifact_id"]))
            body = patches.decode(sealed)
            place = root.resolve(body.path, "write")
            if place.path not in found:
                found[place.path] = _present(place, body.path)
            chains.setdefault(place.path, []).append(body)
        for path, chain in chains.items():
            _undo(found[path], chain)
    differing = [file.shown for file in found.values() if not file.fits]
    if differing:
        raise patches.BaseChanged(sorted(differing))
    changed = [file for file in found.values() if file.present != file.left]
    stats = [diff.unified(file.shown, file.present, file.left).stats for file in changed]
    return Rewind(
        paths=tuple(sorted(file.shown for file in changed)),
        insertions=sum(one.additions for one in stats),
        deletions=sum(one.deletions for one in stats),
    )


async def rewind_files(
    journal: Journal,
    key: Callable[[], SealKey],
    redactor: Redactor,
    runs: Sequence[RunRow],
    *,
    home: str,
    by: str,
) -> Rewind:
    """Undo the file changes of these runs, oldest first. Raises `BaseChanged`, and changes nothing,
    if a file of any of them was changed since.
    """
    effect = await preview_rewind(journal, key, runs, home=home)
    for run in reversed(runs):
        if await applied_patches(journal, run.run_id, []):
            await revert_run(
                journal,
                key(),
                redactor,
                run,
                home=home,
                paths=[],
                by=by,
                reason=f"rewound by the {by}",
            )
    return effect


def _present(place: ResolvedPath, shown: str) -> _File:
    try:
        held = files.read_if_present(place)
    except BattenError:  # a directory, a pipe or a huge file
        return _File(shown, None, None, fits=False)
    data = None if held is None else held.data
    return _File(shown, data, data, fits=True)


def _undo(file: _File, chain: list[patches.PatchBody]) -> None:
    """Undo one run's patches of one file, in the order they were applied."""
    if file.left == chain[0].before:
        return  # restored already
    follow = all(one.after == two.before for one, two in pairwise(chain))
    file.fits = file.fits and follow and file.left == chain[-1].after
    file.left = chain[0].before
