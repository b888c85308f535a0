"""`batten runs` and `batten stats`: what the rows of the journal say, without reading facts."""

import os
import sys
from argparse import Namespace
from typing import Any

import msgspec

from batten.cli import current_directory
from batten.cli.amounts import local
from batten.cli.inspection import journal_of, open_journal
from batten.cli.remote.address import server_of
from batten.cli.states import ABANDONED
from batten.contract.cutting import shortened
from batten.contract.envelope import decode_fact
from batten.contract.errors import NotFound
from batten.contract.facts import UserMessage
from batten.contract.marks import one_line, prose_line
from batten.journal.contract import Journal, RunRow
from batten.journal.filters import RunFilters
from batten.journal.removal import Grouping, UsageSum
from batten.journal.rows import PROMPT_CHARACTERS
from batten.journal.workers import is_abandoned
from batten.serve.output import put, say
from batten.serve.terminal.measures import dollars
from batten.session.naming import named_run, named_session
from batten.wiring.home import absolute, batten_home

_PAGE = 256
_WIDE = 140
"""Columns of a terminal that take a run on one line."""
_FIRST_FACTS = 8
"""A run's first prompt is among these."""


def existing_journal() -> Journal | None:
    """The journal for reading; None, with a line for people, if nothing was ever written."""
    try:
        return open_journal(read_only=True)
    except NotFound:
        home = batten_home(os.environ, current_directory())
        say(f"batten: there are no runs in {home} yet")
        return None


def state_of(row: RunRow) -> str:
    return ABANDONED if is_abandoned(row) else (row.outcome or row.status)


async def list_runs(options: Namespace) -> int:
    if server_of(options, os.environ):
        async with journal_of(options) as service:
            return await _list(service, options)
    journal = existing_journal()
    return 0 if journal is None else await _list(journal, options)


async def _list(journal: Journal, options: Namespace) -> int:
    if options.run_ids:
        options.limit = len(options.run_ids)
        found = [await named_run(journal, name) for name in options.run_ids]
    else:
        found = await _matching(journal, options)
    rows, is_more = found[: options.limit], len(found) > options.limit
    if options.json:
        for row in rows:
            shown = {**msgspec.to_builtins(row), "state": state_of(row)}
            put(msgspec.json.encode(shown).decode())
    elif rows:
        _print_table(rows)
    else:
        say("batten: no runs match" if not is_more else "batten: no runs are shown")
    if is_more:
        sys.stdout.flush()
        after = f"--after {rows[-1].run_id} shows the next" if rows else "--limit shows some"
        say(f"batten: there are more runs; {after}")
    return 0


async def _matching(journal: Journal, options: Namespace) -> list[RunRow]:
    """The runs that fit all filters, and one more than the limit if there is one."""
    filters: RunFilters = {"since": options.since, "until": options.until}
    if options.session is not None:
        filters["session_id"] = (await named_session(journal, options.session)).session_id
    if options.workspace is not None:
        path = absolute(options.workspace, current_directory())
        filters["workspace_path"] = os.path.realpath(path)
    after = None if options.after is None else (await named_run(journal, options.after)).run_id
    found: list[RunRow] = []
    while len(found) <= options.limit:
        page = await journal.runs(after=after, limit=_PAGE, **filters)
        found += [row for row in page if await _fits(journal, row, options)]
        if len(page) < _PAGE:
            break
        after = page[-1].run_id
    return found[: options.limit + 1]


async def _fits(journal: Journal, row: RunRow, options: Namespace) -> bool:
    if options.status is not None:
        state = state_of(row)
        names = {state} if state == ABANDONED else {state, row.status}
        if not names & options.status:
            return False
    if options.model is not None and options.model not in (row.model, _model(row)):
        return False
    if options.grep is None:
        return True
    wanted = options.grep.casefold()
    return wanted in row.prompt.casefold() or wanted in (await _prompt(journal, row)).casefold()


async def _prompt(journal: Journal, row: RunRow) -> str:
    """The whole first prompt; its row has only the beginning."""
    if len(row.prompt) < PROMPT_CHARACTERS:
        return row.prompt
    for stored in await journal.read(row.run_id, limit=_FIRST_FACTS):
        fact = decode_fact(stored.body)
        if isinstance(fact, UserMessage):
            return fact.text
    return row.prompt


