"""Every event that hooks are told of: when it fires, what is said, and what comes of an answer."""

import asyncio

import msgspec
import pytest
from msgspec.structs import replace

from batten.contract.facts import ContextCompacted, HookCompleted, RunFailed, UserMessage
from batten.session.history import facts_of
from batten.session.requests import resolve
from batten.session.session import Session
from batten.settings.contract import HookEvent
from tests.models.server import ModelServer, answer
from tests.models.wire import anthropic_turn

from .acting import Acting
from .hooking import Payload, deciding, hook, hooks_of, log_of, saying
from .stage import Played, Stage, Statement, bash, call, fail, finish, say

PRICES = b'{"as_of": "2026-02-03", "providers": {"anthropic": [[["=small"], 1000, ["1", "2"]]]}}'


async def tell(
    stage: Stage, event: HookEvent, *frames: list[Statement], flags: tuple[str, ...] = ()
) -> tuple[Played, list[Payload]]:
    """Play these frames with everything allowed, and keep what the event's hooks are told."""
    log = log_of(stage)
    model = stage.scenario(*frames)
    mode = () if "--permission-mode" in flags else ("--permission-mode", "dontAsk")
    played = await stage.run(
        *("--model", model, *mode, *flags),
        tools=[Acting()],
        hooks=hooks_of(stage, hook(event, log.command)),
    )
    return played, log.payloads


async def session_facts(session: Session) -> list[HookCompleted]:
    stream = session.session_id.replace("chat_", "run_")
    return [f async for f in facts_of(session.deps.journal, stream) if isinstance(f, HookCompleted)]


async def test_before_a_tool_hooks_are_told_in_the_words_of_both_worlds(stage: Stage) -> None:
    played, (told,) = await tell(stage, "PreToolUse", [bash("echo hi", "c1")], [say("done")])
    session_id = told.pop("session_id")
    assert session_id == played.run[0].session_id
    assert told == {
        "hookEventName": "PreToolUse",
        "hook_event_name": "PreToolUse",
        "run_id": played.ended.run_id,
        "cwd": str(stage.workspace),
        "transcript_path": "",
        "permission_mode": "dontAsk",
        "turn_index": 1,
        "tool": {"name": "bash", "useId": "c1", "input": {"command": "echo hi"}},
        "tool_name": "Bash",
        "tool_input": {"command": "echo hi"},
        "tool_use_id": "c1",
        "fact": {
            "type": "tool.invoked",
            "data": {
                "tool_call_id": "c1",
                "tool_name": "bash",
                "kind": "shell",
                "turn_index": 1,
            },
        },
    }
    fact = played.one(HookCompleted)
    assert (fact.hook_event, fact.tool_call_id) == ("PreToolUse", "c1")
    assert fact.detail == {"turn_index": 1, "tool_use_id": "c1", "matcher": "bash"}


async def test_after_a_tool_hooks_are_told_how_it_ended(stage: Stage) -> None:
    played, (told,) = await tell(stage, "PostToolUse", [bash("echo hi", "c1")], [say("done")])
    assert (told["tool_name"], told["tool_response"]) == ("Bash", "hi")
    assert told["fact"]["type"] == "tool.completed"
    assert told["fact"]["data"]["output"] == "hi"
    assert played.one(HookCompleted).detail["is_error"] is False  # type: ignore[index]
    types = played.types
    assert types.index("hook.completed") > types.index("tool.completed")


@pytest.mark.parametrize(
    ("act", "type_"), [("fail", "tool.failed"), ("time out", "tool.timed_out")]
)
async def test_after_a_tool_that_failed_another_event_fires(
    stage: Stage, act: str, type_: str
) -> None:
    frames: list[list[Statement]] = [[call("acting", "c1", act=act)], [say("done")]]
    _, (told,) = await tell(stage, "PostToolUseFailure", *frames)
    assert told["fact"]["type"] == type_
    assert told["error"]
    _, unheard = await tell(stage, "PostToolUse", *frames)
    assert unheard == [told]  # nothing was added


