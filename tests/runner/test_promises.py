"""What is promised of a hosted runner, line by line; `promises.py` says what shows which line."""

import importlib
import re

import pytest

from tests.maestro.schemas import PUBLISHED
from tests.runner.promises import PROMISES

REFERENCE = PUBLISHED.parents[1] / "reference" / "maestro.md"
LINES = {f"D{number}" for number in range(1, 46)}


def test_every_line_is_shown_by_tests_that_are_there() -> None:
    assert set(PROMISES) == LINES
    for line, tests in PROMISES.items():
        assert tests, f"line {line} is shown by nothing"
        for name in tests:
            module, _, test = name.partition(":")
            found = getattr(importlib.import_module(f"tests.{module}"), test, None)
            assert callable(found), f"{line}: {name}"


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the reference is not here")
def test_the_lines_are_those_of_the_reference() -> None:
    text = REFERENCE.read_text()
    section = text.partition("\n## 7.7 ")[2].partition("\n## ")[0]
    assert set(re.findall(r"^- (D\d+) ", section, flags=re.MULTILINE)) == LINES
