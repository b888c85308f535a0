"""Exit code, result subtype and terminal fact are read from one table, whatever happened before."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.agent.ending import terminal_fact
from batten.agent.progress import Progress
from batten.contract.envelope import Envelope, decode, encode
from batten.contract.facts import Fact
from batten.contract.outcomes import ENDINGS, Outcome, exit_code
from batten.protocols.stream_json import StreamJson
from tests.agent.conversing import Script, scripts

OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
CODES = {
    "success": {0},
    "error": {1, 2, 64, 66, 78},
    "max_turns": {75},
    "budget_exceeded": {137},
    "cancelled": {124, 130},
}
"""The exit codes each subtype may have, as the print mode's document lists them."""


def stored(fact: Fact) -> Fact:
    """The fact as a reader of the journal gets it."""
    envelope = Envelope(
        event_id="evt_1", run_id="run_1", sequence=0, occurred_at="", type=fact.type, data=fact
    )
    read = decode(encode(envelope)).data
    assert isinstance(read, Fact)
    return read


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_terminal_fact_says_which_row_of_the_table_it_is(outcome: Outcome) -> None:
    fact = stored(terminal_fact(outcome, "why", Progress(), 1))
    codec = StreamJson("chat_1")
    codec.feed(fact)
    assert codec.outcome == outcome
    assert fact.type == ENDINGS[outcome].terminal
    assert codec.result()["subtype"] == ENDINGS[outcome].subtype
    assert exit_code(outcome) in CODES[ENDINGS[outcome].subtype]


@given(scripts(), st.sampled_from(OUTCOMES), st.text(), st.booleans())
def test_whatever_a_run_said_its_result_fits_its_outcome(
    script: Script, outcome: Outcome, message: str, durable: bool
) -> None:
    codec = StreamJson("chat_1")
    facts = [fact for fact in script.facts if not fact.type.startswith("run.")]
    for fact in [*facts, terminal_fact(outcome, message, Progress(), 1)]:
        for frame in codec.feed(fact):
            assert frame["type"] in ("system", "tool_use", "tool_result", "message")
    result = codec.result(durable=durable)
    subtype = ENDINGS[outcome].subtype
    assert result["subtype"] == subtype
    assert ("result" in result) == (subtype == "success")
    assert ("tool_calls_seen" in result) == (subtype != "success")
    assert ("error" in result) == (subtype == "error")
    assert result.get("error", message) == message
    assert result.get("last_assistant_text", "x").strip()
    assert ("durable" in result) == (not durable)
    assert set(result) >= {"session_id", "total_cost_usd", "turns"}


@given(st.sampled_from(OUTCOMES), st.text())
def test_an_ending_no_fact_tells_of_fits_the_table_too(outcome: Outcome, message: str) -> None:
    codec = StreamJson("")
    codec.fail(outcome, message)
    result = codec.result(durable=False)
    assert result["subtype"] == ENDINGS[outcome].subtype
    assert (result["turns"], result["durable"]) == (0, False)