async def test_when_the_session_starts_hooks_may_add_to_the_system_prompt(stage: Stage) -> None:
    log = log_of(stage)
    nested = saying({"hookSpecificOutput": {"additionalContext": "Be brief."}})
    flat = saying({"additionalContext": "Be kind."})
    hooks = hooks_of(
        stage,
        hook("SessionStart", log.command),
        hook("SessionStart", nested),
        hook("SessionStart", flat),
        hook("SessionStart", "echo Be plain."),
        hook("SessionStart", "exit 1"),
        hook("SessionStart", log.command, matcher="resume"),
    )
    replies = [answer(anthropic_turn("one")), answer(anthropic_turn("two"))]
    async with ModelServer(replies) as server:
        stage.environ.update(server.environ())
        async with stage.session("--model", "anthropic/small", hooks=hooks) as session:
            played = await finish(session, await session.prompt("go"))
            await finish(session, await session.prompt("on"))
    (told,) = log.payloads
    assert (told["source"], told["cwd"]) == ("startup", str(stage.workspace))
    systems = [msgspec.json.encode(one.json()["system"]).decode() for one in server.requests]
    assert len(systems) == 2
    for system in systems:
        assert "Be brief.\\n\\nBe kind.\\n\\nBe plain." in system
    assert len(played.all(HookCompleted)) == 5
    assert played.types.index("hook.completed") < played.types.index("turn.started")
    detail = played.all(HookCompleted)[0].detail
    assert isinstance(detail, dict)
    assert (detail["provider"], detail["model"]) == ("anthropic", "small")


async def test_a_session_that_is_resumed_starts_as_such(stage: Stage) -> None:
    log = log_of(stage)
    model = stage.scenario([say("one")])
    first = await stage.run("--model", model)
    hooks = hooks_of(stage, hook("SessionStart", log.command, matcher="resume"))
    await stage.run("--model", model, resume=first.ended.run_id, hooks=hooks)
    assert [told["source"] for told in log.payloads] == ["resume"]


async def test_when_the_session_ends_hooks_are_told_what_it_took(stage: Stage) -> None:
    log = log_of(stage)
    hooks = hooks_of(stage, hook("SessionEnd", log.command))
    async with stage.session("--model", stage.scenario([say("one")]), hooks=hooks) as session:
        await finish(session, await session.prompt("go"))
        assert log.payloads == []
        await session.close("the client is done")
        (told,) = log.payloads
        (fact,) = await session_facts(session)
    assert (told["reason"], told["turn_count"]) == ("the client is done", 1)
    assert fact.detail == {
        "session_id": session.session_id,
        "turn_count": 1,
        "input_tokens": told["input_tokens"],
        "output_tokens": told["output_tokens"],
    }


async def test_a_prompt_that_a_hook_refuses_reaches_no_model(stage: Stage) -> None:
    refuse = 'grep -q secret && { echo "not that" >&2; exit 2; } || exit 0'
    hooks = hooks_of(stage, hook("UserPromptSubmit", refuse))
    model = stage.scenario([say("hello")])
    async with stage.session("--model", model, hooks=hooks) as session:
        played = await finish(session, await session.prompt("tell the secret"))
        assert (played.ended.outcome, played.ended.message) == ("hook_denied", "not that")
        assert played.one(RunFailed).code == "hook_denied"
        assert "turn.started" not in played.types
        execution = await session.prompt("hello")
        again = await finish(session, execution)
        texts = [message.text() for message in execution.conversation.messages]
    assert again.ended.answer == "hello"
    assert texts == ["hello", "hello"]


async def test_what_a_hook_adds_to_a_prompt_is_seen_by_the_model_and_again_later(
    stage: Stage,
) -> None:
    add = saying({"hookSpecificOutput": {"additionalContext": "It is Monday."}})
    hooks = hooks_of(stage, hook("UserPromptSubmit", add))
    model = stage.scenario([say("hello")])
    async with stage.session("--model", model, hooks=hooks) as session:
        execution = await session.prompt("go")
        played = await finish(session, execution)
        seen = execution.conversation.messages
    assert seen[0].text() == "goIt is Monday."
    detail = played.one(HookCompleted).detail
    assert isinstance(detail, dict)
    assert detail["prompt"] == "go"
    async with stage.session("--model", model, resume=played.ended.run_id) as session:
        resumed = await session.prompt("and?")
        assert resumed.conversation.messages[:2] == seen[:2]
        await resumed.finish()


