"""Commands that show and revert a run's changes, and that prune its events."""

import os
import sys
from argparse import Namespace
from functools import partial

from batten.cli import current_directory
from batten.cli.inspection import known_run, open_journal
from batten.journal.recorder import load_artifact
from batten.redact.redactor import Redactor
from batten.redact.seal import SealKey
from batten.serve.terminal.ability import has_color
from batten.serve.terminal.diffs import readable_diff
from batten.serve.terminal.pager import paged
from batten.serve.words import one_line
from batten.session.history import prune
from batten.session.reverting import applied_patches
from batten.session.reverting import revert_run as undo
from batten.wiring.home import batten_home


async def print_diff(options: Namespace) -> int:
    """Print the run's applied patches, redacted, in order; on a terminal through a pager."""
    journal = open_journal(read_only=True)
    row = await known_run(journal, options.run_id)
    patches = await applied_patches(journal, row.run_id, [])
    color = has_color(options.color, 1, os.environ)
    with paged(os.environ, wanted=bool(patches) and not options.no_pager) as reader:
        for patch in patches:
            body = await load_artifact(journal, patch.artifact_id)
            for_people = color or sys.stdout.isatty()
            reader.write(readable_diff(body, color=color) if for_people else body)
    return 0


async def revert_run(options: Namespace) -> int:
    journal = open_journal(read_only=False)
    row = await known_run(journal, options.run_id)
    home = batten_home(os.environ, current_directory())
    try:
        paths = await undo(
            journal,
            SealKey.find(home),
            Redactor.from_environment(os.environ),
            row,
            home=home,
            paths=options.paths,
            by="operator",
            reason=options.reason,
        )
    finally:
        journal.close()
    for path in paths:
        print(f"reverted {one_line(path)}")
    return 0


async def prune_run(options: Namespace) -> int:
    journal = open_journal(read_only=False)
    key = partial(SealKey.load, batten_home(os.environ, current_directory()))
    try:
        row = await known_run(journal, options.run_id)
        marker = await prune(journal, key, row, options.before)
        print("nothing to prune" if marker is None else f"pruned; marker at {marker.sequence}")
    finally:
        journal.close()
    return 0
