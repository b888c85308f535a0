"""Every operation of the OpenAPI document, fuzzed against a real service.

Whatever a client sends, the answer is one that the document names, with the content that it
describes; and it is never a 5xx. Half of the requests name things that exist.
"""

# The types of schemathesis are not complete.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import requests
from hypothesis import strategies as st
from schemathesis import Case

from batten.contract.ids import to_uuid
from batten.serve.http.openapi import openapi
from batten.serve.http.published import published
from tests.agent.stage import Stage, bash, call, end, say
from tests.conftest import Tell
from tests.examples import examples
from tests.ports import free_port
from tests.serve.http.fuzzing import (
    CHECKED,
    LENGTH,
    Operation,
    drawn,
    fuzz,
    name_known,
    operations_of,
)

PATIENCE_S = 60
OPERATIONS = operations_of(openapi(published(), "1"))
ENDLESS = "GET /hecate/v1/events/stream"


class Running:
    """A service with tasks in every state."""

    def __init__(self, stage: Stage, url: str, session: requests.Session) -> None:
        self.stage = stage
        self.url = url
        self.session = session
        self.known: list[dict[str, str]] = []
        self.answers: Counter[int] = Counter()
        """How many fuzzed requests were answered with which status."""

    def send(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.session.request(
            method, f"{self.url}/hecate/v1{path}", json=body, timeout=PATIENCE_S
        )
        assert answer.ok, answer.text
        return answer.json()["data"]

    def task(self, model: str) -> str:
        asked = {
            "prompt": "go",
            "workspace_mode": "in_place",
            "working_directory": str(self.stage.workspace),
            "requested_model": model,
        }
        return str(self.send("POST", "/tasks", asked)["id"])

    def started(self, model: str, until: str) -> dict[str, str]:
        """A run that has reached an event of this type, with the ids of its things."""
        task_id = self.task(model)
        run_id = self.send("POST", f"/tasks/{task_id}/start")["id"]
        run = f"/tasks/{task_id}/runs/{run_id}"
        after = -1
        while True:
            page = self.send("GET", f"{run}/events?limit=500&wait=20&after_sequence={after}")
            if any(event["type"] == until for event in page):
                break
            after = page[-1]["sequence"] if page else after
        found = {"task_id": task_id, "run_id": run_id, "id": to_uuid(run_id)}
        found["step_id"] = self.send("GET", f"{run}/steps")[0]["id"]
        if approvals := self.send("GET", f"/tasks/{task_id}/approvals"):
            found["approval_id"] = approvals[0]["id"]
        if artifacts := self.send("GET", f"{run}/artifacts"):
            found["artifact_id"] = artifacts[0]["id"]
        return found

    def seed(self) -> None:
        talk = self.stage.scenario([say("Hello."), end()], name="talk")
        ask = self.stage.scenario([bash("echo hi")], [say("Done."), end()], name="ask")
        write = self.stage.scenario(
            [call("write_file", path="a.txt", content="one\n")], [say("Done."), end()], name="write"
        )
        self.known = [
            self.started(talk, "run.finished"),
            self.started(ask, "approval.requested"),
            self.started(write, "approval.requested"),
            {"task_id": self.task(talk)},
        ]
        run_id = self.known[0]["run_id"]
        body = {"kind": "image", "run_id": run_id, "body_base64": "aGVsbG8=", "mime_type": "a/b"}
        self.known[0]["artifact_id"] = str(self.send("POST", "/artifacts", body)["id"])

    def until_the_runtime_answers(self) -> None:
        end = time.monotonic() + PATIENCE_S
        while not self.session.get(f"{self.url}/runtime/health", timeout=PATIENCE_S).json()["ok"]:
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    stage = Stage(tmp_path_factory.mktemp("service"), {"THROTTLE_LIMIT": "0"})
    command = (sys.executable, "-m", "batten", "serve", "--port", "0", "--workers", "1")
    bind = ("--runtime-bind", f"127.0.0.1:{free_port()}")
    with (stage.directory / "serve.err").open("wb") as errors:
        process = subprocess.Popen(
            (*command, *bind, "--sandbox", "none"),
            env=stage.environ,
            cwd=stage.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    with process, requests.Session() as session:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().removeprefix("listening on ").strip()
            service = Running(stage, url, session)
            service.seed()
            service.until_the_runtime_answers()
            yield service
        finally:
            process.terminate()


def check(running: Running, operation: Operation, data: st.DataObject) -> None:
    """One generated request and its answer."""
    case = drawn(operation, data)
    if data.draw(st.booleans()):
        name_known(case, data.draw(st.sampled_from(running.known)))
    if isinstance(wait := dict(case.query or {}).get("wait"), int | float) and wait > 0:
        case.query["wait"] = min(wait, 0.1) if wait <= 60 else wait
    if operation.label == ENDLESS:
        _check_endless(running, case)
        return
    # A list, or a stream that ends: those of runs that wait never do.
    headers = {"Accept": "application/json", **dict(case.headers or {})}
    if operation.label.endswith("/stream"):
        ids = {one.get(name) for one in running.known[1:] for name in ("run_id", "id")} - {None}
        if any(value in ids for value in (case.path_parameters or {}).values()):
            return
    response = case.call(
        base_url=running.url, session=running.session, headers=headers, timeout=PATIENCE_S
    )
    running.answers[response.status_code] += 1
    case.validate_response(response, checks=CHECKED)


def _check_endless(running: Running, case: Case[Any]) -> None:
    """The stream of all runs: only its beginning."""
    sent = case.as_transport_kwargs(base_url=running.url)
    with running.session.request(**sent, timeout=PATIENCE_S, stream=True) as response:
        running.answers[response.status_code] += 1
        if response.status_code == 200:
            assert response.headers["content-type"] == "text/event-stream"
            assert next(response.iter_content(6)) == b": ok\n\n"
        else:
            case.validate_response(response, checks=CHECKED)


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_documented(running: Running, label: str) -> None:
    fuzz(examples(40), lambda data: check(running, OPERATIONS[label], data), derandomize=True)
    assert requests.get(f"{running.url}/healthz", timeout=PATIENCE_S).status_code == 200


@pytest.mark.parametrize("name", ["events", "stream"])
def test_the_stream_of_a_run_is_as_documented(running: Running, name: str) -> None:
    operation = OPERATIONS[f"GET /hecate/v1/tasks/{{task_id}}/runs/{{run_id}}/{name}"]
    model = running.stage.scenario([say("Hello."), end()], name="streamed")
    known = running.started(model, "run.finished")
    ids = {one: known[one] for one in ("task_id", "run_id")}
    case: Case[Any] = operation.Case(path_parameters=ids)
    headers = {"Accept": "text/event-stream"}
    response = case.call(
        base_url=running.url, session=running.session, headers=headers, timeout=PATIENCE_S
    )
    assert response.headers["content-type"] == ["text/event-stream"]
    assert b"\ndata: " in response.content
    case.validate_response(response, checks=CHECKED)


@pytest.mark.parametrize("format_", ["json", "jsonl"])
def test_an_export_of_either_format_is_as_documented(running: Running, format_: str) -> None:
    model = running.stage.scenario([say("Hello."), end()], name="exported")
    known = running.started(model, "run.finished")
    case: Case[Any] = OPERATIONS["GET /runs/{id}/export"].Case(
        path_parameters={"id": known["id"]}, query={"format": format_}
    )
    response = case.call(base_url=running.url, session=running.session, timeout=PATIENCE_S)
    assert response.status_code == 200
    case.validate_response(response, checks=CHECKED)


@pytest.mark.soak
def test_every_answer_is_as_documented_at_length(running: Running, tell: Tell) -> None:
    rounds = 0
    try:
        for _ in range(LENGTH // 25):
            running.seed()  # the last round may have deleted what there was
            rounds += 1
            for operation in OPERATIONS.values():
                fuzz(25, partial(check, running, operation))
    finally:
        told = {str(status): count for status, count in sorted(running.answers.items())}
        tell(operations=len(OPERATIONS), rounds=rounds, answers=running.answers.total(), **told)