def _model(row: RunRow) -> str:
    return f"{row.provider}/{row.model}" if row.provider else row.model or ""


def _cost(micros: int, is_unknown: bool) -> str:
    return dollars(micros) + ("+" if is_unknown else "")


def _print_table(rows: list[RunRow]) -> None:
    head = ("RUN", "STARTED", "STATE", "COST", "MODEL", "WORKSPACE", "PROMPT")
    table = [head, *(_cells(row) for row in rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(head))]
    columns = _columns()
    is_wide = columns is None or columns >= _WIDE
    for cells in table:
        first = f"{cells[0]:<{widths[0]}}  {cells[1]:<{widths[1]}}  {cells[2]:<{widths[2]}}"
        first += f"  {cells[3]:>{widths[3]}}"
        if is_wide:
            line = f"{first}  {cells[4]:<{widths[4]}}  {cells[5]:<{widths[5]}}  {cells[6]}"
            put(line if columns is None else shortened(line, columns))
        else:
            put(first)
            put(shortened(f"    {cells[4]}  {cells[5]}  {cells[6]}", columns or 80))


def _columns() -> int | None:
    """The width of the terminal; None for a pipe or a file."""
    try:
        return os.get_terminal_size(1).columns if sys.stdout.isatty() else None
    except OSError:
        return None


def _cells(row: RunRow) -> tuple[str, ...]:
    return (
        row.run_id,
        local(row.created_at),
        state_of(row),
        _cost(row.cost_micros_usd, row.cost_unknown),
        one_line(shortened(_model(row) or "-", 40)),
        one_line(_shortened_path(row.workspace_path)),
        prose_line(shortened(row.prompt, 60)),
    )


def _shortened_path(path: str, most: int = 40) -> str:
    user = os.path.expanduser("~")
    if user != "/" and (path == user or path.startswith(user + "/")):
        path = "~" + path[len(user) :]
    return path if len(path) <= most else "…" + path[1 - most :]


async def print_stats(options: Namespace) -> int:
    journal = existing_journal()
    since, until = options.since, options.until
    groups: tuple[Grouping, ...] = ("day" if options.json else "local_day", "model", "workspace")
    total: list[UsageSum] = []
    sums: dict[str, list[UsageSum]] = {"day": [], "model": [], "workspace": []}
    if journal is not None:
        total = await journal.usage("all", since, until)
        for name, group in zip(sums, groups, strict=True):
            sums[name] = await journal.usage(group, since, until)
    whole = total[0] if total else UsageSum()
    if options.json:
        shown: dict[str, Any] = {"since": since, "until": until, "total": _json(whole)}
        shown |= {f"by_{name}": [_json(one, name) for one in rows] for name, rows in sums.items()}
        put(msgspec.json.encode(shown).decode())
        return 0
    _print_usage("TOTAL", [msgspec.structs.replace(whole, name="all runs")])
    for name, rows in sums.items():
        if rows:
            put("")
            _print_usage(name.upper(), rows)
    return 0


def _json(row: UsageSum, name: str | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(row)
    text = fields.pop("name")
    return fields if name is None else {name: text, **fields}


def _print_usage(title: str, rows: list[UsageSum]) -> None:
    head = (title, "RUNS", "CALLS", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "COST")
    table: list[tuple[str, ...]] = [head]
    for row in rows:
        tokens = (row.input_tokens, row.output_tokens, row.cache_read_tokens)
        counts = (row.runs, row.calls, *tokens, row.cache_write_tokens)
        cost = _cost(row.cost_micros_usd, row.cost_unknown)
        is_path = title == "WORKSPACE"
        label = one_line(_shortened_path(row.name) if is_path else shortened(row.name or "-", 40))
        table.append((label, *(f"{count:,}" for count in counts), cost))
    widths = [max(len(cells[column]) for cells in table) for column in range(len(head))]
    for first, *rest in table:
        cells = (f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True))
        put("  ".join((f"{first:<{widths[0]}}", *cells)))
