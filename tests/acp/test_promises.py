"""What the protocol's reference says, line by line; `promises.py` says which test shows what."""

import importlib
import re

import pytest

from tests.acp.promises import PROMISES
from tests.contract.journals import ROOT

REFERENCE = ROOT.parent / "shared" / "reference" / "acp.md"
NOT_OURS = ("12", "14")
"""The sections on the Python SDK and on the next version."""


def test_every_line_is_shown_by_tests_that_are_there() -> None:
    for place, promise in PROMISES.items():
        assert promise.tests or "not" in promise.says, f"line {place} is shown by nothing"
        for name in promise.tests:
            module, _, test = name.partition(":")
            assert callable(getattr(importlib.import_module(f"tests.{module}"), test)), name


def lines_of(reference: str) -> set[str]:
    """The places of its lines; headings, heads of tables and samples are none."""
    places: set[str] = set()
    section, count, fenced = "", 0, False
    rows = reference.splitlines()
    for row, below in zip(rows, [*rows[1:], ""], strict=True):
        if row.startswith("```"):
            fenced = not fenced
        elif heading := re.match(r"#{2,3} (\d+(?:\.\d+)?)", row):
            section, count = heading[1], 0
        elif section and section not in NOT_OURS and not fenced and _is_line(row, below):
            count += 1
            places.add(f"{section}.{count}")
    return places


def _is_line(row: str, below: str) -> bool:
    return bool(row.strip()) and not row.startswith(("#", "|---")) and not below.startswith("|---")


@pytest.mark.skipif(not REFERENCE.exists(), reason="the reference is not beside the checkout")
def test_no_line_of_the_reference_is_left_out() -> None:
    assert set(PROMISES) == lines_of(REFERENCE.read_text("utf-8"))
