"""Rows for tasks and their runs."""

from batten.contract.ids import SessionId
from batten.control.tasks import QueuedBy
from batten.journal.contract import RunRow
from batten.protocols.hecate import runs as run_types
from batten.protocols.hecate.creation import new_task
from batten.protocols.hecate.runs import RunList, RunReply
from batten.protocols.hecate.tasks import CreateTask, TaskList, TaskQuery, TaskReply
from batten.protocols.hecate.traces import parent_of, state_of
from batten.protocols.hecate.vocabulary import page_size
from batten.serve.http.hecate.pages import page_of
from batten.serve.http.hecate.service import Service
from batten.serve.http.table import Call, Reply, Route
from batten.session.history import prompts_of

TASKS = "/hecate/v1/tasks"
TASK = f"{TASKS}/{{task_id}}"
RUN = f"{TASK}/runs/{{run_id}}"
_USUAL, _MOST = 50, 200
_TRACED = (
    ("traceparent", "The span of the caller: the run belongs to its trace."),
    ("tracestate", "What the caller's tracer says of the trace; kept with `traceparent`."),
    ("X-Trace-Id", "The same without `traceparent`: 32 hexadecimal digits."),
    ("X-Span-Id", "16 hexadecimal digits, with `X-Trace-Id`."),
)


async def create_task(call: Call) -> TaskReply:
    service: Service = call.service
    task = new_task(call.body, by=call.principal.name)
    return TaskReply(await service.new_task(task))


async def list_tasks(call: Call) -> Reply:
    service: Service = call.service
    query: TaskQuery = call.query
    return await service.cached(f"tasks {query}", lambda: _page_of_tasks(service, query))


async def _page_of_tasks(service: Service, query: TaskQuery) -> TaskList:
    size = page_size(query.limit, _USUAL, _MOST)
    after = query.cursor.replace("_", " ", 1) if isinstance(query.cursor, str) else None
    status = query.status if isinstance(query.status, str) else None
    page = await service.journal.sessions(after=after, limit=size + 1, status=status)
    made = [await service.task_object(session) for session in page[:size]]
    # One may have changed since the page was read.
    tasks = [task for task in made if status in (task.status, None)]
    # Pages follow when tasks were queued; the end of a run is an update too.
    tasks.sort(key=lambda task: task.updated_at, reverse=True)
    if len(page) <= size:
        return TaskList(data=tasks)
    cursor = page[size - 1].cursor.replace(" ", "_", 1)
    return TaskList(data=tasks, has_more=True, next_cursor=cursor)


async def get_task(call: Call) -> Reply:
    service: Service = call.service
    task_id = call.params["task_id"]

    async def make() -> TaskReply:
        return TaskReply(await service.task_object(await service.tasks.find(task_id)))

    return await service.cached(f"task {task_id}", make)


async def delete_task(call: Call) -> Reply:
    service: Service = call.service
    if service.recorder is not None:
        await service.tasks.find(call.params["task_id"])
        await service.recorder.record_removal(call, "task.deleted", "task", call.params["task_id"])
    await service.tasks.delete(call.params["task_id"])
    return Reply(status=204)


async def start_task(call: Call) -> Reply:
    service: Service = call.service
    row = await service.tasks.start(call.params["task_id"], **_asker(call))
    return await _queued(service, row)


def _asker(call: Call) -> QueuedBy:
    """Who queues a run, and in which trace."""
    names = ("traceparent", "x-trace-id", "x-span-id")
    parent = parent_of(*(call.header(name) for name in names))
    state = state_of(call.header("traceparent"), call.header("tracestate"))
    return {"by": call.principal.name, "traceparent": parent, "tracestate": state}


async def _queued(service: Service, row: RunRow) -> Reply:
    """The answer of a request that queued a run; a gated command already waits for its approval."""
    run = await service.run_object(await service.gating.once_asked(row))
    headers = (("x-trace-id", run.trace_id), ("x-span-id", run.root_span_id))
    return Reply(RunReply(run), headers=headers)


async def list_runs(call: Call) -> RunList:
    service: Service = call.service
    session = await service.tasks.find(call.params["task_id"])
    rows = await prompts_of(service.journal, SessionId(session.session_id))
    numbered = list(enumerate(rows, 1))[::-1]
    page, cursor = page_of(numbered, call.query, lambda one: one[1].run_id)
    runs = [await service.run_object(row, number) for number, row in page]
    return RunList(data=runs, has_more=bool(cursor), next_cursor=cursor)


async def get_run(call: Call) -> Reply:
    service: Service = call.service
    return await service.run_reply(call.params["task_id"], call.params["run_id"])


