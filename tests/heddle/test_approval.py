"""Approval modes: what is asked, what is denied, and what a plan may do."""

from typing import Any

import pytest

from tests.agent.stage import Stage, Statement, bash, call, end, say
from tests.heddle.working import Json, events, init, names, working

TOOLS = ["read_file", "write_file", "edit_file", "glob", "grep", "bash", "web_fetch"]


async def sent(stage: Stage, mode: str, *statements: Statement, **config: Any) -> list[Json]:
    """A send in a mode, of one turn with these calls and one with an answer."""
    model = stage.scenario(list(statements), [say("So it is."), end()])
    environ = {"HEDDLE_APPROVAL_MODE": mode} if mode else {}
    async with working(stage, "--model", model, environ=environ) as worker:
        version = str(config.pop("version", "0.2.0"))
        await worker.ask(init(version, tools=TOOLS, **config), "init_ok")
        return await worker.send("s")


WRITE = call("write_file", file_path="new.txt", content="x")
READ = call("glob", pattern="*")
RUN = bash("echo ran > ran.txt")


@pytest.mark.parametrize(
    ("mode", "denied"),
    [
        ("", []),
        ("suggest", ["write_file", "bash"]),
        ("auto-edit", ["bash"]),
        ("full-auto", []),
        ("yolo", []),
        ("plan", ["write_file", "bash"]),
        ("invented", []),
    ],
)
async def test_each_mode_lets_its_kinds_of_tools_be_used(
    stage: Stage, mode: str, denied: list[str]
) -> None:
    heard = await sent(stage, mode, READ, WRITE, RUN)
    assert [event["name"] for event in events(heard, "permission_denied")] == denied
    made = [made["name"] for made in heard[-1]["tool_calls_made"]]
    assert made == [name for name in ("glob", "write_file", "bash") if name not in denied]
    assert (stage.workspace / "ran.txt").exists() is ("bash" not in denied)
    assert (stage.workspace / "new.txt").exists() is ("write_file" not in denied)
    assert heard[-1]["status"] == "ok"


async def test_what_needs_approval_is_asked_for_and_then_denied_with_the_reason(
    stage: Stage,
) -> None:
    heard = await sent(stage, "suggest", RUN)
    reason = "bash (execute) requires approval in suggest mode"
    assert events(heard)[:2] == [
        {"event": "permission_request", "name": "bash", "reason": reason},
        {"event": "permission_denied", "name": "bash", "reason": reason},
    ]


@pytest.mark.parametrize("mode", ["suggest", "yolo"])
@pytest.mark.parametrize(
    "protected",
    [
        call("write_file", file_path=".env", content="x"),
        call("write_file", file_path="deep/.env.local", content="x"),
        bash("rm -r build"),
        bash("cd build && sudo rm -r ."),
    ],
)
async def test_some_things_are_denied_in_every_mode(
    stage: Stage, mode: str, protected: Statement
) -> None:
    heard = await sent(stage, mode, protected)
    assert "permission_denied" in names(heard)
    assert heard[-1]["tool_calls_made"] == []


async def test_a_protected_call_is_denied_with_its_rule_as_the_reason_where_others_are_asked(
    stage: Stage,
) -> None:
    heard = await sent(stage, "suggest", bash("rm -r build"))
    assert events(heard)[0] == {
        "event": "permission_denied",
        "name": "bash",
        "reason": "denied by bash(rm *)",
    }


async def test_a_word_that_only_looks_like_rm_is_no_rm(stage: Stage) -> None:
    heard = await sent(stage, "full-auto", bash("echo firm rmdir.txt"))
    assert [made["name"] for made in heard[-1]["tool_calls_made"]] == ["bash"]


async def test_plan_mode_ends_with_its_plan(stage: Stage) -> None:
    heard = await sent(stage, "plan", READ)
    assert events(heard)[-1] == {"event": "plan_complete", "plan": "So it is."}
    assert "plan_complete" not in names(await sent(stage, "suggest", READ))


async def test_rules_of_the_client_count_where_there_is_a_mode(stage: Stage) -> None:
    rules = {"allow": ["Bash(echo *)"], "deny": ["read"], "ask": []}
    heard = await sent(stage, "suggest", READ, bash("echo x"), permissions=rules, version="0.4.0")
    assert [event["name"] for event in events(heard, "permission_denied")] == ["glob"]
    assert [made["name"] for made in heard[-1]["tool_calls_made"]] == ["bash"]
    heard = await sent(stage, "", READ, permissions=rules, version="0.4.0")
    assert [made["name"] for made in heard[-1]["tool_calls_made"]] == ["glob"]


async def test_the_operator_s_own_rules_hold_whatever_the_client_asks(stage: Stage) -> None:
    model = stage.scenario([RUN], [say("So it is."), end()])
    async with working(stage, "--model", model, "--deny", "bash") as worker:
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        assert names(heard)[0] == "permission_denied"
        assert not (stage.workspace / "ran.txt").exists()
