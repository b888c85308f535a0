"""What holds for every adapter's stream, whoever the provider is."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batten.contract.conversation import Text, Thinking, ToolCall
from batten.models.anthropic import AnthropicDialect
from batten.models.contract import BlockDone, Done, ModelEvent, TextDelta, ThinkingDelta
from batten.models.exchange import Dialect
from batten.models.google import GoogleDialect
from batten.models.ollama import OllamaDialect
from batten.models.openai_chat import ChatDialect
from batten.models.openai_responses import ResponsesDialect
from tests.examples import examples
from tests.models.calls import fold
from tests.models.wire import (
    anthropic_block,
    anthropic_end,
    anthropic_start,
    anthropic_text_block,
    anthropic_turn,
    chat_turn,
    gemini_chunk,
    ndjson,
    ollama_line,
    responses_turn,
    sse,
)

BASE = "http://localhost"
CALLS = [("c1", "read", {"path": "ä"}), ("c2", "bash", {"command": "ls -l"})]
THOUGHT = anthropic_block(
    0,
    {"type": "thinking", "thinking": "", "signature": ""},
    {"type": "thinking_delta", "thinking": "Grüße 🌳"},
    {"type": "signature_delta", "signature": "c2ln"},
)
STREAMS: dict[str, tuple[Callable[[], Dialect], bytes]] = {
    "anthropic": (
        lambda: AnthropicDialect("claude-sonnet-4-5", BASE),
        anthropic_turn("Häuser 🏠", CALLS),
    ),
    "anthropic thinking": (
        lambda: AnthropicDialect("claude-sonnet-4-5", BASE),
        sse(
            anthropic_start(),
            *THOUGHT,
            *anthropic_text_block(1, "Ja"),
            *anthropic_end(),
            named=True,
        ),
    ),
    "responses": (lambda: ResponsesDialect(BASE), responses_turn("Häuser 🏠", CALLS)),
    "chat": (lambda: ChatDialect("compat", BASE), chat_turn("Häuser 🏠", CALLS)),
    "google": (
        lambda: GoogleDialect("gemini-3", BASE),
        sse(
            gemini_chunk({"text": "Hm", "thought": True}),
            gemini_chunk({"text": "Häuser 🏠"}),
            gemini_chunk(
                {
                    "functionCall": {"id": "c1", "name": "f", "args": {"a": 1}},
                    "thoughtSignature": "s",
                },
                finish="STOP",
            ),
        ),
    ),
    "ollama": (
        lambda: OllamaDialect(BASE),
        ndjson(
            ollama_line(thinking="Hm"),
            ollama_line(content="Häuser 🏠"),
            ollama_line(
                tool_calls=[{"id": "c1", "function": {"name": "f", "arguments": {"a": 1}}}]
            ),
            ollama_line(done=True),
        ),
    ),
}
names = pytest.mark.parametrize("name", STREAMS)


def read(name: str, chunks: list[bytes]) -> list[ModelEvent] | str:
    return fold(STREAMS[name][0](), chunks)


def whole(name: str) -> list[ModelEvent]:
    events = read(name, [STREAMS[name][1]])
    assert isinstance(events, list)
    return events


@names
def test_every_cut_in_two_means_the_same(name: str) -> None:
    wire = STREAMS[name][1]
    expected = whole(name)
    for place in range(len(wire)):
        assert read(name, [wire[:place], wire[place:]]) == expected


@names
@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 3000), max_size=20))
def test_however_the_bytes_are_cut_the_events_are_the_same(name: str, cuts: list[int]) -> None:
    wire = STREAMS[name][1]
    places = sorted({min(place, len(wire)) for place in cuts} | {0, len(wire)})
    chunks = [wire[a:b] for a, b in pairwise(places)]
    assert read(name, chunks) == whole(name)


@names
@settings(deadline=None, max_examples=examples(300))
@given(data=st.data())
def test_a_damaged_byte_is_a_provider_error_or_other_data(name: str, data: st.DataObject) -> None:
    wire = bytearray(STREAMS[name][1])
    wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))
    folded = read(name, [bytes(wire)])
    if isinstance(folded, list):
        assert_is_well_formed(folded)
    else:
        assert folded.startswith(("model_", "context_"))


@names
def test_a_stream_cut_anywhere_never_ends_well(name: str) -> None:
    wire = STREAMS[name][1]
    cut_short = [
        place for place in range(len(wire)) if isinstance(read(name, [wire[:place]]), list)
    ]
    # Only what follows the last thing said may be missing: a blank line, a last mark.
    assert all(read(name, [wire[:place]]) == whole(name) or name == "chat" for place in cut_short)
    assert all(place > len(wire) * 0.7 for place in cut_short)


@names
def test_deltas_add_up_to_their_blocks_and_blocks_are_numbered_in_order(name: str) -> None:
    assert_is_well_formed(whole(name))


def assert_is_well_formed(events: list[ModelEvent]) -> None:
    said: dict[int, str] = {}
    ended: list[int] = []
    for event in events[:-1]:
        assert not isinstance(event, Done)
        if isinstance(event, BlockDone):
            ended.append(event.block)
            if isinstance(event.content, Text | Thinking):
                assert said.get(event.block, "") == event.content.text
            else:
                assert isinstance(event.content, ToolCall)
                assert event.content.id
        elif isinstance(event, TextDelta | ThinkingDelta):
            said[event.block] = said.get(event.block, "") + event.text
    assert ended == list(range(len(ended)))
    assert isinstance(events[-1], Done)
