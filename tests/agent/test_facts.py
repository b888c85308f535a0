"""What the event protocol promises of a run's facts, each promise on a real run."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec
import pytest

from batten.contract import facts as f
from batten.contract.conversation import File, Image
from batten.journal.recorder import load_artifact
from tests.models.server import Fault, ModelServer, answer
from tests.models.wire import anthropic_block, anthropic_end, anthropic_start, sse

from .acting import Acting
from .hooking import Log, hook, hooks_of
from .stage import Played, Stage, Statement, bash, call, finish, say

ALLOWED = ("--permission-mode", "dontAsk")
CLAUDE = "anthropic/claude-sonnet-4-5"


async def cancelled_after(stage: Stage, type_: str, *flags: str) -> Played:
    """A run that an operator cancels once it has stored a fact of this type."""
    async with stage.session(*ALLOWED, *flags) as session:
        execution = await session.prompt("go")
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            finishing = group.create_task(finish(session, execution))
            async with aclosing(session.deps.journal.follow(execution.run_id)) as pages:
                async for page in pages:
                    if any(stored.type == type_ for stored in page):
                        break
            await execution.cancel("operator", "enough")
        return finishing.result()


@pytest.mark.parametrize(
    "refused",
    [
        call("web_fetch", "c1", url="http://127.0.0.1:9/x"),
        call("http_request", "c1", url="http://[::1]:9/x"),
        call("read_file", "c1", file_path="../secret"),
        call("write_file", "c1", file_path="/etc/motd", content="x"),
        call("glob", "c1", pattern="*", path="/"),
    ],
    ids=lambda one: one["tool"],
)
async def test_a_call_outside_its_tools_bounds_is_blocked_and_never_invoked(
    stage: Stage, refused: Statement
) -> None:
    played = await stage.play([refused], [say("well")])
    blocked = played.one(f.PolicyToolBlocked)
    assert (blocked.tool_call_id, blocked.tool_name) == ("c1", refused["tool"])
    assert str(blocked.policy_id).startswith("bounds:")
    assert played.ended.outcome == "completed"
    invoked = ("tool.invoked", "requested", "tool.failed")
    assert not [type_ for type_ in played.types if type_.endswith(invoked)]


async def test_a_call_outside_its_tools_bounds_is_not_asked_about(stage: Stage) -> None:
    model = stage.scenario([call("http_request", "c1", url="http://10.0.0.1/")], [say("well")])
    played = await stage.run("--model", model)
    assert played.one(f.PolicyToolBlocked).policy_id == "bounds:address_refused"
    assert played.all(f.ApprovalRequested) == []


async def test_a_cancelled_command_keeps_its_exit_and_its_output(stage: Stage) -> None:
    model = stage.scenario([bash("echo begun; sleep 60", "c1")], [say("never")])
    played = await cancelled_after(stage, "tool.shell.output_chunk", "--model", model)
    exited, ended = played.one(f.ToolShellExited), played.one(f.ToolCancelled)
    assert (exited.exit_code, exited.signal, exited.stdout_bytes) == (-1, "SIGTERM", 6)
    assert ended.output == "Error: Aborted\nbegun\nEnded by signal SIGTERM"
    kept = next(one for one in played.all(f.ArtifactCreated) if one.kind == "command_output")
    assert ended.result_artifact_id == kept.artifact_id
    assert played.types.index("tool.shell.exited") < played.types.index("tool.cancelled")


async def test_a_command_that_the_runs_time_limit_ends_has_timed_out(stage: Stage) -> None:
    played = await stage.play([bash("sleep 60", "c1")], flags=["--max-seconds", "1"])
    assert played.ended.outcome == "timeout"
    assert played.one(f.ToolShellExited).signal == "SIGTERM"
    ended = played.one(f.ToolTimedOut)
    assert ended.after_ms == ended.duration_ms
    assert played.all(f.ToolCancelled) == []


async def test_a_tool_that_the_runs_time_limit_ends_has_timed_out(stage: Stage) -> None:
    model = stage.scenario([call("acting", "c1", act="wait")])
    played = await stage.run("--model", model, *ALLOWED, "--max-seconds", "1", tools=[Acting()])
    assert played.one(f.ToolTimedOut).output == "Error: the time limit of the run is reached"


async def test_every_tool_starts_and_every_event_of_a_call_names_it(stage: Stage) -> None:
    (stage.workspace / "a.txt").write_text("one\n")
    todo = {"content": "x", "status": "pending"}
    played = await stage.play(
        [
            call("read_file", "r", file_path="a.txt"),
            call("glob", "g", pattern="*"),
            call("grep", "s", pattern="one"),
            call("write_file", "w", file_path="b.txt", content="x"),
            call("edit_file", "e", file_path="a.txt", old_string="one", new_string="two"),
            call("todo_write", "t", todos=[todo]),
            bash("echo hi", "b"),
        ],
        [say("done")],
    )
    names = {one.tool_call_id: one.tool_name for one in played.all(f.ToolInvoked)}
    assert list(names) == ["r", "g", "s", "w", "e", "t", "b"]
    assert [one.tool_call_id for one in played.all(f.ToolStarted)] == list(names)
    reports = [one for one in played.facts if one.type.startswith("tool.")]
    assert len(reports) > 25
    for report in reports:
        assert names[report.tool_call_id] == report.tool_name  # type: ignore[attr-defined]


async def test_the_duration_of_a_turn_covers_its_tools(stage: Stage) -> None:
    played = await stage.play([bash("sleep 0.3")], [say("done")])
    turn = played.all(f.TurnCompleted)[0]
    assert turn.duration_ms >= played.one(f.ToolCompleted).duration_ms >= 300
    assert played.all(f.AssistantMessageComplete)[0].duration_ms < turn.duration_ms


async def test_an_interrupted_answer_keeps_its_text(stage: Stage) -> None:
    model = stage.scenario([say("some words " * 40, streamMs=60_000)])
    played = await cancelled_after(stage, "assistant.text_delta", "--model", model)
    text = played.one(f.AssistantTextComplete).text
    assert text
    assert text == "".join(one.delta for one in played.all(f.AssistantTextDelta))
    assert text != "some words " * 40
    assert played.types.index("assistant.text_complete") < played.types.index("turn.failed")


def half_an_answer() -> Sequence[bytes | Fault]:
    """The beginning of an answer; then the connection ends."""
    block = anthropic_block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Half"})
    begun = sse(anthropic_start(input_tokens=1000, output_tokens=1), *block[:2], named=True)
    return [*answer(begun)[:2], Fault.CLOSE]


async def test_an_answer_that_breaks_off_keeps_its_text(stage: Stage) -> None:
    async with ModelServer([half_an_answer()]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", CLAUDE, "--max-retries", "0")
    assert played.ended.outcome == "model_error"
    assert played.one(f.AssistantTextComplete).text == "Half"


async def test_an_attached_file_is_an_attachment_and_no_image(stage: Stage) -> None:
    stage.environ["MY_TOKEN"] = secret = "quite-1-secret-value"
    model = stage.scenario([say("seen")])
    attached: list[Image | File] = [
        Image("image/png", b"\x89PNG"),
        File("notes.txt", "text/plain", f"the token is {secret}".encode()),
    ]
    async with stage.session("--model", model) as session:
        execution = await session.prompt("look", attached)
        played = await finish(session, execution)
        _, file = played.all(f.UserAttachment)
        body = await load_artifact(session.deps.journal, file.artifact_id)
        blocks = execution.conversation.messages[0].blocks
    assert (file.kind, file.mime, file.name) == ("file", "text/plain", "notes.txt")
    assert body == b"the token is <redacted>"
    assert [type(block).__name__ for block in blocks] == ["Text", "Image"]


async def test_a_continued_run_names_the_cost_before_it(stage: Stage) -> None:
    start = anthropic_start(input_tokens=1000, output_tokens=1)
    reply = answer(sse(start, *anthropic_end(output_tokens=1), named=True))
    async with ModelServer([reply]) as server:
        stage.environ.update(server.environ())
        first = await stage.run("--model", CLAUDE)
        second = await stage.run("--model", CLAUDE, resume=first.ended.run_id)
        third = await stage.run("--model", CLAUDE, resume=first.ended.run_id)
    cost = first.one(f.RunFinished).cost_micros_usd
    assert cost > 0
    queued = [one.one(f.RunQueued) for one in (first, second, third)]
    assert queued[0].prior_cost_micros_usd is msgspec.UNSET
    assert [one.prior_cost_micros_usd for one in queued[1:]] == [cost, 2 * cost]


async def test_a_tool_server_that_is_not_there_is_a_fact_of_each_run(stage: Stage) -> None:
    config = '{"mcpServers": {"away": {"command": "/nowhere/at/all"}}}'
    played = await stage.play([say("well")], flags=["--mcp-config", config])
    missing = played.one(f.ErrorToolUnavailable)
    assert (missing.tool_name, missing.reason) == ("mcp__away", "mcp_server_unavailable")
    assert "/nowhere/at/all" in str(missing.message)
    assert played.types.index("error.tool_unavailable") < played.types.index("turn.started")


async def test_hooks_get_the_events_of_a_call_as_they_are_stored(stage: Stage) -> None:
    before, after = Log(stage.directory / "before"), Log(stage.directory / "after")
    secret = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
    model = stage.scenario([bash(f"echo {secret}", "c1")], [say("done")])
    hooks = hooks_of(stage, hook("PreToolUse", before.command), hook("PostToolUse", after.command))
    played = await stage.run("--model", model, *ALLOWED, hooks=hooks)
    stored = {one.type: msgspec.to_builtins(one) for one in played.run}
    ((told,), (ended,)) = before.payloads, after.payloads
    invoked = stored["tool.invoked"]
    assert told["fact"] == {"type": "tool.invoked", "data": invoked["data"]}
    assert ended["fact"] == stored["tool.completed"]
    assert secret not in str(ended["fact"])


async def test_thinking_is_journaled_only_if_the_settings_say_so(stage: Stage) -> None:
    thought = anthropic_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "Let me "},
        {"type": "thinking_delta", "thinking": "see"},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    said = anthropic_block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Yes."})
    body = sse(anthropic_start(input_tokens=5), *thought, *said, *anthropic_end(), named=True)
    async with ModelServer([answer(body)]) as server:
        stage.environ.update(server.environ())
        hidden = await stage.run("--model", CLAUDE, "--thinking-tokens", "2000")
        shown = await stage.run("--model", CLAUDE, "--thinking-tokens", "2000", "--record-thinking")
    assert not [one for one in hidden.types if "thinking" in one]
    assert "".join(one.delta for one in shown.all(f.AssistantThinkingDelta)) == "Let me see"
    assert shown.one(f.AssistantThinkingComplete).text == "Let me see"


async def test_a_model_without_schemas_is_a_missing_capability_once_a_run(stage: Stage) -> None:
    schema = '{"type": "object", "required": ["count"]}'
    played = await stage.play([say("no")], [say('{"count": 3}')], flags=["--json-schema", schema])
    missing = played.one(f.ErrorModelCapabilityMissing)
    assert (missing.missing_capability, missing.fallback_strategy) == (
        "structured_output",
        "schema_in_prompt",
    )
    plain = await stage.play([say("well")])
    assert plain.all(f.ErrorModelCapabilityMissing) == []


@pytest.mark.parametrize(
    ("command", "summary"),
    [("kill -9 $$", "ended by signal SIGKILL"), ("exit 7", "exited with status 7")],
)
async def test_a_failed_command_says_how_it_ended(stage: Stage, command: str, summary: str) -> None:
    failed = (await stage.play([bash(command, "c1")], [say("well")])).one(f.ToolFailed)
    assert (failed.summary, failed.error) == (summary, summary)


async def test_a_summary_has_one_line(stage: Stage) -> None:
    model = stage.scenario([call("acting", act="talk")], [say("well")])
    played = await stage.run(*ALLOWED, "--model", model, tools=[Acting()])
    assert played.one(f.ToolCompleted).summary == "1 %"
