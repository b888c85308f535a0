"""The rows that change runs: cancel, suspend, resume, archive, delete, rebuild; one or many."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from batten.contract.errors import BattenError, CallerError, Conflict, JournalError
from batten.contract.facts import MacpRunArchived
from batten.control.described.suspending import Wanted, change
from batten.journal.contract import RunRow
from batten.protocols.macp.ids import run_uuid
from batten.serve.http.macp.runs import journal_run, run_id_of
from batten.serve.http.macp.runtime import refusing
from batten.serve.http.macp.service import RunService
from batten.serve.http.table import Call, Reply, Route
from batten.session.history import prompts_of
from batten.sinks.audit.noting import Noted

if TYPE_CHECKING:  # loaded with the first request
    from batten.protocols.macp.records import RunRecord
    from batten.protocols.macp.state import ProjectedState

MOST_AT_ONCE = 200
_SIDE_BY_SIDE = 16
_BATCH_REASON = "batch cancel"
_BATCH_S = 300.0
_UNREACHED = ("RUNTIME_UNAVAILABLE", "RUNTIME_TIMEOUT", "CIRCUIT_BREAKER_OPEN")
_log = logging.getLogger("batten.runs")


class ReasonBody(Struct, frozen=True, kw_only=True):
    reason: str | None = None


class RunIds(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    run_ids: Annotated[list[str], Meta(min_length=1, max_length=MOST_AT_ONCE)]


class BatchItem(Struct, frozen=True, kw_only=True, rename="camel"):
    """What became of one run."""

    run_id: str
    status: str
    """What was asked for, or `failed`."""
    error: str | UnsetType = UNSET


async def _row(service: RunService, run_id: str) -> RunRow:
    row = await service.journal.run(run_id)
    if row is None or row.kind == "session":
        from batten.control.views.run_events import not_found

        raise not_found(run_id)
    return row


async def cancel(call: Call) -> "RunRecord":
    return await _cancel(call, run_id_of(call), call.body.reason or "")


async def _cancel(call: Call, run_id: str, reason: str) -> "RunRecord":
    service: RunService = call.service
    row = await _row(service, run_id)
    if row.outcome is None:
        with refusing(), _noted(call, "run.cancelled", run_id, reason=reason) as note:
            await service.cancelling.cancel(row, by=call.principal.name, reason=reason)
            record = await service.views.record(run_id)
            # Another ending may have come first.
            note.is_done = record.status not in ("completed", "failed")
        return record
    return await service.views.record(run_id)


async def suspend(call: Call) -> "RunRecord":
    return await _change(call, "suspended")


async def resume(call: Call) -> "RunRecord":
    return await _change(call, "running")


_AUDITED: dict[Wanted, str] = {"suspended": "run.suspended", "running": "run.resumed"}


async def _change(call: Call, wanted: Wanted) -> "RunRecord":
    service: RunService = call.service
    run_id = run_id_of(call)
    record = await service.views.record(run_id)
    row = await _row(service, run_id)
    reason = service.tasks.redactor.authored.text(call.body.reason or "")
    with refusing(), _noted(call, _AUDITED[wanted], run_id, reason=reason) as note:
        await change(
            service.journal,
            service.runtime,
            row,
            record.status,
            wanted,
            by=call.principal.name,
            reason=reason,
        )
        note.is_done = record.status != wanted
    return await service.views.record(run_id)


async def archive(call: Call) -> "RunRecord":
    return await _archive(call, run_id_of(call))


async def _archive(call: Call, run_id: str) -> "RunRecord":
    service: RunService = call.service
    async with service.turn(run_id):
        record = await service.views.record(run_id)
        if record.archived_at is not None:
            return record
        fact = MacpRunArchived(by=call.principal.name)
        await service.journal.append(run_id, [fact], fence=None)
        _record(call, "run.archived", run_id)
        return await service.views.record(run_id)


async def delete(call: Call) -> Reply:
    await _delete(call, run_id_of(call))
    return Reply(status=204)


async def _delete(call: Call, run_id: str) -> None:
    service: RunService = call.service
    async with service.turn(run_id):
        await _remove(call, run_id)


async def _remove(call: Call, run_id: str) -> None:
    service: RunService = call.service
    row = await _row(service, run_id)
    if row.outcome is None:
        raise CallerError(
            "only terminal runs (completed, failed, cancelled) can be deleted",
            code="VALIDATION_ERROR",
        )
    shared = await prompts_of(service.journal, row.session_id or "")
    if [one.run_id for one in shared] != [run_id]:
        raise Conflict(
            f"the run shares its history with {len(shared)} runs of task {row.task_id}: delete the"
            f" task, by DELETE /hecate/v1/tasks/{row.task_id}",
            code="CONFLICT",
        )
    await service.recorder.record_removal(call, "run.deleted", "run", run_uuid(run_id))
    await service.tasks.delete(row.task_id or "")


async def rebuild(call: Call) -> "ProjectedState":
    service: RunService = call.service
    return await service.views.rebuild(run_id_of(call))


def _record(call: Call, action: str, run_id: str, **details: Any) -> None:
    service: RunService = call.service
    service.recorder.record(call, action, "run", run_uuid(run_id), **details)


@contextmanager
def _noted(call: Call, action: str, run_id: str, **details: Any) -> Generator[Noted]:
    """Record what the body does to a run. It is done also where the log cannot be written."""
    service: RunService = call.service
    with ExitStack() as stack:
        try:
            noted = service.recorder.noted(call, action, "run", run_uuid(run_id), **details)
            note = stack.enter_context(noted)
        except JournalError as error:
            _log.warning("%s is not in the audit log: %s", action, error)
            note = Noted()
        yield note


async def cancel_all(call: Call) -> list[BatchItem]:
    async def one(run_id: str) -> None:
        status = (await _cancel(call, run_id, _BATCH_REASON)).status
        if status in ("completed", "failed"):
            raise Conflict(f"cannot transition run from '{status}' to 'cancelled'")

    return await _each(call, "cancelled", one)


async def archive_all(call: Call) -> list[BatchItem]:
    async def one(run_id: str) -> None:
        await _archive(call, run_id)

    return await _each(call, "archived", one)


async def delete_all(call: Call) -> list[BatchItem]:
    async def one(run_id: str) -> None:
        await _delete(call, run_id)

    return await _each(call, "deleted", one)


async def _each(call: Call, done: str, act: Callable[[str], Awaitable[None]]) -> list[BatchItem]:
    """Act on each run by itself, some at a time; the results are in the order of the request."""
    gate = asyncio.Semaphore(_SIDE_BY_SIDE)

    async def one(given: str) -> BatchItem:
        async with gate:
            try:
                await act(journal_run(given, "runIds"))
            except BattenError as error:
                return BatchItem(run_id=given, status="failed", error=error.message)
            return BatchItem(run_id=given, status=done)

    async with asyncio.TaskGroup() as group:
        asked: RunIds = call.body
        tasks = [group.create_task(one(given)) for given in asked.run_ids]
    return [task.result() for task in tasks]


def _action(name: str, handler: Any, summary: str, body: Any = None, **more: Any) -> Route:
    return Route(
        method="POST",
        path=f"/runs/{{id}}/{name}",
        handler=handler,
        summary=summary,
        tag="runs",
        scope="operator",
        body=body,
        body_optional=body is not None,
        errors=("not_found", *more.pop("errors", ())),
        **more,
    )


def _batch(name: str, handler: Any, summary: str) -> Route:
    return Route(
        method="POST",
        path=f"/runs/batch/{name}",
        handler=handler,
        summary=summary,
        tag="runs",
        scope="operator",
        body=RunIds,
        timeout_s=_BATCH_S,
    )


ROUTES: tuple[Route, ...] = (
    _action(
        "cancel",
        cancel,
        "Cancel a run: by its initiator's callback, by delegation, or an agent's directly",
        ReasonBody,
        timeout_s=60.0,
        errors=("provider_error", *_UNREACHED),
    ),
    _action(
        "suspend",
        suspend,
        "Suspend the session of a running run",
        ReasonBody,
        errors=("INVALID_STATE_TRANSITION", "CONFLICT", *_UNREACHED),
    ),
    _action(
        "resume",
        resume,
        "Resume the session of a suspended run",
        ReasonBody,
        errors=("INVALID_STATE_TRANSITION", "CONFLICT", *_UNREACHED),
    ),
    _action("archive", archive, "Leave a run out of lists, unless they ask for archived ones"),
    _action("projection/rebuild", rebuild, "Fold the views of a run anew", timeout_s=120.0),
    Route(
        method="DELETE",
        path="/runs/{id}",
        handler=delete,
        summary="Delete a run that has ended, with all that is known of it",
        tag="runs",
        scope="operator",
        status=204,
        errors=("not_found", "conflict"),
    ),
    _batch("cancel", cancel_all, "Cancel several runs"),
    _batch("archive", archive_all, "Archive several runs"),
    _batch("delete", delete_all, "Delete several runs that have ended"),
)
