"""Rows for approvals: the questions that the runs of a task wait for."""

from msgspec import UNSET

from batten.contract.errors import Conflict
from batten.control.approvals import (
    Answer,
    Asking,
    answer_approval,
    approvals_of,
    find_approval,
)
from batten.protocols.hecate.approvals import (
    Approval,
    ApprovalList,
    ApprovalQuery,
    ApprovalReply,
    ResolveApproval,
    approval_object,
    approval_status,
    grants,
)
from batten.serve.http.errors import HttpError
from batten.serve.http.hecate.service import Service
from batten.serve.http.hecate.tasks import TASK
from batten.serve.http.table import Call, Reply, Route

_APPROVALS = f"{TASK}/approvals"


async def _object(service: Service, asking: Asking) -> Approval:
    run = await service.run_object(asking.run)
    return approval_object(asking.row, asking.run.task_id, asking.asked, run.trace_id)


async def list_approvals(call: Call) -> ApprovalList:
    service: Service = call.service
    query: ApprovalQuery = call.query
    asked = await approvals_of(service.tasks, call.params["task_id"])
    found = [await _object(service, one) for one in asked]
    return ApprovalList([one for one in found if query.status in (one.status, UNSET)])


async def get_approval(call: Call) -> ApprovalReply:
    service: Service = call.service
    found = await find_approval(service.tasks, call.params["task_id"], call.params["approval_id"])
    return ApprovalReply(await _object(service, found))


async def resolve_approval(call: Call) -> Reply:
    service: Service = call.service
    body: ResolveApproval = call.body
    task_id, approval_id = call.params["task_id"], call.params["approval_id"]
    answer = Answer(
        granted=grants(body.decision),
        by=call.principal.name,
        note=body.note,
        scope=body.scope,
        halt=body.halt,
        digest=body.digest,
    )
    try:
        answered = await answer_approval(service.tasks, task_id, approval_id, answer)
    except Conflict as error:
        found = await find_approval(service.tasks, task_id, approval_id)
        raise HttpError(
            error.code,
            error.message,
            status=409,
            fields={"status": approval_status(found.row), "resolved_by": found.row.by or ""},
        ) from error
    approval = await _object(service, answered)
    headers = (("x-trace-id", approval.trace_id), ("x-span-id", approval.span_id))
    return Reply(ApprovalReply(approval), headers=headers)


ROUTES = (
    Route(
        method="GET",
        path=_APPROVALS,
        handler=list_approvals,
        summary="List the approvals of a task, the oldest first",
        tag="approvals",
        query=ApprovalQuery,
        reply=ApprovalList,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path=f"{_APPROVALS}/{{approval_id}}",
        handler=get_approval,
        summary="Get an approval, with all that is asked",
        tag="approvals",
        reply=ApprovalReply,
        errors=("not_found",),
    ),
    Route(
        method="POST",
        path=f"{_APPROVALS}/{{approval_id}}/resolve",
        handler=resolve_approval,
        summary="Approve or reject; the first answer counts",
        tag="approvals",
        scope="operator",
        body=ResolveApproval,
        reply=ApprovalReply,
        errors=("not_found", "conflict"),
    ),
)
