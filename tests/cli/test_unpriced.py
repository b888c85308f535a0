"""Models without a known price beside a budget: used with a warning, or refused where told to."""

import subprocess

import msgspec
import pytest

from tests.models.server import answer
from tests.models.wire import anthropic_turn
from tests.session.processes import BATTEN, environment, until

from .invoking import Shell, serving

BUDGET = ["--max-budget-usd", "1"]
PRICES = '{"as_of": "2026-02-03", "providers": {"anthropic": [[["=m"], 9999, ["1", "2"]]]}}'


@pytest.fixture(autouse=True)
def priced(shell: Shell) -> None:
    (shell.stage.directory / "prices.json").write_text(PRICES)
    shell.set(BATTEN_PRICES=str(shell.stage.directory / "prices.json"))


@pytest.mark.parametrize(
    "flags",
    [
        ["--model", "anthropic/unheard-of"],
        ["--model", "anthropic/m", "--fallback-model", "anthropic/unheard-of"],
    ],
)
def test_a_budget_that_must_be_kept_refuses_a_model_without_a_price_before_any_call(
    shell: Shell, flags: list[str]
) -> None:
    with serving(shell, [answer(anthropic_turn("x"))]) as server:
        said = shell("-p", "go", *flags, *BUDGET, "--require-price", "--output-format", "json")
        assert server.requests == []
    assert (said.code, said.result["outcome"], said.result["subtype"]) == (78, "config", "error")
    for words in ("anthropic/unheard-of", "--require-price", "BATTEN_PRICES"):
        assert words in said.err
    assert shell.run_ids() == []


def allowed(shell: Shell, *flags: str) -> bool:
    with serving(shell, [answer(anthropic_turn("x"))]):
        said = shell("-p", "go", "--model", "anthropic/unheard-of", *BUDGET, *flags)
    assert said.code in (0, 78)
    assert "no price is known for anthropic/unheard-of" in said.err
    return said.code == 0


def test_a_flag_a_variable_or_a_setting_refuses_it(shell: Shell) -> None:
    assert allowed(shell)
    assert not allowed(shell, "--require-price")
    on, off = (msgspec.json.encode({"require_price": value}).decode() for value in (True, False))
    assert not allowed(shell, "--settings", on)
    assert allowed(shell, "--settings", off)
    assert not allowed(shell, "--settings", off, "--require-price")
    shell.set(BATTEN_REQUIRE_PRICE="1")
    assert not allowed(shell)
    assert allowed(shell, "--require-price=no")


@pytest.mark.parametrize(
    "flags", [["--model", "anthropic/m", *BUDGET], ["--model", "anthropic/unheard-of"]]
)
def test_a_price_or_no_budget_is_enough(shell: Shell, flags: list[str]) -> None:
    with serving(shell, [answer(anthropic_turn("x"))]):
        assert shell("-p", "go", *flags).code == 0


def test_a_run_that_goes_on_keeps_the_model_it_was_allowed(shell: Shell) -> None:
    stage = shell.stage
    calls = [("c1", "bash", {"command": "exec tail -f /dev/null"})]
    flags = ["--model", "anthropic/unheard-of", *BUDGET, "--allow", "bash"]
    with serving(shell, [answer(anthropic_turn("", calls)), answer(anthropic_turn("x"))]) as server:
        env = {**environment(stage), **server.environ()}
        with subprocess.Popen(
            [BATTEN, "-p", "go", *flags, "--sandbox", "none",
             "--output-format", "events"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=env, cwd=stage.workspace,
        ) as process:  # fmt: skip
            run_id = until(process, "tool.shell.command")
            process.kill()
        on = msgspec.json.encode({"require_price": True}).decode()
        said = shell("-p", "--resume", run_id, "--sandbox", "none", "--settings", on)
        assert (said.code, said.out) == (0, b"x\n")
