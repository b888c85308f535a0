"""Every line of the reference about the event bus has tests that exist."""

from importlib import import_module

import pytest

from tests.sinks.promises import SHOWN_BY


def test_every_line_is_shown() -> None:
    assert list(SHOWN_BY) == [f"E{number}" for number in range(1, 27)]


@pytest.mark.parametrize("line", SHOWN_BY)
def test_the_tests_of_a_line_exist(line: str) -> None:
    for name in SHOWN_BY[line]:
        module, _, function = name.partition(":")
        assert callable(getattr(import_module(f"tests.{module}"), function))
