"""The golden journals keep the order of a run."""

from collections.abc import Callable

import pytest

from batten.contract import facts as f

from .journals import GOLDEN, OF_SESSIONS, envelopes
from .order import RULES, Run, facts_of, places

RUNS = [name for name in GOLDEN if name not in OF_SESSIONS]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_golden_run_keeps_the_order(name: str, rule: Callable[[Run], None]) -> None:
    rule(envelopes(name))


def test_only_the_resumed_run_says_that_it_was() -> None:
    resumed = [n for n in RUNS if isinstance(envelopes(n)[0].data, f.RunResumedFromEvent)]
    assert resumed == ["resumed"]


def test_a_takeover_leaves_no_tool_open() -> None:
    run = facts_of(envelopes("resumed"))
    (gap,) = places(run, lambda fact: isinstance(fact, f.GapRunDisconnected))
    started, failed = run[gap + 1 : gap + 3]
    assert isinstance(started, f.RunStarted)
    assert isinstance(failed, f.ToolFailed)
    assert failed.error_kind == "outcome_unknown"
