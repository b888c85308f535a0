"""Every operation of the OpenAPI document, fuzzed against a real service.

Whatever a client sends, the answer is one that the document names, with the content that it
describes; and it is never a 5xx. Half of the requests name things that exist.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import (
    CHECKS,
    load_all_checks,
)
from schemathesis.core.result import Ok

from batten.serve.http.openapi import openapi
from batten.serve.http.published import published
from tests.agent.stage import Stage, bash, call, end, say

PATIENCE_S = 60
DOCUMENT = openapi(published(), "1")
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS: dict[str, APIOperation[Any, Any, Any, Any]] = {
    found.ok().label: found.ok() for found in SCHEMA.get_all_operations() if isinstance(found, Ok)
}
ENDLESS = "GET /hecate/v1/events/stream"
load_all_checks()
CHECKED: list[Any] = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
    )
]


class Running:
    """A service with tasks in every state."""

    def __init__(self, stage: Stage, url: str, session: requests.Session) -> None:
        self.stage = stage
        self.url = url
        self.session = session
        self.known: list[dict[str, str]] = []

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
        found = {"task_id": task_id, "run_id": run_id}
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


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    stage = Stage(tmp_path_factory.mktemp("service"))
    command = (sys.executable, "-m", "batten", "serve", "--port", "0", "--workers", "1")
    with (stage.directory / "serve.err").open("wb") as errors:
        process = subprocess.Popen(
            (*command, "--sandbox", "none"),
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
            yield service
        finally:
            process.terminate()


def check(
    running: Running, operation: APIOperation[Any, Any, Any, Any], data: st.DataObject
) -> None:
    """One generated request and its answer."""
    mode = data.draw(st.sampled_from(list(GenerationMode)))
    case: Case[Any] = data.draw(operation.as_strategy(generation_mode=mode))
    if data.draw(st.booleans()):
        known = data.draw(st.sampled_from(running.known))
        case.path_parameters = {**(case.path_parameters or {}), **_of(case, known)}
    if isinstance(wait := dict(case.query or {}).get("wait"), int | float) and wait > 0:
        case.query["wait"] = min(wait, 0.1) if wait <= 60 else wait
    if operation.label == ENDLESS:
        _check_endless(running, case)
        return
    # A list, or a stream that ends: those of runs that wait never do.
    headers = {"Accept": "application/json", **dict(case.headers or {})}
    if operation.label.endswith("/stream"):
        waiting = {one["run_id"] for one in running.known[1:] if "run_id" in one}
        if (case.path_parameters or {}).get("run_id") in waiting:
            return
    response = case.call(
        base_url=running.url, session=running.session, headers=headers, timeout=PATIENCE_S
    )
    case.validate_response(response, checks=CHECKED)


def _of(case: Case[Any], known: dict[str, str]) -> dict[str, str]:
    names = case.operation.path_parameters
    return {one.name: known[one.name] for one in names if one.name in known}


def _check_endless(running: Running, case: Case[Any]) -> None:
    """The stream of all runs: only its beginning."""
    sent = case.as_transport_kwargs(base_url=running.url)
    with running.session.request(**sent, timeout=PATIENCE_S, stream=True) as response:
        if response.status_code == 200:
            assert response.headers["content-type"] == "text/event-stream"
            assert next(response.iter_content(6)) == b": ok\n\n"
        else:
            case.validate_response(response, checks=CHECKED)


def _settings(count: int, **more: Any) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        **more,
    )


@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_documented(running: Running, label: str) -> None:
    @_settings(40, derandomize=True)
    @given(data=st.data())
    def fuzz(data: st.DataObject) -> None:
        check(running, OPERATIONS[label], data)

    fuzz()
    assert requests.get(f"{running.url}/healthz", timeout=PATIENCE_S).status_code == 200


@pytest.mark.soak
@pytest.mark.parametrize("label", OPERATIONS)
def test_every_answer_is_as_documented_at_length(running: Running, label: str) -> None:
    @_settings(int(os.environ.get("BATTEN_FUZZ", "600")))
    @given(data=st.data())
    def fuzz(data: st.DataObject) -> None:
        check(running, OPERATIONS[label], data)

    fuzz()
