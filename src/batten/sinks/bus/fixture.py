"""The publisher conformance fixture: the events of one critical path, always the same bytes."""

from typing import Any

from batten.sinks.bus import payloads
from batten.sinks.bus.envelope import Event, event

SOURCE = "maestro-publisher-fixture"
_CALL = "tool_call_publisher_fixture_bash_001"
_EXECUTION = "tool_exec_publisher_fixture_bash_001"
_APPROVAL = "approval_publisher_fixture_001"
_COMMAND = "bunx vitest --run test/telemetry"
_RATIONALE = "formatting checks failed"


def publisher_fixture() -> dict[str, Any]:
    """The whole fixture. Every call makes new objects: builds beside each other do not mix."""
    events = [_approval(), _attempt(), _result(), _skill()]
    subjects = [made["subject"] for made in events]
    return {
        "fixture_version": "maestro-publisher-conformance/v1",
        "name": "maestro-publisher-critical-path",
        "event_count": len(events),
        "subjects": subjects,
        "stable_untyped_keys": {
            "correlation.attributes": sorted(_correlation("")["attributes"]),
            "prompt_metadata": sorted(_prompt(), key=str.lower),
            "skill_metadata": sorted(_skill_metadata(), key=str.lower),
            "safe_arguments": ["command_summary"],
            "safe_output": ["exit_code", "summary"],
        },
        "expected_assertions": {
            "required_event_types": [made["type"] for made in events],
            "required_subjects": list(subjects),
        },
        "events": events,
    }


def _correlation(step: str) -> dict[str, Any]:
    return {
        "organization_id": "org_evalops_fixture",
        "workspace_id": "workspace_publisher_fixture",
        "session_id": "session_publisher_fixture_001",
        "agent_run_id": "agent_run_publisher_fixture_001",
        "agent_id": "agent_maestro_publisher_fixture",
        "actor_id": "user_publisher_fixture",
        "principal_id": "principal_publisher_fixture",
        "trace_id": "trace_publisher_fixture_001",
        "attributes": {
            "fixture": "maestro-publisher-conformance",
            "publisher_contract": "maestro.v1",
        },
        "agent_run_step_id": f"agent_run_step_publisher_fixture_{step}_001",
    }


def _prompt() -> dict[str, Any]:
    return {
        "name": "maestro-system",
        "label": "production",
        "surface": "web",
        "version": 9,
        "versionId": "prompt_version_9",
        "hash": "sha256:prompt-platform-replay",
        "source": "service",
    }


def _skill_metadata() -> dict[str, Any]:
    return {
        "artifactId": "skill_incident_review",
        "name": "incident-review",
        "version": "3",
        "hash": "sha256:skill-incident-review",
        "source": "service",
    }


def _event(number: int, minute: int, event_type: str, data: dict[str, Any], step: str) -> Event:
    name = event_type.removeprefix("maestro.events.").replace(".", "_")
    return event(
        event_type,
        data,
        _correlation(step),
        event_id=f"evt_maestro_publisher_{number:03}_{name}",
        time=_at(minute),
        source=SOURCE,
    )


def _at(minute: int) -> str:
    return f"2026-04-23T18:{minute:02}:00.000Z"


def _approval() -> Event:
    data = payloads.approval_hit(
        "Run workspace test command",
        "REQUIRE_APPROVAL",
        _at(5),
        approval_request_id=_APPROVAL,
        governance_decision_id="governance_decision_publisher_fixture_001",
        command=_COMMAND,
        risk_level="RISK_LEVEL_MEDIUM",
        policy_id="policy_workspace_test_approval",
        reason="publisher fixture approval path",
    )
    return _event(1, 5, "maestro.events.approval_hit", data, "bash")


def _attempt() -> Event:
    data = payloads.tool_attempt(
        _CALL,
        "Bash",
        _at(6),
        tool_execution_id=_EXECUTION,
        prompt_metadata=_prompt(),
        tool_namespace="builtin",
        tool_version="1",
        capability="workspace:test",
        risk_level="RISK_LEVEL_MEDIUM",
        safe_arguments={"command_summary": _COMMAND},
    )
    return _event(2, 6, "maestro.events.tool_call.attempted", data, "bash")


def _result() -> Event:
    data = payloads.tool_result(
        _CALL,
        "SUCCEEDED",
        _at(7),
        tool_execution_id=_EXECUTION,
        prompt_metadata=_prompt(),
        skill_metadata=_skill_metadata(),
        approval_request_id=_APPROVAL,
        safe_output={"exit_code": 0, "summary": "8 telemetry tests passed"},
    )
    return _event(3, 7, "maestro.events.tool_call.completed", data, "bash")


def _skill() -> Event:
    event_type, data = payloads.skill_outcome(
        _skill_metadata(),
        "evaluation_failed",
        _at(9),
        prompt_metadata=_prompt(),
        invocation_id="skill_invocation_publisher_fixture_001",
        tool_call_id="tool_call_publisher_fixture_skill_001",
        tool_execution_id="tool_exec_publisher_fixture_skill_001",
        error_category="evaluation",
        error_message=_RATIONALE,
        evaluation_tool_name="Bash",
        evaluation_tool_call_id=_CALL,
        evaluation_tool_execution_id=_EXECUTION,
        evaluation_score=0.82,
        evaluation_threshold=0.9,
        evaluation_assertion_count=1,
        evaluation_rationale=_RATIONALE,
    )
    return _event(4, 9, event_type, data, "skill")
