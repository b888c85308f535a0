"""Model prices: dated data, looked up by name, computed in integers.

A rate in USD per million tokens is the same number of micro-dollars per token; rates are stored
in millionths of that, so sums are exact until the one rounding at the end. Patterns in the data
file match model names; a model that is not listed has no price, which differs from a price of 0.
"""

import os
import re
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import msgspec
from msgspec import Struct
from msgspec.structs import astuple

from batten.contract.errors import CallerError
from batten.contract.facts.assistant import Usage
from batten.settings.regular import read_regular

DEFAULT_CONTEXT_TOKENS = 128_000
_LARGEST_TABLE = 16 * 1024 * 1024
_FREE = frozenset({"ollama", "scripted"})
_MILLION = 1_000_000
_LISTED = {"openai-chat": "openai", "xai": "x-ai"}
"""Providers that price files list under another name than ours."""


class Rates(Struct, frozen=True):
    """Picodollars per token: USD per million tokens, times a million."""

    input: int
    output: int
    cache_read: int
    cache_write: int


class Price(Struct, frozen=True):
    rates: Rates
    as_of: str
    """The date of the data; empty for models that are free."""
    tiers: tuple[tuple[int, Rates], ...] = ()
    """Above this number of input tokens, all tokens cost these rates; ascending."""

    @property
    def is_free(self) -> bool:
        rates = (self.rates, *(dearer for _, dearer in self.tiers))
        return not any(any(astuple(one)) for one in rates)


FREE = Price(Rates(0, 0, 0, 0), "")


class Row(Struct, frozen=True, array_like=True):
    """One model in the data file; rates in USD per million tokens, written as text."""

    names: list[Any]
    context_tokens: int | None
    rates: list[Any] | None
    """Input, output, cache read, cache write; the last two may be null or missing."""
    tiers: list[tuple[int, list[Any]]] = []


class _File(Struct, frozen=True):
    as_of: str
    providers: dict[str, msgspec.Raw]


class PriceTable:
    """A data file; each provider's part is decoded on first use."""

    def __init__(self, data: bytes, source: str) -> None:
        self._source = source
        self._rows: dict[str, list[Row]] = {}
        self._found: dict[tuple[str, str], Row | None] = {}
        try:
            self._file = msgspec.json.decode(data, type=_File)
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._wrong(error) from error

    @property
    def as_of(self) -> str:
        return self._file.as_of

    def find(self, provider: str, model: str) -> Row | None:
        if (provider, model) not in self._found:
            try:
                self._found[provider, model] = next(
                    (
                        row
                        for row in self.rows(provider)
                        if any(_matches(pattern, model) for pattern in row.names)
                    ),
                    None,
                )
            except re.error as error:
                raise self._wrong(error) from error
        return self._found[provider, model]

    def price(self, provider: str, model: str) -> Price | None:
        row = self.find(provider, model)
        if row is None or row.rates is None:
            return None
        try:
            tiers = tuple((start, _rates(rates)) for start, rates in row.tiers)
            return Price(_rates(row.rates), self.as_of, tiers)
        except (InvalidOperation, ValueError, IndexError) as error:
            raise self._wrong(error) from error

    def rows(self, provider: str) -> list[Row]:
        """All models of a provider, as the file lists them."""
        if provider not in self._rows:
            raw = self._file.providers.get(provider)
            try:
                rows = [] if raw is None else msgspec.json.decode(raw, type=list[Row])
            except (msgspec.MsgspecError, ValueError) as error:
                raise self._wrong(error) from error
            self._rows[provider] = rows
        return self._rows[provider]

    def _wrong(self, error: Exception) -> CallerError:
        return CallerError(
            f"{self._source} is not a price file ({error}); it is "
            '{"as_of": "2026-01-31", "providers": {"NAME": [[["=MODEL"], CONTEXT, '
            '["INPUT", "OUTPUT"]]]}} with rates in USD per million tokens',
            code="config",
        )


def listed_name(provider: str) -> str:
    """The name of a provider in price files."""
    return _LISTED.get(provider, provider)


def costs_nothing(provider: str) -> bool:
    """Whether no model of a provider costs anything."""
    return provider in _FREE


