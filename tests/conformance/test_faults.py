"""Planted faults: each is caught by the check that names it, and for that reason."""

import asyncio
from collections.abc import Sequence

import pytest

from batten.conformance.runner import Result
from batten.conformance.suites import PROTOCOLS
from tests.conformance.subjects import PATIENCE_S, judged, spoiled

FAULTS = [
    ("skipped number", "heddle.send.event_seq", "event_seq of s1 is [0, 2"),
    ("another id", "heddle.status.answered", "expected status_ok with the id 'how'"),
    ("two results", "heddle.send.one_result", "expected status_ok with the id 'after s1'"),
    ("late event", "heddle.send.one_result", "expected status_ok with the id 'after s1'"),
    ("stray line", "heddle.stdout.only_messages", "Loading plugins"),
    ("tool without end", "heddle.tools.paired", "read_file starts while glob runs"),
    ("another send", "heddle.send.send_id", "send_id is 'other'"),
    ("lost text", "heddle.send.text", "the text of all content_delta events is ''"),
    ("lost task", "heddle.send.correlation", "event.task_id is None"),
    ("dies", "heddle.status.answered", "it ended its output"),
    ("last usage only", "heddle.send.usage", "usage.prompt_tokens is 1"),
    ("any major", "heddle.version.major_refused", "session_id is 'made-up'"),
    ("rare heartbeats", "heddle.heartbeat.beats", "they come every"),
    ("nameless", "heddle.lines.nobody", "id is 'nobody'"),
    ("nameless", "heddle.lines.unknown_type_id", "id is 'nobody'"),
    ("no latencies", "heddle.send.latencies", "total_latency_ms is None"),
    ("tireless", "heddle.send.max_iterations", "it made 3 iterations"),
    ("tireless", "heddle.send.max_iterations_error", "result.status is 'ok'"),
    ("all tools", "heddle.tools.enabled", "it is also offered ['bash']"),
    ("all tools", "heddle.tools.none", "it is offered ['bash', 'glob', 'read_file']"),
    ("one code more", "heddle.send.codes", "'max_iterations' is not one of"),
    ("ends the other", "heddle.send.same_id", "result.status"),
    ("repeats the version", "heddle.version.semver", "it repeats the client's"),
    ("no system prompt", "heddle.init.system_prompt", "lacks 'Answer like a weaver.'"),
    ("hasty farewell", "heddle.shutdown.drains", "['shutdown_ok', 'result']"),
    ("another exit code", "heddle.shutdown.answered", "the exit code is 3"),
    ("another version", "maestro.hello.answered", "protocol_version is '2020-01-01'"),
    ("two ends", "maestro.prompt.response", "what is between start and end"),
    ("no tool start", "maestro.tools.paired", "['tool_call', 'tool_end']"),
    ("doubled chunk", "maestro.prompt.text", "the text is"),
    ("resolved twice", "maestro.approval.approved", "server_request_resolved messages is 2"),
    ("another resolution", "maestro.approval.denied", "resolution is 'approved'"),
    ("no approval", "maestro.approval.asked", "without a request of the class approval"),
    ("stray message", "maestro.stdout.only_messages", "Loading plugins"),
    ("chatty", "maestro.optout.status", "'message': 'Hello'"),
    ("wrong total", "maestro.prompt.usage", "total_tokens is 1"),
    ("fatal", "maestro.lines.unknown_type", "error.fatal is True"),
    ("swapped streams", "maestro.command.output", "stdout is"),
    ("exited twice", "maestro.command.terminate", "utility_command_exited"),
    ("viewers rule", "maestro.viewer.prompt", "hello_ok.role is 'controller'"),
    ("deaf to init", "maestro.init.system_prompt", "lacks 'Answer like a conductor.'"),
    ("mild", "maestro.start.fails", "error.fatal is False"),
    ("lost attachments", "maestro.prompt.attachment", "the model did not get the text"),
    ("fatal", "maestro.prompt.model_fails", "error.fatal is True"),
    ("empty answers", "maestro.user_input.answered", "the model did not get the answer"),
    ("another resolution", "maestro.user_input.failed", "resolution is 'approved'"),
    ("another resolution", "maestro.tool_retry.aborted", "resolution is 'approved'"),
    ("dead mid-way", "maestro.prompt.response", "it ended its output"),
    ("another exit code", "maestro.shutdown.exit", "the exit code is 3"),
    ("version 2", "acp.initialize.answered", "protocolVersion is 2"),
    ("another code", "acp.rpc.unknown_method", "the error code is -32000"),
    ("late update", "acp.prompt.updates_before", "this came after the answer"),
    ("doubled update", "acp.prompt.text", "the text of all chunks"),
    ("always end_turn", "acp.cancel.running", "stopReason is 'end_turn'"),
    ("untold call", "acp.tools.lifecycle", "is updated before it is announced"),
    ("strange option", "acp.permission.request", "kind is 'maybe'"),
    ("answered twice", "acp.prompt.updates_before", "the number of answers is 2"),
    ("one session", "acp.session.new", "both sessions have the same id"),
    ("forgetful fork", "acp.session.fork", "does not know what was said before"),
    ("stray answer", "acp.stdout.only_messages", "Loading plugins"),
    ("no envelope", "acp.prompt.end_turn", "jsonrpc is '1.0'"),
    ("relative path", "acp.fs.read", "notes.md is relative"),
    ("strange update", "acp.prompt.update_shape", "sessionUpdate is 'chat'"),
    ("another exit code", "acp.eof.exit", "the exit code is 3"),
    ("markers as booleans", "acp.initialize.capabilities", "list is True, not an object"),
    ("obliging", "acp.authenticate.unknown", "it was carried out"),
    ("obliging", "acp.prompt.model_fails", "it was carried out"),
    ("no servers", "acp.session.mcp_stdio", "the server was not started"),
    ("forgotten options", "acp.config.set", "the answer does not tell"),
    ("untold call", "acp.permission.told_before", "were announced"),
]

