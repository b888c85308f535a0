"""The event bus without a server: when it is on, envelopes, correlation, payloads, the fixture."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from batten.contract import facts
from batten.contract.errors import CallerError, ProviderError
from batten.contract.identity import gateway_metadata, identity_of
from batten.contract.ids import SessionId, session_stream
from batten.journal.sqlite import SqliteJournal
from batten.sinks.bus import payloads
from batten.sinks.bus.correlation import (
    chronicle_metadata,
    correlation_of,
    merged,
    principal_of,
    runtime_mode_of,
    span_attributes,
    surface_of,
)
from batten.sinks.bus.envelope import CATALOGUE, encoded, event
from batten.sinks.bus.environment import bus_status
from batten.sinks.bus.fixture import publisher_fixture
from batten.sinks.bus.publisher import Publisher
from batten.sinks.configuration import BusSettings, event_bus
from batten.sinks.folds import Folds
from tests.journal.given import FINISHED, new_run

FIXTURE = Path(__file__).with_name("publisher_conformance.json")
URL = {"MAESTRO_EVENT_BUS_URL": "nats://127.0.0.1:1"}
MANAGED = {"MAESTRO_EVALOPS_ACCESS_TOKEN": "t", "MAESTRO_EVALOPS_ORG_ID": "org_1"}
AT = "2026-04-23T18:05:00.000Z"


def made(event_type: str, data: dict[str, Any], **correlation: Any) -> dict[str, Any]:
    return event(
        event_type,
        data,
        {"workspace_id": "w", "session_id": "s", **correlation},
        event_id="evt_1",
        time=AT,
        source="maestro",
    )


@pytest.mark.parametrize(
    ("environ", "enabled", "reason"),
    [
        ({}, False, "disabled"),
        (URL, True, "nats"),
        ({"EVALOPS_NATS_URL": "nats://a"}, True, "nats"),
        ({"NATS_URL": "nats://a"}, True, "nats"),
        ({"MAESTRO_EVENT_BUS_URL": "  "}, False, "disabled"),
        ({**URL, "MAESTRO_TELEMETRY": "0"}, True, "nats"),
        ({"MAESTRO_TELEMETRY": "1"}, False, "disabled"),
        ({**URL, "MAESTRO_EVENT_BUS": "0"}, False, "flag disabled"),
        ({**URL, **MANAGED, "MAESTRO_EVENT_BUS": "False"}, False, "flag disabled"),
        ({**URL, "MAESTRO_AUDIT_BUS": "off"}, False, "flag disabled"),
        ({**URL, "MAESTRO_EVENT_BUS": "perhaps"}, True, "nats"),
        ({"MAESTRO_EVENT_BUS": "1"}, True, "missing nats url"),
        (MANAGED, True, "missing nats url"),
        ({**MANAGED, **URL}, True, "nats"),
        ({**URL, "MAESTRO_INTERNAL_TELEMETRY_DISABLED": "1"}, False, "internal telemetry disabled"),
    ],
)
def test_variables_turn_the_bus_on_and_off(
    environ: dict[str, str], enabled: bool, reason: str
) -> None:
    status = bus_status(environ)
    assert (status.enabled, status.reason) == (enabled, reason)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (
            {"platform.kill_switches.maestro.platform_events": True},
            "platform events kill switch enabled",
        ),
        (
            {"flags": {"maestro.platform_events.publisher_enabled": {"enabled": False}}},
            "platform events rollout disabled",
        ),
        ({"maestro.platform_events.publisher_enabled": True}, "nats"),
    ],
)
def test_feature_flags_count_in_managed_contexts_only(
    tmp_path: Path, flags: dict[str, Any], reason: str
) -> None:
    path = tmp_path / "flags.json"
    path.write_bytes(msgspec.json.encode(flags))
    named = {**URL, "EVALOPS_FEATURE_FLAGS_PATH": str(path)}
    assert bus_status({**named, **MANAGED}).reason == reason
    assert bus_status(named).reason == "nats"


def test_the_status_says_where_and_for_whom() -> None:
    environ = {**URL, **MANAGED, "MAESTRO_EVENT_BUS_SOURCE": "here", "MAESTRO_SURFACE": "vscode"}
    assert msgspec.to_builtins(bus_status(environ)) == {
        "enabled": True,
        "reason": "nats",
        "natsUrl": "nats://127.0.0.1:1",
        "source": "here",
        "tenantId": "org_1",
        "defaultSurface": "MAESTRO_SURFACE_IDE",
        "defaultRuntimeMode": "MAESTRO_RUNTIME_MODE_LOCAL",
    }


@pytest.mark.parametrize(("event_type", "message"), CATALOGUE.items())
def test_each_type_is_its_subject_and_names_its_message(event_type: str, message: str) -> None:
    one = made(event_type, {"x": 1, "gone": None}, organization_id="org_1")
    assert one == {
        "spec_version": "1.0",
        "id": "evt_1",
        "type": event_type,
        "source": "maestro",
        "subject": event_type,
        "time": AT,
        "data_content_type": "application/protobuf",
        "tenant_id": "org_1",
        "data": {
            "correlation": {"workspace_id": "w", "session_id": "s", "organization_id": "org_1"},
            "x": 1,
            "@type": f"type.googleapis.com/maestro.v1.{message}",
        },
        "extensions": {
            "dataschema": f"buf.build/evalops/proto/maestro.v1.{message}",
            "evalops_context_version": "evalops.context.v1",
            "organization_id": "org_1",
            "workspace_id": "w",
            "maestro_session_id": "s",
        },
    }


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(CallerError, match="not in the catalogue"):
        made("maestro.events.novel", {})


def test_trace_context_is_in_the_extensions_only() -> None:
    one = made(
        "maestro.events.approval_hit",
        {"tool_execution_id": " exec_1 "},
        traceparent="00-a-b-01",
        tracestate="k=v",
        attributes={"task_id": "t_1", "source_issue": " ", "other": "o"},
    )
    assert not {"traceparent", "tracestate"} & one["data"]["correlation"].keys()
    extensions = one["extensions"]
    assert extensions["traceparent"] == "00-a-b-01"
    assert extensions["tracestate"] == "k=v"
    assert extensions["task_id"] == "t_1"
    assert extensions["tool_execution_id"] == "exec_1"
    assert not {"source_issue", "other"} & extensions.keys()


def test_identity_comes_from_the_first_variable_that_is_not_blank() -> None:
    environ = {
        "MAESTRO_EVALOPS_ORG_ID": " ",
        "EVALOPS_ORGANIZATION_ID": "org_2",
        "MAESTRO_USER_ID": "u",
        "EVALOPS_WORKSPACE_ID": "w",
        "MAESTRO_SESSION_ID": "s",
        "TRACEPARENT": "00-x-y-01",
        "MAESTRO_EVENT_BUS_ATTR_TASK_ID": "t",
        "MAESTRO_PRINCIPAL_SUBJECT": "ann",
        "MAESTRO_PRINCIPAL_ROLES": "admin, dev,",
        "MAESTRO_PRINCIPAL_CLAIM_TEAM": "red",
        "PATH": "/bin",
    }
    identity = identity_of(environ)
    assert correlation_of(identity, "/here") == {
        "organization_id": "org_2",
        "user_id": "u",
        "workspace_id": "w",
        "session_id": "s",
        "traceparent": "00-x-y-01",
        "attributes": {"task_id": "t"},
    }
    assert principal_of(identity) == {
        "subject": "ann",
        "user_id": "u",
        "organization_id": "org_2",
        "workspace_id": "w",
        "roles": ["admin", "dev"],
        "claims": {"team": "red"},
    }
    assert correlation_of({}, "/here") == {"workspace_id": "/here", "session_id": "unknown"}
    assert principal_of({}) is None


@pytest.mark.parametrize(
    "variable",
    [
        *("MAESTRO_EVALOPS_ORG_ID", "EVALOPS_ORGANIZATION_ID", "EVALOPS_ORG_ID"),
        *("MAESTRO_ENTERPRISE_ORG_ID", "MAESTRO_LLM_GATEWAY_ORG_ID"),
        "MAESTRO_REMOTE_RUNNER_ORG_ID",
    ],
)
def test_an_organization_stands_in_for_a_workspace_that_is_not_named(variable: str) -> None:
    identity = identity_of({variable: "org_1"})
    assert correlation_of(identity, "/here") == {
        "organization_id": "org_1",
        "workspace_id": "org_1",
        "session_id": "unknown",
    }
    named = identity_of({variable: "org_1", "EVALOPS_WORKSPACE_ID": "ws_1"})
    assert correlation_of(named, "/here")["workspace_id"] == "ws_1"


def test_the_session_of_a_hosted_runner_says_so_unless_its_launcher_says_more() -> None:
    hosted = {"MAESTRO_HOSTED_RUNNER_MODE": "1"}
    assert identity_of(hosted) == {"runtime_mode": "hosted"}
    remote = {**hosted, "MAESTRO_RUNTIME_MODE": "remote"}
    assert identity_of(remote) == {"runtime_mode": "remote"}


def test_the_reason_of_an_end_says_more_than_the_last_run() -> None:
    found = [
        payloads.close_reason("done", "completed"),
        payloads.close_reason("done", "cancelled"),
        payloads.close_reason("done", "model_error"),
        payloads.close_reason("idle_timeout", "completed"),
        payloads.close_reason("ttl_expired", "cancelled"),
    ]
    assert found == ["COMPLETED", "USER_STOPPED", "ERROR", "IDLE_TIMEOUT", "TTL_EXPIRED"]


def test_a_missing_override_erases_no_default() -> None:
    defaults = {"session_id": "s", "user_id": "u", "attributes": {"a": "1", "b": "2"}}
    over = {"session_id": None, "user_id": "v", "attributes": {"b": None, "c": "3"}}
    assert merged(defaults, over) == {
        "session_id": "s",
        "user_id": "v",
        "attributes": {"a": "1", "b": "2", "c": "3"},
    }


async def test_a_session_is_resumed_after_it_was_closed_and_is_of_one_surface(
    journal: SqliteJournal,
) -> None:
    session = SessionId("chat_01M7NT409VECVVK6R1AD1QD0XS")
    stream = session_stream(session)
    opened = facts.SessionOpened("/w", "task_1", "print")
    own = new_run(run_id=stream, kind="session", session_id=session)
    lease, _ = await journal.create(own, [opened])
    assert lease is not None
    prior: str | None = None
    for is_live in (True, False, False, True, True):
        if not is_live:
            await journal.append(stream, [facts.SessionClosed("done")], fence=lease.fence)
        run = new_run(session_id=session)
        queued = facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", prior)
        asked = facts.RequestOpened(
            f"req_{run.run_id}", "user_input", "call_1", "?", {}, "sha256:1"
        )
        await journal.create(run, [queued, asked, FINISHED])
        prior = run.run_id
    sink = event_bus(BusSettings(), URL)
    assert sink is not None
    told: list[dict[str, Any]] = []
    folds = Folds(sink, journal)
    for stored in await journal.feed():
        made = await folds.messages(stored)
        # One that begins in the middle of the run tells the same.
        assert made == await Folds(sink, journal).messages(stored)
        told += [msgspec.json.decode(one.body)["data"] for one in made]
    states = [one["state"].rpartition("_")[2] for one in told]
    assert states == [
        *("STARTED", "SUSPENDED"),
        *("CLOSED", "RESUMED", "SUSPENDED"),
        *("CLOSED", "RESUMED", "SUSPENDED"),
        *("SUSPENDED", "SUSPENDED"),
    ]
    assert {one["surface"] for one in told} == {"MAESTRO_SURFACE_CLI"}


async def test_a_call_that_is_tried_again_is_told_as_another_execution_of_it(
    journal: SqliteJournal,
) -> None:
    run, note = new_run(), {"content": "Tests need a key.", "scope": "project"}
    queued = facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", None)
    invoked = facts.ToolInvoked("c1", "save_memory", "memory", 1)
    happened = [
        queued,
        facts.AssistantToolCallProposed(1, "c1", "save_memory", note),
        facts.PolicyToolDecided("c1", "save_memory", "allow", "", decided_by="mode:dontAsk"),
        invoked,
        facts.ToolFailed("c1", "save_memory", "memory", 3, error="full", error_kind="io"),
        facts.RequestOpened("req_1", "tool_retry", "c1", "?", {}, "sha256:1"),
        facts.RequestClosed("req_1", "answered", "client", {}),
        facts.PolicyToolDecided("c1", "save_memory", "allow", "", decided_by="resolver:client"),
        replace(invoked, attempt=2),
        facts.ToolCompleted("c1", "save_memory", "memory", 3),
        FINISHED,
    ]
    await journal.create(run, happened)
    sink = event_bus(BusSettings(), URL)
    assert sink is not None
    folds = Folds(sink, journal)
    told = [
        (one.type.removeprefix("maestro.events."), msgspec.json.decode(one.body)["data"])
        for stored in await journal.feed()
        for one in await folds.messages(stored)
        if one.type.startswith("maestro.events.")
    ]
    assert [name for name, _ in told] == [
        *("approval_hit", "tool_call.attempted", "tool_call.completed"),
        *("approval_hit", "tool_call.attempted", "tool_call.completed", "context.learned"),
    ]
    modes = [data["decision_mode"] for name, data in told if name == "approval_hit"]
    assert modes == ["MAESTRO_DECISION_MODE_AUTO_APPROVED", "MAESTRO_DECISION_MODE_ALLOW"]
    first, second = (data for name, data in told if name == "tool_call.attempted")
    assert second.pop("attempted_at") >= first.pop("attempted_at")
    executions = [data["tool_execution_id"] for _, data in told if "tool_execution_id" in data]
    again = f"{executions[0]}_2"
    assert executions == [executions[0], executions[0], again, again, again]
    assert second == first | {"tool_execution_id": again}
    assert told[-1][1]["statement"] == note["content"]


async def test_a_call_whose_approval_was_cancelled_with_its_run_is_told_as_cancelled(
    journal: SqliteJournal,
) -> None:
    happened = [
        facts.RunQueued("agent_loop", "m", "p", "/w", "in_place", None),
        facts.AssistantToolCallProposed(1, "c1", "bash", {"command": "ls"}),
        facts.AssistantToolCallProposed(1, "c2", "bash", {"command": "pwd"}),
        facts.PolicyToolDecided("c1", "bash", "ask", "", decided_by="mode:default"),
        facts.ApprovalRequested("appr_1", "c1", "bash", "ls", "", "sha256:1"),
        facts.ApprovalResolved("appr_1", "cancelled", "runtime", ""),
        facts.RunCancelled(reason="no more", by="client", turns=1, duration_ms=1),
    ]
    await journal.create(new_run(), happened)
    sink = event_bus(BusSettings(), URL)
    assert sink is not None
    folds = Folds(sink, journal)
    told = [
        (one.type.removeprefix("maestro.events."), msgspec.json.decode(one.body)["data"])
        for stored in await journal.feed()
        for one in await folds.messages(stored)
        if one.type.startswith("maestro.events.")
    ]
    assert [name for name, _ in told] == ["approval_hit", "approval_hit", "tool_call.completed"]
    assert told[1][1]["reason"] == "cancelled"
    ended = told[2][1]
    assert (ended["tool_call_id"], ended["approval_request_id"]) == ("c1", "appr_1")
    assert ended["status"] == "MAESTRO_TOOL_CALL_STATUS_CANCELLED"


def test_surfaces_and_modes() -> None:
    assert [surface_of(name) for name in ("cli", "GITHUB-agent", "jetbrains", "remote", "x")] == [
        f"MAESTRO_SURFACE_{name}" for name in ("CLI", "GITHUB_AGENT", "IDE", "REMOTE_RUNNER", "TUI")
    ]
    assert [runtime_mode_of(name) for name in ("headless", "hosted", "remote-attached", "")] == [
        f"MAESTRO_RUNTIME_MODE_{name}"
        for name in ("HEADLESS", "HOSTED", "REMOTE_ATTACHED", "LOCAL")
    ]


def test_chronicle_metadata_is_flat_and_cannot_be_spoofed() -> None:
    correlation = {
        "session_id": " s ",
        "workspace_id": "w",
        "organization_id": "",
        "attributes": {
            "task_id": "t",
            "organization_id": "spoofed",
            "maestro_session_id": "spoofed",
            "session_id": "spoofed",
            "tool_execution_id": "x",
            "blank": " ",
        },
    }
    assert chronicle_metadata(correlation) == {
        "workspace_id": "w",
        "maestro_session_id": "s",
        "task_id": "t",
        "tool_execution_id": "x",
    }


def test_span_attributes_and_gateway_metadata_carry_ids_only() -> None:
    correlation = {
        "organization_id": "o",
        "user_id": "u",
        "workspace_id": "w",
        "session_id": "s",
        "agent_run_id": "r",
        "request_id": " ",
        "trace_id": "unknown",
    }
    assert span_attributes(correlation, "MAESTRO_SURFACE_CLI") == {
        "enduser.id": "u",
        "user.id": "u",
        "agent.user.id": "u",
        "organization.id": "o",
        "evalops.organization_id": "o",
        "workspace.id": "w",
        "evalops.workspace_id": "w",
        "agent.session.id": "s",
        "maestro.session_id": "s",
        "maestro.agent_run_id": "r",
        "maestro.surface": "MAESTRO_SURFACE_CLI",
    }
    assert gateway_metadata({**correlation, "turn_id": "3"}) == {
        "workspace_id": "w",
        "run_id": "r",
        "agent_run_id": "r",
        "session_id": "s",
        "maestro_session_id": "s",
        "trace_id": "unknown",
        "turn_id": "3",
        "surface": "maestro",
    }
    assert gateway_metadata({"run_id": "r"})["agent_run_id"] == "r"
    launched = identity_of({"MAESTRO_WORKLOAD": "review", "MAESTRO_EVALOPS_AGENT_ID": "a_1"})
    assert gateway_metadata(launched) == {
        "agent_id": "a_1",
        "workload": "review",
        "surface": "maestro",
    }


def test_payloads_of_prompts_skills_scores_and_learning() -> None:
    prompt = {"name": "p", "label": "l", "versionId": "v", "hash": "h", "source": "bundled"}
    assert payloads.prompt_variant(prompt, AT) == {
        "prompt_id": "p",
        "prompt_name": "p",
        "version_id": "v",
        "prompt_metadata": prompt,
        "selected_at": AT,
    }
    skill = {"name": "k", "hash": "h", "source": "local", "artifactId": "a"}
    kind, failed = payloads.skill_outcome(
        skill, "evaluation_failed", AT, evaluation_score=0.1, evaluation_threshold=0.9
    )
    assert kind == "maestro.events.skill.failed"
    assert failed["status"] == "MAESTRO_SKILL_OUTCOME_STATUS_EVALUATION_FAILED"
    assert (failed["skill_id"], failed["evaluation_score"]) == ("a", 0.1)
    assert payloads.skill_outcome(skill, "success", AT)[0] == "maestro.events.skill.succeeded"
    assert payloads.skill_outcome(skill, "error", AT)[0] == "maestro.events.skill.failed"
    assert payloads.skill_invocation(skill, "c", AT)["skill_id"] == "a"
    score = payloads.eval_score("c", AT, skill_metadata=skill, prompt_metadata=prompt, score=0.5)
    assert (score["eval_run_id"], score["scenario_id"]) == ("c", "a")
    assert (score["prompt_metadata"], score["skill_metadata"]) == (prompt, skill)
    learned = payloads.learned_context(
        "l_1",
        "tests need a server",
        "repo.tests",
        confidence_score=0.9,
        confidence_reason="seen twice",
        evidence=[{"source": "tool_call", "source_id": "c"}],
        at=AT,
    )
    assert learned["evidence"] == [{"source": "tool_call", "source_id": "c"}]
    with pytest.raises(ValueError, match="evidence"):
        payloads.learned_context(
            "l", "s", "d", confidence_score=1, confidence_reason="r", evidence=[], at=AT
        )
    closed = payloads.session(
        "closed",
        AT,
        surface="S",
        runtime_mode="M",
        close_reason="ERROR",
        close_message="it broke",
        metadata={"a": 1},
    )
    assert closed == {
        "state": "MAESTRO_SESSION_STATE_CLOSED",
        "surface": "S",
        "runtime_mode": "M",
        "close_message": "it broke",
        "metadata": {"a": 1},
        "closed_at": AT,
        "close_reason": "MAESTRO_CLOSE_REASON_ERROR",
    }
    assert payloads.duration(1234) == "1.234s"


def test_the_publisher_fixture_is_as_published() -> None:
    fixture = publisher_fixture()
    assert fixture == msgspec.json.decode(FIXTURE.read_bytes())
    for one in fixture["events"]:
        data = one["data"]
        assert data["correlation"]["agent_run_step_id"] != data.get("tool_call_id")
        for name, keys in fixture["stable_untyped_keys"].items():
            found = data["correlation"]["attributes"] if "." in name else data.get(name)
            assert found is None or set(found) <= set(keys)


def test_the_fixture_is_the_same_bytes_each_time_and_from_many_threads() -> None:
    def build(_: int) -> bytes:
        fixture = publisher_fixture()
        whole = msgspec.json.encode(fixture)
        fixture["events"][0]["data"]["correlation"]["session_id"] = "changed"
        return whole + b"".join(map(encoded, publisher_fixture()["events"]))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(build, range(50)))) == 1


async def test_a_best_effort_publish_swallows_what_a_strict_one_raises(tmp_path: Path) -> None:
    publisher = Publisher(URL, str(tmp_path))
    one = publisher.event("maestro.events.approval_hit", {"action": "a"})
    assert not await publisher.publish(one)
    with pytest.raises(ProviderError, match="the event bus failed"):
        await publisher.publish_strictly(one)
    await publisher.aclose()


async def test_a_strict_publish_needs_a_route() -> None:
    off = Publisher({**URL, "MAESTRO_EVENT_BUS": "0"}, "/")
    one = off.event("maestro.events.approval_hit", {})
    with pytest.raises(CallerError, match=r"^Maestro event bus is not enabled: flag disabled$"):
        await off.publish_strictly(one)
    assert not await off.publish(one)
    without = Publisher({"MAESTRO_EVENT_BUS": "1"}, "/")
    with pytest.raises(CallerError, match=r"^Maestro event bus transport is unavailable$"):
        await without.publish_strictly(one)
    assert not await without.publish(one)
