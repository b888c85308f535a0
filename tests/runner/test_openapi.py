"""Every operation of a hosted runner's OpenAPI document, fuzzed against a real runner.

Whatever a client sends, the answer is one that the document names, with the content that it
describes; and it is never a 5xx. Half of the requests name the session and a connection to it.
"""

# The types of schemathesis are not complete.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportArgumentType=false

from collections.abc import Iterator
from typing import Any

import pytest
import requests
from hypothesis import strategies as st
from schemathesis import Case

from batten.serve.http.openapi import openapi
from batten.serve.http.published import published_runner
from batten.serve.http.runner.surface import ABOUT
from tests.agent.stage import Stage
from tests.examples import examples
from tests.runner.remote import KEY, PATIENCE_S, WELL_KNOWN, RunnerProcess
from tests.runner.test_http import CONNECTIONS, HERE, NAMED, start
from tests.serve.http.fuzzing import (
    CHECKED,
    LENGTH,
    Operation,
    drawn,
    fuzz,
    name_known,
    operations_of,
)

OPERATIONS = operations_of(openapi(published_runner(), "1", ABOUT))
DRAIN = f"POST {WELL_KNOWN}/drain"


class Running:
    """A runner whose session is always there, with a connection and a subscription."""

    def __init__(self, runner: RunnerProcess, session: requests.Session) -> None:
        self.runner = runner
        self.url = f"http://127.0.0.1:{runner.port}"
        self.session = session
        session.headers["Authorization"] = f"Bearer {KEY}"
        self.connection_id = ""
        self.subscription_id = ""

    def known(self) -> dict[str, str]:
        """Headers of a connection; after a shutdown or a disconnect, of another one."""
        named = {"connectionId": self.connection_id}
        if self.runner.post(f"{HERE}/heartbeat", named).status != 200:
            self._connect()
        return {
            "x-maestro-headless-connection-id": self.connection_id,
            "x-maestro-headless-subscriber-id": self.subscription_id,
        }

    def _connect(self) -> None:
        asked = {"sessionId": NAMED, "takeControl": True, "approvalMode": "auto"}
        connected = self.runner.post(CONNECTIONS, asked)
        assert connected.status == 200, connected.body
        self.connection_id = connected.json["connection_id"]
        subscribed = self.runner.post(f"{HERE}/subscribe", {"connectionId": self.connection_id})
        assert subscribed.status == 200, subscribed.body
        self.subscription_id = subscribed.json["subscription_id"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from _started(tmp_path_factory)


@pytest.fixture(scope="module")
def drained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Another one: whoever drains it, nobody can attach afterwards."""
    yield from _started(tmp_path_factory)


def _started(factory: pytest.TempPathFactory) -> Iterator[Running]:
    most = {"BATTEN_RUNNER_MAX_CONNECTIONS": "20000", "BATTEN_RUNNER_MAX_SUBSCRIPTIONS": "20000"}
    runner = start(Stage(factory.mktemp("runner")), env=most)
    try:
        with requests.Session() as session:
            yield Running(runner, session)
    finally:
        runner.end()


def check(running: Running, operation: Operation, data: st.DataObject) -> None:
    """One generated request and its answer."""
    case = drawn(operation, data)
    headers = dict(case.headers or {})
    if operation.label.endswith("/events"):
        _check_stream(running, case, data)
        return
    if operation.label != DRAIN and data.draw(st.booleans()):
        known = running.known()
        name_known(case, {"session_id": NAMED})
        headers.pop("x-maestro-headless-role", None)
        taken = {one.name for one in operation.headers}
        headers |= {name: value for name, value in known.items() if name in taken}
        if isinstance(case.body, dict):
            case.body = _reaching(case.body, running)
    response = case.call(
        base_url=running.url, session=running.session, headers=headers, timeout=PATIENCE_S
    )
    case.validate_response(response, checks=CHECKED)


def _reaching(body: dict[str, Any], running: Running) -> dict[str, Any]:
    """A body that names the session and what is known of it, where it names anything."""
    if "type" in body:  # a message
        return body
    others = {"workspaceRoot", "enableClientTools", "connectionId", "role", "capabilities"}
    kept = {name: value for name, value in body.items() if name not in others}
    known = {"sessionId": NAMED, "takeControl": True, "subscriptionId": running.subscription_id}
    return {**kept, **known}


def _check_stream(running: Running, case: Case[Any], data: st.DataObject) -> None:
    """A stream of the session: only its beginning, which is there at once if it has one."""
    known = running.known()
    headers = dict(case.headers or {})
    if data.draw(st.booleans()):
        name_known(case, {"session_id": NAMED})
        if data.draw(st.booleans()):
            headers |= known
    sent = case.as_transport_kwargs(base_url=running.url, headers=headers)
    with running.session.request(**sent, timeout=PATIENCE_S, stream=True) as response:
        if response.status_code == 200:
            assert response.headers["content-type"] == "text/event-stream"
        else:
            case.validate_response(response, checks=CHECKED)


def fuzzed(running: Running, label: str, count: int, **more: Any) -> None:
    fuzz(count, lambda data: check(running, OPERATIONS[label], data), **more)
    health = requests.get(f"{running.url}/healthz", timeout=PATIENCE_S)
    assert health.status_code == 200


@pytest.mark.parametrize("label", [label for label in OPERATIONS if label != DRAIN])
def test_every_answer_is_as_documented(running: Running, label: str) -> None:
    fuzzed(running, label, examples(40), derandomize=True)


def test_every_answer_to_a_drain_is_as_documented(drained: Running) -> None:
    drained.known()
    fuzzed(drained, DRAIN, examples(40), derandomize=True)


@pytest.mark.soak
@pytest.mark.parametrize("label", [label for label in OPERATIONS if label != DRAIN])
def test_every_answer_is_as_documented_at_length(running: Running, label: str) -> None:
    fuzzed(running, label, LENGTH)


@pytest.mark.soak
def test_every_answer_to_a_drain_is_as_documented_at_length(drained: Running) -> None:
    fuzzed(drained, DRAIN, LENGTH)
