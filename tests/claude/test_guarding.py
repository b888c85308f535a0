"""What stands between a call and the client's no: a guard that cannot be asked has said it."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.agent.stage import Stage, Statement, bash, call, say
from tests.claude.process import Process, started, success

TOO_LONG = "z" * 1_100_000
BASH = ["--allowedTools", "Bash"]


def guarded(ours: Process, *events: str, on_failure: str | None = None) -> None:
    matcher: dict[str, Any] = {"hookCallbackIds": ["h"], "onFailure": on_failure}
    ours.request("r1", "initialize", hooks={event: [matcher] for event in events})


def test_a_call_too_long_to_ask_the_guard_about_is_denied(stage: Stage) -> None:
    writes = call("write_file", "c1", path="made", content=TOO_LONG)
    flags = ["--permission-mode", "acceptEdits"]
    with started(stage, [writes], [say("ok")], flags=flags) as ours:
        guarded(ours, "PreToolUse", on_failure="continue")
        ours.prompt("go")
        (denied,) = ours.until("result")["permission_denials"]
        assert denied["tool_use_id"] == "c1"
        assert ours.end() == 0
    assert not (stage.workspace / "made").exists()


def test_a_prompt_too_long_to_ask_the_guard_about_is_refused(stage: Stage) -> None:
    with started(stage, [say("never")]) as ours:
        guarded(ours, "UserPromptSubmit")
        ours.prompt(TOO_LONG)
        result = ours.until("result")
        assert result["is_error"]
        assert "could not be asked" in result["errors"][0]


@pytest.mark.parametrize("event", ["PreToolUse", "PermissionRequest"])
def test_a_guard_that_closes_its_side_while_it_is_asked_denies(stage: Stage, event: str) -> None:
    flags = BASH if event == "PreToolUse" else ["--permission-prompt-tool", "stdio"]
    with started(stage, [bash("touch made", "c1")], [say("ok")], flags=flags) as ours:
        guarded(ours, event)
        ours.prompt("go")
        assert ours.until("control_request")["request"]["subtype"] == "hook_callback"
        assert ours.end() == 0
    assert not (stage.workspace / "made").exists()


def test_a_guard_that_has_closed_its_side_before_denies(stage: Stage) -> None:
    frames: Sequence[Sequence[Statement]] = ([bash("sleep 0.3", "c1")], [bash("touch made", "c2")])
    with started(stage, *frames, [say("ok")], flags=BASH) as ours:
        guarded(ours, "PreToolUse")
        ours.prompt("go")
        ours.send(success(ours.until("control_request")["request_id"]))
        assert ours.end() == 0
    assert ours.frames[-1]["result"] == "ok"
    assert not (stage.workspace / "made").exists()


def test_who_only_hears_of_a_call_does_not_keep_it_from_happening(stage: Stage) -> None:
    writes = call("write_file", "c1", path="made", content=TOO_LONG)
    flags = ["--permission-mode", "acceptEdits"]
    with started(stage, [writes], [say("ok")], flags=flags) as ours:
        guarded(ours, "PostToolUse")
        ours.prompt("go")
        assert ours.until("result")["permission_denials"] == []
        assert ours.end() == 0
    assert (stage.workspace / "made").exists()
