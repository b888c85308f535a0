"""Two runs side by side."""

from typing import TYPE_CHECKING

from batten.protocols.macp.requests import CompareRequest
from batten.serve.http.macp.runs import journal_run
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Route

if TYPE_CHECKING:  # loaded with the first request
    from batten.protocols.macp.comparing import Comparison, Side


async def compare_runs(call: Call) -> "Comparison":
    from batten.protocols.macp.comparing import compare

    service: RunService = call.service
    asked: CompareRequest = call.body
    left = journal_run(asked.left_run_id, "leftRunId")
    right = journal_run(asked.right_run_id, "rightRunId")
    return compare(await _side(service, left), await _side(service, right))


async def _side(service: RunService, run_id: str) -> "Side":
    from batten.protocols.macp.comparing import Side

    return Side(await service.views.state(run_id), await service.views.metrics(run_id))


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/runs/compare",
        handler=compare_runs,
        summary="Compare two runs: status, duration, confidence, participants, signals",
        tag="runs",
        body=CompareRequest,
        status=201,
        errors=("not_found",),
        timeout_s=120.0,
    ),
)