async def test_a_prompt_s_hook_that_fails_refuses_it(stage: Stage) -> None:
    model = stage.scenario([say("hello")])
    hooks = hooks_of(stage, hook("UserPromptSubmit", "exit 9"))
    played = await stage.run("--model", model, hooks=hooks)
    assert played.ended.outcome == "hook_denied"
    assert "it ended with exit code 9" in played.ended.message


@pytest.mark.parametrize("answer", ["allow", "deny", "ask"])
async def test_hooks_may_answer_what_would_be_asked(stage: Stage, answer: str) -> None:
    log = log_of(stage)
    model = stage.scenario([bash("touch made", "c1")], [say("done")])
    decide = hook("PermissionRequest", saying(deciding(answer, "so be it")))
    hooks = hooks_of(stage, hook("PermissionRequest", log.command), decide)
    played = await stage.run("--model", model, hooks=hooks)
    assert (stage.workspace / "made").exists() is (answer == "allow")
    (told,) = log.payloads
    assert (told["tool_name"], told["tool_input"]) == ("Bash", {"command": "touch made"})
    detail = played.all(HookCompleted)[0].detail
    assert detail == {"tool_use_id": "c1", "tool_name": "bash", "rule_action": "ask"}


async def test_hooks_are_not_asked_for_what_is_allowed_or_denied(stage: Stage) -> None:
    model = stage.scenario([bash("true"), call("read_file", file_path="x")], [say("done")])
    hooks = hooks_of(stage, hook("PermissionRequest", "exit 2"))
    played = await stage.run("--model", model, "--deny", "bash", hooks=hooks)
    assert played.all(HookCompleted) == []


async def test_an_answer_in_the_other_form_may_change_the_call_or_end_the_run(
    stage: Stage,
) -> None:
    changed: Payload = {"behavior": "allow", "updatedInput": {"command": "touch other"}}
    answer: Payload = {"hookSpecificOutput": {"decision": changed}}
    model = stage.scenario([bash("touch made")], [say("done")])
    hooks = hooks_of(stage, hook("PermissionRequest", saying(answer)))
    await stage.run("--model", model, hooks=hooks)
    assert [path.name for path in stage.workspace.iterdir()] == ["other"]
    refusal = {"behavior": "deny", "message": "stop it", "interrupt": True}
    answer = {"hookSpecificOutput": {"decision": refusal}}
    hooks = hooks_of(stage, hook("PermissionRequest", saying(answer)))
    played = await stage.run("--model", model, hooks=hooks)
    assert (played.ended.outcome, played.ended.message) == ("cancelled", "stop it")


async def test_a_denied_call_is_told_of(stage: Stage) -> None:
    flags = ("--deny", "bash", "--permission-mode", "default")
    played, (told,) = await tell(
        stage, "PermissionDenied", [bash("true", "c1")], [say("done")], flags=flags
    )
    assert (told["reason"], told["fact"]["type"]) == ("denied by bash", "policy.tool_blocked")
    assert played.one(HookCompleted).detail == {
        "tool_use_id": "c1",
        "tool_name": "bash",
        "rule_action": "deny",
    }


async def test_changed_files_are_told_of_with_who_changed_them(stage: Stage) -> None:
    (stage.workspace / "old").write_text("a\nb\n")
    (stage.workspace / "other").write_text("a\n")
    edits = [
        {"file_path": "old", "old_string": "b", "new_string": "d"},
        {"file_path": "other", "old_string": "a", "new_string": "c"},
    ]
    _, told = await tell(
        stage,
        "FileChanged",
        [
            call("write_file", file_path="new", content="x"),
            call("edit_file", file_path="old", old_string="a", new_string="c"),
            call("multi_edit", edits=edits),
            call("read_file", file_path="new"),
        ],
        [say("done")],
    )
    seen = [(one["path"].rpartition("/")[2], one["kind"], one["tool"]["name"]) for one in told]
    assert seen == [
        ("new", "created", "write_file"),
        ("old", "modified", "edit_file"),
        ("old", "modified", "multi_edit"),
        ("other", "modified", "multi_edit"),
    ]
    assert told[0]["fact"]["type"] == "tool.file_write.applied"
    assert told[0]["path"] == str(stage.workspace / "new")


