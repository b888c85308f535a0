from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import PeerError
from batten.models.sse import Decoder, NdjsonDecoder, SseDecoder


def drain(decoder: Decoder, wire: bytes, cuts: list[int]) -> list[bytes]:
    """Everything a reader sees when `wire` arrives cut at these places."""
    places = sorted({min(place, len(wire)) for place in cuts} | {0, len(wire)})
    seen: list[bytes] = []
    for start, end in pairwise(places):
        seen += decoder.receive(wire[start:end])
    return seen + decoder.finish()


texts = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=30)
places = st.lists(st.integers(0, 300), max_size=10)


@given(st.lists(texts, max_size=6), st.sampled_from(["\n", "\r\n", "\r"]), places)
def test_events_survive_every_line_end_and_every_cut(
    sent: list[str], end: str, cuts: list[int]
) -> None:
    wire = "".join(f": note{end}event: x{end}data: {text}{end}{end}" for text in sent).encode()
    assert drain(SseDecoder(), wire, cuts) == [text.encode() for text in sent]


@given(st.binary(max_size=200), places)
def test_any_bytes_mean_the_same_however_they_are_cut(wire: bytes, cuts: list[int]) -> None:
    for make in (SseDecoder, NdjsonDecoder):
        assert drain(make(), wire, cuts) == drain(make(), wire, [])


@given(st.lists(st.sampled_from([b"data: a", b"\n", b"\r", b"\r\n", b"data:b", b"x"])), places)
def test_line_ends_mean_the_same_however_they_are_cut(parts: list[bytes], cuts: list[int]) -> None:
    wire = b"".join(parts)
    assert drain(SseDecoder(), wire, cuts) == drain(SseDecoder(), wire, [])


def test_data_of_several_lines_is_joined() -> None:
    assert SseDecoder().receive(b"data: a\ndata:b\ndata\nid: 7\n\n") == [b"a\nb"]


def test_a_mark_of_byte_order_is_passed_over() -> None:
    assert SseDecoder().receive(b"\xef\xbb\xbfdata: a\n\n") == [b"a"]


def test_an_event_at_a_bare_cr_is_not_held_back() -> None:
    decoder = SseDecoder()
    assert decoder.receive(b"data: a\r\r") == [b"a"]
    assert decoder.receive(b"\ndata: b\r\n\r\n") == [b"b"]


def test_what_is_left_at_the_end_is_given() -> None:
    decoder = SseDecoder()
    assert decoder.receive(b"data: [DONE]") == []
    assert decoder.finish() == [b"[DONE]"]


def test_lines_of_json_pass_over_blank_ones() -> None:
    decoder = NdjsonDecoder()
    assert decoder.receive(b'{"a":1}\r\n\n  \n{"b"') == [b'{"a":1}']
    assert decoder.receive(b":2}") == []
    assert decoder.finish() == [b'{"b":2}']


@pytest.mark.parametrize(
    "wire", [b"data: " + b"x" * 100, b"data: " + b"x" * 100 + b"\n\n", b"data: 123456\n" * 20]
)
def test_a_line_or_event_too_long_is_refused(wire: bytes) -> None:
    with pytest.raises(PeerError, match="longer than 50"):
        drain(SseDecoder(limit=50), wire, list(range(0, len(wire), 7)))
    with pytest.raises(PeerError, match="longer than 50"):
        SseDecoder(limit=50).receive(wire)
