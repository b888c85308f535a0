"""Commands that list and answer the requests of runs."""

import os
from argparse import Namespace

import msgspec

from batten.cli.inspection import known_run, open_journal
from batten.redact.redactor import Redactor
from batten.serve.words import one_line
from batten.session.requests import resolve


async def list_requests(options: Namespace) -> int:
    """Print pending requests, of one run or of all."""
    journal = open_journal(read_only=True)
    if options.run_id:
        run = await known_run(journal, options.run_id)
        found = await journal.requests(run.run_id)
    else:
        found = await journal.pending_requests()
    for request in found:
        if request.status == "pending":
            if options.json:
                print(msgspec.json.encode(request).decode())
            else:
                summary = one_line(request.summary[:80])
                print(f"{request.request_id}  {request.request_class:<11} {summary}")
    return 0


async def answer_request(options: Namespace) -> int:
    journal = open_journal(read_only=False)
    granted = options.decision == "allow"
    try:
        row = await resolve(
            journal,
            Redactor.from_environment(os.environ),
            options.request_id,
            granted=granted,
            by="operator",
            text=options.note,
        )
        print(f"{row.request_id}: {row.decision or row.status}")
    finally:
        journal.close()
    return 0
