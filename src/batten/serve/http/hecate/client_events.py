"""The row for events that clients add to a run."""

from batten.contract.facts import Unknown
from batten.contract.reports import read_report
from batten.journal.recorder import redact_fact
from batten.protocols.hecate.events import AppendEvent, EventReply, payload_of
from batten.protocols.hecate.streams import event_reply
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.tasks import RUN
from batten.serve.http.table import Call, Reply, Route


async def append_event(call: Call) -> Reply:
    service: Service = call.service
    body: AppendEvent = call.body
    row = await service.tasks.run(call.params["task_id"], call.params["run_id"])
    data = {**payload_of(body), "by": call.principal.name}
    read_report(body.type, data)
    fact = redact_fact(Unknown(body.type, data), service.tasks.redactor)
    [stored] = await service.journal.append(row.run_id, [fact], fence=None)
    return Reply(event_reply(stored))


ROUTES = (
    Route(
        method="POST",
        path=f"{RUN}/events",
        handler=append_event,
        summary="Add an event of your own to a run, also after its end",
        tag="events",
        scope="operator",
        body=AppendEvent,
        body_optional=True,
        reply=EventReply,
        errors=("not_found",),
        max_body=256 << 10,
    ),
)
