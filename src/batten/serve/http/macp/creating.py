"""The rows that create runs."""

from batten.contract.tracing import parse_traceparent, trace_of
from batten.control.described.creation import Asker, Made
from batten.protocols.macp.descriptor import Created, RunDescriptor, read_descriptor
from batten.protocols.macp.emitting import run_uuid
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Route

TRACED = (("traceparent", "The span of the caller: the run belongs to its trace."),)


async def create(call: Call) -> Created:
    service: RunService = call.service
    descriptor = read_descriptor(call.body)
    asker = Asker(by=call.principal.name, traceparent=traceparent(call))
    return await created(service, await service.described.create(descriptor, asker), asker)


def traceparent(call: Call) -> str:
    """The caller's span; empty if it names none."""
    found = parse_traceparent(call.header("traceparent") or "")
    return "" if found is None else str(found)


async def created(service: RunService, made: Made, asker: Asker) -> Created:
    """The answer for a new run, or for the one that an idempotency key has made before."""
    if made.is_new:
        parent = parse_traceparent(asker.traceparent)
        return Created(
            run_id=run_uuid(made.run_id),
            session_id=made.session_id,
            status="queued",
            trace_id=trace_of(made.run_id) if parent is None else parent.trace_id,
        )
    record = await service.views.record(made.run_id)
    return Created(
        run_id=record.id,
        session_id=record.runtime_session_id or "",
        status=record.status,
        trace_id=record.trace_id or "",
    )


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/runs",
        handler=create,
        summary="Create a run: a session that an initiator will open, or an agent's run",
        tag="runs",
        scope="operator",
        body=bytes,
        body_type=RunDescriptor,
        headers=TRACED,
        status=202,
        errors=("conflict",),
    ),
)
