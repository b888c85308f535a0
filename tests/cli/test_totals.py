"""The totals of print mode: every call that was paid for, whoever made it."""

import pytest

from tests.models.server import Fault, Reply, answer, cut
from tests.models.wire import anthropic_start, anthropic_text_block, anthropic_turn, sse

from .invoking import Shell, serving

TURN = 0.02
FORMS = pytest.mark.parametrize("form", ["json", "stream-json"])


@pytest.fixture(autouse=True)
def prices(shell: Shell) -> None:
    path = shell.stage.directory / "prices.json"
    path.write_text(
        '{"as_of": "2026-02-03", "providers": {"anthropic": [[["=m"], 200000, ["1000", "2000"]]]}}'
    )
    shell.set(BATTEN_PRICES=str(path))


def ask(call_id: str, prompt: str = "help") -> Reply:
    return answer(anthropic_turn(calls=[(call_id, "agent", {"prompt": prompt})]))


def step(number: int) -> Reply:
    todos = [{"content": str(number), "status": "pending"}]
    return answer(anthropic_turn(calls=[(f"s{number}", "todo_write", {"todos": todos})]))


DONE = answer(anthropic_turn("done"))


@FORMS
def test_a_child_and_its_own_child_are_in_the_totals(shell: Shell, form: str) -> None:
    # The parent asks, the child asks, the grandchild works and answers, then the two answer.
    with serving(shell, [ask("a"), ask("b"), step(1), DONE, DONE, DONE]):
        said = shell.print("anthropic/m", "--output-format", form)
    result = said.result
    assert (said.code, result["turns"]) == (0, 6)
    assert result["total_cost_usd"] == pytest.approx(6 * TURN)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (60, 30)


@FORMS
def test_a_budget_that_a_child_spends_is_never_shown_as_less(shell: Shell, form: str) -> None:
    with serving(shell, [ask("a"), step(1), step(2), step(3)]):
        said = shell.print("anthropic/m", "--output-format", form, "--max-budget-usd", "0.05")
    assert (said.code, said.result["subtype"]) == (137, "budget_exceeded")
    assert said.result["total_cost_usd"] == pytest.approx(3 * TURN)


@pytest.mark.parametrize("budget", ["0.016", "0.05"])
def test_a_budget_of_a_resumed_session_is_for_this_invocation(shell: Shell, budget: str) -> None:
    with serving(shell, [DONE, step(1), step(2), step(3), step(4), DONE]):
        first = shell.print("anthropic/m", "--output-format", "json", "--max-budget-usd", "0.01")
        again = shell(
            "-p", "go", "--resume", first.result["session_id"], "--output-format", "json",
            "--max-budget-usd", budget,
        )  # fmt: skip
    assert (first.code, again.code) == (0, 137)
    cost = again.result["total_cost_usd"]
    assert float(budget) < cost <= float(budget) + TURN
    assert again.err == (
        f"batten: budget: ${cost:.6f} is spent of a budget of ${float(budget):.6f}\n"
    )


def test_a_limit_of_an_earlier_invocation_is_gone(shell: Shell) -> None:
    with serving(shell, [step(1), step(2), step(3), step(4), DONE]):
        first = shell.print(
            "anthropic/m", "--output-format", "json", "--max-budget-usd", "0.01",
            "--max-turns", "3", "--json-schema", '{"type": "object"}',
        )  # fmt: skip
        again = shell("-p", "go", "--resume", first.result["session_id"], "--output-format", "json")
    assert (first.code, again.code) == (137, 0)
    assert (again.result["turns"], again.result["result"]) == (4, "done")
    assert "structured_output" not in again.result


@FORMS
def test_a_broken_call_is_in_the_totals_and_its_cost_a_lower_bound(shell: Shell, form: str) -> None:
    begun = sse(anthropic_start(), *anthropic_text_block(0, "Half")[:-1], named=True)
    with serving(shell, [step(1), cut(begun, Fault.CLOSE)]):
        said = shell.print("anthropic/m", "--output-format", form, "--max-retries", "0")
    result = said.result
    assert (result["subtype"], result["cost_unknown"]) == ("error", True)
    assert result["total_cost_usd"] == pytest.approx(TURN + 0.012)
    assert (result["total_input_tokens"], result["total_output_tokens"]) == (20, 6)
