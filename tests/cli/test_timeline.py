"""A run as people read it: every fact can be shown, and what matters is."""

import pytest

from batten.contract.envelope import Envelope
from batten.contract.facts import Fact, Unknown
from batten.serve.timeline import Timeline, dollars
from tests.contract.journals import GOLDEN, envelopes


def shown(*facts: Fact) -> list[str]:
    timeline = Timeline(color=False)
    at = "2026-01-02T03:04:05.000Z"
    return [
        line
        for number, fact in enumerate(facts)
        for line in timeline.lines(
            Envelope(
                event_id="e", run_id="r", sequence=number, occurred_at=at, type=fact.type, data=fact
            )
        )
    ]


@pytest.mark.parametrize("name", GOLDEN)
@pytest.mark.parametrize("color", [True, False])
def test_every_fact_of_a_golden_journal_can_be_shown(name: str, color: bool) -> None:
    timeline = Timeline(color=color)
    lines = [line for envelope in envelopes(name) for line in timeline.lines(envelope)]
    assert all("\n" not in line for line in lines)
    assert any("\x1b[" in line for line in lines) is (color and name != "session")
    if name != "session":
        assert any(
            word in lines[-1] for word in ("finished", "failed", "cancelled", "pruned", "reverted")
        )


def test_a_fact_of_a_newer_version_is_shown_as_it_is() -> None:
    assert shown(Unknown(type="tool.dreamt", data={"of": "sheep"})) == [
        '03:04:05  tool.dreamt {"of":"sheep"}'
    ]


def test_a_cost_that_is_a_lower_bound_says_so() -> None:
    assert dollars(1_234_500) == "$1.2345"
    assert dollars(0, unknown=True) == "$0.0000 or more (a price is unknown)"
