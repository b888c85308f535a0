"""The conformance lines of the reference; `lines.py` says which test shows which."""

import importlib
import re

import pytest

from tests.maestro.schemas import PUBLISHED

from .lines import DIFFERENT, LINES

COUNT = 70
REFERENCE = PUBLISHED.parents[1] / "reference" / "hecate.md"


def test_every_line_is_shown_by_tests_that_are_there() -> None:
    assert set(LINES) == set(range(1, COUNT + 1))
    assert set(DIFFERENT) <= set(LINES)
    assert all(DIFFERENT.values())
    for line, tests in LINES.items():
        assert tests, f"line {line} is shown by nothing"
        for name in tests:
            module, _, test = name.partition(":")
            found = getattr(importlib.import_module(f"tests.{module}"), test, None)
            assert callable(found), f"{line}: {name}"


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the reference is not here")
def test_the_lines_are_those_of_the_reference() -> None:
    section = REFERENCE.read_text().partition("## 16. ")[2].partition("\n## 17. ")[0]
    found = [int(number) for number in re.findall(r"^(\d+)\. ", section, flags=re.MULTILINE)]
    assert found == sorted(LINES)
