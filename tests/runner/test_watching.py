"""What operators of a hosted runner see: its document, metrics, and a log that names sessions."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from batten import __version__
from batten.serve.http.errors import STATUS
from batten.serve.http.openapi import openapi
from batten.serve.http.published import published_runner
from batten.serve.http.runner.surface import ABOUT
from tests.agent.stage import Stage, bash, end, say
from tests.maestro.schemas import Json
from tests.runner.remote import WELL_KNOWN, RunnerProcess
from tests.runner.test_http import HERE, NAMED, connected, heard, prompted, start

PAGE = Path(__file__).resolve().parents[2] / "docs" / "http.md"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def runner(stage: Stage) -> Iterator[RunnerProcess]:
    running = start(stage)
    try:
        yield running
    finally:
        running.end()


def metrics(runner: RunnerProcess) -> dict[str, float]:
    answer = runner.ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = [line for line in answer.body.decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in samples)}


def logged(runner: RunnerProcess) -> list[Json]:
    """Each line of stderr, after the runner has ended."""
    lines: list[Json] = [
        msgspec.json.decode(line) for line in runner.errors.read_bytes().splitlines()
    ]
    return lines


def test_a_runner_tells_its_routes(runner: RunnerProcess) -> None:
    document = runner.ask("GET", "/docs-json").json
    encoded = msgspec.json.encode(openapi(published_runner(), __version__, ABOUT))
    assert document == msgspec.json.decode(encoded)
    assert document["components"]["securitySchemes"]["key"]["name"] == "x-maestro-api-key"
    messages = document["paths"]["/api/headless/sessions/{session_id}/messages"]["post"]
    assert [one["name"] for one in messages["parameters"]] == [
        *("session_id", "x-maestro-headless-role"),
        *("x-maestro-headless-connection-id", "x-maestro-headless-subscriber-id"),
    ]
    drain = document["paths"][f"{WELL_KNOWN}/drain"]["post"]["responses"]["503"]
    shapes = drain["content"]["application/json"]["schema"]["anyOf"]
    assert [one["$ref"].rpartition("/")[2] for one in shapes] == ["RunnerErrorReply", "Drained"]
    assert b"/api/headless/connections" in runner.ask("GET", "/docs").body
    for path in ("/docs", "/docs-json", "/metrics"):
        assert runner.ask("GET", path, key=None).status == 401


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("invalid_config", 400),
        ("not_found", 404),
        ("stale_session", 404),
        ("stale_connection", 404),
        ("controller_lease_held", 409),
        ("runtime_owned_elsewhere", 409),
        ("runtime_not_ready", 503),
        ("runtime_failed", 500),
        ("internal_error", 500),
    ],
)
def test_a_code_of_the_protocol_has_its_status(code: str, status: int) -> None:
    assert STATUS[code] == status


def test_every_metric_is_documented_and_every_documented_one_is_there(
    runner: RunnerProcess,
) -> None:
    documented = set(re.findall(r"^\| `(batten_[a-z_]+)", PAGE.read_text(), re.MULTILINE))
    text = runner.ask("GET", "/metrics").body.decode()
    assert set(re.findall(r"^# TYPE (batten_[a-z_]+) ", text, re.MULTILINE)) == documented


def test_the_session_and_its_clients_are_measured(stage: Stage) -> None:
    runner = start(stage, model=stage.scenario([bash("echo ran", "c1")], [say("Done."), end()]))
    try:
        found = metrics(runner)
        assert (found["batten_runner_ready"], found["batten_runner_session_open"]) == (1, 0)
        connection = connected(runner, capabilities={"serverRequests": ["approval"]})
        by = {"connection_id": connection["connection_id"]}
        runner.post(f"{HERE}/subscribe", {"connectionId": connection["connection_id"]})
        runner.post(f"{HERE}/messages", {"type": "prompt", "content": "go"}, **by)
        heard(runner, f"{HERE}/events?cursor=0", "server_request")
        found = metrics(runner)
        for name, value in (
            ("session_open", 1),
            ("session_working", 1),
            ("session_opens_total", 1),
            ("pending_requests", 1),
            ("draining", 0),
            ("messages_total", runner.ask("GET", HERE).json["cursor"]),
        ):
            assert found[f"batten_runner_{name}"] == value, name
        # The stream that we have just read counts until the runner sees that it is closed.
        assert found["batten_runner_connections"] in (1, 2)
        assert found["batten_runner_subscriptions"] in (1, 2)
        runner.post(f"{WELL_KNOWN}/drain", {"export_paths": ["/nowhere"]})
        runner.post(f"{WELL_KNOWN}/drain")
        found = metrics(runner)
        assert (found["batten_runner_ready"], found["batten_runner_draining"]) == (0, 1)
        assert found['batten_runner_drains_total{status="drained"}'] == 1
        assert found['batten_runner_drains_total{status="failed"}'] == 0
        assert found["batten_runner_session_open"] == 0
    finally:
        runner.end()


def test_ids_of_clients_make_no_series(runner: RunnerProcess) -> None:
    def ask(number: int) -> None:
        assert runner.ask("GET", f"/api/headless/sessions/other_{number}").status == 409
        assert runner.ask("GET", f"/none/{number}").status == 404

    ask(0)
    metrics(runner)  # counts itself
    before = set(metrics(runner))
    for number in range(1, 20):
        ask(number)
    assert set(metrics(runner)) == before


def test_the_log_is_json_and_names_the_session(stage: Stage) -> None:
    runner = start(stage, env={"BATTEN_SECRET_TOKEN": "sk-ant-0123456789abcdef0123456789"})
    try:
        connection = connected(runner)["connection_id"]
        prompted(runner, connection, "say sk-ant-0123456789abcdef0123456789")
    finally:
        assert runner.end() == 0
    lines = logged(runner)
    assert {line["runner_session_id"] for line in lines} == {"mrs_1"}
    by_message = {line["message"]: line for line in lines}
    assert by_message["the session was opened"]["session_id"] == NAMED
    [sent] = [line for line in lines if str(line.get("path", "")).endswith("/messages")]
    assert (sent["session_id"], sent["status"], sent["principal"]) == (NAMED, 200, "platform")
    assert sent["request_id"].startswith("req_")
    drained = by_message["the runner was drained"]
    assert (drained["session_id"], drained["status"]) == (NAMED, "drained")
    assert Path(drained["manifest_path"]).is_file()
    assert b"sk-ant-0123456789" not in runner.errors.read_bytes()


def test_what_the_session_says_to_people_is_in_the_log(stage: Stage) -> None:
    servers = {"mcpServers": {"gone": {"command": "/nowhere/server"}}}
    (stage.workspace / ".mcp.json").write_bytes(msgspec.json.encode(servers))
    runner = start(stage, "--trust-workspace")
    try:
        connected(runner)
    finally:
        runner.end()
    [told] = [line for line in logged(runner) if "MCP server gone" in line["message"]]
    assert (told["level"], told["runner_session_id"]) == ("warning", "mrs_1")
