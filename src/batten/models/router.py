"""Fallback models: an ordered list, of which the next answers when one cannot.

A model is given up only before it has said anything, and only for what another model
may be spared: it is unavailable, unknown, or out of credit. A wrong key or request is not.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.errors import ProviderError
from batten.models.contract import Model, ModelEvent, ModelRequest
from batten.models.retry import Retrying, RetryPolicy, with_retries

_UNAVAILABLE = frozenset({"model_not_found", "model_quota"})


Suit = Callable[[ModelRequest, Model], ModelRequest]
"""Makes a request one for this model: what it takes natively, and what it is told in words."""


class Rewrote(Struct, frozen=True, tag="rewrote"):
    """The call goes to another model from here on."""

    from_model: str
    to_model: str
    """Both as `provider/model`."""
    reason: str
    code: str


async def with_fallbacks(
    models: Sequence[Model],
    request: ModelRequest,
    *,
    suit: Suit | None = None,
    policy: RetryPolicy | None = None,
    cancelled: asyncio.Event | None = None,
) -> AsyncGenerator[ModelEvent | Retrying | Rewrote, None]:
    """The first model's stream, or that of the next while one fails before its first event.

    `request.model` is set to each model's own name, and `suit` may change more of it. Raises the
    last model's `ProviderError`.
    """
    for position, model in enumerate(models):
        begun = False
        try:
            asked = replace(request, model=model.name)
            asked = asked if suit is None else suit(asked, model)
            stream = with_retries(model, asked, policy=policy, cancelled=cancelled)
            async with aclosing(stream):
                async for event in stream:
                    begun = begun or not isinstance(event, Retrying)
                    yield event
            return
        except ProviderError as error:
            spared = error.retriable or error.code in _UNAVAILABLE
            stopped = cancelled is not None and cancelled.is_set()
            if begun or not spared or stopped or position + 1 == len(models):
                raise
            failure = error
        following = models[position + 1]
        yield Rewrote(
            from_model=f"{model.provider}/{model.name}",
            to_model=f"{following.provider}/{following.name}",
            reason=failure.message,
            code=failure.code,
        )
