"""What runs come by from outside, read back from JetStream: prompts, skills, scores and plans."""

import asyncio
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from tests.agent.stage import Stage, Statement, bash, call, end, fail, say
from tests.service.serving import Service, serving
from tests.session.processes import batten
from tests.sinks.events import check_event
from tests.sinks.nats_server import NatsServer

PROMPT = {
    "name": "maestro-system",
    "label": "production",
    "hash": "sha256:0123",
    "source": "service",
    "version": 9,
    "versionId": "prompt_version_9",
}
LAUNCHED = {
    "MAESTRO_PROMPT_NAME": "maestro-system",
    "MAESTRO_PROMPT_LABEL": "production",
    "MAESTRO_PROMPT_HASH": "sha256:0123",
    "MAESTRO_PROMPT_SOURCE": "service",
    "MAESTRO_PROMPT_VERSION": "9",
    "MAESTRO_PROMPT_VERSION_ID": "prompt_version_9",
    "MAESTRO_SURFACE": "github-agent",
    "MAESTRO_EVENT_BUS_ATTR_SOURCE_ISSUE": "org/repo#7",
}
SKILL = {
    "name": "review",
    "hash": f"sha256:{sha256(b'Look twice.').hexdigest()}",
    "source": "local",
}
PLAN = {
    "repository": "org/repo",
    "upstream_event_id": "evt_push_1",
    "task_type": "bugfix",
    "complexity": "low",
    "provider": "anthropic",
    "model": "small",
    "tier": "economy",
    "estimated_cost_usd": 0.25,
}
USED_SKILL = (
    [call("skill", "call_skill", name="review")],
    [bash("echo checked", "call_check")],
    [say("Done."), end()],
)


def with_skill(stage: Stage) -> None:
    folder = stage.directory / ".config" / "batten" / "skills" / "review"
    folder.mkdir(parents=True)
    text = "---\nname: review\ndescription: How to review.\n---\nLook twice.\n"
    (folder / "SKILL.md").write_text(text)


async def play(stage: Stage, *frames: Sequence[Statement], code: int = 0) -> None:
    """One run of `batten -p` to its end; it tells the bus before it leaves."""
    model = stage.scenario(*frames)
    flags = ("--model", model, "--sandbox", "none", "--auto-allow")
    ended = await asyncio.to_thread(batten, stage, "-p", "go", *flags)
    assert ended.returncode == code, ended.stderr.decode()


