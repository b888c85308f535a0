"""Marks for what a terminal obeys or hides: what gets one, and what stays as it was written."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.marks import MARK, crowded, exact, one_line, plain, prose_line

pytestmark = pytest.mark.attack

NAMED = [
    "\u200b", "\u200c", "\u200d", "\u200e", "\u200f", "\u2060", "\u2061", "\u2064", "\ufeff",
    "\u061c", "\u00ad", "\u034f", "\u115f", "\u1160", "\u3164", "\uffa0", "\u180e", "\u180b",
    "\u17b4", "\u2028", "\u2029", "\u202a", "\u202e", "\u2066", "\u2069", "\u206a", "\u206f",
    "\ufe00", "\ufe0f", "\U000e0100", "\U000e01ef", "\U000e0000", "\U000e0001", "\U000e0041",
    "\U000e007f", "\U000e0fff", "\ue000", "\U000f0000", "\U0010ffff", "\ufdd0", "\ufffe",
    "\ufff9", "\ufffb", "\ufffc", "\U0001d173", "\U0001d159", "\U0001bca0", "\u0378", "\ud800",
    "\x00", "\x07", "\x1b", "\r", "\x7f", "\x80", "\x9b", "\x85",
]  # fmt: skip
WRITTEN = [
    "👩‍👩‍👧‍👦 came, ❤️‍🔥 and ☺️, 1️⃣ #️⃣, 🏳️‍🌈, 👍🏽, 👩🏽‍💻, ↔︎, 🇩🇪",
    "می‌خواهم", "क्‍ष and क्‌ष", "ශ්‍රී", "שלום", "مرحبا ۝", "日本語　全角", "10\u00a0€", "½ naïve é",
    "𠮷 \U00031350 \U0001fae8", "a\tb\nc", "e\u0301", "← ⏎ … │ ⟨⟩",
]  # fmt: skip
"""Texts as people write them."""


@pytest.mark.parametrize("hidden", NAMED, ids=ascii)
def test_a_hidden_character_has_a_mark_in_commands_and_in_prose(hidden: str) -> None:
    for before, after in (("rm -rf ./", "x"), ("", ""), ("a", "é"), (" ", " "), ("中", "文")):
        text = f"{before}{hidden}{after}"
        assert exact(text) == plain(text) == f"{before}{MARK}{after}"


def test_every_character_that_unicode_calls_invisible_has_a_mark() -> None:
    hides = ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp")
    visible = "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\n\t"
    for code in range(sys.maxunicode + 1):
        one = chr(code)
        # Unicode keeps these for pictographs and ideographs that newer terminals draw.
        reserved = 0x1F000 <= code <= 0x1FAFF or 0x20000 <= code <= 0x3FFFF
        if unicodedata.category(one) in hides and one not in visible and not reserved:
            assert exact(one) == plain(one) == MARK, hex(code)
    for code in (0x1FFFE, 0x2FFFE, 0x3FFFF):
        assert plain(chr(code)) == MARK


@pytest.mark.parametrize("text", WRITTEN)
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    assert plain(text) == text
    assert prose_line(text) == text.replace("\n", "⏎")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("👩\u200d\u200d👧", "👩\ufffd\ufffd👧"),
        ("👩\u200dx", "👩\ufffdx"),
        ("a\ufe0f\u200d🔥", "a\ufffd\ufffd🔥"),
        ("❤\ufe0f\ufe0f", "❤\ufe0f\ufffd"),
        ("🏴\U000e0067\U000e007f", "🏴\ufffd\ufffd"),
        ("a\u200cb ی\u200c ی", "a\ufffdb ی\ufffd ی"),
        ("ی\u200c\u200dخ", "ی\ufffd\ufffdخ"),
        ("1\ufe0f2", "1\ufffd2"),
    ],
)
def test_a_joiner_without_two_sides_has_a_mark(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_command_has_a_mark_for_every_blank_but_the_space() -> None:
    assert exact("rm\u00a0-rf\u3000.\u2800x\u2003y") == "rm\ufffd-rf\ufffd.\ufffdx\ufffdy"
    assert exact("cat ❤\ufe0f ی\u200cخ") == "cat ❤\ufffd ی\ufffdخ"
    assert one_line("a\nb\u2028c") == "a⏎b\ufffdc"


def test_long_runs_of_what_is_not_seen_are_counted() -> None:
    assert crowded(f"a{' ' * 40}b") == "a ⟨40 blanks⟩ b"
    assert crowded(f"a{chr(0xE0041) * 40}b") == "a ⟨40 hidden characters⟩ b"


@given(st.text())
def test_marks_change_neither_length_nor_marked_texts(text: str) -> None:
    for shown in (plain, exact):
        assert len(shown(text)) == len(text)
        assert shown(shown(text)) == shown(text)
