"""Characters that a provider cuts in two: joined over deltas, replaced where half is missing."""

import pytest

from batten.contract.conversation import Text, ToolCall
from batten.contract.surrogates import decode_lone, paired
from batten.models.anthropic import AnthropicDialect
from batten.models.contract import BlockDone, TextDelta
from tests.models.calls import fold
from tests.models.wire import anthropic_end, anthropic_start, sse

ANTHROPIC = AnthropicDialect("claude-test-4-5", "http://127.0.0.1", key="k")


def text_of(*escaped: str) -> tuple[str, str]:
    """The text of a block with these deltas, written as JSON escapes: whole, and as it streamed."""
    start = '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
    deltas = [
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}' % one
        for one in escaped
    ]
    stop = '{"type":"content_block_stop","index":0}'
    events = fold(ANTHROPIC, [sse(anthropic_start(), start, *deltas, stop, *anthropic_end())])
    assert isinstance(events, list), events
    streamed = "".join(event.text for event in events if isinstance(event, TextDelta))
    (whole,) = [event.content for event in events if isinstance(event, BlockDone)]
    assert isinstance(whole, Text)
    return whole.text, streamed


@pytest.mark.parametrize(
    ("escaped", "text"),
    [
        (["\\ud83d\\ude00"], "😀"),
        (["a\\ud83d", "\\ude00b"], "a😀b"),
        (["a\\ud83d", "b"], "a\ufffdb"),
        (["a\\ud83d", "\\ud83d", "\\ude00"], "a\ufffd😀"),
        (["a\\ude00b"], "a\ufffdb"),
        (["\\ude00"], "\ufffd"),
        (["x\\ud83dy"], "x\ufffdy"),
        (["end\\ud83d"], "end\ufffd"),
    ],
)
def test_halves_are_joined_and_lone_ones_replaced(escaped: list[str], text: str) -> None:
    assert text_of(*escaped) == (text, text)


def test_arguments_with_a_lone_half_are_arguments_still() -> None:
    start = (
        '{"type":"content_block_start","index":0,'
        '"content_block":{"type":"tool_use","id":"c1","name":"read","input":{}}}'
    )
    delta = (
        '{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta",'
        '"partial_json":"{\\"path\\":\\"a\\\\ud83d\\"}"}}'
    )
    stop = '{"type":"content_block_stop","index":0}'
    wire = sse(anthropic_start(), start, delta, stop, *anthropic_end("tool_use"))
    events = fold(ANTHROPIC, [wire])
    assert isinstance(events, list), events
    (call,) = [event.content for event in events if isinstance(event, BlockDone)]
    assert call == ToolCall("c1", "read", {"path": "a\ufffd"})


def test_what_is_not_json_is_refused_all_the_same() -> None:
    assert decode_lone(b'{"text": "\\ud83d"') is None
    assert decode_lone(b'{"text": NaN, "x": "\\ud83d"}') is None
    assert decode_lone(b'{"limit": 1e999, "x": "\\ud83d"}') is None
    assert decode_lone(b"\xff\xed") is None
    assert fold(ANTHROPIC, [sse('{"type": "\\ud83d"')]) == "model_protocol"


def test_text_without_halves_is_unchanged() -> None:
    assert paired("naïve 😀 text") == "naïve 😀 text"


def test_half_a_character_in_the_place_of_an_object_is_a_protocol_error() -> None:
    delta = '{"type":"content_block_delta","index":0,"delta":"\\ud83d"}'
    assert fold(ANTHROPIC, [sse(anthropic_start(), delta)]) == "model_protocol"
