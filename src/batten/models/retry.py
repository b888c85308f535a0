"""Retries a model call: bounded, with growing pauses, also when its stream broke off.

Each pause is announced before it begins, so that the caller can record it and take back the events
of a stream that broke off. Cancelling the task, or setting `cancelled`, ends a pause at once.
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


MAX_RETRIES = 10
_MOST_FOR_PROTOCOL = 2
"""Retries after a violation of the protocol: a server that speaks another one does so again."""


class RetryPolicy(Struct, frozen=True):
    max_retries: int = MAX_RETRIES
    """Further attempts after the first."""
    first_delay_s: float = 0.5
    longest_delay_s: float = 30.0
    longest_retry_after_s: float = 60.0
    """Upper limit for a provider's `Retry-After`."""

    def attempts_for(self, error: ProviderError) -> int:
        """How many attempts a call gets that fails like this; 1 if a retry cannot help."""
        if not error.retriable:
            return 1
        if error.code == "model_protocol":
            return 1 + min(self.max_retries, _MOST_FOR_PROTOCOL)
        return 1 + self.max_retries


class Retrying(Struct, frozen=True, tag="retrying"):
    """Attempt `attempt` failed; the next one begins after `delay_s`."""

    attempt: int
    max_attempts: int
    delay_s: float
    code: str
    category: Category
    status: int | None
    message: str
    begun: bool = False
    """The attempt had events; they are void."""


def category_of(error: ProviderError) -> Category:
    return _CATEGORIES.get(error.code, "other")


def delay_before(
    attempt: int, error: ProviderError, policy: RetryPolicy, jitter: Callable[[], float]
) -> float:
    """The pause after attempt `attempt`. The provider's `Retry-After` takes precedence."""
    if error.retry_after_s is not None:
        return min(error.retry_after_s, policy.longest_retry_after_s)
    # Beyond 2**30 the limit holds anyway, and a float overflows at 2**1024.
    doubled = min(policy.first_delay_s * 2.0 ** min(attempt - 1, 30), policy.longest_delay_s)
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
    """The model's stream, restarted while it fails. A restart voids the events so far.

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
            if attempt >= policy.attempts_for(error):
                if attempt == 1:
                    raise
                raise _counted(error, attempt - 1) from error
            delay_s = delay_before(attempt, error, policy, jitter)
            failure = error
        yield Retrying(
            attempt=attempt,
            max_attempts=policy.attempts_for(failure),
            delay_s=delay_s,
            code=failure.code,
            category=category_of(failure),
            status=failure.status,
            message=failure.message,
            begun=begun,
        )
        if await _pause(delay_s, cancelled):
            raise failure


def _counted(error: ProviderError, retries: int) -> ProviderError:
    """The error with the number of retries in its message."""
    return ProviderError(
        f"{error.message} (after {retries} retr{'y' if retries == 1 else 'ies'})",
        code=error.code,
        retriable=error.retriable,
        status=error.status,
        retry_after_s=error.retry_after_s,
        provider=error.provider,
        answer=error.answer,
    )


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
