"""A run's ending, read from its terminal fact: one value for every protocol."""

import pytest

from batten.contract.facts import RunCancelled, RunFailed, RunFinished
from batten.contract.outcomes import RunEnd, ending_of


@pytest.mark.parametrize(
    ("fact", "end"),
    [
        (
            RunFinished(final_status="completed", turns=1, cost_micros_usd=0, duration_ms=1),
            RunEnd("completed"),
        ),
        (
            RunFailed("http_529", "busy", True, 1, outcome="model_error"),
            RunEnd("model_error", "busy", "http_529", retriable=True),
        ),
        (
            RunFailed("budget_exceeded", "spent", False, 1),
            RunEnd("budget", "spent", "budget_exceeded"),
        ),
        (RunFailed("from_elsewhere", "?", False, 1), RunEnd("internal", "?", "from_elsewhere")),
        (
            RunCancelled("client", "enough"),
            RunEnd("cancelled", "enough", "cancelled", by="client"),
        ),
        (
            RunCancelled("operator", "SIGINT", outcome="interrupted"),
            RunEnd("interrupted", "SIGINT", "interrupted", by="operator"),
        ),
    ],
)
def test_an_ending_is_read_from_the_terminal_fact_also_of_another_writer(
    fact: RunFinished | RunFailed | RunCancelled, end: RunEnd
) -> None:
    assert ending_of(fact) == end