SILENCE = [
    ("silent", "heddle.init.answered"),
    ("no heartbeats", "heddle.heartbeat.beats"),
    ("garbage unanswered", "heddle.lines.invalid_json"),
    ("torn result", "heddle.send.one_result"),
    ("deaf to cancel", "heddle.cancel.behind_send"),
    ("no errors", "maestro.lines.invalid_json"),
    ("deaf to interrupt", "maestro.interrupt.running"),
    ("no session_info", "maestro.hello.session_info"),
    ("watches here", "maestro.watch.outside"),
    ("reads the notes", "maestro.read.symlink"),
    ("ids as texts", "acp.rpc.ids"),
    ("deaf to session/cancel", "acp.cancel.running"),
    ("feigned", "heddle.cancel.tool_stopped"),
    ("feigned", "acp.cancel.tool_stopped"),
    ("deaf to interrupt", "maestro.interrupt.tool"),
    ("never leaves", "heddle.eof.idle"),
    ("never leaves", "maestro.eof.greeted"),
    ("never leaves", "acp.eof.exit"),
]


async def caught(
    faults: Sequence[tuple[str, str]], patience_s: float, at_once: int = 4
) -> list[Result]:
    """How the check of each fault goes, a few at a time."""
    results: dict[int, Result] = {}
    waiting = list(enumerate(faults))

    async def work() -> None:
        while waiting:
            place, (fault, check_id) = waiting.pop(0)
            command = spoiled(check_id.partition(".")[0], fault)
            results[place] = await judged(command, check_id, patience_s)

    async with asyncio.TaskGroup() as group:
        for _ in range(at_once):
            group.create_task(work())
    return [results[place] for place in sorted(results)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_each_fault_is_caught_by_the_check_that_names_it(protocol: str) -> None:
    planted = [one for one in FAULTS if one[1].startswith(f"{protocol}.")]
    assert len(planted) >= 8
    results = await caught([one[:2] for one in planted], PATIENCE_S)
    for (fault, _, reason), result in zip(planted, results, strict=True):
        assert (fault, result.finding) == (fault, "failed")
        assert reason in result.reason
        assert result.transcript


async def test_an_answer_or_an_end_that_never_comes_is_not_waited_for() -> None:
    results = await caught(SILENCE, 1.5, 8)
    for (fault, _), result in zip(SILENCE, results, strict=True):
        assert (fault, result.finding) == (fault, "failed")
        assert "expected" in result.reason


@pytest.mark.parametrize("fault", ["none", "stray line"])
async def test_what_stands_between_does_no_harm_and_spoils_nothing_else(fault: str) -> None:
    result = await judged(spoiled("heddle", fault), "heddle.send.event_seq")
    assert (result.finding, result.reason) == ("passed", "")
