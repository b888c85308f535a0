"""Known values are found as a plain search would find them, and in streams as in the whole."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from batten.redact.known import KnownValues
from batten.redact.redactor import Redactor
from batten.redact.secrets import known_values
from batten.redact.stream import StreamRedactor
from batten.redact.view import folded
from tests.examples import examples
from tests.redact.planted import FRAGMENTS, HEX, MIXED

ENVIRON = {
    "A_TOKEN": f"tok/{MIXED}",
    "B_SECRET": HEX,
    "C_PASSWORD": "Pa$$ w0rd'x",
    "D_API_KEY": "gęślą-jaźń-7-" * 4,
    "E_KEY": "\n".join(f"{line}{MIXED}{HEX}" for line in "abc"),
    "F_PASSWORD": "zx81zx",
    **{f"N{number}_TOKEN": f"n{number:02}-{MIXED[number:]}{HEX}" for number in range(14)},
}
SPELLINGS = known_values(ENVIRON)
KNOWN = KnownValues(SPELLINGS)
REDACTORS = Redactor(KNOWN), Redactor(KNOWN).authored

NOISE = (
    "\n",
    "\r\n",
    "\x1b[0m",
    "\x1b[1;31m",
    "\u200b",
    "\b",
    "\0",
    "\x1b]8;;https://a.b\x07",
    "\ufeff",
)

beginnings = st.sampled_from(SPELLINGS).flatmap(
    lambda value: st.integers(1, len(value)).map(lambda length: value[:length])
)
ends = st.sampled_from(SPELLINGS).flatmap(
    lambda value: st.integers(1, len(value)).map(lambda length: value[-length:])
)
fillers = st.sampled_from((" ", "\n", "x" * 7, "word " * 40, "line of text\n" * 300, "é" * 33))
texts = st.lists(
    st.sampled_from(SPELLINGS) | beginnings | ends | fillers | st.text(max_size=9), max_size=9
).map("".join)


def plain_search(text: str, start: int) -> set[tuple[int, int]]:
    """The same, value by value and place by place: without regard to case if they are long, and
    without a zero before the first character, of UTF-16, which tells nothing.
    """
    small = folded(text)
    return {
        (place + value.startswith("\0"), place + len(value))
        for value in SPELLINGS
        for place in range(start, len(text))
        if small.startswith(folded(value), place)
        if len(value) >= 12 or text.startswith(value, place)
    }


@settings(max_examples=examples(150), deadline=None)
@given(texts, st.integers(0, 40))
def test_values_are_found_as_a_plain_search_finds_them(text: str, start: int) -> None:
    start = min(start, len(text))
    spans, begun = KNOWN.search(text, start, final=False)
    assert set(spans) >= plain_search(text, start)
    assert start <= begun <= len(text)
    assert set(KNOWN.search(text, start, final=True)[0]) == set(spans)


@given(st.sampled_from(SPELLINGS), st.sampled_from(NOISE), st.data())
def test_a_value_is_found_whatever_stands_between_its_characters_and_however_it_is_cut(
    value: str, noise: str, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(1, len(value) - 1), max_size=4).map(sorted))
    pieces = [value[a:b] for a, b in zip([0, *places], [*places, len(value)], strict=True)]
    text = f"before {noise.join(pieces)} after"
    for redactor in REDACTORS:
        whole = redactor.text(text)
        # A backslash before a line end is that of a shell, or one half of an escape; a backspace
        # between equal characters, or behind a line, is overstriking.
        is_cut = any(
            before[-1:] == "\\" or (noise == "\b" and before[-1:] in ("_", after[:1], ""))
            for before, after in pairwise(pieces)
        )
        if not is_cut and (len(value) >= 12 or noise not in ("\n", "\r\n")):
            assert whole.replace("\0", "") == "before <redacted> after"
        stream = StreamRedactor(redactor)
        size = data.draw(st.integers(1, 9))
        shown = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size))
        assert shown + stream.flush() == whole


@settings(max_examples=examples(300), deadline=None)
@given(texts, st.sampled_from(REDACTORS), st.data())
def test_a_text_cut_anywhere_gives_what_the_whole_gives(
    text: str, redactor: Redactor, data: st.DataObject
) -> None:
    places = data.draw(st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
    stream = StreamRedactor(redactor)
    shown = "".join(
        stream.feed(text[a:b]) for a, b in zip([0, *places], [*places, len(text)], strict=True)
    )
    assert shown + stream.flush() == redactor.text(text)


mixed_texts = st.lists(
    st.sampled_from(FRAGMENTS) | beginnings | st.sampled_from(SPELLINGS), max_size=12
).map("".join)


@settings(max_examples=examples(300), deadline=None)
@given(mixed_texts, st.sampled_from(REDACTORS), st.integers(1, 40))
def test_small_pieces_of_shapes_and_values_give_what_the_whole_gives(
    text: str, redactor: Redactor, size: int
) -> None:
    stream = StreamRedactor(redactor)
    pieces = (text[place : place + size] for place in range(0, len(text), size))
    assert "".join(map(stream.feed, pieces)) + stream.flush() == redactor.text(text)


def test_values_across_the_pieces_of_a_long_output_are_found() -> None:
    value = ENVIRON["A_TOKEN"]
    text = "".join(f"{number} {'output ' * (number % 97)}{value}\n" for number in range(400))
    for size in (4096, 16384, 65536):
        stream = StreamRedactor(REDACTORS[0])
        pieces = (text[place : place + size] for place in range(0, len(text), size))
        shown = "".join(map(stream.feed, pieces)) + stream.flush()
        assert shown == text.replace(value, "<redacted>")
