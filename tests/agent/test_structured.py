"""An answer that must fit a schema: native, in words, asked for again, and given up on."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.agent.structured import json_values
from batten.contract import facts as f
from tests.models.server import ModelServer, answer, refusal
from tests.models.wire import anthropic_turn, chat_turn, responses_turn

from .stage import Stage, bash, say

SCHEMA = '{"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}'


async def test_an_answer_that_fits_is_also_given_as_a_value(stage: Stage) -> None:
    played = await stage.play([say('{"count": 3}')], flags=["--json-schema", SCHEMA])
    assert played.ended.progress.structured_output == {"count": 3}
    assert played.one(f.AssistantFinalAnswer).structured_output == {"count": 3}
    assert played.ended.answer == '{"count": 3}'


async def test_an_object_inside_other_words_is_found(stage: Stage) -> None:
    played = await stage.play(
        [say('Here: } {"count": 3, "why": "a { in a text"} and so on')],
        flags=["--json-schema", SCHEMA],
    )
    assert played.one(f.AssistantFinalAnswer).structured_output == {
        "count": 3,
        "why": "a { in a text",
    }


@pytest.mark.parametrize(
    ("said", "schema", "value"),
    [
        ("Two:\n```json\n[3, 4]\n```\nThat is all.", '{"type": "array"}', [3, 4]),
        ('Of [1] and {"why": "so"} follows {"count": 3}.', SCHEMA, {"count": 3}),
    ],
)
async def test_the_value_that_fits_is_taken_from_all_there_are(
    stage: Stage, said: str, schema: str, value: object
) -> None:
    played = await stage.play([say(said)], flags=["--json-schema", schema])
    assert played.one(f.AssistantFinalAnswer).structured_output == value


async def test_tools_may_be_used_before_the_answer(stage: Stage) -> None:
    played = await stage.play(
        [bash("echo 3")], [say('{"count": 3}')], flags=["--json-schema", SCHEMA]
    )
    assert played.ended.outcome == "completed"


async def test_an_answer_that_does_not_fit_is_asked_for_again_with_what_is_wrong(
    stage: Stage,
) -> None:
    played = await stage.play(
        [say("no idea")], [say('{"count": "3"}')], [say('{"count": 3}')],
        flags=["--json-schema", SCHEMA],
    )  # fmt: skip
    assert played.ended.outcome == "completed"
    _, first, second = played.all(f.UserMessage)
    assert "holds no JSON object" in first.text
    assert 'count: "3" is not of type "integer"' in second.text


async def test_two_further_tries_are_all_there_are(stage: Stage) -> None:
    wrong = [say('{"count": null}')]
    played = await stage.play(*[wrong] * 4, flags=["--json-schema", SCHEMA])
    assert played.ended.outcome == "schema_invalid"
    assert len(played.all(f.TurnStarted)) == 3
    assert 'count: null is not of type "integer"' in played.one(f.RunFailed).message
    assert played.all(f.AssistantFinalAnswer) == []


async def test_an_answer_nested_too_deeply_does_not_fit_any_schema(stage: Stage) -> None:
    deep = [say("[" * 400 + "]" * 400)]
    played = await stage.play(*[deep] * 4, flags=["--json-schema", "{}"])
    assert played.ended.outcome == "schema_invalid"
    assert "nested more than 64 levels deep" in played.one(f.RunFailed).message


@pytest.mark.parametrize(
    ("model", "reply"),
    [
        ("openai/gpt-5.5", responses_turn('{"count": 3}')),
        ("openai-chat/gpt-5.5", chat_turn('{"count": 3}')),
        ("anthropic/claude-sonnet-4-5", anthropic_turn('{"count": 3}')),
    ],
)
async def test_a_provider_that_holds_to_a_schema_is_given_it(
    stage: Stage, model: str, reply: bytes
) -> None:
    async with ModelServer([answer(reply)]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", model, "--json-schema", SCHEMA)
    assert played.ended.outcome == "completed"
    body = server.requests[0].body
    assert b'"count"' in body
    assert b"final answer is only a JSON value" not in body


async def test_a_provider_that_does_not_is_told_the_schema_in_words(stage: Stage) -> None:
    async with ModelServer([answer(chat_turn('{"count": 3}'))]) as server:
        stage.environ.update(server.environ())
        played = await stage.run("--model", "compat/any", "--json-schema", SCHEMA)
    assert played.ended.outcome == "completed"
    (system, _) = server.requests[0].json()["messages"]
    assert msgspec.json.encode(msgspec.json.decode(SCHEMA)).decode() in system["content"]


async def test_a_fallback_that_does_not_is_told_it_in_words_too(stage: Stage) -> None:
    gone = refusal(404, {"error": {"type": "not_found_error", "message": "no such model"}})
    async with ModelServer([gone, answer(chat_turn('{"count": 3}'))]) as server:
        stage.environ.update(server.environ())
        played = await stage.run(
            *("--model", "anthropic/claude-sonnet-4-5", "--fallback-model", "compat/any"),
            *("--json-schema", SCHEMA),
        )
    assert played.ended.outcome == "completed"
    first, second = server.requests
    assert b"final answer is only a JSON value" not in first.body
    (system, _) = second.json()["messages"]
    assert msgspec.json.encode(msgspec.json.decode(SCHEMA)).decode() in system["content"]


@given(st.dictionaries(st.text(), st.text() | st.integers()), st.text(alphabet="abc }\n"))
def test_an_object_is_found_in_any_words_before_it(value: dict[str, object], words: str) -> None:
    text = f"{words} {msgspec.json.encode(value).decode()} {words}"
    assert [found for found, _ in json_values(text)] == [value]


def test_many_braces_are_given_up_on() -> None:
    assert list(json_values("{" * 50_000 + '{"count": 3}')) == []


@given(st.text(alphabet='{}[]":,\\ a1', max_size=60))
def test_any_text_is_json_or_not_and_never_a_crash(text: str) -> None:
    for value, size in json_values(text):
        assert 0 < size <= len(text)
        msgspec.json.encode(value)
