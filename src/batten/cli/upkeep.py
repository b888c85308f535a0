"""Commands that keep a home small and safe: prune, delete, backup."""

import asyncio
import os
from argparse import Namespace
from typing import Any

import msgspec

from batten.cli import current_directory
from batten.cli.amounts import local, shown_size
from batten.cli.auditing import record, recorded_removal
from batten.cli.changes import prune_run
from batten.cli.inspection import open_journal
from batten.cli.parsing import UsageError, agrees
from batten.contract.cutting import shortened
from batten.contract.errors import Refused
from batten.contract.marks import one_line, prose_line
from batten.journal.bundles.transfer import back_up
from batten.journal.contract import Journal, SessionRow
from batten.journal.opening import has_store, open_for_removal, removal_lock
from batten.journal.removal import Extent, Removable, Removal, RemovalLimits, StoreSize
from batten.serve.output import put, say
from batten.serve.terminal.measures import counted
from batten.session.naming import named_session
from batten.wiring.home import absolute, batten_home


async def prune_journal(options: Namespace) -> int:
    """Remove old sessions, or the beginning of one run."""
    limits = RemovalLimits(
        used_before=options.older_than, keep=options.keep, max_bytes=options.max_size
    )
    if options.run_id is not None or options.before is not None:
        if options.run_id is None or options.before is None or limits != RemovalLimits():
            raise _usage("prune", "RUN and --before go together, without the other limits")
        return await prune_run(options)
    if limits == RemovalLimits():
        raise _usage("prune", "name a limit: --older-than, --keep or --max-size")
    home = batten_home(os.environ, current_directory())
    if not has_store(home):
        say(f"batten: there is nothing to prune in {home}")
        if options.json:
            nothing = StoreSize(0, 0)
            return _report(Removal(before=nothing, after=nothing), limits, [], options)
        return 0
    shown: list[dict[str, Any]] = []

    def removed(one: Removable, size: Extent) -> None:
        shown.append({**msgspec.to_builtins(one), **msgspec.to_builtins(size)})
        if not options.json:
            _print_removed(one, size, is_plan=options.dry_run)

    if options.dry_run:
        result = await open_journal(read_only=True).plan_removal(limits, removed)
    else:
        result = await _prune(home, limits, removed)
    return _report(result, limits, shown, options)


async def _prune(home: str, limits: RemovalLimits, removed: Any) -> Removal:
    with removal_lock(home):
        async with recorded_removal("journal.pruned", "journal", home, **_told(limits)):
            with open_for_removal(home) as journal:
                return await journal.remove_sessions(limits, removed)


def _told(limits: RemovalLimits) -> dict[str, Any]:
    """The limits that were given."""
    given = msgspec.to_builtins(limits)
    return {name: value for name, value in given.items() if value not in (None, [])}


def _usage(command: str, message: str) -> UsageError:
    return UsageError(f"{message}\ntry: batten {command} --help")


def _print_removed(one: Removable, size: Extent, *, is_plan: bool) -> None:
    verb = "would remove" if is_plan else "removed"
    runs = counted(size.runs, "run")
    put(
        f"{verb} {one.name}  last used {local(one.used_at)}  {runs},"
        f" {shown_size(size.bytes)}  {prose_line(shortened(size.prompt, 50))}"
    )


def _report(
    result: Removal, limits: RemovalLimits, shown: list[dict[str, Any]], options: Namespace
) -> int:
    for one, reason in result.spared:
        say(f"batten: {one.name} stays: {reason}")
    before, after = result.before.total, result.after.total
    if options.json:
        report = {
            "dry_run": options.dry_run,
            "removed": shown,
            "spared": [{"name": one.name, "reason": reason} for one, reason in result.spared],
            "before_bytes": before,
            "after_bytes": after,
        }
        put(msgspec.json.encode(report).decode())
    else:
        sessions = counted(len(result.removed), "session")
        verb = "would remove" if options.dry_run else "removed"
        put(f"{verb} {sessions}: {shown_size(before)} to {shown_size(after)}")
    if result.young_bodies:
        say(_young(result.young_bodies))
    if limits.max_bytes is not None and after > limits.max_bytes:
        say(
            f"batten: the store still takes {shown_size(after)}: what is left is kept, in use,"
            " unfinished or was written in the last hour"
        )
        return 1
    return 0


def _young(count: int) -> str:
    bodies = counted(count, "artifact body")
    return f"batten: {bodies} from the last minute must wait for the next prune"


async def delete_one(options: Namespace) -> int:
    home = batten_home(os.environ, current_directory())
    journal = open_journal(read_only=True)
    row = await named_session(journal, options.session)
    put(await _described(journal, row))
    question = "Delete it, with all its runs and artifacts?"
    nobody = "nobody is there to ask; --yes deletes it without asking"
    if not options.yes and not agrees(question, nobody):
        put("nothing was deleted")
        return 1
    with removal_lock(home):
        async with recorded_removal("session.deleted", "session", row.session_id):
            with open_for_removal(home) as journal:
                young = await journal.delete_session(row.session_id)
    put("deleted")
    if young:
        say(_young(young))
    return 0


async def _described(journal: Journal, row: SessionRow) -> str:
    whole = Removable(row.session_id, True, row.updated_at, row.workspace_path)
    size = await journal.extent(whole)
    runs = counted(size.runs, "run")
    return (
        f"session {row.session_id}  {runs}, {shown_size(size.bytes)}, last used"
        f" {local(row.updated_at)} in {one_line(row.workspace_path)}"
        f"  {prose_line(shortened(size.prompt, 50))}"
    )


async def back_up_home(options: Namespace) -> int:
    home = batten_home(os.environ, current_directory())
    target = absolute(options.file, current_directory())
    if target == home or target.startswith(home + "/"):
        raise Refused(f"{target} is in the home that is backed up; name a place outside it")
    open_journal(read_only=True).close()  # says what is wrong with it, if anything is
    record("home.backed_up", "home", home, target=target, with_key=options.with_key)
    with removal_lock(home, shared=True):
        backup = await asyncio.to_thread(back_up, home, target, with_key=options.with_key)
    put(f"backed up {home} to {target}: {backup.bodies} body files, {shown_size(backup.bytes)}")
    if not options.with_key and os.path.exists(os.path.join(home, "seal.key")):
        say("batten: seal.key is not in it: keep a copy elsewhere, or use --with-key")
    for digest in backup.damaged:
        say(f"batten: the body {digest} is missing or damaged; `batten verify` says more")
    return 1 if backup.damaged else 0
