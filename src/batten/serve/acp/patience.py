"""How long a client may take to do what it lends: nothing waits for it without end."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from batten.contract.errors import ProviderError

_ANSWER_S = 30.0
"""For what needs nobody's decision."""
_ENDING_S = 5.0
"""For what only ends something."""

Found = TypeVar("Found")


class Patience:
    """Never longer than questions to people wait."""

    def __init__(self, request_s: float) -> None:
        self._answer_s = min(_ANSWER_S, request_s)
        self._ending_s = min(_ENDING_S, request_s)

    async def answered(self, asking: Awaitable[Found], what: str) -> Found:
        """Its answer; `ProviderError` if it does not come in time."""
        return await _within(asking, what, self._answer_s)

    async def ended(self, asking: Awaitable[Found], what: str) -> Found:
        """The same for what ends something, which waits less."""
        return await _within(asking, what, self._ending_s)


async def _within(asking: Awaitable[Found], what: str, seconds: float) -> Found:
    try:
        async with asyncio.timeout(seconds):
            return await asking
    except TimeoutError:
        raise ProviderError(
            f"the client did not answer {what} within {seconds:g} s", code="client_timeout"
        ) from None
