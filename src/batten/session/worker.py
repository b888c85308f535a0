"""The worker's side of a queue: find a run without a worker, claim it, execute it, park it.

A worker opens the session of a run (`Session.resume`) with `parking` deps, passes the run to
`execute`, and leaves the session (`Session.leave`).
"""

from collections.abc import Callable

from msgspec.structs import replace

from batten.agent.deps import RunDeps
from batten.agent.execution import Ended, Execution
from batten.agent.halt import Parked
from batten.agent.settings import RunSettings
from batten.journal.contract import Lease, RunRow
from batten.session.requests import JournalRequests
from batten.session.session import Session

_PAGE = 256


def parking(deps: RunDeps, settings: RunSettings) -> RunDeps:
    """Deps whose runs are parked while they wait for an approval, and belong to clients."""
    requests = JournalRequests(settings.resolvers, settings.request_seconds, parks=True, halts=True)
    panels = None if deps.panels is None else deps.panels.parking()
    return replace(deps, requests=requests, panels=panels, for_others=True)


async def execute(
    session: Session,
    row: RunRow,
    lease: Lease | None = None,
    began: Callable[[Execution], None] | None = None,
) -> Ended | None:
    """Claim a run of this session and execute it to its end; None if it was parked.

    Raises `Conflict` if it has another worker, or if it is not its turn. `lease` is that of a
    worker that has claimed the run already. `began` gets the execution, which may be handed over:
    then this raises `HandedOver`.
    """
    execution = await session.claim(row, lease)
    if began is not None:
        began(execution)
    try:
        return await execution.finish()
    except Parked:
        return None
