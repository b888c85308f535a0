"""What the protocol promises, statement by statement; `promises.py` says which test shows which."""

import importlib

import pytest

from tests.cli.promises import Promise
from tests.heddle.promises import LINES, SEED
from tests.heddle.replaying import published

ALL = [*LINES.values(), *(one for part in SEED.values() for one in part)]


def test_every_numbered_line_is_there() -> None:
    assert sorted(LINES) == list(range(1, 43))


@pytest.mark.parametrize("promise", ALL, ids=lambda promise: promise.says)
def test_every_statement_is_shown_by_tests_that_are_there(promise: Promise) -> None:
    assert promise.tests, f"{promise.says} is shown by nothing"
    for name in promise.tests:
        module, _, test = name.partition(":")
        assert callable(getattr(importlib.import_module(f"tests.{module}"), test)), name


@pytest.mark.skipif(not published().is_dir(), reason="not beside this checkout")
def test_every_published_pair_is_played() -> None:
    names = {path.name.partition(".")[0] for path in published().iterdir()}
    assert names == {"normal", "error", "cancel", "heartbeat", "version-mismatch"}
