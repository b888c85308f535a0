from pathlib import Path

import msgspec
import pytest

from batten.contract.errors import CallerError
from batten.contract.facts.assistant import Usage
from batten.models.pricing import (
    Price,
    Rates,
    context_tokens,
    cost_micros,
    price,
)

NO_OVERRIDE: dict[str, str] = {}


def known(provider: str, model: str) -> Price:
    found = price(provider, model, NO_OVERRIDE)
    assert found is not None
    return found


def test_a_cost_is_exact_before_it_is_rounded() -> None:
    fifteen = Price(Rates(3_000_000, 15_000_000, 0, 0), "2026-01-01")
    usage = Usage(output_tokens=1_234_567)
    assert cost_micros(fifteen, usage) == 18_518_505


def test_a_cost_is_rounded_half_up_once() -> None:
    cheap = Price(Rates(75_000, 300_000, 75_000, 75_000), "2026-01-01")
    for tokens, micros in {6: 0, 7: 1, 20: 2, 33: 2, 34: 3}.items():
        assert cost_micros(cheap, Usage(input_tokens=tokens)) == micros
    half = Price(Rates(500_000, 0, 0, 0), "2026-01-01")
    assert [cost_micros(half, Usage(input_tokens=n)) for n in (1, 2, 3)] == [1, 1, 2]


def test_cached_tokens_cost_their_own_rate_and_only_that() -> None:
    rates = Price(Rates(3_000_000, 15_000_000, 300_000, 3_750_000), "2026-01-01")
    usage = Usage(1_000_000, 0, cache_read_tokens=600_000, cache_write_tokens=100_000)
    assert cost_micros(rates, usage) == 900_000 + 180_000 + 375_000


def test_a_tier_applies_to_all_tokens_once_it_is_passed() -> None:
    tiered = Price(
        Rates(1_000_000, 2_000_000, 0, 0),
        "2026-01-01",
        ((200_000, Rates(2_000_000, 3_000_000, 0, 0)),),
    )
    assert cost_micros(tiered, Usage(200_000, 10)) == 200_020
    assert cost_micros(tiered, Usage(200_001, 10)) == 400_032


def test_the_packaged_prices_know_the_usual_models() -> None:
    sonnet = known("anthropic", "claude-sonnet-4-5-20250929")
    assert sonnet.rates == Rates(3_000_000, 15_000_000, 300_000, 3_750_000)
    assert len(sonnet.as_of) == len("2026-01-31")
    for provider, model in (
        ("openai", "gpt-5"),
        ("openai-chat", "gpt-5"),
        ("xai", "grok-4"),
        ("google", "gemini-2.5-pro"),
        ("openrouter", "anthropic/claude-sonnet-4.5"),
        ("deepseek", "deepseek-chat"),
    ):
        assert known(provider, model).rates.output > 0


def test_every_packaged_row_can_be_read() -> None:
    import batten.models

    assert batten.models.__file__ is not None
    path = Path(batten.models.__file__).parent / "prices.json"
    data = msgspec.json.decode(path.read_bytes())
    for provider, rows in data["providers"].items():
        for names, *_ in rows:
            exact = [name[1:] for name in names if name[0] in "=^~$"]
            for name in exact:
                price(provider, name, NO_OVERRIDE)
                assert context_tokens(provider, name, NO_OVERRIDE) > 0


def test_a_missing_cache_rate_is_the_input_rate() -> None:
    old = known("anthropic", "claude-2.1")
    assert old.rates == Rates(8_000_000, 24_000_000, 8_000_000, 8_000_000)


def test_an_unknown_model_has_no_price_and_a_free_one_costs_nothing() -> None:
    assert price("anthropic", "claude-nobody-knows", NO_OVERRIDE) is None
    assert price("compat", "anything", NO_OVERRIDE) is None
    for provider in ("ollama", "scripted"):
        assert cost_micros(known(provider, "anything"), Usage(10**9, 10**9)) == 0


def test_context_windows_are_known_or_assumed() -> None:
    assert context_tokens("anthropic", "claude-sonnet-4-5", NO_OVERRIDE) == 200_000
    assert context_tokens("compat", "anything", NO_OVERRIDE) == 128_000


def test_prices_of_ones_own_come_first(tmp_path: Path) -> None:
    own = tmp_path / "prices.json"
    own.write_text(
        '{"as_of": "2030-01-01", "providers": {"anthropic": '
        '[[["=claude-sonnet-4-5"], 5000, [0.1, "0.25"]]]}}'
    )
    environ = {"BATTEN_PRICES": str(own)}
    found = price("anthropic", "claude-sonnet-4-5", environ)
    assert found == Price(Rates(100_000, 250_000, 100_000, 100_000), "2030-01-01")
    assert context_tokens("anthropic", "claude-sonnet-4-5", environ) == 5000
    assert price("anthropic", "claude-opus-4-1", environ) == price(
        "anthropic", "claude-opus-4-1", NO_OVERRIDE
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        '{"as_of": "x", "providers": {"anthropic": 7}}',
        '{"as_of": "x", "providers": {"anthropic": [[["=m"], 1, ["free", "1"]]]}}',
        '{"as_of": "x", "providers": {"anthropic": [[["=m"], 1, ["-1", "1"]]]}}',
        '{"as_of": "x", "providers": {"anthropic": [[["=m"], 1, ["NaN", "1"]]]}}',
        '{"as_of": "x", "providers": {"anthropic": [[["=m"], 1, ["1"]]]}}',
        '{"as_of": "x", "providers": {"anthropic": [[["/("], 1, ["1", "1"]]]}}',
    ],
)
def test_a_price_file_that_is_none_is_a_configuration_error(tmp_path: Path, text: str) -> None:
    own = tmp_path / "prices.json"
    own.write_text(text)
    with pytest.raises(CallerError, match="is not a price file") as raised:
        price("anthropic", "m", {"BATTEN_PRICES": str(own)})
    assert raised.value.code == "config"


def test_a_missing_price_file_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match="BATTEN_PRICES"):
        price("anthropic", "m", {"BATTEN_PRICES": str(tmp_path / "none.json")})
