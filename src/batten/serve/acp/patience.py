"""How long a client may take to do what it lends: nothing waits for it without end."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from batten.contract.errors import ProviderError

ANSWER_S = 30.0
"""For what needs nobody's decision."""

Found = TypeVar("Found")


async def answered(asking: Awaitable[Found], what: str, seconds: float = ANSWER_S) -> Found:
    """Its answer; `ProviderError` if it does not come in time."""
    try:
        async with asyncio.timeout(seconds):
            return await asking
    except TimeoutError:
        raise ProviderError(
            f"the client did not answer {what} within {seconds:g} s", code="client_timeout"
        ) from None
