"""Asks a provider for its list of models, which is free: is it reached, and is the key accepted?"""

import time
from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from batten.models.address import Address
from batten.models.exchange import HttpModel
from batten.models.http import HttpClient, Timeouts
from batten.models.registry import open_model

_ENDS = (
    ("/v1/messages", "/v1/models"),
    ("/chat/completions", "/models"),
    ("/responses", "/models"),
    ("/api/chat", "/api/tags"),
    ("/:streamGenerateContent?alt=sse", ""),
)
"""The end of each API's path for calls, and of the one for its list of models."""
_LONGEST_BODY = 256 * 1024


class Probe(Struct, frozen=True):
    """An answer to the question for models."""

    address: str
    status: int
    date: str
    """The server's clock, as its header gives it; empty if it does not."""
    duration_ms: int


async def probe(provider: str, environ: Mapping[str, str], timeout_s: float) -> Probe:
    """Raises `CallerError` if something is not configured, `ProviderError` without an answer."""
    timeouts = Timeouts(timeout_s, timeout_s, timeout_s, timeout_s)
    model = _http_model(provider, environ, timeouts)
    target = _listing(model.dialect.target(""))
    client = HttpClient(provider, environ, timeouts)
    begun = time.monotonic()
    try:
        async with client.get(target, model.dialect.headers) as response:
            await response.read(_LONGEST_BODY, timeout_s)
            return Probe(
                f"{target.scheme}://{target.authority}",
                response.status,
                response.headers.get("date", ""),
                round((time.monotonic() - begun) * 1000),
            )
    finally:
        await client.aclose()
        await model.aclose()


def check_configured(provider: str, environ: Mapping[str, str]) -> None:
    """Raises `CallerError` if a key or the address is missing or wrong; connects to nothing."""
    _http_model(provider, environ).dialect.target("")


def _http_model(
    provider: str, environ: Mapping[str, str], timeouts: Timeouts | None = None
) -> HttpModel:
    model = open_model(f"{provider}/any", environ, timeouts=timeouts)
    assert isinstance(model, HttpModel)
    return model


def _listing(target: Address) -> Address:
    for end, other in _ENDS:
        if target.path.endswith(end):
            return replace(target, path=target.path.removesuffix(end) + other)
    return target