async def test_items_of_the_to_do_list_are_told_of_when_they_appear_and_when_they_are_done(
    stage: Stage,
) -> None:
    log = log_of(stage)
    first = [{"content": "a", "status": "pending"}, {"content": "b", "status": "in_progress"}]
    second = [{"content": "a", "status": "pending"}, {"content": "b", "status": "completed"}]
    third = [*second, {"content": "c", "status": "completed"}]
    model = stage.scenario(
        *([call("todo_write", todos=todos)] for todos in (first, second, third)), [say("done")]
    )
    hooks = hooks_of(stage, hook("TaskCreated", log.command), hook("TaskCompleted", log.command))
    await stage.run("--model", model, hooks=hooks)
    assert [
        (one["hook_event_name"], one["task_subject"], one["task_id"]) for one in log.payloads
    ] == [
        ("TaskCreated", "a", "1"),
        ("TaskCreated", "b", "2"),
        ("TaskCompleted", "b", "2"),
        ("TaskCreated", "c", "3"),
        ("TaskCompleted", "c", "3"),
    ]


async def test_agents_that_the_agent_starts_are_told_of_and_held_to_the_same_hooks(
    stage: Stage,
) -> None:
    log = log_of(stage)
    child = stage.scenario([bash("touch made", "k1")], [say("child done")], name="child")
    model = stage.scenario(
        [call("agent", "c1", prompt="do", description="the child", model=child)], [say("done")]
    )
    events: tuple[HookEvent, ...] = ("SubagentStart", "SubagentStop", "Stop", "UserPromptSubmit")
    deny = "grep -q touch && exit 2 || exit 0"
    hooks = hooks_of(
        stage, *(hook(event, log.command) for event in events), hook("PreToolUse", deny)
    )
    flags = ("--model", model, "--fallback-model", child, "--permission-mode", "dontAsk")
    played = await stage.run(*flags, hooks=hooks)
    assert not (stage.workspace / "made").exists()
    assert log.events == ["UserPromptSubmit", "SubagentStart", "SubagentStop", "Stop"]
    start, stop = log.payloads[1:3]
    assert (start["agent_name"], stop["success"]) == ("the child", True)
    assert start["agent_id"] == stop["agent_id"] != played.ended.run_id


async def test_a_hook_may_keep_the_agent_from_stopping_a_few_times(stage: Stage) -> None:
    log = log_of(stage)
    model = stage.scenario(*([say(f"answer {number}")] for number in range(6)))
    block = saying({"decision": "block", "reason": "run the tests"})
    hooks = hooks_of(stage, hook("Stop", log.command), hook("Stop", block))
    played = await stage.run("--model", model, hooks=hooks)
    assert played.ended.outcome == "completed"
    assert played.ended.answer == "answer 3"
    assert [fact.text for fact in played.all(UserMessage)] == ["go", *["run the tests"] * 3]
    assert [one["stop_hook_active"] for one in log.payloads] == [False, True, True, True]
    assert log.payloads[0]["last_assistant_message"] == "answer 0"


async def test_a_hook_that_wants_the_end_when_it_comes_has_it(stage: Stage) -> None:
    hooks = hooks_of(stage, hook("Stop", saying({"continue": False, "stopReason": "now"})))
    played = await stage.run("--model", stage.scenario([say("done")]), hooks=hooks)
    assert (played.ended.outcome, played.ended.answer) == ("completed", "done")


@pytest.mark.parametrize("event", ["PostToolUse", "SessionStart", "FileChanged", "TaskCreated"])
async def test_a_hook_of_any_event_may_end_the_run(stage: Stage, event: HookEvent) -> None:
    calls = [
        call("todo_write", todos=[{"content": "a", "status": "pending"}]),
        call("write_file", file_path="new", content="x"),
    ]
    hooks = hooks_of(stage, hook(event, saying({"continue": False, "stopReason": "enough"})))
    model = stage.scenario(calls, [say("never said")])
    played = await stage.run("--model", model, "--permission-mode", "dontAsk", hooks=hooks)
    assert (played.ended.outcome, played.ended.message) == ("hook_denied", "enough")
    assert len(played.all(HookCompleted)) == 1


