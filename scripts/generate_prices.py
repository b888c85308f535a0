"""Writes src/batten/models/prices.json from the genai-prices package, for the models we can call.

Run it when that package is updated: `python -m scripts.generate_prices [AS_OF]`.
"""

import json
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from genai_prices import data_snapshot, types

PROVIDERS = ("anthropic", "openai", "google", "openrouter", "groq", "deepseek", "x-ai")
TARGET = Path(__file__).parent.parent / "src" / "batten" / "models" / "prices.json"
RATES = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok")
SMALLEST = Decimal("0.000001")


def patterns(clause: Any) -> list[Any]:
    """A match clause as alternative patterns."""
    match clause:
        case types.ClauseOr():
            return [pattern for inner in clause.or_ for pattern in patterns(inner)]
        case types.ClauseAnd():
            return [[pattern for inner in clause.and_ for pattern in patterns(inner)]]
        case types.ClauseEquals():
            return [f"={clause.equals}"]
        case types.ClauseStartsWith():
            return [f"^{clause.starts_with}"]
        case types.ClauseEndsWith():
            return [f"${clause.ends_with}"]
        case types.ClauseContains():
            return [f"~{clause.contains}"]
        case types.ClauseRegex():
            return [f"/{clause.regex}"]
        case _:
            raise SystemExit(f"an unknown clause: {clause!r}")


def current(prices: types.ModelPrice | list[types.ConditionalPrice], on: date) -> types.ModelPrice:
    """The prices valid on a day, without time-of-day rebates, so that cost is never too low."""
    if not isinstance(prices, list):
        return prices
    valid = [entry.prices for entry in prices if is_valid(entry.constraint, on)]
    return valid[-1] if valid else prices[0].prices


def is_valid(constraint: object, on: date) -> bool:
    if isinstance(constraint, types.StartDateConstraint):
        return constraint.start_date <= on
    return constraint is None


def rates(prices: Any, pick: Callable[[Any], Decimal | None]) -> list[str | None]:
    """Input, output, cache read and cache write; trailing unknowns are left out."""
    values: list[str | None] = []
    for field in RATES:
        value = pick(getattr(prices, field, None))
        values.append(None if value is None else plain(value))
    while len(values) > 2 and values[-1] is None:
        values.pop()
    return values


def plain(value: Decimal) -> str:
    text = f"{value.quantize(SMALLEST):f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def base_of(value: Any) -> Decimal | None:
    return value.base if isinstance(value, types.TieredPrices) else cast(Decimal | None, value)


def tier_of(start: int) -> Callable[[Any], Decimal | None]:
    def pick(value: Any) -> Decimal | None:
        if not isinstance(value, types.TieredPrices):
            return cast(Decimal | None, value)
        reached = [tier.price for tier in value.tiers if tier.start <= start]
        return reached[-1] if reached else value.base

    return pick


def row(model: types.ModelInfo, on: date) -> list[Any] | None:
    prices = current(model.prices, on)
    wanted = [getattr(prices, field, None) for field in RATES]
    context = model.context_window
    if wanted[0] is None or wanted[1] is None:
        return [patterns(model.match), context, None] if context else None
    starts = {
        tier.start
        for value in wanted
        if isinstance(value, types.TieredPrices)
        for tier in value.tiers
    }
    line: list[Any] = [patterns(model.match), context, rates(prices, base_of)]
    if starts:
        line.append([[start, rates(prices, tier_of(start))] for start in sorted(starts)])
    return line


def main() -> None:
    as_of = sys.argv[1] if len(sys.argv) > 1 else datetime.now(UTC).date().isoformat()
    on = date.fromisoformat(as_of)
    # Not `genai_prices.data`, whose one expression of 1.5 MB takes pyright a minute to judge.
    known = {provider.id: provider for provider in data_snapshot.get_snapshot().providers}
    lines: list[str] = []
    for name in PROVIDERS:
        rows = [line for model in known[name].models if (line := row(model, on)) is not None]
        body = ",\n".join(json.dumps(line, separators=(",", ":")) for line in rows)
        lines.append(f'"{name}":[\n{body}\n]')
    text = f'{{"as_of":"{as_of}","providers":{{\n' + ",\n".join(lines) + "\n}}\n"
    TARGET.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
