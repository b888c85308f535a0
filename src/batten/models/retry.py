"""Retries a model call: bounded, with growing pauses, and never after its first event.

Each pause is announced before it begins, so that the caller can record it. Cancelling the task,
or setting `cancelled`, ends a pause at once.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Literal, cast

from msgspec import Struct

from batten.contract.errors import ProviderError
from batten.models.contract import Model, ModelEvent, ModelRequest

Category = Literal["overloaded", "rate_limit", "timeout", "network", "server_error", "other"]

_CATEGORIES: dict[str, Category] = {
    "model_overloaded": "overloaded",
    "model_rate_limited": "rate_limit",
    "model_timeout": "timeout",
    "model_unreachable": "network",
    "model_server_error": "server_error",
}


class RetryPolicy(Struct, frozen=True):
    max_attempts: int = 3
    """In total, including the first."""
    first_delay_s: float = 0.5
    longest_delay_s: float = 30.0
    longest_retry_after_s: float = 60.0
    """Upper limit for a provider's `Retry-After`."""


class Retrying(Struct, frozen=True, tag="retrying"):
    """Attempt `attempt` failed; the next one begins after `delay_s`."""

    attempt: int
    max_attempts: int
    delay_s: float
    code: str
    category: Category
    status: int | None
    message: str


def category_of(error: ProviderError) -> Category:
    return _CATEGORIES.get(error.code, "other")


def delay_before(
    attempt: int, error: ProviderError, policy: RetryPolicy, jitter: Callable[[], float]
) -> float:
    """The pause after attempt `attempt`. The provider's `Retry-After` takes precedence."""
    if error.retry_after_s is not None:
        return min(error.retry_after_s, policy.longest_retry_after_s)
    doubled = min(policy.first_delay_s * 2.0 ** (attempt - 1), policy.longest_delay_s)
    return doubled * (0.5 + jitter() / 2)


def _random() -> float:
    # Not the random module: it costs three milliseconds to import.
    return int.from_bytes(os.urandom(4), "big") / 2**32


async def with_retries(
    model: Model,
    request: ModelRequest,
    *,
    policy: RetryPolicy | None = None,
    cancelled: asyncio.Event | None = None,
    jitter: Callable[[], float] = _random,
) -> AsyncGenerator[ModelEvent | Retrying, None]:
    """The model's stream, restarted while it fails before its first event.

    Raises the last `ProviderError` if another attempt is not worthwhile, or if `cancelled` is set
    during a pause.
    """
    policy = policy or RetryPolicy()
    attempt = 0
    while True:
        attempt += 1
        begun = False
        try:
            # Every adapter's stream is a generator; closing it ends the call.
            stream = cast("AsyncGenerator[ModelEvent, None]", model.stream(request))
            async with aclosing(stream):
                async for event in stream:
                    begun = True
                    yield event
            return
        except ProviderError as error:
            if begun or not error.retriable or attempt >= policy.max_attempts:
                raise
            delay_s = delay_before(attempt, error, policy, jitter)
            failure = error
        yield Retrying(
            attempt=attempt,
            max_attempts=policy.max_attempts,
            delay_s=delay_s,
            code=failure.code,
            category=category_of(failure),
            status=failure.status,
            message=failure.message,
        )
        if await _pause(delay_s, cancelled):
            raise failure


async def _pause(delay_s: float, cancelled: asyncio.Event | None) -> bool:
    """Sleep; whether it was cancelled."""
    if cancelled is None:
        await asyncio.sleep(delay_s)
        return False
    try:
        async with asyncio.timeout(delay_s):
            await cancelled.wait()
    except TimeoutError:
        return False
    return True