async def test_a_run_that_ends_badly_is_told_of_before_its_end(stage: Stage) -> None:
    played, (told,) = await tell(stage, "StopFailure", [fail("fatal", "no key")])
    assert played.ended.outcome == "model_error"
    assert (told["outcome"], told["error"]) == ("model_error", played.ended.message)
    assert played.types[-2:] == ["hook.completed", "run.failed"]


async def test_a_run_that_ends_well_or_is_cancelled_has_not_failed(stage: Stage) -> None:
    played, told = await tell(stage, "StopFailure", [say("done")])
    assert (played.ended.outcome, told) == ("completed", [])


async def test_a_request_that_waits_is_told_of_while_it_waits(stage: Stage) -> None:
    log = log_of(stage)
    hooks = hooks_of(stage, hook("Notification", log.command))
    model = stage.scenario([bash("touch made", "c1")], [say("done")])
    async with stage.session("--model", model, "--ask-operator", hooks=hooks) as session:
        execution = await session.prompt("go")
        async with asyncio.timeout(20), asyncio.TaskGroup() as group:
            finishing = group.create_task(finish(session, execution))
            journal = session.deps.journal
            async for page in journal.follow(execution.run_id):
                if any(stored.type == "hook.completed" for stored in page):
                    break
            (request,) = await journal.requests(execution.run_id)
            assert request.status == "pending"
            await resolve(
                journal, session.deps.redactor, request.request_id, granted=True, by="operator"
            )
        assert (stage.workspace / "made").exists()
        assert finishing.result().ended.outcome == "completed"
    (told,) = log.payloads
    assert told["notification_type"] == "permission_prompt"
    assert told["message"] == "bash waits for approval: touch made"


async def test_a_compaction_is_told_of_before_and_after(stage: Stage) -> None:
    prices = stage.directory / "prices.json"
    prices.write_bytes(PRICES)
    stage.environ["BATTEN_PRICES"] = str(prices)
    log = log_of(stage)
    hooks = hooks_of(stage, hook("PreCompact", log.command), hook("PostCompact", log.command))
    texts = ["a" * 440, "b" * 440, "c" * 440, "we talked", "the end"]
    async with ModelServer([answer(anthropic_turn(text)) for text in texts]) as server:
        stage.environ.update(server.environ())
        flags = ("--model", "anthropic/small", "--system", "Be brief.", "--no-instructions")
        async with stage.session(*flags, "--tools", "todo_write", hooks=hooks) as session:
            session.settings = replace(session.settings, protect_tokens=100, max_output_tokens=50)
            prompts = [f"{number} {'x' * 440}" for number in range(4)]
            runs = [await finish(session, await session.prompt(text)) for text in prompts]
    played = runs[-1]
    compacted = played.one(ContextCompacted)
    before, after = log.payloads
    assert (before["hook_event_name"], before["trigger"]) == ("PreCompact", "auto")
    assert before["token_count_before"] == compacted.tokens_before
    assert (after["hook_event_name"], after["compacted"]) == ("PostCompact", True)
    assert after["token_count_after"] < before["token_count_before"]
    types = [fact.type for fact in played.facts]
    assert types.index("hook.completed") < types.index("context.compacted")


async def test_a_change_of_settings_is_told_of_aside(stage: Stage) -> None:
    log = log_of(stage)
    hooks = hooks_of(stage, hook("ConfigChange", log.command))
    async with stage.session("--model", stage.scenario([say("x")]), hooks=hooks) as session:
        await session.configure({"permission_mode": "plan"})
        await hooks.settle()
        (fact,) = await session_facts(session)
    assert fact.detail == {"changed_keys": ["permission_mode"]}
    assert log.payloads[0]["changed_keys"] == ["permission_mode"]
    assert log.payloads[0]["permission_mode"] == "plan"
