"""Whatever a client answers: each prompt has one result, and we are still there."""

import json
import os
import select
from collections.abc import Iterator, Mapping
from itertools import cycle
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.agent.stage import Stage, bash, call, say
from tests.claude.process import Json, Process, request, started, success
from tests.examples import examples

LENT = ["--mcp-config", json.dumps({"mcpServers": {"calc": {"type": "sdk", "name": "calc"}}})]
ASKS = ["--permission-prompt-tool", "stdio"]
ADD = "mcp__calc__add"
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


def nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"in": value}
    return value


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
DEEP = st.sampled_from([nested(60), nested(70), nested(400), nested(900)])
JSON = DEEP | st.recursive(
    SCALARS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def objects(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Objects with some of these fields, each as it should be or anything at all."""
    return JSON | st.fixed_dictionaries(
        {}, optional={key: one | JSON for key, one in fields.items()}
    )


def words(*known: str) -> st.SearchStrategy[str]:
    return st.sampled_from(known)


# No text that hypothesis makes up is run as a command.
INPUT = SCALARS | st.fixed_dictionaries({"command": SCALARS | words("true") | DEEP})
UPDATES = st.lists(
    objects(
        type=words("addRules", "replaceRules", "removeRules", "setMode", "addDirectories"),
        behavior=words("allow", "deny", "ask"),
        rules=st.lists(objects(toolName=words("Bash", "(((", ""), ruleContent=words("[", "a:*"))),
        mode=words("default", "plan", "bypassPermissions"),
    ),
    max_size=2,
)
REPLIES = {
    "can_use_tool": objects(
        behavior=words("allow", "deny"),
        updatedPermissions=UPDATES,
        message=words("no"),
        interrupt=st.booleans(),
    ).flatmap(lambda said: with_input(said)),
    "hook_callback": objects(
        decision=words("block", "approve"),
        reason=words("because"),
        systemMessage=words("psst"),
        hookSpecificOutput=objects(
            permissionDecision=words("allow", "deny", "ask", "defer"), additionalContext=words("x")
        ),
    ),
    "mcp_message": objects(
        mcp_response=objects(
            error=objects(message=words("no")),
            result=objects(
                serverInfo=objects(name=words("calc")),
                tools=st.lists(objects(name=words("add", "", "\0"), inputSchema=JSON), max_size=2),
                content=st.lists(objects(type=words("text", "image"), text=words("5"))),
                isError=st.booleans(),
            ),
        )
    ),
}
ANSWERS = st.fixed_dictionaries(
    {
        kind: st.lists(st.tuples(words("success", "success", "error") | JSON, reply), min_size=1)
        for kind, reply in REPLIES.items()
    }
)
"""Of each kind some, given one after the other and then again. All of them are there before the
first is given: an example that is left half way would leave a question open."""


def with_input(said: Any) -> st.SearchStrategy[Any]:
    if not isinstance(said, dict):
        return st.just(said)
    body = cast("Json", said)
    return INPUT.map(lambda changed: body | {"updatedInput": changed})


def answered(ours: Process, asked: Json, replies: Mapping[str, Iterator[tuple[Any, Any]]]) -> None:
    subtype, reply = next(replies[asked["request"]["subtype"]])
    answer = {"subtype": subtype, "request_id": asked["request_id"]}
    response = {**answer, "response": reply, "error": reply}
    ours.send({"type": "control_response", "response": response})


def test_no_answer_ends_us_and_each_prompt_has_one_result(stage: Stage) -> None:
    asks = call("ask_user", question="Which?", options=["a", "b"])
    turn = [[bash("true"), call(ADD, a=1), asks], [say("ok")]]
    hooks = {
        event: [{"hookCallbackIds": ["h"]}]
        for event in ("PreToolUse", "PostToolUse", "UserPromptSubmit", "PermissionRequest")
    }
    flags = [*LENT, *ASKS, "--allowedTools", "mcp__calc"]
    with started(stage, *turn * 300, flags=flags) as ours:
        ours.request("r1", "initialize", hooks=hooks)

        @settings(
            max_examples=examples(50), deadline=None, database=None, suppress_health_check=SLOW
        )
        @given(ANSWERS, JSON)
        def converse(answers: dict[str, list[tuple[Any, Any]]], odd: Any) -> None:
            replies = {kind: cycle(given) for kind, given in answers.items()}
            reconnect = request("r2", "mcp_reconnect", serverName="calc")
            mistaken = {"type": "control_request", "request_id": "r3", "request": odd}
            prompt = {"type": "user", "message": {"role": "user", "content": "go"}}
            ours.send_at_once(mistaken, reconnect, prompt)
            while (frame := ours.until("control_request", "result"))["type"] != "result":
                answered(ours, frame, replies)

        converse()
        before = ours.types.count("result")
        ours.request("r4", "mcp_status")
        while ours.until("control_response")["response"]["request_id"] != "r4":
            pass
        ours.end()
        assert "internal" not in ours.said
    assert ours.types.count("result") == before


@pytest.mark.parametrize("updates", [5, True, "abc", {"a": 1}, [7]])
def test_an_answer_with_updates_that_make_no_sense_is_a_no(stage: Stage, updates: Any) -> None:
    with started(stage, [bash("touch made", "c1")], [say("ok")], flags=ASKS) as ours:
        ours.prompt("go")
        asked = ours.until("control_request")
        ours.send(success(asked["request_id"], behavior="allow", updatedPermissions=updates))
        assert ours.until("result")["permission_denials"][0]["tool_use_id"] == "c1"
        assert ours.end() == 0
    assert "updatedPermissions" in json.dumps(ours.frames)
    assert not (stage.workspace / "made").exists()


@pytest.mark.parametrize("tools", [5, True, "abc", {"a": 1}])
def test_a_server_whose_tools_are_no_list_has_failed(stage: Stage, tools: Any) -> None:
    with started(stage, [say("ok")], flags=LENT) as ours:
        ours.request("r1", "initialize", hooks=None)
        for result in ({"serverInfo": 5}, {}, {"tools": tools}):
            asked = ours.until("control_request")
            ours.send(success(asked["request_id"], mcp_response={"result": result}))
        ours.prompt("go")
        assert ours.until("system")["mcp_servers"] == [{"name": "calc", "status": "failed"}]
        assert ours.until("result")["subtype"] == "success"
        ours.request("r2", "mcp_status")
        (server,) = ours.until("control_response")["response"]["response"]["mcpServers"]
        assert server["error"] == "its tools are no list"
        assert ours.end() == 0


def test_a_list_of_tools_that_never_ends_is_read_no_further(stage: Stage) -> None:
    with started(stage, [say("ok")], flags=LENT) as ours:
        ours.request("r1", "initialize", hooks=None)
        ours.prompt("go")
        page = {"tools": [{"name": "add"}], "nextCursor": "more"}
        while (frame := ours.until("control_request", "system"))["type"] != "system":
            ours.send(success(frame["request_id"], mcp_response={"result": page}))
        assert ADD in frame["tools"]
        assert ours.until("result")["subtype"] == "success"
        assert ours.end() == 0


def test_an_error_does_not_say_what_is_secret(stage: Stage) -> None:
    key = "sk-ant-api03-" + "a1B2" * 12
    with started(stage, [say("ok")], ANTHROPIC_API_KEY=key) as ours:
        for subtype, more in (("set_model", {"model": f"no/{key}"}), (key, {})):
            ours.request("r1", subtype, **more)
            answer = ours.until("control_response")["response"]
            assert answer["subtype"] == "error"
            assert key[:20] not in answer["error"]
        assert ours.end() == 0


def test_who_does_not_read_our_answers_is_not_read_any_further(stage: Stage) -> None:
    """What is read ahead and what the pipes hold is less than a client may want to send."""
    most = 150_000_000
    with started(stage, [say("never")]) as ours:
        line = json.dumps(request("r" * 256, "fly", padding="x" * 2000)).encode() + b"\n"
        assert _taken(ours, line * 500, most) < most


@pytest.mark.soak
def test_prompts_that_wait_are_read_only_as_far_as_there_is_room(stage: Stage) -> None:
    most = 600_000_000
    with started(stage, [bash("true", "c1")], [say("ok")], flags=ASKS) as ours:
        ours.prompt("go")
        ours.until("control_request")
        message = {"role": "user", "content": "q" * 20_000_000}
        line = json.dumps({"type": "user", "message": message}).encode() + b"\n"
        assert _taken(ours, line, most) < most


def _taken(ours: Process, lines: bytes, most: int) -> int:
    """How many bytes of such lines are taken, until none is for a while or it is too many."""
    taken, rest = 0, memoryview(lines)
    os.set_blocking(ours.stdin, False)
    while taken < most and select.select([], [ours.stdin], [], 2)[1]:
        written = os.write(ours.stdin, rest)
        taken, rest = taken + written, rest[written:] or memoryview(lines)
    return taken