async def cancel_run(call: Call) -> RunReply:
    service: Service = call.service
    row = await service.tasks.cancel(
        call.params["task_id"],
        call.params["run_id"],
        by=call.principal.name,
        reason=call.body.reason,
    )
    return RunReply(await service.run_object(row))


async def retry_run(call: Call) -> Reply:
    service: Service = call.service
    row = await service.tasks.retry(call.params["task_id"], call.params["run_id"], **_asker(call))
    return await _queued(service, row)


async def resume_run(call: Call) -> Reply:
    service: Service = call.service
    budget = call.body.budget_micros_usd
    row = await service.tasks.resume(
        call.params["task_id"],
        call.params["run_id"],
        **_asker(call),
        budget_micros_usd=budget if isinstance(budget, int) and budget else None,
        reason=call.body.reason,
    )
    return await _queued(service, row)


async def continue_run(call: Call) -> Reply:
    service: Service = call.service
    row = await service.tasks.go_on(
        call.params["task_id"], call.params["run_id"], call.body.prompt, **_asker(call)
    )
    return await _queued(service, row)


async def retry_from_turn(call: Call) -> Reply:
    service: Service = call.service
    row = await service.tasks.retry_from_turn(
        call.params["task_id"],
        call.params["run_id"],
        call.body.turn,
        **_asker(call),
        reason=call.body.reason,
    )
    return await _queued(service, row)


ROUTES = (
    Route(
        method="POST",
        path=TASKS,
        handler=create_task,
        summary="Create a task",
        tag="tasks",
        scope="operator",
        body=CreateTask,
        reply=TaskReply,
        max_body=16 << 20,
    ),
    Route(
        method="GET",
        path=TASKS,
        handler=list_tasks,
        summary="List tasks, the most recently updated first",
        tag="tasks",
        query=TaskQuery,
        reply=TaskList,
    ),
    Route(
        method="GET",
        path=TASK,
        handler=get_task,
        summary="Get a task",
        tag="tasks",
        reply=TaskReply,
        errors=("not_found",),
    ),
    Route(
        method="DELETE",
        path=TASK,
        handler=delete_task,
        summary="Delete a task with its runs and its workspaces",
        tag="tasks",
        scope="operator",
        status=204,
        errors=("not_found", "conflict"),
    ),
    Route(
        method="POST",
        path=f"{TASK}/start",
        handler=start_task,
        headers=_TRACED,
        summary="Queue a run of a task",
        tag="tasks",
        scope="operator",
        reply=RunReply,
        errors=("not_found", "conflict", "model_not_configured", "workspace_invalid"),
    ),
    Route(
        method="GET",
        path=f"{TASK}/runs",
        handler=list_runs,
        summary="List the runs of a task, the newest first",
        tag="runs",
        query=run_types.PageQuery,
        reply=RunList,
        errors=("not_found",),
    ),
    Route(
        method="GET",
        path=RUN,
        handler=get_run,
        summary="Get a run",
        tag="runs",
        reply=RunReply,
        errors=("not_found",),
    ),
    Route(
        method="POST",
        path=f"{RUN}/cancel",
        handler=cancel_run,
        summary="Cancel a run",
        tag="runs",
        scope="operator",
        body=run_types.CancelRun,
        body_optional=True,
        reply=RunReply,
        errors=("not_found",),
    ),
    Route(
        method="POST",
        path=f"{RUN}/retry",
        handler=retry_run,
        headers=_TRACED,
        summary="Run a task again from its beginning",
        tag="runs",
        scope="operator",
        reply=RunReply,
        errors=("not_found", "conflict", "model_not_configured", "workspace_invalid"),
    ),
    Route(
        method="POST",
        path=f"{RUN}/resume",
        handler=resume_run,
        headers=_TRACED,
        summary="Go on from the end of a failed or cancelled run",
        tag="runs",
        scope="operator",
        body=run_types.ResumeRun,
        reply=RunReply,
        errors=("not_found", "conflict", "model_not_configured"),
    ),
    Route(
        method="POST",
        path=f"{RUN}/continue",
        handler=continue_run,
        headers=_TRACED,
        summary="Continue an ended run with a further prompt",
        tag="runs",
        scope="operator",
        body=run_types.ContinueRun,
        reply=RunReply,
        errors=("not_found", "conflict", "model_not_configured"),
        max_body=16 << 20,
    ),
    Route(
        method="POST",
        path=f"{RUN}/retry-from-turn",
        handler=retry_from_turn,
        headers=_TRACED,
        summary="Begin again before a turn of an ended run",
        tag="runs",
        scope="operator",
        body=run_types.RetryFromTurn,
        reply=RunReply,
        errors=("not_found", "conflict", "model_not_configured"),
    ),
)
