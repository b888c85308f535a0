"""`batten answer` and `batten cancel` with `--server`: the service appends the fact."""

import os
from argparse import Namespace
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, cast

from batten.cli.remote.address import link_of
from batten.contract.errors import Conflict, NotFound
from batten.journal.contract import Journal
from batten.serve.output import put


@asynccontextmanager
async def _steered(options: Namespace, server: str) -> AsyncGenerator[Any, None]:
    # Only commands that ask a service load its client.
    from batten.cli.remote.journal import RemoteJournal

    link = link_of(options, os.environ, server)
    try:
        yield RemoteJournal(link)
    finally:
        await link.close()


async def cancel_run(options: Namespace, server: str) -> int:
    """Request the cancellation of a run of the service."""
    from batten.session.naming import named_run

    async with _steered(options, server) as journal:
        row = await named_run(cast("Journal", journal), options.run_id)
        if row.outcome is not None:
            raise Conflict(f"{row.run_id} has ended: {row.outcome}")
        path = f"{await journal.run_path(row.run_id)}/cancel"
        await journal.link.post(path, dict[str, Any], {"reason": options.reason})
        put(f"{row.run_id}: cancel requested")
    return 0


async def answer_request(options: Namespace, server: str) -> int:
    """Answer a request of a run of the service; the first answer counts."""
    from batten.session.naming import named_request

    async with _steered(options, server) as journal:
        request = await named_request(cast("Journal", journal), options.request_id)
        run = await journal.run(request.run_id)
        if run is None:
            raise NotFound(f"the run of {request.request_id} was deleted")
        path = f"/hecate/v1/tasks/{run.task_id}/approvals/{request.request_id}/resolve"
        decision = "approve" if options.decision == "allow" else "reject"
        body = {"decision": decision, "note": options.note, "halt": False, "digest": request.digest}
        await journal.link.post(path, dict[str, Any], body)
        row = await journal.request(request.request_id)
        if row is None:
            raise NotFound(f"{request.request_id} was deleted")
        put(f"{row.request_id}: {row.decision or row.status}")
    return 0
