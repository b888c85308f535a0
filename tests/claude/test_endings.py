"""Interrupts and signals where they could be lost: what is told, and how we leave."""

import asyncio
import json
import signal
import time

import pytest

from tests.agent.stage import Stage, bash, say
from tests.claude.process import Process, request, started, success, user
from tests.serve.conversing import eventually

INTERRUPT = request("r9", "interrupt")
LENT = ["--mcp-config", json.dumps({"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}})]


def hooked(stage: Stage, command: str) -> list[str]:
    """Flags with a hook that the end of the session waits for."""
    handler = {"type": "command", "command": command}
    return ["--settings", json.dumps({"hooks": {"SessionEnd": [{"hooks": [handler]}]}})]


def interrupted(ours: Process) -> None:
    result = ours.until("result")
    assert (result["subtype"], result["is_error"]) == ("error_during_execution", True)
    assert result["terminal_reason"] == "aborted_streaming"
    assert "interrupted" in result["errors"][0]


def test_an_interrupt_right_behind_its_prompt_is_not_lost(stage: Stage) -> None:
    with started(stage, [say("never")], [say("Here I am.")]) as ours:
        ours.request("r1", "initialize", hooks=None)
        ours.until("control_response")
        ours.send_at_once(user("go"), INTERRUPT)
        interrupted(ours)
        ours.prompt("and now?")
        assert ours.until("result")["subtype"] == "success"
        assert ours.end() == 0


def test_an_interrupt_in_one_write_with_everything_before_it_is_not_lost(stage: Stage) -> None:
    with started(stage, [say("never")]) as ours:
        ours.send_at_once(request("r1", "initialize", hooks=None), user("go"), INTERRUPT)
        interrupted(ours)
        assert ours.end() == 124


def test_an_interrupt_ends_the_first_of_the_prompts_that_wait(stage: Stage) -> None:
    with started(stage, [say("ok")]) as ours:
        ours.send_at_once(user("one"), user("two"), INTERRUPT)
        interrupted(ours)
        assert ours.until("result")["subtype"] == "success"
        assert ours.end() == 0


def test_an_interrupt_does_not_wait_for_servers_that_do_not_answer(stage: Stage) -> None:
    with started(stage, [say("never")], flags=LENT) as ours:
        ours.request("r1", "initialize", hooks=None)
        assert ours.until("control_request")["request"]["subtype"] == "mcp_message"
        ours.send_at_once(user("go"), INTERRUPT, INTERRUPT)
        interrupted(ours)
        assert ours.end() == 124


def test_an_interrupt_finds_a_prompt_that_waits_for_servers_already(stage: Stage) -> None:
    with started(stage, [say("never")], flags=LENT) as ours:
        ours.request("r1", "initialize", hooks=None)
        ours.prompt("go")
        ours.until("control_request")
        ours.request("r2", "fly")  # answered when the prompt was read
        while ours.until("control_response")["response"]["request_id"] != "r2":
            pass
        ours.send_at_once(INTERRUPT, INTERRUPT)
        interrupted(ours)
        assert ours.end() == 124


def test_an_interrupt_with_nothing_to_end_does_not_end_what_comes_next(stage: Stage) -> None:
    with started(stage, [say("ok")]) as ours:
        ours.send(INTERRUPT)
        assert ours.until("control_response")["response"]["subtype"] == "success"
        ours.prompt("go")
        assert ours.until("result")["subtype"] == "success"
        assert ours.end() == 0


@pytest.mark.soak
def test_an_interrupt_of_a_run_that_is_only_shown_does_not_end_us_later(stage: Stage) -> None:
    """A run that is cancelled must end within eight seconds. This one has ended."""

    def has_ended() -> bool:
        journal = stage.journal()
        try:
            return any(run.outcome == "completed" for run in asyncio.run(journal.runs()))
        finally:
            journal.close()

    pieces = [say("x" * 200_000) for _ in range(20)]
    flags = ["--include-partial-messages"]
    with started(stage, pieces, [say("ok")], flags=flags) as ours:
        ours.prompt("go")
        ours.until("system")
        eventually(has_ended)
        ours.send(INTERRUPT)
        assert ours.until("result")["subtype"] == "success"
        time.sleep(9)
        ours.prompt("more")
        assert ours.until("result")["subtype"] == "success"
        assert ours.end() == 0


def test_what_is_asked_before_the_end_is_answered_before_we_leave(stage: Stage) -> None:
    with started(stage, [say("ok")]) as ours:
        ours.send_at_once(*(request(f"r{number}", "mcp_status") for number in range(20)))
        assert ours.end() == 0
    assert ours.types == ["control_response"] * 20


def test_a_signal_before_the_first_prompt_is_told_as_a_result(stage: Stage) -> None:
    with started(stage, [say("never")]) as ours:
        ours.request("r1", "initialize", hooks=None)
        ours.until("control_response")
        ours.kill(signal.SIGTERM)
        assert ours.until("result")["errors"] == ["SIGTERM"]
        assert ours.end() == 124
    assert ours.types.count("result") == 1


def test_a_signal_after_the_last_result_leaves_its_exit_code(stage: Stage) -> None:
    """The client has closed its side, and a hook of the end of the session keeps us."""
    flags = hooked(stage, "kill -TERM $PPID; sleep 0.1")
    for frames, code in (([say("ok")], 0), ([bash("true"), say("more")], 75)):
        limit = ["--max-turns", "1", "--allowedTools", "Bash"]
        with started(stage, frames, [say("more")], flags=[*flags, *limit]) as ours:
            ours.prompt("go")
            assert ours.until("result")["is_error"] is (code != 0)
            assert ours.end() == code
        assert ours.types.count("result") == 1


def test_a_signal_where_nothing_is_asked_leaves_the_exit_code_of_the_last_result(
    stage: Stage,
) -> None:
    with started(stage, [say("ok")]) as ours:
        ours.prompt("go")
        assert ours.until("result")["subtype"] == "success"
        ours.kill(signal.SIGTERM)
        assert ours.wait() == 0
    assert ours.types.count("result") == 1


def test_a_signal_while_a_prompt_waits_for_servers_is_told_as_its_result(stage: Stage) -> None:
    with started(stage, [say("ok")], [say("never")], flags=LENT) as ours:
        ours.prompt("go")
        assert ours.until("result")["subtype"] == "success"
        ours.send_at_once(request("r1", "initialize", hooks=None), user("more"))
        ours.until("control_request")
        ours.kill(signal.SIGTERM)
        assert ours.wait() == 124
    assert [one["is_error"] for one in ours.frames if one["type"] == "result"] == [False, True]


def test_nothing_follows_a_result_that_is_an_error(stage: Stage) -> None:
    flags = ["--include-hook-events", "--max-turns", "1", "--allowedTools", "Bash"]
    with started(
        stage, [bash("true", "c1")], [say("more")], flags=[*hooked(stage, "true"), *flags]
    ) as ours:
        ours.prompt("go")
        assert ours.end() == 75
    assert ours.types[-1] == "result"


def test_hooks_of_the_end_are_shown_after_a_success(stage: Stage) -> None:
    flags = ["--include-hook-events", *hooked(stage, "true")]
    with started(stage, [say("ok")], flags=flags) as ours:
        ours.prompt("go")
        assert ours.end() == 0
    last = ours.frames[-1]
    assert (last["subtype"], last["hook_event"]) == ("hook_response", "SessionEnd")


def test_a_call_that_is_allowed_runs_though_its_update_is_not_supported(stage: Stage) -> None:
    flags = ["--permission-prompt-tool", "stdio"]
    with started(stage, [bash("touch made", "c1")], [say("ok")], flags=flags) as ours:
        ours.prompt("go")
        asked = ours.until("control_request")
        updates = [
            {"type": "addDirectories", "directories": ["/tmp"], "destination": "session"},
            {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
        ]
        ours.send(success(asked["request_id"], behavior="allow", updatedPermissions=updates))
        assert ours.until("result")["permission_denials"] == []
        ours.prompt("again")
        assert ours.until("system")["permissionMode"] == "acceptEdits"
        assert ours.end() == 0
        assert "addDirectories" in ours.said
    assert (stage.workspace / "made").exists()


def test_a_mode_that_there_is_not_is_a_mistake_of_the_caller(stage: Stage) -> None:
    with started(stage, [say("never")], flags=["--permission-mode", "weird"]) as ours:
        assert "'weird'" in ours.until("result")["errors"][0]
        assert ours.end() == 64
