"""Output for people: head and tail, the reason of a failure, and an honest count between them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from batten.serve.terminal.excerpt import Excerpt

from .telling import exited, failed, invoked, proposed, shown, wrote


def excerpt(text: str, *, failed: bool = False, whole: bool = False) -> list[str]:
    one = Excerpt(whole=whole)
    return one.feed("stdout", text) + one.finish() + one.rest(failed=failed)


def numbered(count: int) -> str:
    return "".join(f"line {number}\n" for number in range(1, count + 1))


def test_short_output_is_shown_whole() -> None:
    assert excerpt(numbered(9)) == numbered(9).splitlines()


def test_long_output_is_shown_as_head_and_tail() -> None:
    assert excerpt(numbered(100)) == [
        "line 1", "line 2", "line 3", "line 4", "… 92 lines …",
        "line 97", "line 98", "line 99", "line 100",
    ]  # fmt: skip


def test_verbose_output_is_whole() -> None:
    assert excerpt(numbered(100), whole=True) == numbered(100).splitlines()


def test_a_failing_assertion_is_shown_wherever_it_stands() -> None:
    text = numbered(80) + "E       assert 1 == 2\n" + numbered(60)
    lines = excerpt(text, failed=True)
    assert lines[4:7] == ["… 76 lines …", "E       assert 1 == 2", "… 48 lines …"]
    assert "E       assert 1 == 2" not in excerpt(text)


def test_a_failing_assertion_stands_out_below_its_call() -> None:
    text = numbered(80) + "E       assert 1 == 2\n" + numbered(60)
    lines = shown(
        proposed("a", command="pytest"), invoked("a"), wrote("a", text), exited("a", 1),
        failed("a", "exited with status 1", output=text),
    )  # fmt: skip
    assert "  │ E       assert 1 == 2" in lines
    assert lines[-2:] == ["  │ line 60", "  └ exited with status 1"]


def test_the_tail_of_output_that_was_cut_comes_from_the_result() -> None:
    lines = shown(
        proposed("a", command="x"), invoked("a"), wrote("a", numbered(50)),
        exited("a", 1, truncated=True),
        failed("a", "exited with status 1", output="head\n… 9 bytes left out …\nthe very end"),
    )  # fmt: skip
    assert lines[-2:] == ["  │ the very end", "  └ exited with status 1"]


def test_a_progress_bar_is_shown_as_it_ended_and_colours_are_removed() -> None:
    assert excerpt(" 1%\r50%\r100%\r\n\x1b[31mred\x1b[0m\n") == ["100%", "red"]


def test_streams_keep_their_own_unfinished_lines() -> None:
    one = Excerpt()
    assert one.feed("stdout", "ou") + one.feed("stderr", "er") == []
    assert one.feed("stdout", "t\n") + one.feed("stderr", "r\n") == ["out", "err"]


@given(st.lists(st.sampled_from(["a", "E  assert 0", "x"]), max_size=60), st.booleans())
def test_shown_and_left_out_lines_add_up(texts: list[str], failed: bool) -> None:
    lines = excerpt("".join(f"{text}\n" for text in texts), failed=failed)
    marks = [re.fullmatch(r"… (\d+) lines? …", line) for line in lines]
    left_out = sum(int(mark[1]) for mark in marks if mark)
    assert left_out + sum(mark is None for mark in marks) == len(texts)
    assert len(lines) <= 4 + 12 + 1 + 2 * 6 + 1


@given(st.text(alphabet="ab\n\r", max_size=300), st.lists(st.integers(1, 9), max_size=50))
def test_output_looks_the_same_however_it_is_cut(text: str, sizes: list[int]) -> None:
    one = Excerpt()
    lines: list[str] = []
    rest = text
    for size in sizes:
        lines += one.feed("stdout", rest[:size])
        rest = rest[size:]
    lines += one.feed("stdout", rest) + one.finish()
    assert lines + one.rest(failed=True) == excerpt(text, failed=True)
