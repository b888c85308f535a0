"""Rows about the service itself."""

from batten.control.statistics import stats
from batten.protocols.hecate.system import StatsReply
from batten.serve.http.hecate.service import Service
from batten.serve.http.table import Call, Route


async def get_stats(call: Call) -> StatsReply:
    service: Service = call.service
    return StatsReply(await stats(service.journal, service.count_workers()))


ROUTES = (
    Route(
        method="GET",
        path="/hecate/v1/system/stats",
        handler=get_stats,
        summary="The queue, the workers and the runs at this moment",
        tag="system",
        reply=StatsReply,
    ),
)
