"""`batten models`: known models, their prices, and the providers whose key or address is set."""

import os
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping

import msgspec
from msgspec import Struct

from batten.cli import current_directory
from batten.contract.errors import BattenError
from batten.models.pricing import Row, prices_as_of, rows
from batten.models.registry import PLACES, ProviderPlace
from batten.serve.output import put, say
from batten.wiring.files import settings_of_files
from batten.wiring.home import batten_home
from batten.wiring.settings import run_settings
from batten.wiring.spec import SessionSpec

_NAME_WIDTH = 40
_REST = "*"
"""After a name: all models whose names begin so."""


class KnownModel(Struct, frozen=True, kw_only=True):
    """A row of the price file as people name the model; rates in USD per million tokens."""

    model: str
    """`PROVIDER/MODEL`; a star at its end stands for further letters."""
    provider: str
    is_set_up: bool
    """Whether a key or an address of the provider is set."""
    context_tokens: int | None
    input_usd: float | None
    output_usd: float | None
    cache_read_usd: float | None
    cache_write_usd: float | None
    as_of: str


async def list_models(options: Namespace) -> int:
    environ = dict(os.environ)
    wanted = (options.text or "").lower()
    shown = [
        model
        for model in known_models(environ)
        if wanted in model.model.lower() and (options.all or wanted or model.is_set_up)
    ]
    if options.json:
        for model in shown:
            put(msgspec.json.encode(model).decode())
        return 0
    _print_providers(environ)
    if shown:
        put(f"\nUSD per million tokens, as of {prices_as_of(environ)}:\n")
        put(f"{'MODEL':<{_NAME_WIDTH}} {'CONTEXT':>9} {'INPUT':>8} {'OUTPUT':>8} {'CACHED':>8}")
        for model in shown:
            put(_line(model))
    elif wanted:
        say(f"batten: no known model has {options.text!r} in its name")
    else:
        put("\n`batten models --all` lists the known models of every provider.")
    return 1 if wanted and not shown else 0


def known_models(environ: Mapping[str, str]) -> Iterator[KnownModel]:
    """The models of each provider by name."""
    as_of = prices_as_of(environ)
    for place in PLACES.values():
        if place.provider == "openai-chat":
            continue  # the models of openai, in the older protocol
        seen: dict[str, KnownModel] = {}
        for row in rows(place.provider, environ):
            rates = [None if rate is None else float(rate) for rate in row.rates or ()]
            rates += [None] * (4 - len(rates))
            for name in _names(row):
                known = KnownModel(
                    model=f"{place.provider}/{name}",
                    provider=place.provider,
                    is_set_up=_is_set_up(place, environ),
                    context_tokens=row.context_tokens,
                    input_usd=rates[0],
                    output_usd=rates[1],
                    cache_read_usd=rates[2],
                    cache_write_usd=rates[3],
                    as_of=as_of,
                )
                seen.setdefault(known.model, known)
        yield from (seen[name] for name in sorted(seen))


def full_names(environ: Mapping[str, str]) -> list[str]:
    """The names that `--model` takes, of the providers that are set up."""
    known = (model for model in known_models(environ) if model.is_set_up)
    return [model.model.removesuffix(_REST) for model in known]


def usual_models(environ: Mapping[str, str], workspace: str) -> tuple[str, ...]:
    """The models of a run without flags; raises `BattenError` if there is none."""
    spec = SessionSpec(environ=environ, cwd=current_directory())
    found = settings_of_files(spec, workspace, batten_home(environ, spec.cwd))
    return run_settings(spec, None, found).models


def key_state(place: ProviderPlace, environ: Mapping[str, str]) -> str:
    """In words, whether the provider is set up."""
    key, base = place.key_variable(environ), place.base_variable(environ)
    if key is not None:
        return f"{key} is set" + (f", at {environ[base]}" if base else "")
    if base is not None:
        return f"at {environ[base]}, without a key"
    needed = place.key_variables if place.base else place.base_variables
    return f"set {' or '.join(needed)}"


def _print_providers(environ: Mapping[str, str]) -> None:
    for place in PLACES.values():
        mark = "set up" if _is_set_up(place, environ) else "-"
        put(f"{place.provider:<12} {mark:<7} {key_state(place, environ)}")
    try:
        chosen = usual_models(environ, os.path.realpath(current_directory() or "/"))
    except BattenError as error:
        put(f"\nWithout --model: {error}")
    else:
        put(f"\nWithout --model: {', then '.join(chosen)}")


def _is_set_up(place: ProviderPlace, environ: Mapping[str, str]) -> bool:
    return bool(place.key_variable(environ) or place.base_variable(environ))


def _names(row: Row) -> Iterable[str]:
    """Names of the row that can be typed: whole ones, and beginnings with a star."""
    for pattern in row.names:
        if isinstance(pattern, str) and pattern[:1] == "=":
            yield pattern[1:]
        elif isinstance(pattern, str) and pattern[:1] == "^":
            yield pattern[1:] + _REST


def _line(model: KnownModel) -> str:
    context = "" if model.context_tokens is None else f"{model.context_tokens:,}"
    rates = (model.input_usd, model.output_usd, model.cache_read_usd)
    spelled = " ".join(f"{'' if rate is None else f'{rate:.3f}':>8}" for rate in rates)
    return f"{model.model:<{_NAME_WIDTH}} {context:>9} {spelled}".rstrip()
