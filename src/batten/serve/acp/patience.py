"""Timeouts for calls to the client's files and terminals."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from batten.contract.errors import ProviderError

_ANSWER_S = 30.0
"""For calls that need no decision by the user."""
_ENDING_S = 5.0
"""For calls that kill or release something."""

Found = TypeVar("Found")


class Patience:
    """Timeouts, capped by the timeout of questions to the user."""

    def __init__(self, request_s: float) -> None:
        self._answer_s = min(_ANSWER_S, request_s)
        self._ending_s = min(_ENDING_S, request_s)

    async def answered(self, asking: Awaitable[Found], what: str) -> Found:
        """Wait for an answer; raises `ProviderError` after the timeout."""
        return await _within(asking, what, self._answer_s)

    async def ended(self, asking: Awaitable[Found], what: str) -> Found:
        """The same with the shorter timeout, for kills and releases."""
        return await _within(asking, what, self._ending_s)


async def _within(asking: Awaitable[Found], what: str, seconds: float) -> Found:
    try:
        async with asyncio.timeout(seconds):
            return await asking
    except TimeoutError:
        raise ProviderError(
            f"the client did not answer {what} within {seconds:g} s", code="client_timeout"
        ) from None
