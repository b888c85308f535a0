"""What a service sends fits the types that it publishes for web clients."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.stage import bash, call, end, fail, say
from tests.contract.typescript import ROOT, compile_beside_types
from tests.service.serving import Service

RUN = "/tasks/{task_id}/runs/{run_id}"
PATHS = (
    *("/tasks", "/tasks/{task_id}", "/tasks/{task_id}/runs", "/tasks/{task_id}/approvals"),
    *(RUN, f"{RUN}/patches", f"{RUN}/steps", f"{RUN}/artifacts", "/system/stats"),
)
ROWS = ("/batten/v1/runs", "/batten/v1/runs/{run_id}", "/batten/v1/requests")


@pytest.fixture(scope="module")
def flags() -> tuple[str, ...]:
    return ("--allow", "write_file")


def reply_type(path: str) -> str:
    """The name of the type of a successful answer."""
    document = msgspec.json.decode((ROOT / "schemas" / "openapi.json").read_bytes())
    answer = document["paths"][path]["get"]["responses"]["200"]
    reference: str = answer["content"]["application/json"]["schema"]["$ref"]
    return re.sub(r"[^A-Za-z0-9]", "_", reference.rpartition("/")[2])


async def test_answers_and_events_of_a_real_service_compile(
    service: Service, tmp_path: Path
) -> None:
    edit = call("write_file", "c1", path="new.txt", content="one\n")
    good = service.stage.scenario([edit], [bash("echo hi", "c2")], [say("Done."), end()])
    bad = service.stage.scenario([fail("authentication", "no such key")], name="bad")
    run, failed = await service.started(good), await service.started(bad)
    await run.resolve((await run.approval())["id"], "approve")
    await run.ended()
    await failed.ended()

    names: set[str] = set()
    lines: list[str] = []

    def add(type_: str, array: str, value: Any) -> None:
        names.add(type_)
        text = msgspec.json.encode(value).decode()
        lines.append(f"export const value{len(lines)}: {type_}{array} = {text};")

    for one in (run, failed):
        add("KnownEvent", "[]", await one.events())
        for path in (*(f"/hecate/v1{path}" for path in PATHS), *ROWS):
            filled = path.format(task_id=one.task_id, run_id=one.run_id)
            add(reply_type(path), "", (await service.request("GET", filled)).json)
    program = f'import type {{{", ".join(sorted(names))}}} from "./batten";\n' + "\n".join(lines)

    assert compile_beside_types(tmp_path, program) == ""