def price(provider: str, model: str, environ: Mapping[str, str]) -> Price | None:
    """The price of a model, or None if it is not listed. `BATTEN_PRICES` takes precedence."""
    if costs_nothing(provider):
        return FREE
    listed = listed_name(provider)
    found = (table.price(listed, model) for table in _tables(environ))
    return next((one for one in found if one is not None), None)


def prices_as_of(environ: Mapping[str, str]) -> str:
    """The date of the first price file."""
    return _tables(environ)[0].as_of


def check_own_prices(environ: Mapping[str, str]) -> None:
    """Raise `CallerError` for a file in `BATTEN_PRICES` that is none, before a run needs it."""
    if own := environ.get("BATTEN_PRICES", ""):
        _load(own)


def context_tokens(provider: str, model: str, environ: Mapping[str, str]) -> int:
    """The known limit of tokens for a request and its answer together, or the default."""
    return known_context_tokens(provider, model, environ) or DEFAULT_CONTEXT_TOKENS


def known_context_tokens(provider: str, model: str, environ: Mapping[str, str]) -> int | None:
    for table in _tables(environ):
        row = table.find(listed_name(provider), model)
        if row is not None and row.context_tokens:
            return row.context_tokens
    return None


def rows(provider: str, environ: Mapping[str, str]) -> list[Row]:
    """All models of a provider, in every price file; those of `BATTEN_PRICES` first."""
    return [row for table in _tables(environ) for row in table.rows(listed_name(provider))]


def cost_micros(price: Price, usage: Usage) -> int:
    """The cost of a call in micro-dollars, rounded half up."""
    rates = price.rates
    for start, dearer in price.tiers:
        if usage.input_tokens > start:
            rates = dearer
    cached = usage.cache_read_tokens + usage.cache_write_tokens
    picodollars = (
        max(usage.input_tokens - cached, 0) * rates.input
        + usage.cache_read_tokens * rates.cache_read
        + usage.cache_write_tokens * rates.cache_write
        + usage.output_tokens * rates.output
    )
    return (picodollars + _MILLION // 2) // _MILLION


def call_cost(price: Price | None, usage: Usage) -> int | None:
    """The cost of a call in micro-dollars; None if it is unknown.

    That is so without a price, and if the provider reported no tokens: every request has some.
    """
    if price is None or (usage == Usage() and not price.is_free):
        return None
    return cost_micros(price, usage)


def _rates(values: list[Any]) -> Rates:
    rates = [None if value is None else _rate(value) for value in [*values, None, None][:4]]
    if rates[0] is None or rates[1] is None:
        raise ValueError("a model without an input or output rate")
    cache_read, cache_write = rates[2], rates[3]
    return Rates(
        rates[0],
        rates[1],
        rates[0] if cache_read is None else cache_read,
        rates[0] if cache_write is None else cache_write,
    )


def _rate(value: object) -> int:
    number = Decimal(str(value)) * _MILLION
    if not number.is_finite() or number < 0:
        raise ValueError(f"a rate of {value}")
    return int(number.to_integral_value())


def _matches(pattern: object, model: str) -> bool:
    """`=equal`, `^prefix`, `$suffix`, `~substring`, `/regex/`; a list matches if all its own do."""
    if isinstance(pattern, list):
        return all(_matches(inner, model) for inner in cast("list[object]", pattern))
    if not isinstance(pattern, str) or not pattern:
        return False
    text = pattern[1:]
    match pattern[0]:
        case "=":
            return model == text
        case "^":
            return model.startswith(text)
        case "$":
            return model.endswith(text)
        case "~":
            return text in model
        case "/":
            return re.search(text, model) is not None
        case _:
            return False


_loaded: dict[str, PriceTable] = {}


def _tables(environ: Mapping[str, str]) -> list[PriceTable]:
    own = environ.get("BATTEN_PRICES", "")
    packaged = os.path.join(os.path.dirname(__file__), "prices.json")
    return [_load(path) for path in (own, packaged) if path]


def _load(path: str) -> PriceTable:
    if path not in _loaded:
        try:
            data = read_regular(path, _LARGEST_TABLE, pipes=True)
        except OSError as error:
            raise CallerError(
                f"the price file {path} cannot be read ({error.strerror}); check BATTEN_PRICES",
                code="config",
            ) from error
        _loaded[path] = PriceTable(data, path)
    return _loaded[path]
