"""Print mode's input: what a line means, and what is wrong with one that means nothing."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.commands import Interrupt, Prompt
from batten.protocols.stream_json_input import InputError, read_line

texts = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: text.strip())
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def line(frame: object) -> bytes:
    return msgspec.json.encode(frame)


@given(texts)
def test_a_text_and_a_block_with_it_are_the_same_prompt(text: str) -> None:
    blocks = [{"type": "text", "text": text}]
    assert read_line(line({"type": "user", "content": text}), 1) == Prompt(text=text)
    assert read_line(line({"type": "user", "content": blocks}), 1) == Prompt(text=text)


@given(st.lists(texts, min_size=1))
def test_blocks_are_put_together_as_they_are(parts: list[str]) -> None:
    blocks = [{"type": "text", "text": part} for part in parts]
    assert read_line(line({"content": blocks, "type": "user"}), 1) == Prompt(text="".join(parts))


def test_an_interrupt_is_read() -> None:
    assert read_line(b' {"type": "control", "subtype": "interrupt"}\r', 1) == Interrupt()


@pytest.mark.parametrize("blank", [b"", b" ", b"\t \r", b"\x0b\x0c"])
def test_an_empty_line_is_no_command(blank: bytes) -> None:
    assert read_line(blank, 1) is None


CLAUDE: dict[str, Any] = {"type": "user", "message": {"role": "user", "content": "hello"}}
WRONG: dict[str, tuple[object, str]] = {
    "a message of another protocol": (CLAUDE, "the unknown field 'message'"),
    "a field too many": ({"type": "user", "content": "x", "id": 1}, "the unknown field 'id'"),
    "a field too many for a control": (
        {"type": "control", "subtype": "interrupt", "request_id": "1"},
        'the unknown field \'request_id\'; write {"type":"control","subtype":"interrupt"}',
    ),
    "a field too many in a block": (
        {"type": "user", "content": [{"type": "text", "text": "x", "cache": 1}]},
        "the unknown field 'cache'",
    ),
    "another type": ({"type": "assistant", "content": "x"}, "the unknown type 'assistant'"),
    "a type that is long": ({"type": "x" * 100}, "has the unknown type; types are"),
    "a type that is no text": ({"type": 7}, "has the unknown type; types are"),
    "no type": ({"content": "x"}, "has no type"),
    "no content": ({"type": "user"}, "needs content"),
    "content that is no text": ({"type": "user", "content": 7}, "needs content"),
    "content that is an object": ({"type": "user", "content": {}}, "needs content"),
    "an empty text": ({"type": "user", "content": " \n"}, "a message without text"),
    "no blocks": ({"type": "user", "content": []}, "a message without text"),
    "an image": (
        {"type": "user", "content": [{"type": "image", "source": {}}]},
        'a block that is not {"type":"text"',
    ),
    "a block that is a text": ({"type": "user", "content": ["x"]}, "a block that is not"),
    "a block without text": ({"type": "user", "content": [{"type": "text"}]}, "a block that is"),
    "no subtype": ({"type": "control"}, "has no known subtype"),
    "another control": ({"type": "control", "subtype": "stop"}, "has no known subtype"),
    "a list": ([{"type": "user", "content": "x"}], "is not an object"),
    "a text": ("hello", "is not an object"),
    "nothing": (None, "is not an object"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_frame_is_refused_with_its_line_and_its_fault(name: str) -> None:
    frame, words = WRONG[name]
    with pytest.raises(InputError) as caught:
        read_line(line(frame), 7)
    assert str(caught.value).startswith("line 7 of standard input ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b"hello",
        b'{"type":"user","content":"x"} {"type":"user","content":"y"}',
        b'{"type":"user","content":"\xff\xfe"}',
        b'{"type":"user","content":"\xed\xa0\x80"}',
        b"\0",
        b"\xef\xbb\xbf{}",
        b"9" * 5000,
    ],
)
def test_what_is_no_json_is_refused_and_never_a_crash(raw: bytes) -> None:
    with pytest.raises(InputError, match=r"^line 3 of standard input is not"):
        read_line(raw, 3)


@pytest.mark.parametrize(
    ("raw", "fault"),
    [
        (b'{"type":"user","content":"\xff\xfe"}', "is not UTF-8 text: invalid start byte"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"type":' * 100_000, "is nested too deeply"),
    ],
    ids=["bytes", "arrays", "objects"],
)
def test_the_fault_of_a_line_is_named_in_words(raw: bytes, fault: str) -> None:
    with pytest.raises(InputError, match=f"^line 3 of standard input {fault}$"):
        read_line(raw, 3)


def test_half_of_a_character_is_replaced() -> None:
    """A client may cut a text within an emoji; the escape is valid JSON."""
    raw = b'{"type":"user","content":"cut \\ud83d, whole \\ud83d\\ude00"}'
    assert read_line(raw, 1) == Prompt(text="cut \ufffd, whole 😀")


def test_a_fault_does_not_repeat_what_may_be_a_secret() -> None:
    with pytest.raises(InputError) as caught:
        read_line(line({"type": "user", "content": "x", "k" * 5000: 1}), 1)
    assert len(str(caught.value)) < 200


@given(st.dictionaries(st.sampled_from(["type", "subtype", "content", "other"]), values) | values)
def test_any_json_is_a_command_or_an_error_in_words(frame: object) -> None:
    try:
        command = read_line(line(frame), 1)
    except InputError:
        return
    if isinstance(command, Prompt):
        assert isinstance(frame, dict)
        assert frame.keys() == {"type", "content"}
        assert command.text.strip()
    else:
        assert command == Interrupt()
        assert frame == {"type": "control", "subtype": "interrupt"}


@given(st.data())
def test_a_damaged_byte_is_an_error_or_another_text_but_never_a_crash(data: st.DataObject) -> None:
    raw = bytearray(line({"type": "user", "content": [{"type": "text", "text": "grüße"}]}))
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        command = read_line(bytes(raw), 1)
    except InputError:
        return
    assert isinstance(command, Prompt)
