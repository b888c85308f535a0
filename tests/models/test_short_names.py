"""Short names of models, which follow the prices."""

from pathlib import Path

import msgspec
import pytest

from batten.models.pricing import price
from batten.models.registry import split_name
from batten.models.short_names import model_named


def prices(path: Path, *patterns: str) -> dict[str, str]:
    """The environment with a price file of its own that lists these."""
    rows = [[[pattern], 1000, ["1", "2"]] for pattern in patterns]
    path.write_bytes(msgspec.json.encode({"as_of": "2030-01-01", "providers": {"anthropic": rows}}))
    return {"BATTEN_PRICES": str(path)}


@pytest.mark.parametrize("family", ["sonnet", "opus", "haiku"])
def test_each_short_name_is_a_model_that_has_a_price(family: str) -> None:
    provider, model = split_name(model_named(family, {}))
    assert provider == "anthropic"
    assert model.startswith(f"claude-{family}-")
    assert price(provider, model, {}) is not None


def test_the_highest_version_counts_as_a_number_and_days_do_not(tmp_path: Path) -> None:
    listed = prices(
        tmp_path / "prices.json",
        *("=claude-opus-97", "^claude-opus-98-9", "=claude-opus-98-10", "^claude-sonnet-99"),
        *("=claude-opus-98-20991231", "^claude-99-opus", "~claude-opus-99", "^claude-opus-99.5"),
    )
    assert model_named("opus", listed) == "claude-opus-98-10"
    assert model_named("sonnet", listed) == "claude-sonnet-99"


def test_the_environment_says_otherwise_than_the_prices() -> None:
    environ = {"ANTHROPIC_DEFAULT_SONNET_MODEL": "openai/gpt-5.5"}
    assert model_named("sonnet", environ) == "openai/gpt-5.5"
    assert model_named("opus", environ) == model_named("opus", {})


def test_any_other_name_stays() -> None:
    assert model_named("claude-sonnet-4-5", {}) == "claude-sonnet-4-5"
    assert model_named("gpt-5.5", {}) == "gpt-5.5"
