"""Rows on a terminal: none is wider than it, and no text is lost between words."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from batten.contract.facts import (
    AssistantMessageComplete,
    AssistantTextDelta,
    ErrorUpstream,
    RunCancelRequested,
    TurnStarted,
)
from batten.contract.facts.assistant import Usage
from batten.serve.terminal.flow import TextFlow
from batten.serve.terminal.lines import Line, line
from batten.serve.terminal.measures import count, dollars, duration, elapsed, local_time
from batten.serve.terminal.printers import PlainPrinter, TerminalPrinter
from batten.serve.terminal.status import Status

from .telling import AT, completed, invoked, proposed

prose = st.text(alphabet="ab 日本é\n", max_size=200)


@given(prose, st.integers(20, 90), st.sampled_from(["", "● ", "  │ ", "  └ "]), st.booleans())
def test_no_row_is_wider_than_the_terminal(text: str, width: int, prefix: str, times: bool) -> None:
    printer = TerminalPrinter(lambda: width, color=False, times=times)
    shown = printer.rows(Line(((text, "red"),), prefix, AT, most_rows=1000))
    assert all(cell_len(row) <= width for row in shown.splitlines())
    letters = [letter for letter in text.replace("\n", "⏎") if not letter.isspace()]
    assert [one for one in shown if one in letters][-len(letters) :] == letters


def test_wrapped_rows_stay_below_their_mark() -> None:
    printer = TerminalPrinter(lambda: 24, color=False, times=False)
    assert printer.rows(line("aaaa bbbb cccc dddd eeee", prefix="  │ ")) == (
        "  │ aaaa bbbb cccc\n  │   dddd eeee\n"
    )
    assert printer.rows(line("aaaa bbbb cccc dddd eeee", prefix="  └ ")) == (
        "  └ aaaa bbbb cccc dddd\n    eeee\n"
    )


def test_a_line_without_end_is_cut_with_a_mark() -> None:
    printer = TerminalPrinter(lambda: 40, color=False, times=False)
    rows = printer.rows(line("word " * 1000)).splitlines()
    assert len(rows) == 6
    assert rows[-1].endswith("…")


def test_times_are_left_out_where_there_is_no_room() -> None:
    wide, narrow = (
        TerminalPrinter(lambda width=width: width, color=False, times=True)  # type: ignore[misc]  # bound per printer
        for width in (80, 50)
    )
    assert wide.rows(line("x", at=AT)) == f"{local_time(AT)}  x\n"
    assert narrow.rows(line("x", at=AT)) == "x\n"


def test_colours_change_nothing_but_the_colour() -> None:
    one = Line((("a", "bold cyan"), (" b", "")), "● ")
    assert PlainPrinter(color=True, times=False).rows(one) == "● \x1b[1;36ma\x1b[0m b\n"
    assert PlainPrinter(color=False, times=False).rows(one) == "● a b\n"
    shown = TerminalPrinter(lambda: 80, color=True, times=False).rows(one)
    assert shown == "\x1b[1;36m● \x1b[0m\x1b[1;36ma\x1b[0m b\n"
    assert TerminalPrinter(lambda: 80, color=False, times=False).rows(one) == "● a b\n"


@given(prose, st.integers(10, 60), st.lists(st.integers(1, 9), max_size=40))
def test_prose_flows_between_words_however_it_is_cut(
    text: str, width: int, sizes: list[int]
) -> None:
    whole, pieces = TextFlow(lambda: width), TextFlow(lambda: width)
    at_once = whole.feed(text) + whole.finish()
    shown, rest = "", text
    for size in sizes:
        shown += pieces.feed(rest[:size])
        rest = rest[size:]
    shown += pieces.feed(rest) + pieces.finish()
    if max((cell_len(word) for word in text.split()), default=0) < width // 2:
        assert shown == at_once
        assert all(cell_len(row) <= width for row in shown.split("\n"))
    assert shown.split() == text.split() or "".join(shown.split()) == "".join(text.split())


def test_code_is_not_broken() -> None:
    flow = TextFlow(lambda: 20)
    text = "```\nx = 1 + 2 + 3 + 4 + 5 + 6 + 7\n```\nand some words that are broken\n"
    assert flow.feed(text) + flow.finish() == (
        "```\nx = 1 + 2 + 3 + 4 + 5 + 6 + 7\n```\nand some words that\nare broken\n"
    )


def test_without_a_width_text_passes_at_once() -> None:
    assert TextFlow(None).feed("half a wo") == "half a wo"


def usage(sent: int, received: int) -> AssistantMessageComplete:
    return AssistantMessageComplete(
        1, "m", "p", [], Usage(sent, received), "end_turn", 12_300, None, 1, None
    )


def test_the_status_names_what_is_awaited_with_time_tokens_and_cost() -> None:
    status = Status(0.0)
    status.feed(TurnStarted(1, "m", "p", 1200), 1.0)
    assert status.text(6.0, 79) == "⠋ Thinking · 5s · ↑ 1.2k ↓ 0 tokens · $0.0000"
    status.feed(AssistantTextDelta(1, 0, "x" * 400), 6.0)
    assert "↓ 100 tokens" in status.text(6.0, 79)
    status.feed(usage(20_000, 340), 7.0)
    status.feed(proposed("a", command="make test"), 7.0)
    status.feed(proposed("b", command="make lint"), 7.0)
    status.feed(invoked("a"), 7.0)
    assert status.text(70.0, 79) == "⠋ bash make test · 1m 03s · ↑ 20k ↓ 340 tokens · $0.0123"
    status.feed(invoked("b"), 70.0)
    assert "bash make test (+1 more)" in status.text(70.0, 90)
    status.feed(completed("a"), 71.0)
    assert "bash make lint · 1s" in status.text(71.0, 90)
    status.feed(RunCancelRequested("user", "x"), 72.0)
    assert "Cancelling" in status.text(72.0, 90)


def test_the_status_counts_down_to_a_retry() -> None:
    status = Status(0.0)
    status.feed(ErrorUpstream("p", 529, "busy", True, 1, 3, retry_delay_ms=5000), 0.0)
    assert "Retrying · in 3s" in status.text(2.5, 79)
    assert "Thinking" in status.text(5.5, 79)


@given(st.integers(12, 120), st.text(alphabet="ab 日本\x1b\n", max_size=80))
def test_the_status_fits_into_one_row(width: int, command: str) -> None:
    status = Status(0.0)
    status.feed(proposed("a", command=command), 0.0)
    status.feed(invoked("a"), 0.0)
    shown = status.text(3.0, width)
    assert cell_len(shown) <= width
    assert "\n" not in shown
    assert "\x1b" not in shown


def test_measures_are_short() -> None:
    assert [duration(one) for one in (0.0004, 0.25, 12.34, 61, 3725)] == [
        "0 ms", "250 ms", "12.3 s", "1m 01s", "1h 02m",
    ]  # fmt: skip
    assert [elapsed(one) for one in (0.9, 59.9, 3599)] == ["0s", "59s", "59m 59s"]
    numbers = (999, 1000, 9_949, 9_950, 12_345, 999_499, 999_500, 1_234_567)
    assert [count(one) for one in numbers] == [
        "999", "1.0k", "9.9k", "10k", "12k", "999k", "1.0M", "1.2M",
    ]  # fmt: skip


def test_a_cost_that_is_a_lower_bound_says_so() -> None:
    assert dollars(1_234_500) == "$1.2345"
    assert dollars(0, unknown=True) == "$0.0000 or more (a price is unknown)"
