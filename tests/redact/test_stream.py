"""A stream gives what the whole text would have given, however it is cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batten.redact.redactor import Redactor, redacted_bytes
from batten.redact.stream import ByteRedactor, StreamRedactor
from tests.examples import examples
from tests.redact.planted import ANTHROPIC, BODY, FRAGMENTS, KNOWN, LINES, PEM, VENDORS

REDACTOR = Redactor(KNOWN)

texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=8), min_size=1, max_size=14).map(
    "".join
)


def cut(text: str, data: st.DataObject) -> list[str]:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=20).map(sorted))
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]


@settings(max_examples=examples(400), deadline=None)
@given(texts, st.data())
def test_a_text_cut_anywhere_gives_what_the_whole_gives_and_never_shows_a_known_value(
    text: str, data: st.DataObject
) -> None:
    stream = StreamRedactor(REDACTOR)
    shown = ""
    for piece in cut(text, data):
        shown += stream.feed(piece)
        assert not any(value in shown for value in KNOWN)
    assert shown + stream.flush() == REDACTOR.text(text)


@settings(max_examples=examples(150), deadline=None)
@given(texts)
def test_a_text_that_arrives_letter_by_letter_gives_what_the_whole_gives(text: str) -> None:
    stream = StreamRedactor(REDACTOR)
    assert "".join(map(stream.feed, text)) + stream.flush() == REDACTOR.text(text)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(texts.map(str.encode) | st.binary(max_size=6), max_size=6), st.data())
def test_bytes_cut_inside_characters_give_what_the_whole_gives(
    parts: list[bytes], data: st.DataObject
) -> None:
    whole = b"".join(parts)
    places = data.draw(st.lists(st.integers(0, len(whole)), max_size=20).map(sorted))
    stream = ByteRedactor(REDACTOR)
    shown = b"".join(
        stream.feed(whole[a:b]) for a, b in zip([0, *places], [*places, len(whole)], strict=True)
    )
    assert shown + stream.flush() == redacted_bytes(whole, REDACTOR.text)


def test_ordinary_text_passes_straight_through() -> None:
    stream = StreamRedactor(REDACTOR)
    deltas = ["The fix", " is in", " `parser.py`:", " the list", " ended one", " too early."]
    assert [stream.feed(delta) for delta in deltas] == deltas


def test_only_the_beginning_of_a_known_value_is_held_back() -> None:
    stream = StreamRedactor(REDACTOR)
    assert stream.feed("it was s3k") == "it was "
    assert stream.feed("ing after") == "s3king after"


def test_a_known_value_cut_in_two_is_one_mark() -> None:
    stream = StreamRedactor(REDACTOR)
    assert [stream.feed("a s3kr1t-"), stream.feed("Value-99 b")] == ["a ", "<redacted> b"]


@pytest.mark.parametrize("piece", ["A1" * 500, ANTHROPIC, BODY])
def test_an_endless_secret_is_replaced_in_bounded_memory(piece: str) -> None:
    stream = StreamRedactor(REDACTOR)
    shown = stream.feed("api_key=" if "A1" in piece else PEM.partition("\n")[0] + "\n")
    for _ in range(2000):
        shown += stream.feed(piece.replace("-", "x"))
        assert stream.held < 1500
    assert shown.count("<redacted>") == 1
    assert len(shown) < 100


@pytest.mark.parametrize("secret", VENDORS)
def test_a_key_of_any_vendor_is_found_wherever_it_is_cut(secret: str) -> None:
    text = f"it uses {secret}, I think"
    whole = REDACTOR.text(text)
    assert secret[-12:] not in whole
    for place in range(1, len(text)):
        stream = StreamRedactor(REDACTOR)
        shown = stream.feed(text[:place])
        assert stream.held < 128
        assert shown + stream.feed(text[place:]) + stream.flush() == whole


@pytest.mark.parametrize("secret", VENDORS)
def test_what_goes_on_after_a_key_is_hidden_in_bounded_memory(secret: str) -> None:
    stream = StreamRedactor(REDACTOR)
    stream.feed(f"it uses {secret}")
    for _ in range(500):
        stream.feed("a1" * 40)
        assert stream.held < 1500


key_texts = st.lists(
    st.sampled_from(
        (
            *("-", "+", " ", "a:1:", "    3\t", "\n", "x y", "word\n", "=", "A" * 41, "b" * 15),
            *(f"{line}\n" for line in LINES),
            *("-----BEGIN PRIVATE KEY-----\n", "-----END PRIVATE KEY-----\n", "DEK-Info: x\n"),
        )
    ),
    max_size=16,
).map("".join)


@settings(max_examples=examples(400), deadline=None)
@given(key_texts, st.data())
def test_keys_cut_anywhere_give_what_the_whole_gives(text: str, data: st.DataObject) -> None:
    stream = StreamRedactor(REDACTOR)
    shown = "".join(map(stream.feed, cut(text, data)))
    assert shown + stream.flush() == REDACTOR.text(text)


@pytest.mark.parametrize("lines", [100, 127, 128, 129, 130, 300])
@pytest.mark.parametrize("size", [7, 50, 997])
@pytest.mark.parametrize("begin", ["", "--", "------BEGIN PRIVATE KEY-----\n"])
def test_long_runs_of_lines_are_held_back_within_bounds(begin: str, lines: int, size: int) -> None:
    text = begin + f"-{LINES[2]}\n" * lines + "-ab=\n------END PRIVATE KEY-----\nend"
    stream = StreamRedactor(REDACTOR)
    shown = ""
    for place in range(0, len(text), size):
        shown += stream.feed(text[place : place + size])
        assert stream.held < 12_000
    assert shown + stream.flush() == REDACTOR.text(text)


def test_what_was_held_back_is_given_at_the_end_if_it_was_nothing() -> None:
    stream = StreamRedactor(REDACTOR)
    assert stream.feed("sk-ant") + stream.flush() == "sk-ant"
