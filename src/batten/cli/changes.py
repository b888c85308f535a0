"""Commands that show, review and revert a run's changes, and that prune its events."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Literal

from msgspec import Struct

from batten.cli import current_directory
from batten.cli.auditing import catch_up
from batten.cli.inspection import open_journal, reads
from batten.contract.cutting import shortened
from batten.contract.errors import Conflict, NotFound
from batten.contract.marks import crowded, one_line, plain
from batten.journal.contract import ArtifactRow, Journal, RunRow
from batten.journal.recorder import load_artifact
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.serve.output import put
from batten.serve.terminal.ability import has_color
from batten.serve.terminal.diffs import readable_diff
from batten.serve.terminal.lines import coded
from batten.serve.terminal.pager import paged
from batten.session.command_record import CommandRecord, changed_by_commands
from batten.session.history import prune
from batten.session.naming import named_run
from batten.session.reverting import applied_patches, is_proposed
from batten.session.reverting import revert_run as undo
from batten.wiring.home import batten_home
from batten.workspace.patches import BaseChanged

_LONGEST_COMMAND = 80
_MOST_NAMED = 20


@reads
async def print_diff(journal: Journal, options: Namespace) -> int:
    """Print the run's applied patches, redacted, in order; then the files commands changed.

    Or the proposed patches. On a terminal through a pager, in colour.
    """
    row = await named_run(journal, options.run_id)
    comments: list[str] = []
    if options.proposed:
        patches = await _proposed(journal, row)
    else:
        patches = await applied_patches(journal, row.run_id, [])
        # As comments: `git apply` and `patch` skip them.
        record = await changed_by_commands(journal, row.run_id)
        comments = [plain(f"# {line}") for line in command_lines(record)]
    color = has_color(options.color, 1, os.environ)
    is_for_people = color or sys.stdout.isatty()
    wanted = bool(patches or comments) and not options.no_pager
    with paged(os.environ, wanted=wanted) as reader:
        for patch in patches:
            body = await load_artifact(journal, patch.artifact_id)
            reader.write(readable_diff(body, color=color) if is_for_people else body)
        for comment in comments:
            styled = coded(comment, "yellow" if color else "")
            reader.write(f"{styled}\n".encode(errors="replace"))
    return 0


async def _proposed(journal: Journal, row: RunRow) -> list[ArtifactRow]:
    from batten.control.patches import patches_in_order

    return [patch for patch in await patches_in_order(journal, row.run_id) if is_proposed(patch)]


class Proposed(Struct, frozen=True):
    """What a run proposes to change."""

    run_id: str
    artifact_ids: tuple[str, ...]
    diff: bytes


async def proposed_changes(name: str) -> Proposed:
    """The proposed patches of a run, redacted. Raises `NotFound` if there are none."""
    with closing(open_journal(read_only=True)) as journal:
        row = await named_run(journal, name)
        patches = await _proposed(journal, row)
        if not patches:
            raise NotFound(f"{row.run_id} proposes no changes; runs with --review do")
        bodies = [await load_artifact(journal, patch.artifact_id) for patch in patches]
    return Proposed(row.run_id, tuple(patch.artifact_id for patch in patches), b"".join(bodies))


async def apply_run(options: Namespace) -> int:
    """Apply the proposed patches of a run."""
    return await _review(options, "applied")


async def reject_run(options: Namespace) -> int:
    """Reject the proposed patches of a run."""
    return await _review(options, "rejected")


async def _review(options: Namespace, decision: Literal["applied", "rejected"]) -> int:
    for path in await review_run(
        options.run_id, decision, tuple(options.paths), by="operator", reason=options.reason
    ):
        put(f"{decision} {one_line(path)}")
    return 0


async def review_run(
    name: str,
    decision: Literal["applied", "rejected"],
    paths: tuple[str, ...] = (),
    *,
    by: str,
    reason: str,
) -> list[str]:
    """Decide on the proposed patches of a run, or of these paths; returns their paths."""
    from batten.control.patches import Choice, Patches, Review

    home = batten_home(os.environ, current_directory())
    with closing(open_journal(read_only=False)) as journal:
        row = await named_run(journal, name)
        patches = Patches(_Keeper(journal, home, Redactor.from_environment(os.environ)))
        decide = patches.apply if decision == "applied" else patches.reject
        rows = await decide(row, Choice(paths=paths), Review(by=by, reason=reason))
    return [str(patch.metadata.get("target_path", "")) for patch in rows]


class _Keeper(Struct, frozen=True):
    journal: Journal
    home: str
    redactor: Redactor

    def seal_key(self) -> SealKey:
        return SealKey.find(self.home)


async def revert_run(options: Namespace) -> int:
    with closing(open_journal(read_only=False)) as journal:
        row = await named_run(journal, options.run_id)
        record = await changed_by_commands(journal, row.run_id)
        try:
            paths = await _undo(journal, row, options)
        except (NotFound, Conflict) as error:
            raise _explained(error, record, options.paths) from error
    for path in paths:
        put(f"reverted {one_line(path)}")
    if not options.paths:
        for line in command_lines(record):
            put(f"not reverted: {line}")
    return 0


async def _undo(journal: Journal, row: RunRow, options: Namespace) -> list[str]:
    if not await journal.artifacts(row.run_id, kind="patch"):
        # Before the key is asked for: a home without sealed bodies has none.
        if options.paths:
            raise NotFound(f"the run has no change in force to: {', '.join(options.paths)}")
        raise Conflict(f"{row.run_id} has no change in force to revert")
    home = batten_home(os.environ, current_directory())
    return await undo(
        journal,
        SealKey.find(home),
        Redactor.from_environment(os.environ),
        row,
        home=home,
        paths=options.paths,
        by="operator",
        reason=options.reason,
    )


def command_lines(record: CommandRecord) -> Iterator[str]:
    """The files that commands changed, a line each, and what is not known of them."""
    for change in record.files:
        size = "" if change.size_bytes is None else f", {change.size_bytes} bytes"
        command = shortened(crowded(change.command), _LONGEST_COMMAND)
        noted = f", which {change.executed_by} executes" if change.executed_by else ""
        if change.other_names:
            noted += f", with {change.other_names} other names that changed too"
        yield f"{change.change} by a command: {one_line(change.path)}{size}{noted} ({command})"
    if record.unlisted:
        yield f"changed by commands: {record.unlisted} more files, which were counted only"
    for reason in record.incomplete:
        yield f"changed by commands: the record is incomplete: {one_line(reason)}"


def _explained(
    error: NotFound | Conflict, record: CommandRecord, paths: list[str]
) -> NotFound | Conflict:
    """The error, with the commands that changed the files it is about."""
    if isinstance(error, BaseChanged):
        touched = record.of(error.paths)
    else:
        touched = record.of(paths) if paths else list(record.files)
    if not touched and not record.incomplete:
        return error
    named = CommandRecord(tuple(touched[:_MOST_NAMED]), incomplete=record.incomplete)
    lines = [error.message, *command_lines(named)]
    if len(touched) > _MOST_NAMED:
        lines.append(f"and {len(touched) - _MOST_NAMED} more; `batten diff` lists them")
    lines.append("the content from before a command is not kept: use version control or a backup")
    kind = NotFound if isinstance(error, NotFound) else Conflict
    return kind("\n".join(lines), code=error.code)


async def prune_run(options: Namespace) -> int:
    key = partial(SealKey.load, batten_home(os.environ, current_directory()))
    with closing(open_journal(read_only=False)) as journal:
        row = await named_run(journal, options.run_id)
        await catch_up(journal)
        marker = await prune(journal, key, row, options.before)
        put("nothing to prune" if marker is None else f"pruned; marker at {marker.sequence}")
    return 0
