"""The event bus on a real NATS server: read back by a consumer, without it, and again with it."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.contract import facts
from batten.contract.errors import ProviderError
from batten.journal.sqlite import SqliteJournal
from batten.sinks.bus.environment import Credentials
from batten.sinks.bus.fixture import publisher_fixture
from batten.sinks.bus.lifecycle import SOURCE, DaemonLifecycle
from batten.sinks.bus.publisher import Publisher
from batten.sinks.bus.transport import BusTransport
from batten.sinks.configuration import BusSettings, event_bus
from batten.sinks.contract import Message
from batten.sinks.running import open_reader
from batten.sinks.store import SinkStore
from tests.agent.stage import Stage, bash, call, end, say
from tests.journal.given import FAILED, FINISHED, new_run
from tests.session.processes import batten
from tests.sinks.events import check_event
from tests.sinks.nats_server import NatsServer, nats_server
from tests.sinks.receiving import settle


@pytest.fixture
def stage(tmp_path: Path, server: NatsServer) -> Stage:
    return Stage(
        tmp_path / "stage",
        {
            "MAESTRO_EVENT_BUS_URL": server.url,
            "MAESTRO_EVALOPS_ORG_ID": "org_1",
            "MAESTRO_USER_ID": "user_1",
            "MAESTRO_EVALOPS_WORKSPACE_ID": "ws_1",
            "MAESTRO_SESSION_ID": "session_1",
            "MAESTRO_AGENT_RUN_ID": "agent_run_1",
            "MAESTRO_EVENT_BUS_ATTR_TASK_ID": "task_1",
            "TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        },
    )


async def play(stage: Stage, *flags: str, **model: Any) -> list[dict[str, Any]]:
    """One run of `batten -p` to its end."""
    named = stage.scenario(
        [call("save_memory", content="Tests need a server.", scope="project")],
        [bash("echo hello")],
        [call("read_file", path="/etc/../etc/hostname-of-nobody")],
        [say("Done."), end()],
        **model,
    )
    ended = await asyncio.to_thread(
        batten, stage, "-p", "go", "--model", named, "--sandbox", "none", "--auto-allow", *flags
    )
    assert ended.returncode == 0, ended.stderr.decode()
    return []


async def test_a_run_is_told_before_its_process_ends_and_every_event_is_valid(
    stage: Stage, server: NatsServer
) -> None:
    await play(stage)
    events = await server.events()
    for one in events:
        check_event(one)
    types = [one["type"].removeprefix("maestro.") for one in events]
    assert types[0] == "sessions.session.started"
    assert types[-1] == "sessions.session.closed"
    assert types.count("events.tool_call.attempted") == 2
    assert types.count("events.tool_call.completed") == 3
    assert "events.context.learned" in types
    assert {one["tenant_id"] for one in events} == {"org_1"}
    correlations = [one["data"]["correlation"] for one in events]
    assert {one["session_id"] for one in correlations} == {"session_1"}
    assert {one["user_id"] for one in correlations} == {"user_1"}
    assert {one["attributes"]["task_id"] for one in correlations} == {"task_1"}
    assert {one["extensions"]["task_id"] for one in events} == {"task_1"}
    assert {one["extensions"]["traceparent"] for one in events} == {stage.environ["TRACEPARENT"]}
    # Its trace is known by it, too.
    assert {one["trace_id"] for one in correlations} == {stage.environ["TRACEPARENT"].split("-")[1]}
    [learned] = [one["data"] for one in events if one["type"].endswith("context.learned")]
    assert learned["statement"] == "Tests need a server."


async def test_a_call_that_is_refused_at_its_bounds_is_told_as_what_it_tried(
    stage: Stage, server: NatsServer
) -> None:
    stage.environ["MAESTRO_AGENT_RUN_STEP_ID"] = "step_1"
    named = stage.scenario(
        [call("read_file", path="/etc/hostname"), call("web_fetch", url="http://127.0.0.1:9/x")],
        [say("Done."), end()],
    )
    flags = ("--model", named, "--sandbox", "none", "--auto-allow")
    ended = await asyncio.to_thread(batten, stage, "-p", "go", *flags)
    assert ended.returncode == 0, ended.stderr.decode()
    events = await server.events()
    for one in events:
        check_event(one)
    told = {one["type"].rpartition(".")[2]: one for one in events}
    violation = told["sandbox_violation"]["data"]
    assert violation["operation"] == "read_file"
    assert violation["resource"] == violation["attempted_path"] == "/etc/hostname"
    assert violation["workspace_root"] == str(stage.workspace)
    assert violation["policy_id"] == "bounds:workspace_violation"
    block = told["firewall_block"]["data"]
    assert (block["operation"], block["target"]) == ("web_fetch", "127.0.0.1")
    assert (block["protocol"], block["port"]) == ("http", 9)
    assert block["rule_id"] == "bounds:address_refused"
    # The launcher's step is that of every event.
    assert {one["extensions"]["agent_run_step_id"] for one in events} == {"step_1"}


async def test_messages_carry_their_ids_so_that_repeats_are_dropped(
    stage: Stage, server: NatsServer
) -> None:
    await play(stage)
    first = await server.messages()
    headers = [one.headers for one in first]
    assert [one["Nats-Msg-Id"] for one in headers] == [
        msgspec.json.decode(one.data)["id"] for one in first
    ]
    # All attributes that a CloudEvent must have, and its time.
    assert {one["ce-specversion"] for one in headers} == {"1.0"}
    for message in first:
        told = msgspec.json.decode(message.data)
        named = {name: message.headers[f"ce-{name}"] for name in ("id", "source", "type", "time")}
        assert named == {name: told[name] for name in named}
    store = SinkStore.open(str(stage.home))
    try:
        with store.writing() as db:
            db.execute("UPDATE sinks SET position = 0")
        journal = SqliteJournal.open(stage.home, read_only=True)
        sink = event_bus(BusSettings(), stage.environ)
        assert sink is not None
        reader = await open_reader(sink, journal, store)
        await settle(reader)  # everything is told a second time
        await reader.aclose()
        journal.close()
    finally:
        store.close()
    assert [one.data for one in await server.messages()] == [one.data for one in first]


async def test_a_server_that_is_away_costs_the_run_nothing_and_is_told_later(
    stage: Stage, server: NatsServer
) -> None:
    await server.stop()
    await play(stage)
    listed = await asyncio.to_thread(batten, stage, "sinks", "list", "--json")
    [row] = [msgspec.json.decode(line) for line in listed.stdout.splitlines()]
    assert row["pending"] > 0
    assert row["delivered"] == 0
    assert row["problem"]
    await server.start()
    await asyncio.to_thread(batten, stage, "sinks", "list")
    await play(stage)  # the next process tells the rest
    events = await server.events()
    started = [one for one in events if one["type"].endswith("session.started")]
    assert len(started) == 2
    assert len({one["id"] for one in events}) == len(events)


async def test_the_switch_suppresses_events_for_good_even_with_an_address(
    stage: Stage, server: NatsServer
) -> None:
    suppressed = Stage(stage.directory, {**stage.environ, "MAESTRO_EVENT_BUS": "0"})
    await play(suppressed)
    assert await server.events() == []
    await play(stage)
    first = await server.events()
    await play(suppressed)
    await play(
        Stage(stage.directory, {**stage.environ, "MAESTRO_INTERNAL_TELEMETRY_DISABLED": "1"})
    )
    await play(stage)  # tells what earlier processes left, and nothing that was suppressed
    events = await server.events()
    assert [one["type"] for one in events] == [one["type"] for one in first] * 2


async def test_an_approval_suspends_and_resumes_the_session_once(
    server: NatsServer, journal: SqliteJournal, store: SinkStore
) -> None:
    environ = {"MAESTRO_EVENT_BUS_URL": server.url}
    run = new_run()
    asked = [
        facts.RunQueued("agent_loop", "m", "p", "/work", "in_place", None),
        facts.RunStarted("w", "2026-01-01T00:00:00.000Z"),
        facts.AssistantToolCallProposed(1, "call_1", "bash", {"command": "ls"}),
        facts.AssistantToolCallProposed(1, "call_2", "bash", {"command": "rm x"}),
        facts.ApprovalRequested("appr_1", "call_1", "bash", "ls?", "ask"),
        facts.ApprovalRequested("appr_2", "call_2", "bash", "rm?", "ask"),
    ]
    lease, _ = await journal.create(run, asked)
    assert lease is not None
    answered = [
        facts.ApprovalResolved("appr_1", "approved", "ann", "fine"),
        facts.PolicyToolDecided("call_1", "bash", "allow", "fine", "resolver:client"),
        facts.ToolInvoked("call_1", "bash", "shell", 1, input={"command": "ls -l"}),
        facts.ToolCompleted("call_1", "bash", "shell", 1234, summary="exit 0", output="x"),
        facts.ApprovalResolved("appr_2", "rejected", "ann", "no"),
        facts.PolicyToolBlocked("call_2", "bash", "no"),
        facts.ToolFailed(
            "call_3", "web_fetch", "web_fetch", 5, error="private", error_kind="address_refused"
        ),
        facts.ToolFailed(
            "call_4", "write", "file_write", 5, error="out", error_kind="workspace_violation"
        ),
        facts.ToolCompleted("call_5", "ask", "mcp", 5, result="tool_error", error="no such row"),
        FINISHED,
    ]
    await journal.append(run.run_id, answered, fence=lease.fence)
    sink = event_bus(BusSettings(), environ)
    assert sink is not None
    store.add(sink.name, 0)
    reader = await open_reader(sink, journal, store)
    await settle(reader)
    await reader.aclose()
    events = await server.events()
    for one in events:
        check_event(one)
    told = [(one["type"].removeprefix("maestro."), one["data"]) for one in events]
    kinds = [kind for kind, _ in told]
    assert kinds == [
        "events.approval_hit",
        "sessions.session.suspended",
        "events.approval_hit",
        "events.approval_hit",
        "events.tool_call.attempted",
        "events.tool_call.completed",
        "events.approval_hit",
        "sessions.session.resumed",
        "events.tool_call.completed",
        "events.tool_call.completed",
        "events.firewall_block",
        "events.tool_call.completed",
        "events.sandbox_violation",
        "events.tool_call.completed",
    ]
    # The verdict that follows from an answer is not a second hit.
    modes = [data["decision_mode"].rpartition("MODE_")[2] for _, data in told if "action" in data]
    assert modes == ["REQUIRE_APPROVAL", "REQUIRE_APPROVAL", "ALLOW", "DENY"]
    assert told[4][1]["safe_arguments"] == {"command_summary": "ls -l"}
    ends = [data for kind, data in told if kind.endswith("tool_call.completed")]
    assert [one["status"].rpartition("STATUS_")[2] for one in ends] == [
        *("SUCCEEDED", "DENIED", "FAILED", "FAILED", "FAILED"),
    ]
    assert (ends[-1]["error_code"], ends[-1]["error_message"]) == ("tool_error", "no such row")
    result = told[5][1]
    assert (result["duration"], result["status"]) == (
        "1.234s",
        "MAESTRO_TOOL_CALL_STATUS_SUCCEEDED",
    )
    assert result["correlation"]["agent_run_step_id"] not in ("call_1", None)


async def test_skills_are_told_when_they_are_read_and_when_the_run_ends(
    server: NatsServer, journal: SqliteJournal, store: SinkStore
) -> None:
    environ = {"MAESTRO_EVENT_BUS_URL": server.url}
    for ending in (FINISHED, FAILED):
        run = new_run()
        happened = [
            facts.RunQueued("agent_loop", "m", "p", "/work", "in_place", None),
            facts.AssistantToolCallProposed(1, "call_1", "skill", {"name": "review"}),
            facts.ToolInvoked("call_1", "skill", "custom", 1),
            facts.ToolCompleted("call_1", "skill", "custom", 1, output="x"),
            ending,
        ]
        await journal.create(run, happened)
    sink = event_bus(BusSettings(), environ)
    assert sink is not None
    store.add(sink.name, 0)
    reader = await open_reader(sink, journal, store)
    await settle(reader)
    await reader.aclose()
    events = await server.events()
    for one in events:
        check_event(one)
    told = [(one["type"], one["data"]) for one in events if ".skill." in one["type"]]
    assert sorted(kind.rpartition(".")[2] for kind, _ in told) == [
        "failed",
        "invoked",
        "invoked",
        "succeeded",
    ]
    assert {data["skill_metadata"]["name"] for _, data in told} == {"review"}
    [failed] = [data for kind, data in told if kind.endswith("failed")]
    assert (failed["turn_status"], failed["status"]) == (
        "error",
        "MAESTRO_SKILL_OUTCOME_STATUS_FAILED",
    )


def test_the_generator_prints_the_fixture(tmp_path: Path) -> None:
    printed = batten(Stage(tmp_path), "smoke", "publisher-fixture")
    assert printed.returncode == 0
    assert msgspec.json.decode(printed.stdout) == publisher_fixture()


async def test_the_fixture_is_read_back_from_a_consumer(server: NatsServer) -> None:
    publisher = Publisher({}, "/", url=server.url)  # strict with an address, although it is off
    fixture = publisher_fixture()
    for one in fixture["events"]:
        await publisher.publish_strictly(one)
    await publisher.aclose()
    read = await server.messages(fixture["event_count"])
    assert [msgspec.json.decode(one.data) for one in read] == fixture["events"]
    assert [one.subject for one in read] == fixture["subjects"]


async def test_a_daemon_publishes_each_state_once_and_in_order(server: NatsServer) -> None:
    environ = {"MAESTRO_EVENT_BUS_URL": server.url}
    publisher = Publisher(environ, "/", source=SOURCE)
    daemon = DaemonLifecycle(publisher, "s_1", "/data")
    for state in ("started", "started", "resumed", "suspended", "suspended", "resumed", "closed"):
        await daemon.enter(state)
    with pytest.raises(ValueError, match="cannot be suspended"):
        await daemon.enter("suspended")
    await publisher.aclose()
    events = await server.events(4)
    assert [one["type"].rpartition(".")[2] for one in events] == [
        "started",
        "suspended",
        "resumed",
        "closed",
    ]
    assert {one["source"] for one in events} == {"maestro.ambient-agent"}
    assert {one["data"]["correlation"]["agent_id"] for one in events} == {"ambient_agent_daemon"}
    assert events[-1]["data"]["close_message"] == "shutdown requested"


async def test_smoke_sends_one_event_and_reads_it_back(stage: Stage, server: NatsServer) -> None:
    stage.environ["MAESTRO_EVENT_BUS_SMOKE_EVENT_ID"] = "evt_smoke"
    smoked = await asyncio.to_thread(batten, stage, "smoke", "event-bus", "--json")
    assert smoked.returncode == 0, smoked.stderr.decode()
    assert msgspec.json.decode(smoked.stdout) == {
        "id": "evt_smoke",
        "subject": "maestro.sessions.session.started",
        "stream": "MAESTRO",
        "sequence": 1,
    }
    [one] = await server.events()
    check_event(one)
    assert (one["source"], one["data"]["metadata"]) == ("maestro.smoke", {"smoke": "true"})
    await server.stop()
    failed = await asyncio.to_thread(batten, stage, "smoke", "event-bus")
    assert failed.returncode == 1
    assert b"the event bus failed" in failed.stderr


async def test_without_a_stream_the_error_says_so_and_nothing_is_lost(tmp_path: Path) -> None:
    async with nats_server(tmp_path) as server:
        publisher = Publisher({}, "/", url=server.url)
        made = publisher.event("maestro.events.approval_hit", {})
        with pytest.raises(ProviderError):
            await publisher.publish_strictly(made)
        await publisher.aclose()
        transport = BusTransport(Credentials(server.url))
        message = Message(message_id="m", run_id="r", type="maestro.x", occurred_at="", body=b"{}")
        assert (await transport.send(message)).result == "retry"
        await transport.aclose()


async def test_an_answer_of_somebody_else_is_no_acknowledgement(tmp_path: Path) -> None:
    """Any subscriber of a subject can answer what is published there."""
    answers = [b"ok", b"null", b"{}", b'{"stream":"X","seq":"1"}', b'{"error":3}']
    waiting = iter(answers)

    async def respond(message: Any) -> None:
        await message.respond(next(waiting))

    async with nats_server(tmp_path) as server:
        other = await server.connected()
        await other.subscribe("maestro.>", cb=respond)
        await other.flush()
        transport = BusTransport(Credentials(server.url))
        message = Message(message_id="m", run_id="r", type="maestro.x", occurred_at="", body=b"{}")
        for _ in answers:
            attempt = await transport.send(message)
            assert attempt.result == "retry"
            assert "does not answer as JetStream does" in attempt.problem
        await transport.aclose()
        await other.close()


async def test_a_token_opens_the_server_and_is_in_no_error(tmp_path: Path) -> None:
    async with nats_server(tmp_path, "--auth", "hush-token-1") as server:
        message = Message(message_id="m", run_id="r", type="maestro.x", occurred_at="", body=b"{}")
        wrong = BusTransport(Credentials(server.url, token="wrong-token-2"))
        refused = await wrong.send(message)
        assert refused.result == "retry"
        assert "wrong-token-2" not in refused.problem
        await wrong.aclose()


async def test_a_connection_that_breaks_is_opened_again(server: NatsServer, tmp_path: Path) -> None:
    transport = BusTransport(Credentials(server.url), timeout_s=3)

    def message(number: int) -> Message:
        return Message(
            message_id=f"m_{number}",
            run_id="r",
            type="maestro.events.approval_hit",
            occurred_at="2026-01-01T00:00:00.000Z",
            body=b"{}",
        )

    assert (await transport.send(message(1))).result == "delivered"
    await server.stop()
    assert (await transport.send(message(2))).result == "retry"
    await server.start()
    assert (await transport.send(message(2))).result == "delivered"
    await transport.aclose()
    assert len(await server.messages(2)) == 2
