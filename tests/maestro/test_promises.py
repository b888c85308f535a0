"""What the protocol promises, line by line; `promises.py` says which test shows which line."""

import importlib
import re

import pytest

from tests.maestro.promises import OF_THE_CLIENT, PROMISES, UNSHOWN
from tests.maestro.schemas import PUBLISHED

SECTIONS = {"": 43, "S": 62, "R": 27, "H": 64, "U": 21, "P": 17}
REFERENCE = PUBLISHED.parents[1] / "reference" / "maestro.md"


def lines() -> set[str]:
    return {f"{name}{number}" for name, count in SECTIONS.items() for number in range(1, count + 1)}


def test_every_line_is_shown_by_tests_that_are_there() -> None:
    assert set(PROMISES) == lines() - set(UNSHOWN)
    assert all({**UNSHOWN, **OF_THE_CLIENT}.values())
    for line, tests in PROMISES.items():
        assert tests, f"line {line} is shown by nothing"
        for name in tests:
            module, _, test = name.partition(":")
            found = getattr(importlib.import_module(f"tests.{module}"), test, None)
            assert callable(found), f"{line}: {name}"


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the reference is not here")
def test_the_lines_are_those_of_the_reference() -> None:
    parts = re.split(r"^## (?=7\.\d+ )", REFERENCE.read_text(), flags=re.MULTILINE)
    found: set[str] = set()
    for part in parts:
        if part.startswith(("7.1 ", "7.2 ", "7.3 ", "7.4 ", "7.5 ", "7.6 ", "7.10 ")):
            section = part.partition("\n# ")[0]
            found |= set(re.findall(r"^(?:- )?([A-Z]?\d+)(?:\.)? ", section, flags=re.MULTILINE))
    assert found == lines()
    client = next(part for part in parts if part.startswith("7.8 "))
    assert set(re.findall(r"^- (K\d+) ", client, flags=re.MULTILINE)) == set(OF_THE_CLIENT)
