"""Every row of the protocol's table of routes is a row of ours."""

import pytest

from batten.serve.http.published import published

TASK = "/hecate/v1/tasks/{task_id}"
RUN = f"{TASK}/runs/{{run_id}}"
ROWS = {
    "POST /hecate/v1/tasks": "task",
    "GET /hecate/v1/tasks": "tasks",
    f"GET {TASK}": "task",
    f"DELETE {TASK}": "",
    f"POST {TASK}/start": "task_run",
    f"GET {TASK}/runs": "task_runs",
    f"GET {RUN}": "task_run",
    f"POST {RUN}/cancel": "task_run",
    f"POST {RUN}/retry": "task_run",
    f"POST {RUN}/resume": "task_run",
    f"POST {RUN}/continue": "task_run",
    f"POST {RUN}/retry-from-turn": "task_run",
    f"GET {RUN}/events": "list",
    f"POST {RUN}/events": "task_run_event",
    f"GET {RUN}/stream": "",
    f"GET {RUN}/steps": "task_steps",
    f"GET {RUN}/steps/{{step_id}}": "task_step",
    f"GET {RUN}/artifacts": "list",
    f"GET {RUN}/artifacts/{{artifact_id}}": "task_artifact",
    f"GET {TASK}/artifacts": "list",
    f"GET {RUN}/patches": "task_patches",
    f"GET {RUN}/patches/{{artifact_id}}": "task_patch",
    f"POST {RUN}/patches/{{artifact_id}}/apply": "task_patch",
    f"POST {RUN}/patches/{{artifact_id}}/revert": "task_patch",
    f"GET {TASK}/approvals": "task_approvals",
    f"GET {TASK}/approvals/{{approval_id}}": "task_approval",
    f"POST {TASK}/approvals/{{approval_id}}/resolve": "task_approval",
    "GET /hecate/v1/events": "events",
    "GET /hecate/v1/events/stream": "",
    "GET /hecate/v1/system/stats": "runtime_stats",
    "GET /hecate/v1/system/retention/runs": "retention_runs",
    "POST /hecate/v1/system/retention/run": "retention_run",
    "GET /healthz": "",
}
"""The `object` that each answers with; empty for a stream, no body, or a bare object.

Lists of artifacts are those of the artifacts' own protocol, which has pages.
"""
OURS = {
    f"{route.method} {route.path}": route for surface in published() for route in surface.routes
}


@pytest.mark.parametrize("row", ROWS)
def test_the_table_has_the_row_and_answers_with_its_object(row: str) -> None:
    route = OURS[row]
    told = getattr(route.reply, "__struct_config__", None)
    assert (told.tag if told is not None and told.tag else "") == ROWS[row]
