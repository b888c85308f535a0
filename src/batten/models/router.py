"""Fallback models: an ordered list; when one cannot answer, the next does.

Falls back only for errors another model may avoid: unavailable, unknown, or out of credit. A wrong
key or request is final. A model with a successor gets few retries: the other one may answer now.
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
_MOST_BEFORE_FALLBACK = 2
"""Retries of a model that is not the last."""


Suit = Callable[[ModelRequest, Model], ModelRequest]
"""Adapts a request to a model: native features, or instructions in words instead."""


class Rewrote(Struct, frozen=True, tag="rewrote"):
    """The call moves to another model."""

    from_model: str
    to_model: str
    """Both as `provider/model`."""
    reason: str
    code: str
    begun: bool = False
    """The model that failed had begun its answer; its events are void."""


async def with_fallbacks(
    models: Sequence[Model],
    request: ModelRequest,
    *,
    suit: Suit | None = None,
    policy: RetryPolicy | None = None,
    cancelled: asyncio.Event | None = None,
) -> AsyncGenerator[ModelEvent | Retrying | Rewrote, None]:
    """The first model's stream, or the next one's while a model fails. A move voids the events
    so far.

    `request.model` is set to each model's own name, and `suit` may change more of it. Raises the
    last model's `ProviderError`.
    """
    policy = policy or RetryPolicy()
    few = replace(policy, max_retries=min(policy.max_retries, _MOST_BEFORE_FALLBACK))
    for position, model in enumerate(models):
        begun, is_last = False, position + 1 == len(models)
        try:
            own_request = replace(request, model=model.name)
            own_request = own_request if suit is None else suit(own_request, model)
            own_policy = policy if is_last else few
            stream = with_retries(model, own_request, policy=own_policy, cancelled=cancelled)
            async with aclosing(stream):
                async for event in stream:
                    begun = not isinstance(event, Retrying)
                    yield event
            return
        except ProviderError as error:
            can_move = error.retriable or error.code in _UNAVAILABLE
            stopped = cancelled is not None and cancelled.is_set()
            if not can_move or stopped or is_last:
                raise
            failure = error
        following = models[position + 1]
        yield Rewrote(
            from_model=f"{model.provider}/{model.name}",
            to_model=f"{following.provider}/{following.name}",
            reason=failure.message,
            code=failure.code,
            begun=begun,
        )
