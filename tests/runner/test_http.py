"""The routes of a hosted runner: who may call, what is refused, and what a session is made of."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.protocols.maestro.hosted import ConnectionSnapshot
from batten.runner.session_file import journal_id
from tests.agent.stage import Stage, bash, call, end, say
from tests.maestro.asking import LOOKUP
from tests.maestro.attending import json_of, valid
from tests.maestro.schemas import Json
from tests.runner.remote import (
    KEY,
    PATIENCE_S,
    WELL_KNOWN,
    Answer,
    NotStarted,
    RunnerProcess,
    envelope_of,
)

CONNECTIONS = "/api/headless/connections"
SESSIONS = "/api/headless/sessions"
NAMED = "session_123"
HERE = f"{SESSIONS}/{NAMED}"
DONE = [say("Done."), end()]
PREFIX = "type.googleapis.com/google.rpc.ErrorInfo"


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def start(stage: Stage, *flags: str, model: str = "", **more: Any) -> RunnerProcess:
    """A runner for one named session that allows everything."""
    return RunnerProcess.start(
        stage,
        *("--runner-session-id", "mrs_1", "--owner-instance-id", "pod_1"),
        *("--workspace-root", str(stage.workspace), "--sandbox", "none"),
        *("--maestro-session-id", NAMED, "--model", model or stage.scenario(DONE, DONE)),
        *flags,
        **more,
    )


@pytest.fixture
def runner(stage: Stage) -> Iterator[RunnerProcess]:
    running = start(stage)
    try:
        yield running
    finally:
        running.end()


def refused(answer: Answer, status: int, error_type: str, code: str) -> Json:
    told: Json = answer.json
    assert (answer.status, told["error_type"], told["code"]) == (status, error_type, code), told
    assert told["error"]
    assert told["request_id"] == answer.headers["x-request-id"]
    return told


def connected(runner: RunnerProcess, **body: Any) -> Json:
    answer = runner.post(CONNECTIONS, body)
    assert answer.status == 200, answer.body
    told: Json = answer.json
    valid("Snapshot", told["snapshot"])
    assert json_of(answer.read(ConnectionSnapshot)) == told
    return told


def heard(runner: RunnerProcess, path: str, until: str, **headers: str) -> list[Json]:
    """The envelopes of a stream up to a message of this type, or a snapshot of this status."""

    async def read() -> list[Json]:
        frames = runner.stream(path, headers)
        assert frames.status == 200, frames.answer().body
        found: list[Json] = []
        try:
            async with asyncio.timeout(PATIENCE_S):
                while (data := await frames.next()) is not None:
                    found.append(msgspec.json.decode(data))
                    envelope_of(data)
                    message = found[-1].get("message", {})
                    state = found[-1].get("snapshot", {}).get("state", {})
                    if until in (message.get("type"), state.get("last_status")):
                        return found
        finally:
            frames.close()
        raise AssertionError(f"the stream ended before {until}")

    return asyncio.run(read())


def first(runner: RunnerProcess, path: str) -> Json:
    """The first envelope of a stream."""

    async def read() -> Json:
        frames = runner.stream(path)
        assert frames.headers["content-type"] == "text/event-stream"
        assert frames.headers["cache-control"] == "no-cache"
        async with asyncio.timeout(PATIENCE_S):
            data = await frames.next()
        frames.close()
        assert data is not None
        found: Json = msgspec.json.decode(data)
        return found

    return asyncio.run(read())


def prompted(runner: RunnerProcess, connection_id: str, text: str = "go") -> list[Json]:
    before = runner.ask("GET", f"{HERE}/state").json["cursor"]
    sent = runner.post(
        f"{HERE}/messages", {"type": "prompt", "content": text}, connection_id=connection_id
    )
    assert sent.status == 200, sent.body
    return heard(runner, f"{HERE}/events?cursor={before}", "response_end")


def test_who_it_is_is_told_to_everybody_and_nothing_else_is(runner: RunnerProcess) -> None:
    answer = runner.ask("GET", f"{WELL_KNOWN}/identity", key=None)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.json == {
        "protocol_version": "evalops.remote-runner.identity.v1",
        "runner_session_id": "mrs_1",
        "owner_instance_id": "pod_1",
        "ready": True,
        "draining": False,
    }
    for path in ("/healthz", "/readyz"):
        assert runner.ask("GET", path, key=None).json == {"ok": True}


def test_without_an_owner_there_is_no_identity(stage: Stage) -> None:
    runner = start(stage, "--owner-instance-id", " ")
    try:
        told = refused(runner.ask("GET", f"{WELL_KNOWN}/identity"), 404, "not_found", "NOT_FOUND")
        assert told["error"] == "hosted runner identity unavailable"
    finally:
        runner.end()


def test_a_workspace_that_is_gone_makes_it_unready(stage: Stage, runner: RunnerProcess) -> None:
    stage.workspace.rename(stage.directory / "elsewhere")
    told = runner.ask("GET", f"{WELL_KNOWN}/identity").json
    assert (told["ready"], told["draining"], told["runner_session_id"]) == (False, False, "mrs_1")
    refused(runner.ask("GET", "/readyz"), 503, "runtime_not_ready", "UNAVAILABLE")
    refused(runner.post(CONNECTIONS), 503, "runtime_not_ready", "UNAVAILABLE")
    refused(runner.post(f"{WELL_KNOWN}/drain"), 503, "runtime_not_ready", "UNAVAILABLE")
    (stage.directory / "elsewhere").rename(stage.workspace)


@pytest.mark.parametrize("header", ["x-maestro-api-key", "x-composer-api-key", "x-api-key"])
def test_the_api_wants_the_key(runner: RunnerProcess, header: str) -> None:
    for headers in ({}, {"Authorization": f"Basic {KEY}"}, {header: KEY + "x"}, {header: ""}):
        answer = runner.ask("POST", CONNECTIONS, {}, headers, key=None)
        refused(answer, 401, "unauthenticated", "UNAUTHENTICATED")
        assert answer.headers["www-authenticate"] == "Bearer"
    refused(runner.ask("GET", HERE, key="other"), 401, "unauthenticated", "UNAUTHENTICATED")
    assert runner.session_processes() == []
    assert runner.ask("POST", CONNECTIONS, {}, {header: KEY}, key=None).status == 200


def test_a_key_is_not_wanted_if_that_was_said(stage: Stage) -> None:
    runner = start(stage, env={"MAESTRO_WEB_REQUIRE_KEY": "0", "MAESTRO_WEB_API_KEY": ""})
    try:
        assert runner.ask("POST", CONNECTIONS, {}, key=None).status == 200
    finally:
        runner.end()


@pytest.mark.parametrize(
    ("flags", "env", "problem"),
    [
        (("--runner-session-id", ""), {}, "--runner-session-id is missing"),
        (("--workspace-root", "/nowhere"), {}, "is not a directory"),
        ((), {"MAESTRO_WEB_API_KEY": ""}, "callers need a key"),
        (("positional",), {}, "positional"),
        (("--no-save",), {}, "--no-save"),
        (("--listen", "127.0.0.1:99999"), {}, "1 to 65535"),
        (("--restore-manifest", "gone.json"), {}, "cannot be read"),
        (("--settings", "{"), {}, "--settings is not JSON"),
        (("--fallback-model", "nobody/nothing"), {}, "no model 'nobody/nothing'"),
        ((), {"MAESTRO_HEADLESS_MAX_TEXT_CHARS": "many"}, "a whole number above 0"),
        ((), {"MAESTRO_HEADLESS_SUBSCRIBER_QUEUE": "0"}, "a whole number above 0"),
    ],
)
def test_what_is_wrong_at_the_start_is_told_and_nothing_listens(
    stage: Stage, flags: tuple[str, ...], env: dict[str, str], problem: str
) -> None:
    with pytest.raises(NotStarted) as raised:
        start(stage, *flags, env=env)
    assert raised.value.code == 1
    assert problem in raised.value.errors


@pytest.mark.parametrize(
    ("model", "problem"),
    [("nobody/nothing", "no model 'nobody/nothing'"), (f"scripted/{__file__}", "expected object")],
)
def test_a_model_that_cannot_be_used_is_told_before_anything_listens(
    stage: Stage, model: str, problem: str
) -> None:
    with pytest.raises(NotStarted) as raised:
        start(stage, model=model)
    assert raised.value.code == 1
    (line,) = raised.value.errors.splitlines()
    assert problem in line


def test_a_session_has_the_id_it_was_given_and_what_was_asked_for(
    stage: Stage, runner: RunnerProcess
) -> None:
    other = stage.scenario(DONE, name="other")
    body = {
        "sessionId": NAMED,
        "protocolVersion": "2026-04-02",
        "clientInfo": {"name": "cp", "version": "1"},
        "workspaceRoot": str(stage.workspace),
        "model": other,
        "enableClientTools": True,
        "capabilities": {
            "serverRequests": ["client_tool"],
            "utilityOperations": ["file_read"],
            "rawAgentEvents": None,
        },
        "optOutNotifications": ["heartbeat"],
        "role": "controller",
        "client": "vscode",
        "thinkingLevel": "low",
        "approvalMode": "auto",
        "new": "fields are taken",
        "takeControl": None,
        "connectionId": None,
    }
    answer = runner.post(SESSIONS, body)
    snapshot = valid("Snapshot", answer.json)
    state = snapshot["state"]
    assert (snapshot["session_id"], snapshot["last_init"]) == (NAMED, None)
    assert (state["session_id"], state["cwd"]) == (NAMED, str(stage.workspace))
    assert (state["provider"], state["model"]) == ("scripted", other.partition("/")[2])
    assert state["client_info"] == {"name": "cp", "version": "1"}
    assert state["capabilities"]["server_requests"] == ["client_tool"]
    assert state["opt_out_notifications"] == ["heartbeat"]
    (connection,) = state["connections"]
    assert connection["controller_lease_granted"]
    assert runner.ask("GET", HERE).json == runner.ask("GET", f"{HERE}/state").json
    said = [one["message"] for one in heard(runner, f"{HERE}/events?cursor=0", "session_info")]
    assert [one["type"] for one in said] == ["ready", "session_info"]
    # The bootstrap: who has just connected may leave out its connection.
    subscribed = runner.post(f"{HERE}/subscribe", {"role": "controller"}).json
    assert subscribed["connection_id"] == connection["connection_id"]
    assert valid("SubscriptionSnapshot", subscribed)["controller_lease_granted"]
    beat = runner.post(f"{HERE}/heartbeat", {"connectionId": connection["connection_id"]}).json
    assert valid("HeartbeatSnapshot", beat)["controller_lease_granted"]
    assert runner.post(SESSIONS, {"sessionId": NAMED}).json["state"]["connection_count"] == 1


async def test_the_journal_has_it_under_an_id_that_follows_from_the_name(
    stage: Stage, runner: RunnerProcess
) -> None:
    connection = connected(runner)
    await asyncio.to_thread(prompted, runner, connection["connection_id"])
    runner.end()
    journal = stage.journal()
    (run,) = await journal.runs(session_id=journal_id(NAMED))
    assert run.outcome == "completed"
    journal.close()
    again = start(stage)
    try:  # on the same home it goes on without a manifest
        connection = connected(again)
        said = await asyncio.to_thread(prompted, again, connection["connection_id"])
        assert said[-1]["message"]["type"] == "response_end"
    finally:
        again.end()
    journal = stage.journal()
    assert len(await journal.runs(session_id=journal_id(NAMED))) == 2
    journal.close()


def test_a_client_tool_goes_to_who_lent_it(stage: Stage) -> None:
    runner = start(stage, model=stage.scenario([call("lookup", "c1", key="k")], DONE))
    try:
        capable = {"serverRequests": ["client_tool"]}
        connection = connected(runner, enableClientTools=True, capabilities=capable)
        by = {"connection_id": connection["connection_id"]}
        messages = f"{HERE}/messages"
        init = {"type": "init", "client_tools": [LOOKUP]}
        assert runner.post(messages, init, **by).status == 200
        assert runner.post(messages, {"type": "prompt", "content": "go"}, **by).status == 200
        asked = heard(runner, f"{HERE}/events?cursor=0", "client_tool_request")[-1]["message"]
        answer = {
            "type": "client_tool_result",
            "call_id": asked["call_id"],
            "content": [{"type": "text", "text": "found"}],
            "is_error": False,
        }
        assert runner.post(messages, answer, **by).status == 200
        heard(runner, f"{HERE}/events?cursor=0", "response_end")
    finally:
        runner.end()


def test_a_wrong_request_makes_no_session(stage: Stage, runner: RunnerProcess) -> None:
    elsewhere = str(stage.directory)
    viewer = {"role": "viewer"}
    tools = {"serverRequests": ["client_tool"]}
    for path in (SESSIONS, CONNECTIONS):
        for body in (
            b"{",
            b"[]",
            b'{"role":"owner"}',
            b'{"client":"emacs"}',
            {"workspaceRoot": "/nowhere"},
            {"enableClientTools": True},
            {"enableClientTools": True, "capabilities": tools, **viewer},
        ):
            refused(runner.ask("POST", path, body), 400, "bad_request", "INVALID_ARGUMENT")
        answer = runner.post(path, {"workspaceRoot": elsewhere})
        refused(answer, 409, "conflict", "ALREADY_EXISTS")
        large = b'{"model":"%b"}' % (b"x" * 1_000_000)
        told = refused(runner.ask("POST", path, large), 413, "request_too_large", "UNKNOWN")
        assert told["error"].startswith("Payload too large: ")
        mode = {"x-maestro-approval-mode": "yolo"}
        refused(runner.ask("POST", path, {}, mode), 400, "bad_request", "INVALID_ARGUMENT")
        for kind in ("user_input", "mcp_elicitation"):
            watching = {**viewer, "capabilities": {"serverRequests": [kind]}}
            refused(runner.post(path, watching), 400, "bad_request", "INVALID_ARGUMENT")
    assert runner.session_processes() == []


def test_a_model_that_is_not_there_is_told_and_another_can_be_asked_for(
    stage: Stage, runner: RunnerProcess
) -> None:
    answer = runner.post(CONNECTIONS, {"model": "scripted/nowhere.json"})
    told = refused(answer, 400, "invalid_config", "INVALID_ARGUMENT")
    assert "nowhere.json" in told["error"]
    connected(runner)


def test_another_session_is_not_served(stage: Stage, runner: RunnerProcess) -> None:
    for _ in range(2):
        for answer in (
            runner.post(SESSIONS, {"sessionId": "other"}),
            runner.ask("GET", f"{SESSIONS}/other/state"),
            runner.post(f"{SESSIONS}/other/subscribe"),
            runner.post(f"{SESSIONS}/other/messages", {"type": "interrupt"}),
        ):
            told = refused(answer, 409, "runtime_owned_elsewhere", "ALREADY_EXISTS")
            (info,) = told["details"]
            assert (info["@type"], info["domain"]) == (PREFIX, "maestro.hosted_runner")
            assert info["reason"] == "runtime_owned_elsewhere"
            assert info["metadata"] == {
                "runner_session_id": "mrs_1",
                "owner_instance_id": "pod_1",
                "maestro_session_id": NAMED,
                "requested_maestro_session_id": "other",
            }
        connected(runner, sessionId=NAMED, role="viewer")
    answer = runner.post(CONNECTIONS, {"role": "viewer"})  # bound, and it names none
    refused(answer, 409, "runtime_owned_elsewhere", "ALREADY_EXISTS")
    late = start(stage)
    try:
        answer = late.post(CONNECTIONS, {"sessionId": NAMED})
        refused(answer, 409, "runtime_owned_elsewhere", "ALREADY_EXISTS")
    finally:
        late.end()


def test_a_runner_that_is_not_bound_makes_a_session_or_finds_one(stage: Stage) -> None:
    runner = start(stage, "--maestro-session-id", "")
    try:
        answer = runner.post(SESSIONS, {"sessionId": "never"})
        assert "Session not found" in refused(answer, 404, "stale_session", "NOT_FOUND")["error"]
        refused(runner.ask("GET", f"{SESSIONS}/never"), 404, "stale_session", "NOT_FOUND")
        # A client that remembers a connection tries again without it: nothing was made for it.
        answer = runner.post(CONNECTIONS, {"connectionId": "conn_before"})
        refused(answer, 404, "stale_connection", "NOT_FOUND")
        first = runner.post(SESSIONS, {}).json
        made = first["session_id"]
        told = refused(
            runner.ask("GET", f"{SESSIONS}/other"), 409, "runtime_owned_elsewhere", "ALREADY_EXISTS"
        )
        assert told["details"][0]["metadata"]["maestro_session_id"] == made
    finally:
        runner.end()
    runner = start(stage, "--maestro-session-id", "")
    try:
        again = runner.post(SESSIONS, {"sessionId": made}).json
        # A cursor of the runner before is not taken for one of this.
        assert again["session_id"] == made
        assert again["cursor"] > first["cursor"] + 1000
    finally:
        runner.end()


def test_paths_that_only_begin_alike_are_nothing(runner: RunnerProcess) -> None:
    for path in (f"{CONNECTIONS}-extra", f"{SESSIONS}x", f"{HERE}/statex", "/api", "/"):
        refused(runner.ask("GET", path), 404, "not_found", "NOT_FOUND")
    assert runner.ask("GET", CONNECTIONS).status == 405


@pytest.mark.parametrize("family", ["maestro", "composer", "evalops"])
@pytest.mark.parametrize("subscription", ["subscriber-id", "subscription-id"])
def test_headers_of_every_spelling_say_who_sends(
    runner: RunnerProcess, family: str, subscription: str
) -> None:
    connection = connected(runner, role="controller")["connection_id"]
    body = {"connectionId": connection}
    subscribed = runner.post(f"{HERE}/subscribe", body).json["subscription_id"]
    name = f"x-{family}-headless"
    init = {"type": "init", "system_prompt": family}
    for headers in ({f"{name}-connection-id": connection}, {f"{name}-{subscription}": subscribed}):
        sent = runner.ask("POST", f"{HERE}/message", init, headers)
        assert (sent.status, sent.json["accepted"], sent.json["success"]) == (200, True, True)
        assert sent.json["cursor"] == runner.ask("GET", HERE).json["cursor"]
    assert runner.ask("GET", HERE).json["last_init"]["system_prompt"] == family
    answer = runner.ask("POST", f"{HERE}/messages", init, {f"{name}-role": "viewer"})
    refused(answer, 403, "access_denied", "PERMISSION_DENIED")
    frames = runner.stream(f"{HERE}/events", {f"{name}-{subscription}": subscribed})
    assert frames.status == 200
    frames.close()


def test_a_message_is_refused_with_the_status_of_its_fault(runner: RunnerProcess) -> None:
    connection = connected(runner, role="controller")["connection_id"]
    viewer = connected(runner, sessionId=NAMED, role="viewer")["connection_id"]
    other = runner.post(f"{HERE}/subscribe", {"role": "viewer"}).json["subscription_id"]
    prompt = {"type": "prompt", "content": "go"}
    messages = f"{HERE}/messages"
    bad = (b"{", b"[]", b"{}", b'{"type":"applaud"}', b'{"type":"prompt"}', b'{"type":1}')
    for body in bad:
        refused(runner.ask("POST", messages, body), 400, "bad_request", "INVALID_ARGUMENT")
    denied = (403, "access_denied", "PERMISSION_DENIED")
    refused(runner.post(messages, prompt, connection_id="conn_nobody"), *denied)
    refused(runner.post(messages, prompt, connection_id=viewer), *denied)
    hello = {"type": "hello", "client_info": {"name": "screen"}}
    cut = b'{"type":"hello","client_info":{"name":"half a character: \\ud83d"}}'
    for greeting in (hello, cut):
        assert runner.post(messages, greeting, connection_id=viewer, role="viewer").status == 200
    answer = runner.post(messages, prompt, connection_id=connection, subscriber_id=other)
    refused(answer, *denied)
    read = {"type": "utility_file_read", "read_id": "r", "path": "notes.md"}
    refused(runner.post(messages, read, connection_id=connection), *denied)
    late = {"type": "tool_response", "call_id": "c9", "approved": True}
    told = refused(runner.post(messages, late, connection_id=connection), *denied)
    assert told["error"] == "No pending approval found for call_id: c9"
    answer = runner.post(messages, prompt, subscriber_id="sub_nobody")
    refused(answer, 404, "stale_connection", "NOT_FOUND")
    refused(runner.post(messages, prompt), 409, "controller_lease_held", "ALREADY_EXISTS")
    extra = {**prompt, "of_tomorrow": True}
    assert runner.post(messages, extra, connection_id=connection).status == 200


def test_connections_are_refused_with_the_status_of_their_fault(runner: RunnerProcess) -> None:
    connection = connected(runner, role="controller")["connection_id"]
    again = connected(runner, sessionId=NAMED, connectionId=connection)
    assert again["connection_id"] == connection
    named = {"sessionId": NAMED}
    held = (409, "controller_lease_held", "ALREADY_EXISTS")
    refused(runner.post(CONNECTIONS, named), *held)
    stale = {"connectionId": "conn_nobody"}
    gone = (404, "stale_connection", "NOT_FOUND")
    refused(runner.post(CONNECTIONS, {**named, **stale}), *gone)
    refused(runner.post(f"{HERE}/heartbeat", stale), *gone)
    refused(runner.post(f"{HERE}/disconnect", stale), *gone)
    refused(runner.post(f"{HERE}/unsubscribe", {"subscriptionId": "sub_nobody"}), *gone)
    wrong = (400, "bad_request", "INVALID_ARGUMENT")
    refused(runner.post(f"{HERE}/subscribe", stale), *wrong)
    refused(runner.post(f"{HERE}/heartbeat"), *wrong)
    viewer = {"connectionId": connection, "role": "viewer"}
    refused(runner.post(CONNECTIONS, {**named, **viewer}), 409, "conflict", "ALREADY_EXISTS")
    refused(runner.post(f"{HERE}/subscribe", viewer), *wrong)
    taken = connected(runner, **named, takeControl=True)
    assert taken["controller_connection_id"] == taken["connection_id"] != connection
    closed = runner.post(f"{HERE}/disconnect", {"connectionId": taken["connection_id"]}).json
    assert closed == {
        "success": True,
        "connection_id": taken["connection_id"],
        "controller_connection_id": None,
        "disconnected_subscription_ids": [],
    }


def test_a_stream_is_refused_before_it_begins(runner: RunnerProcess) -> None:
    connected(runner)
    for query, status in (("subscriptionId=sub_nobody", 404), ("optOutNotifications=noise", 400)):
        assert runner.stream(f"{HERE}/events?{query}").answer().status == status
    # What is no number counts as none: from what is true now.
    assert first(runner, f"{HERE}/events?cursor=soon")["type"] == "snapshot"
    reset = first(runner, f"{HERE}/events?cursor=-1")
    assert (reset["type"], reset["reason"]) == ("reset", "replay_gap")


def test_connections_are_bounded(stage: Stage) -> None:
    env = {"BATTEN_RUNNER_MAX_CONNECTIONS": "3", "BATTEN_RUNNER_MAX_SUBSCRIPTIONS": "2"}
    runner = start(stage, env=env)
    try:
        last = [connected(runner, sessionId=NAMED, role="viewer") for _ in range(3)][-1]
        more = {"sessionId": NAMED, "role": "viewer"}
        too_many = (429, "quota_exceeded", "RESOURCE_EXHAUSTED")
        refused(runner.post(CONNECTIONS, more), *too_many)
        own = {"connectionId": last["connection_id"]}
        for _ in range(2):
            assert runner.post(f"{HERE}/subscribe", own).status == 200
        refused(runner.post(f"{HERE}/subscribe", own), *too_many)
        assert runner.stream(f"{HERE}/events").answer().status == 429
        assert runner.ask("GET", HERE).json["state"]["connection_count"] == 3
        runner.post(f"{HERE}/disconnect", own)
        connected(runner, **more)
    finally:
        runner.end()


def test_an_idle_session_is_closed_and_comes_back(stage: Stage) -> None:
    env = {"MAESTRO_HEADLESS_RUNTIME_IDLE_MS": "300"}
    runner = start(stage, env=env)
    try:
        connection = connected(runner)["connection_id"]
        said = prompted(runner, connection)
        frames = runner.stream(f"{HERE}/events")  # who reads keeps it open
        (process,) = runner.session_processes()
        assert asyncio.run(_ended_within(process, 1.0)) is False
        frames.close()
        assert asyncio.run(_ended_within(process, PATIENCE_S))
        refused(runner.ask("GET", HERE), 404, "stale_session", "NOT_FOUND")
        connection = connected(runner, sessionId=NAMED)["connection_id"]
        again = prompted(runner, connection, "again")
        assert again[-1]["cursor"] > said[-1]["cursor"]  # cursors go on
        reset = first(runner, f"{HERE}/events?cursor=1")
        assert reset["reason"] == "replay_gap"
    finally:
        runner.end()


def test_an_idle_session_is_drained_all_the_same(stage: Stage) -> None:
    runner = start(stage, env={"MAESTRO_HEADLESS_RUNTIME_IDLE_MS": "100"})
    try:
        connection = connected(runner)["connection_id"]
        prompted(runner, connection)
        (process,) = runner.session_processes()
        assert asyncio.run(_ended_within(process, PATIENCE_S))
        drained = runner.post(f"{WELL_KNOWN}/drain").json
        assert drained["manifest"]["runtime"]["flush_status"] == "completed"
        assert Path(drained["manifest"]["runtime"]["session_file"]).is_file()
    finally:
        runner.end()


async def _ended_within(process: int, seconds: float) -> bool:
    """Whether a process ends in time; the kernel tells by its descriptor."""
    try:
        descriptor = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, ended.set)
    try:
        async with asyncio.timeout(seconds):
            await ended.wait()
        return True
    except TimeoutError:
        return False
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


def test_a_request_that_waits_is_answered_over_http(stage: Stage) -> None:
    runner = start(stage, model=stage.scenario([bash("echo ran", "c1")], DONE))
    try:
        connection = connected(runner, capabilities={"serverRequests": ["approval"]})
        by = {"connection_id": connection["connection_id"]}
        runner.post(f"{HERE}/messages", {"type": "prompt", "content": "go"}, **by)
        asked = heard(runner, f"{HERE}/events?cursor=0", "server_request")[-1]["message"]
        busy = runner.post(f"{HERE}/messages", {"type": "prompt", "content": "more"}, **by)
        told = refused(busy, 403, "access_denied", "PERMISSION_DENIED")
        assert told["error"] == "Headless runtime is already processing a prompt"
        answer = {
            "type": "server_request_response",
            "request_id": asked["request_id"],
            "request_type": "user_input",
        }
        told = refused(
            runner.post(f"{HERE}/messages", answer, **by), 403, "access_denied", told["code"]
        )
        assert told["error"] == f"Pending request {asked['request_id']} is approval, not user_input"
        answer |= {"request_type": "approval", "approved": True}
        assert runner.post(f"{HERE}/messages", answer, **by).status == 200
        heard(runner, f"{HERE}/events?cursor=0", "response_end")
    finally:
        runner.end()


def test_approvals_can_be_automatic_from_the_start(stage: Stage) -> None:
    runner = start(stage, model=stage.scenario([bash("echo ran", "c1")], DONE))
    try:
        mode = {"x-composer-approval-mode": "auto"}
        connection = runner.ask("POST", CONNECTIONS, {}, mode).json["connection_id"]
        said = [one.get("message", {}).get("type") for one in prompted(runner, connection)]
        assert "server_request" not in said
        assert "tool_end" in said
    finally:
        runner.end()


def test_after_a_shutdown_the_session_is_gone_and_can_be_made_again(
    runner: RunnerProcess,
) -> None:
    told = connected(runner)
    connection = told["connection_id"]
    answer = runner.post(f"{HERE}/messages", {"type": "shutdown"}, connection_id=connection)
    assert answer.status == 200
    # The last snapshot has a cursor too.
    assert answer.json["cursor"] == told["snapshot"]["cursor"] + 1
    assert answer.json["published_messages"] == 1
    refused(runner.ask("GET", HERE), 404, "stale_session", "NOT_FOUND")
    refused(
        runner.post(f"{HERE}/heartbeat", {"connectionId": connection}),
        404,
        "stale_session",
        "NOT_FOUND",
    )
    connection = connected(runner, sessionId=NAMED)["connection_id"]
    prompted(runner, connection)
