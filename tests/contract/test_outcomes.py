"""The table of endings: its columns agree, and it has every exit code."""

from typing import get_args

import pytest

from batten.contract import errors
from batten.contract.facts import FACTS, TERMINAL
from batten.contract.outcomes import (
    ENDINGS,
    Outcome,
    exit_code,
    outcome_of_code,
    outcome_of_error,
)

_BY_SUBTYPE = {
    "success": {0},
    "error": {1, 2, 64, 66, 78},
    "max_turns": {75},
    "budget_exceeded": {137},
    "cancelled": {124, 130},
}
_BY_TERMINAL = {
    "run.finished": {"success"},
    "run.cancelled": {"cancelled"},
    "run.failed": {"error", "max_turns", "budget_exceeded"},
}


def test_every_outcome_has_a_row_and_every_row_an_outcome() -> None:
    assert set(ENDINGS) == set(get_args(Outcome))


def test_every_exit_code_of_print_mode_is_reached() -> None:
    assert {ending.exit_code for ending in ENDINGS.values()} == set().union(*_BY_SUBTYPE.values())


@pytest.mark.parametrize("outcome", ENDINGS)
def test_subtype_terminal_fact_and_exit_code_of_an_outcome_agree(outcome: Outcome) -> None:
    ending = ENDINGS[outcome]
    assert ending.exit_code in _BY_SUBTYPE[ending.subtype]
    assert ending.subtype in _BY_TERMINAL[ending.terminal]
    assert exit_code(outcome) == ending.exit_code


def test_only_the_completed_run_finishes_and_exits_with_zero() -> None:
    completed = {
        outcome
        for outcome, ending in ENDINGS.items()
        if ending.terminal == "run.finished" or ending.exit_code == 0
    }
    assert completed == {"completed"}


def test_exit_codes_are_those_print_mode_documents() -> None:
    documented: dict[Outcome, int] = {
        "completed": 0,
        "model_error": 1,
        "hook_denied": 1,
        "tool_error": 2,
        "schema_invalid": 2,
        "usage": 64,
        "no_input": 66,
        "max_turns": 75,
        "config": 78,
        "cancelled": 124,
        "interrupted": 130,
        "budget": 137,
    }
    assert {outcome: exit_code(outcome) for outcome in documented} == documented


def test_terminal_facts_of_the_table_are_the_terminal_facts() -> None:
    assert {ending.terminal for ending in ENDINGS.values()} == TERMINAL
    assert set(FACTS) >= TERMINAL


@pytest.mark.parametrize("outcome", ENDINGS)
def test_the_failure_code_leads_back_to_the_outcome(outcome: Outcome) -> None:
    assert outcome_of_code(ENDINGS[outcome].code) == outcome


def test_a_failure_code_nobody_here_wrote_is_internal() -> None:
    assert outcome_of_code("worker_melted") == "internal"


def test_only_failures_can_be_retriable() -> None:
    assert {ending.terminal for ending in ENDINGS.values() if ending.retriable} == {"run.failed"}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (errors.CallerError("--tools: it is no list", code="usage"), "usage"),
        (errors.CallerError("the schema cannot be read"), "invalid"),
        (errors.BadBundle("the bundle is cut"), "invalid"),
        (errors.NotFound("no run is named x"), "no_input"),
        (errors.Conflict("session x is in use", code="session_held"), "conflict"),
        (errors.NoCredentials("no key"), "model_error"),
        (errors.StoreTooNew("a newer version wrote it"), "config"),
        (errors.ProviderError("git could not make the worktree"), "unavailable"),
        (errors.NotReady("it is starting"), "unavailable"),
        (errors.PeerError("the service sends what is no event"), "unavailable"),
        (errors.StoreBusy("others hold it"), "store"),
        (errors.BattenError("ZeroDivisionError: division by zero"), "internal"),
    ],
)
def test_only_a_bug_ends_an_invocation_as_internal(
    error: errors.BattenError, outcome: Outcome
) -> None:
    assert outcome_of_error(error) == outcome
