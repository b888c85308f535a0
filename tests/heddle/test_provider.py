"""Sends to a model behind HTTP: what the client is told of its words, tokens and failures."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest

from tests.agent.stage import Stage
from tests.heddle.working import Json, Worker, calling, events, init, names, saying, working
from tests.models.server import ModelServer, Reply, answer, refusal
from tests.models.wire import anthropic_turn

FAILURE = {"error": {"message": "Model error", "type": "error", "code": 500}}


def torn_call() -> Reply:
    """A call whose arguments are no JSON."""
    return [
        piece.replace(b'true\\"}', b"tru!!!!") if isinstance(piece, bytes) else piece
        for piece in calling("bash", {"command": "true"})
    ]


@asynccontextmanager
async def served(
    stage: Stage, replies: Sequence[Reply], *flags: str, **environ: str
) -> AsyncGenerator[tuple[Worker, ModelServer], None]:
    """A worker whose models are all at a server with these replies."""
    async with ModelServer(replies) as server:
        variables = {"HEDDLE_BASE_URL": f"{server.url}/v1", "OPENROUTER_API_KEY": "k", **environ}
        async with working(stage, *flags, environ=variables) as worker:
            yield worker, server


async def test_deltas_usage_and_tools_come_in_their_order(stage: Stage) -> None:
    (stage.workspace / "a.txt").write_text("x")
    replies = [calling("glob", {"pattern": "*"}), saying("Here ", "they are.")]
    async with served(stage, replies) as (worker, server):
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s", "List the files.")
        assert events(heard) == [
            {"event": "tool_start", "name": "glob", "args": {"pattern": "*"}},
            {"event": "tool_end", "name": "glob", "result_preview": "a.txt"},
            {"event": "content_delta", "text": "Here "},
            {"event": "content_delta", "text": "they are."},
            {
                "event": "usage",
                "prompt_tokens": 42,
                "completion_tokens": 15,
                "total_tokens": 57,
            },
        ]
        result = heard[-1]
        assert result["response"] == "Here they are."
        assert result["tool_calls_made"] == [{"name": "glob", "args": {"pattern": "*"}}]
        assert result["iterations"] == 2
        asked = server.requests[0].json()
        assert asked["model"] == "vendor/model-x"
        assert asked["messages"][0]["role"] == "system"
        assert asked["messages"][0]["content"].startswith("Be brief.")
        offered = {tool["function"]["name"] for tool in asked["tools"]}
        assert offered == {"bash", "glob"}


async def test_the_usage_of_a_result_is_that_of_all_its_model_calls(stage: Stage) -> None:
    replies = [
        calling("glob", {"pattern": "a"}),
        saying("One.", tokens=(10, 1)),
        saying("Two.", tokens=(20, 2)),
    ]
    async with served(stage, replies) as (worker, _):
        await worker.ask(init(), "init_ok")
        first, second = await worker.send("s"), await worker.send("t")
        assert len(events(first, "usage")) == 1
        assert first[-1]["usage"] == {
            "prompt_tokens": 10,
            "completion_tokens": 1,
            "total_tokens": 11,
        }
        assert second[-1]["usage"]["total_tokens"] == 22


async def test_a_provider_that_fails_is_told_with_its_own_words(stage: Stage) -> None:
    async with served(stage, [refusal(400, FAILURE)]) as (worker, _):
        await worker.ask(init(), "init_ok")
        (event, result) = await worker.send("s")
        error: Json = {"code": "provider_error", "message": "Model error", "retryable": True}
        told = {**error, "details": FAILURE}
        assert event["event"] == {"event": "error", **told, "provider": "openrouter"}
        assert (event["event_seq"], event["send_id"]) == (0, "s")
        assert (result["status"], result["error"]) == ("error", told)
        assert (result["iterations"], result["tool_calls_made"]) == (0, [])


async def test_since_0_5_only_some_failures_are_worth_another_try(stage: Stage) -> None:
    async with served(stage, [refusal(400, FAILURE)]) as (worker, _):
        await worker.ask(init("0.5.0"), "init_ok")
        result = (await worker.send("s"))[-1]
        assert result["error"]["retryable"] is False
        assert result["failure"] == {
            "code": "provider_error",
            "termination_reason": "Model error",
            "iterations": 0,
            "tool_calls_made": 0,
            "provider": {
                "name": "openrouter",
                "status": 400,
                "status_category": "4xx",
                "error_type": "error",
                "provider_code": 500,
            },
        }


async def test_since_0_5_who_says_when_to_come_back_is_worth_another_try(stage: Stage) -> None:
    later = refusal(400, FAILURE, **{"retry-after": "1.5"})
    async with served(stage, [later]) as (worker, _):
        await worker.ask(init("0.5.0"), "init_ok")
        result = (await worker.send("s"))[-1]
        assert result["error"]["retryable"] is True
        assert result["failure"]["provider"]["retry_after_ms"] == 1500


async def test_later_minors_tell_of_the_model_the_cache_and_the_generation(stage: Stage) -> None:
    replies = [saying("Hello.", model="vendor/model-x-2026")]
    async with served(stage, replies) as (worker, _):
        await worker.ask(init("0.3.0"), "init_ok")
        heard = await worker.send("s")
        assert names(heard) == ["content_delta", "routed_model", "usage"]
        assert events(heard, "routed_model")[0]["model"] == "vendor/model-x-2026"
        assert heard[-1]["usage"]["generation_id"] == "gen-7"
        again = await worker.send("t")
        assert "routed_model" not in names(again)
        status = await worker.ask({"type": "status", "id": "q"}, "status_ok")
        assert status["last_routed_model"] == "vendor/model-x-2026"


async def test_since_0_5_it_is_told_who_answered_behind_a_gateway(stage: Stage) -> None:
    first, second = saying("One.", upstream="Loom"), saying("Two.", upstream="Reed")
    async with served(stage, [first, first, second]) as (worker, _):
        greeted = await worker.ask(init("0.5.0", routing={"request_id": "r"}), "init_ok")
        assert "effective_routing" not in greeted
        told = [await worker.send(send_id) for send_id in ("s", "t", "u")]
        assert [events(heard, "upstream_provider") for heard in told] == [
            [{"event": "upstream_provider", "provider": "Loom"}],
            [],
            [{"event": "upstream_provider", "provider": "Reed"}],
        ]
        last = told[-1][-1]
        history = ["Loom", "Reed"]
        assert last["effective_routing"] == {
            "upstream_provider": "Reed",
            "upstream_provider_history": history,
        }
        assert last["routing"] == {
            "request_id": "r",
            "effective_upstream_provider": "Reed",
            "upstream_provider_history": history,
        }
        assert last["requested_routing"] == {"request_id": "r"}


async def test_since_0_5_a_call_that_could_not_be_read_is_told_with_the_failure(
    stage: Stage,
) -> None:
    torn = torn_call()
    async with served(stage, [torn, torn, torn]) as (worker, _):
        await worker.ask(init("0.5.0"), "init_ok")
        failure = (await worker.send("s"))[-1]["failure"]
        assert failure["code"] == "loop_detected"
        assert failure["malformed_tool_call"] == {"id": "c1-3", "name": "bash", "args": None}


async def test_a_client_of_0_2_hears_nothing_of_later_minors(stage: Stage) -> None:
    replies = [saying("Hello.", model="vendor/model-x-2026")]
    async with served(stage, replies) as (worker, _):
        greeted = await worker.ask(init(routing=7, runtime="odd", hooks=[1]), "init_ok")
        assert set(greeted) == {"type", "id", "session_id", "protocol_version"}
        heard = await worker.send("s")
        assert names(heard) == ["content_delta", "usage"]
        assert set(heard[-1]["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}


async def test_attribution_is_sent_if_it_is_whole(stage: Stage) -> None:
    async with served(stage, [saying("x")]) as (worker, server):
        whole = {"referer": "https://example.org", "title": "Loom"}
        await worker.ask(init("0.3.0", app_attribution=whole), "init_ok")
        await worker.send("s")
        half = {"referer": "https://example.org", "title": " "}
        await worker.ask(init("0.3.0", "j", app_attribution=half), "init_ok")
        await worker.send("t")
        first, second = (request.headers for request in server.requests)
        assert (first["http-referer"], first["x-title"]) == ("https://example.org", "Loom")
        assert "http-referer" not in second


async def test_the_variables_reach_the_model(stage: Stage) -> None:
    environ = {"HEDDLE_MAX_TOKENS": "77", "HEDDLE_TEMPERATURE": "0"}
    async with served(stage, [saying("x")], **environ) as (worker, server):
        await worker.ask(init(), "init_ok")
        await worker.send("s")
        asked = server.requests[0].json()
        assert (asked["max_tokens"], asked["temperature"]) == (77, 0)


async def test_the_tools_are_the_clients_whatever_the_operators_variable_says(
    stage: Stage,
) -> None:
    async with served(stage, [saying("x")], HEDDLE_TOOLS="grep, glob") as (worker, server):
        await worker.ask(init(tools=["bash"]), "init_ok")
        await worker.send("s")
        offered = {tool["function"]["name"] for tool in server.requests[0].json()["tools"]}
        assert offered == {"bash"}


async def test_a_client_gets_no_more_than_the_operators_flags_allow(stage: Stage) -> None:
    flags = ("--tools", "grep,glob", "--max-turns", "1")
    replies = [calling("glob", {"pattern": "*"}), saying("never asked")]
    async with served(stage, replies, *flags) as (worker, server):
        asked = init("0.5.0", tools=["bash", "glob"], max_iterations=9)
        greeted = await worker.ask(asked, "init_ok")
        assert greeted["capabilities"]["enabled_tools"] == ["glob"]
        heard = await worker.send("s")
        assert heard[-1]["error"]["code"] == "max_iterations"
        (request,) = server.requests
        assert [tool["function"]["name"] for tool in request.json()["tools"]] == ["glob"]


@pytest.mark.parametrize("version", ["0.2.0", "0.5.0"])
async def test_no_tool_is_enabled_where_none_is_named(stage: Stage, version: str) -> None:
    async with served(stage, [saying("x")]) as (worker, server):
        await worker.ask(init(version, tools=[]), "init_ok")
        assert (await worker.send("s"))[-1]["status"] == "ok"
        assert not server.requests[0].json().get("tools")


async def test_since_0_5_the_tools_are_exactly_those_named(stage: Stage) -> None:
    async with served(stage, [saying("x")]) as (worker, server):
        greeted = await worker.ask(init("0.5.0", tools=["grep", "nonesuch", "bash"]), "init_ok")
        assert greeted["capabilities"]["enabled_tools"] == ["bash", "grep"]
        await worker.send("s")
        offered = {tool["function"]["name"] for tool in server.requests[0].json()["tools"]}
        assert offered == {"bash", "grep"}


async def test_arguments_that_are_no_json_are_shown_as_none(stage: Stage) -> None:
    torn = torn_call()
    async with served(stage, [torn, saying("x")]) as (worker, _):
        await worker.ask(init(), "init_ok")
        heard = await worker.send("s")
        (start,) = events(heard, "tool_start")
        assert start["args"] == {}
        assert events(heard, "tool_end")[0]["result_preview"].startswith("Error: ")
        assert heard[-1]["status"] == "ok"


async def test_a_message_that_is_too_long_is_not_worth_another_try(stage: Stage) -> None:
    prices = stage.directory / "prices.json"
    prices.write_text(
        '{"as_of": "2026-02-03", "providers": {"anthropic": [[["=small"], 4000, ["1", "2"]]]}}'
    )
    async with ModelServer([answer(anthropic_turn("fine"))]) as server:
        environ = {**server.environ(), "BATTEN_PRICES": str(prices)}
        async with working(stage, environ=environ) as worker:
            await worker.ask(init(model="anthropic/small", tools=[]), "init_ok")
            refused = await worker.send("s1", "word " * 10_000)
            answered = await worker.send("s2", "Still there?")
    (event,), error = events(refused), refused[-1]["error"]
    assert (error["code"], error["retryable"]) == ("protocol_error", False)
    assert (event["code"], event["retryable"]) == ("protocol_error", False)
    assert "is not in the conversation" in error["message"]
    assert answered[-1]["response"] == "fine"
    assert len(server.requests) == 1
