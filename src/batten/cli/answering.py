"""Commands that steer runs from outside: list and answer their requests, cancel them."""

import os
import sys
from argparse import Namespace
from contextlib import closing
from typing import Any

import msgspec

from batten.cli.inspection import open_journal, reads
from batten.cli.remote import steering
from batten.cli.remote.address import server_of
from batten.contract import facts
from batten.contract.calls import CallFold
from batten.contract.cutting import cut
from batten.contract.errors import Conflict
from batten.contract.marks import crowded
from batten.journal.contract import Journal, RequestRow
from batten.journal.workers import is_abandoned
from batten.redact.redactor import Redactor
from batten.serve.output import put, say
from batten.serve.terminal.lines import ALL_ROWS, Line
from batten.serve.terminal.printers import Printer, printer_for
from batten.session.history import facts_of
from batten.session.naming import named_request, named_run, named_runs
from batten.session.requests import resolve

_LONGEST_VALUE = 16_000


@reads
async def list_requests(journal: Journal, options: Namespace) -> int:
    """Print pending requests, of one run or of all, with all that an answer decides about."""
    if options.run_id:
        runs = await named_runs(journal, options.run_id)
        found = [request for run in runs for request in await journal.requests(run.run_id)]
    else:
        found = await journal.pending_requests()
    printer = printer_for(1, os.environ, options.color, times=False)
    for request in found:
        if request.status == "pending":
            arguments = await _arguments(journal, request)
            if options.json:
                shown = {**msgspec.to_builtins(request), "input": arguments}
                put(msgspec.json.encode(shown).decode())
            else:
                _print(printer, request, arguments)
    return 0


def _print(printer: Printer, request: RequestRow, arguments: dict[str, Any]) -> None:
    """The summary on one line, then every argument that the summary does not show."""
    asked = (
        (request.request_id, "bold"),
        (f"  {request.request_class:<11} ", "yellow"),
        (crowded(request.summary), ""),
    )
    lines = [Line(asked, most_rows=ALL_ROWS)]
    for name, value in arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if text != request.summary:
            shown = crowded(cut(text, _LONGEST_VALUE))
            named = ((f"{crowded(name)}: ", "cyan"), (shown, ""))
            lines.append(Line(named, "    ", most_rows=ALL_ROWS))
    for line in lines:
        sys.stdout.write(printer.rows(line))


async def _arguments(journal: Journal, request: RequestRow) -> dict[str, Any]:
    """The arguments of the call to decide about, redacted: as proposed, or as a hook changed them.

    For other questions, their details.
    """
    calls = CallFold()
    async for fact in facts_of(journal, request.run_id):
        calls.take(fact)
        match fact:
            case facts.ApprovalRequested(approval_id=request.request_id):
                break
            case facts.RequestOpened(request_id=request.request_id):
                return fact.detail
            case _:
                pass
    call = calls.get(request.tool_call_id)
    return {} if call is None else call.input or {}


async def cancel_run(options: Namespace) -> int:
    """Request the cancellation of a run; its worker ends it."""
    if server := server_of(options, os.environ):
        return await steering.cancel_run(options, server)
    with closing(open_journal(read_only=False)) as journal:
        row = await named_run(journal, options.run_id)
        if row.outcome is not None:
            raise Conflict(f"{row.run_id} has ended: {row.outcome}")
        reason = Redactor.from_environment(os.environ).text(options.reason)
        await journal.append(row.run_id, [facts.RunCancelRequested("operator", reason)], fence=None)
        put(f"{row.run_id}: cancel requested")
    if is_abandoned(row):
        say(f"batten: its process is gone; `batten -p --resume {row.run_id}` ends it")
    return 0


async def answer_request(options: Namespace) -> int:
    if server := server_of(options, os.environ):
        return await steering.answer_request(options, server)
    granted = options.decision == "allow"
    with closing(open_journal(read_only=False)) as journal:
        request = await named_request(journal, options.request_id)
        row = await resolve(
            journal,
            Redactor.from_environment(os.environ),
            request.request_id,
            granted=granted,
            by="operator",
            text=options.note,
        )
        put(f"{row.request_id}: {row.decision or row.status}")
    return 0
