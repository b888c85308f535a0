"""`batten models`: known names, prices, and which keys are there."""

from pathlib import Path

import msgspec

from .invoking import Json, Shell


def named(rows: list[Json], model: str) -> Json:
    (found,) = [row for row in rows if row["model"] == model]
    return found


def test_without_a_key_the_variables_to_set_are_named(shell: Shell) -> None:
    said = shell("models")
    assert said.code == 0
    text = said.out.decode()
    assert "anthropic    -       set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN" in text
    assert "compat       -       set COMPAT_BASE_URL" in text
    assert "Without --model: no model: give --model PROVIDER/MODEL" in text
    assert "`batten models --all` lists" in text
    assert shell("models", "--json").out == b""


def test_models_of_the_providers_with_a_key_are_listed_with_prices(shell: Shell) -> None:
    shell.set(ANTHROPIC_API_KEY="sk-hidden-value")
    text = shell("models").out.decode()
    assert "anthropic    set up  ANTHROPIC_API_KEY is set" in text
    assert "Without --model: anthropic/claude-sonnet-4-6" in text
    assert "sk-hidden-value" not in text
    assert "openai/" not in text
    lines = [line.split() for line in text.splitlines()]
    assert ["anthropic/claude-3-5-haiku*", "200,000", "0.800", "4.000", "0.080"] in lines
    assert [line for line in text.splitlines() if len(line) > 80] == []
    rows = shell("models", "--json").frames()
    assert {row["provider"] for row in rows} == {"anthropic"}
    haiku = named(rows, "anthropic/claude-3-5-haiku*")
    assert (haiku["input_usd"], haiku["output_usd"], haiku["cache_write_usd"]) == (0.8, 4, 1)
    assert haiku["is_set_up"] is True


def test_all_models_and_those_with_a_word_are_found_without_a_key(shell: Shell) -> None:
    everything = shell("models", "--all", "--json").frames()
    assert {"anthropic", "openai", "google", "openrouter", "xai"} <= {
        row["provider"] for row in everything
    }
    assert not any(row["is_set_up"] for row in everything)
    found = shell("models", "GROK-3", "--json").frames()
    assert "xai/grok-3" in {row["model"] for row in found}
    assert all("grok-3" in row["model"].lower() for row in found)
    none = shell("models", "no-such-model")
    assert none.code == 1
    assert "no known model has 'no-such-model' in its name" in none.err


def test_a_server_of_ones_own_and_prices_of_ones_own_are_shown(
    shell: Shell, tmp_path: Path
) -> None:
    prices = {"as_of": "2030-01-02", "providers": {"compat": [[["=mine"], 1000, ["1", "2"]]]}}
    (tmp_path / "prices.json").write_bytes(msgspec.json.encode(prices))
    shell.set(COMPAT_BASE_URL="http://here:1/v1", BATTEN_PRICES=str(tmp_path / "prices.json"))
    text = shell("models").out.decode()
    assert "compat       set up  at http://here:1/v1, without a key" in text
    assert "as of 2030-01-02" in text
    row = named(shell("models", "--json").frames(), "compat/mine")
    assert (row["context_tokens"], row["input_usd"], row["cache_read_usd"]) == (1000, 1.0, None)