def by_type(events: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The events by type, each checked."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in events:
        check_event(one)
        found.setdefault(one["type"].removeprefix("maestro."), []).append(one)
    return found


async def test_a_run_names_its_prompt_and_the_skill_it_works_by(
    tmp_path: Path, server: NatsServer
) -> None:
    stage = Stage(tmp_path / "stage", {"MAESTRO_EVENT_BUS_URL": server.url, **LAUNCHED})
    with_skill(stage)
    await play(stage, *USED_SKILL)
    events = by_type(await server.events())
    [selected] = events["events.prompt_variant.selected"]
    assert selected["data"]["prompt_metadata"] == PROMPT
    assert {
        name: selected["data"][name] for name in ("prompt_id", "prompt_name", "version_id")
    } == {
        "prompt_id": "maestro-system",
        "prompt_name": "maestro-system",
        "version_id": "prompt_version_9",
    }
    read, checked = [one["data"] for one in events["events.tool_call.completed"]]
    for one in (read, checked):
        assert (one["prompt_metadata"], one["skill_metadata"]) == (PROMPT, SKILL)
    [invoked] = events["events.skill.invoked"]
    assert (invoked["data"]["skill_metadata"], invoked["data"]["tool_call_id"]) == (
        SKILL,
        "call_skill",
    )
    [succeeded] = events["events.skill.succeeded"]
    assert succeeded["data"]["invocation_id"] == invoked["data"]["invocation_id"]
    [started] = events["sessions.session.started"]
    assert started["data"]["surface"] == "MAESTRO_SURFACE_GITHUB_AGENT"
    assert started["extensions"]["source_issue"] == "org/repo#7"


async def test_a_session_closes_with_the_reason_of_its_last_run(
    tmp_path: Path, server: NatsServer
) -> None:
    stage = Stage(tmp_path / "stage", {"MAESTRO_EVENT_BUS_URL": server.url})
    await play(stage, [say("Done."), end()])
    await play(stage, [fail("fatal", "the model is gone")], code=1)
    closed = [one["data"] for one in (by_type(await server.events()))["sessions.session.closed"]]
    assert [(one["close_reason"], one["close_message"]) for one in closed] == [
        ("MAESTRO_CLOSE_REASON_COMPLETED", "done"),
        ("MAESTRO_CLOSE_REASON_ERROR", "done"),
    ]
    assert [one["metadata"]["outcome"] for one in closed] == ["completed", "model_error"]
    assert all(int(one["metadata"]["duration_ms"]) >= 0 for one in closed)


async def test_a_bad_score_after_the_end_makes_the_skill_fail_and_a_lesson_is_told(
    tmp_path: Path, server: NatsServer
) -> None:
    stage = Stage(tmp_path / "stage", {"MAESTRO_EVENT_BUS_URL": server.url, **LAUNCHED})
    with_skill(stage)
    await play(stage, *USED_SKILL)
    score = {
        "tool_call_id": "call_check",
        "score": 0.82,
        "threshold": 0.9,
        "scorer": "rubric",
        "assertion_count": 1,
        "rationale": "formatting checks failed",
    }
    annotated = batten(
        stage, "annotate", "last", "eval.scored", msgspec.json.encode(score).decode()
    )
    assert annotated.returncode == 0, annotated.stderr
    lesson = {
        "learning_id": "learn_1",
        "statement": "Formatting is checked before tests.",
        "dimension": "repository.checks",
        "confidence_score": 0.9,
        "confidence_reason": "it failed first",
        "evidence": [{"source": "tool_call", "source_id": "call_check", "excerpt": "unformatted"}],
        "tool_call_id": "call_check",
    }
    for sure, code in ((1.5, 64), (0.9, 0)):
        told = msgspec.json.encode({**lesson, "confidence_score": sure}).decode()
        assert batten(stage, "annotate", "last", "context.learned", told).returncode == code
    await play(stage, [say("Next."), end()])  # the next process tells it
    events = by_type(await server.events())
    [learned] = [one["data"] for one in events["events.context.learned"]]
    assert {name: learned[name] for name in lesson} == lesson
    assert learned["tool_execution_id"] != "call_check"
    assert learned["correlation"]["attributes"] == {"source_issue": "org/repo#7"}
    [scored] = events["events.eval.scored"]
    assert scored["data"]["passed"] is False
    assert (scored["data"]["prompt_metadata"], scored["data"]["skill_metadata"]) == (PROMPT, SKILL)
    assert (scored["data"]["scenario_id"], scored["data"]["tool_name"]) == ("review", "bash")
    assert scored["data"]["eval_run_id"] == scored["data"]["tool_execution_id"]
    assert scored["extensions"]["source_issue"] == "org/repo#7"
    [failed] = events["events.skill.failed"]
    data = failed["data"]
    assert (data["turn_status"], data["status"], data["error_category"]) == (
        "evaluation_failed",
        "MAESTRO_SKILL_OUTCOME_STATUS_EVALUATION_FAILED",
        "evaluation",
    )
    assert {name: value for name, value in data.items() if name.startswith("evaluation_")} == {
        "evaluation_tool_name": "bash",
        "evaluation_tool_call_id": "call_check",
        "evaluation_tool_execution_id": scored["data"]["tool_execution_id"],
        "evaluation_score": 0.82,
        "evaluation_threshold": 0.9,
        "evaluation_assertion_count": 1,
        "evaluation_rationale": "formatting checks failed",
    }


async def is_read(service: Service) -> None:
    """Wait until the process of sinks reads: a new sink begins with the next event."""
    async with asyncio.timeout(60):
        while True:
            shown = (await service.request("GET", "/metrics")).body
            if b'batten_sink_is_read{sink="event-bus"} 1' in shown:
                return
            await asyncio.sleep(0.1)


async def test_a_client_of_the_service_reports_while_the_run_works(
    tmp_path: Path, server: NatsServer
) -> None:
    environ = {"MAESTRO_EVENT_BUS_URL": server.url}
    async with serving(tmp_path / "service", "--auto-allow", environ=environ) as service:
        with_skill(service.stage)
        await is_read(service)
        gate = service.stage.directory / "gate"
        waiting = f"until test -e {gate}; do sleep 0.05; done"
        model = service.stage.scenario(USED_SKILL[0], [bash(waiting, "call_check")], USED_SKILL[2])
        run = await service.started(model)
        await run.until("tool.invoked", where=lambda one: one["data"]["tool_name"] == "bash")
        reports = {
            "prompt_variant.selected": PROMPT,
            "eval.scored": {"tool_call_id": "call_skill", "passed": False, "note_id": "n_1"},
            "ambient_agent.routing.selected": PLAN,
            "ambient_agent.plan.cost_limited": {**PLAN, "cost_limit_usd": 0.1},
            "ambient_agent.plan.completed": {**PLAN, "success": True, "actual_cost_usd": 0.05},
        }
        for name, data in reports.items():
            asked = {"type": f"external.{name}", "data": data}
            answer = await service.ask("POST", f"{run.path}/events", asked)
            assert answer.status == 200, answer.body
        gate.touch()
        await run.ended()
        events = by_type(await server.until("maestro.events.skill.failed"))
    assert events["events.prompt_variant.selected"][0]["data"]["prompt_metadata"] == PROMPT
    [failed] = events["events.skill.failed"]
    assert failed["data"]["turn_status"] == "evaluation_failed"
    assert events["events.tool_call.completed"][-1]["data"]["prompt_metadata"] == PROMPT
    plans = [one for name, found in events.items() if "ambient" in name for one in found]
    assert [one["data"]["repository"] for one in plans] == ["org/repo"] * 3
    assert {one["source"] for one in plans} == {"maestro.ambient-agent"}
    assert plans[0]["data"]["tier"] == "economy"
    assert (plans[2]["data"]["success"], plans[2]["data"]["actual_cost_usd"]) == (True, 0.05)
    correlations = [one["data"]["correlation"] for one in plans]
    assert {one["agent_run_id"] for one in correlations} == {run.run_id}


async def test_a_report_with_a_wrong_payload_is_refused_and_the_error_names_the_field(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path / "service") as service:
        run = await service.started(service.stage.scenario([say("Done."), end()]))
        await run.ended()
        before = await run.events()
        asked = {"type": "external.eval.scored", "data": {"tool_call_id": "c", "score": "high"}}
        answer = await service.ask("POST", f"{run.path}/events", asked)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request")
        assert "$.score" in answer.error["message"]
        assert await run.events() == before
        stage = service.stage
        for words, said in (
            (("eval.scored", '{"score": 1}'), b"tool_call_id"),
            (("eval.scored", "[1]"), b"DATA is not a JSON object"),
            (("eval.guessed", "{}"), b"there are: prompt_variant.selected"),
        ):
            refused = batten(stage, "annotate", run.run_id, *words)
            assert refused.returncode == 64
            assert said in refused.stderr
