"""The rows that create runs."""

from batten.contract.errors import BattenError, NotFound
from batten.contract.ids import to_uuid
from batten.contract.tracing import parse_traceparent, trace_of, tracestate_of
from batten.control.described.creation import Asker, Made, is_elsewhere
from batten.control.described.runtimes import (
    RuntimeProfile,
    profile_of_home,
    unavailable,
    unsupported_mode,
)
from batten.coordination.session import MAX_TTL_MS
from batten.journal.contract import RunRow
from batten.protocols.macp.descriptor import (
    CloneRun,
    Created,
    DescribedSession,
    RunDescriptor,
    Validated,
    ValidatedRuntime,
    decode_descriptor,
    read_descriptor,
)
from batten.protocols.macp.ids import run_uuid
from batten.serve.http.macp.runs import run_id_of
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Route
from batten.serve.http.validation import check_content_type

TRACED = (
    ("traceparent", "The span of the caller: the run belongs to its trace."),
    ("tracestate", "What the caller's tracer says of the trace; sent on with it."),
)


async def create(call: Call) -> Created:
    service: RunService = call.service
    check_content_type(call.headers)
    descriptor = read_descriptor(call.body)
    asker = _asker(call)
    made = await service.described.create(descriptor, asker)
    try:
        return await created(service, made, asker)
    except NotFound:  # the run of its key was deleted meanwhile, which frees the key
        return await created(service, await service.described.create(descriptor, asker), asker)


def _asker(call: Call) -> Asker:
    """Who calls, with its span and what its tracer says of the trace, if it names them."""
    found = parse_traceparent(call.header("traceparent") or "")
    if found is None:
        return Asker(by=call.principal.name)
    state = tracestate_of(call.header("tracestate") or "")
    return Asker(by=call.principal.name, traceparent=str(found), tracestate=state)


async def validate(call: Call) -> Validated:
    service: RunService = call.service
    check_content_type(call.headers)
    descriptor = decode_descriptor(call.body)
    errors = await service.described.check(descriptor)
    warnings: list[str] = []
    runtime = ValidatedRuntime(reachable=True)
    if descriptor.runtime.kind != "agent":
        try:
            profile = await _profile(service, descriptor)
        except BattenError as error:
            runtime = ValidatedRuntime(reachable=False)
            warnings.append(f"Runtime not reachable: {error}")
        else:
            modes, mode = profile.supported_modes, descriptor.session.mode_name
            runtime = ValidatedRuntime(
                reachable=True, supported_modes=modes, capabilities=profile.capabilities
            )
            if modes and mode not in modes:
                errors.append(unsupported_mode(mode, modes))
            warnings += _refusals(descriptor.session)
            warnings += await _policy_refusals(service, descriptor)
    return Validated(valid=not errors, errors=errors, warnings=warnings, runtime=runtime)


def _refusals(session: DescribedSession) -> list[str]:
    """Why no runtime would open the session as it is described: its initiator may differ."""
    found: list[str] = []
    if session.ttl_ms > MAX_TTL_MS:
        found.append(f"Runtimes refuse a session with a ttlMs above {MAX_TTL_MS}")
    names = [one.id for one in session.participants]
    if len(set(names)) < len(names):
        found.append("Runtimes refuse a session that names a participant twice")
    return found


async def _policy_refusals(service: RunService, descriptor: RunDescriptor) -> list[str]:
    """Why the runtime would refuse the session's policy, as its registry is now."""
    session, settings = descriptor.session, service.settings
    name = session.policy_version or ""
    is_linked = is_elsewhere(descriptor, settings) == bool(settings.runtime_address)
    if not name or not is_linked:
        return []
    try:
        policy = await service.observer.link.probe("GetPolicy", lambda client: client.policy(name))
    except BattenError as error:
        if error.code != "NOT_FOUND":
            return []
        return [f"Runtime has no policy '{name}' (UNKNOWN_POLICY_VERSION)"]
    if policy.mode in ("*", session.mode_name):
        return []
    return [f"Policy '{name}' is for mode '{policy.mode}' (INVALID_POLICY_DEFINITION)"]


async def _profile(service: RunService, descriptor: RunDescriptor) -> RuntimeProfile:
    if not is_elsewhere(descriptor, service.settings):
        return profile_of_home(service.registries, service.watch.hosted.fault)
    if service.runtime is None:
        raise unavailable(service.settings.runtime_address)
    return await service.runtime.profile()


async def clone(call: Call) -> Created:
    service: RunService = call.service
    run_id = run_id_of(call)
    await service.views.record(run_id)
    asker = _asker(call)
    made = await created(service, await service.described.clone(run_id, call.body, asker), asker)
    service.recorder.record(call, "run.cloned", "run", made.run_id, source=call.params["id"])
    return made


async def created(service: RunService, made: Made, asker: Asker) -> Created:
    """The answer for a new run, or for the one that an idempotency key has made before."""
    if made.is_new:
        service.observer.look()
        parent = parse_traceparent(asker.traceparent)
        return Created(
            run_id=run_uuid(made.run_id),
            session_id=made.session_id,
            status="queued",
            trace_id=trace_of(made.run_id) if parent is None else parent.trace_id,
        )
    row = await service.journal.run(made.run_id)
    if row is not None and row.base_sequence:
        return await _pruned(service, row)
    record = await service.views.record(made.run_id)
    return Created(
        run_id=record.id,
        session_id=record.runtime_session_id or "",
        status=record.status,
        trace_id=record.trace_id or "",
    )


async def _pruned(service: RunService, row: RunRow) -> Created:
    """The answer for a run whose events were removed: rows of the journal still tell of it."""
    session = await service.journal.session(row.session_id or "")
    if session is None:
        raise NotFound(f"run {run_uuid(row.run_id)} not found", code="RUN_NOT_FOUND")
    named = session.settings.get("macp_session_id") or to_uuid(session.session_id)
    return Created(
        run_id=run_uuid(row.run_id),
        session_id=str(named),
        status=row.status,
        trace_id=trace_of(row.run_id),
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
        errors=("conflict", "unsupported_media_type"),
    ),
    Route(
        method="POST",
        path="/runs/validate",
        handler=validate,
        summary="Say whether a run could be created, and whether its runtime is there",
        tag="runs",
        scope="operator",
        body=bytes,
        body_type=RunDescriptor,
        errors=("unsupported_media_type",),
    ),
    Route(
        method="POST",
        path="/runs/{id}/clone",
        handler=clone,
        summary="Create a run like another one, with other tags or another context",
        tag="runs",
        scope="operator",
        body=CloneRun,
        body_optional=True,
        headers=TRACED,
        status=201,
        errors=("not_found",),
    ),
)
