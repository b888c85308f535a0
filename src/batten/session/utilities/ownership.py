"""Who a running utility belongs to, and how it is said to end."""

import asyncio
from collections.abc import Awaitable, Callable

from batten.contract.errors import Refused
from batten.contract.facts import Fact
from batten.contract.utilities import Said

Tell = Callable[[Said], Awaitable[None]]
"""Says something to whoever listens, and waits while they listen slowly."""
Record = Callable[[Fact], Awaitable[object]]


class Owned:
    """Something that runs for one connection until it ends or is ended."""

    def __init__(self, noun: str, name: str, owner: str) -> None:
        self._noun = noun
        self.name = name
        self.owner = owner
        self.reason = ""
        """Why it is ended; the first reason given counts."""
        self.settled = asyncio.Event()
        """It has been started, or it will not be."""
        self.over = asyncio.Event()

    def check(self, connection: str) -> None:
        """Only its owner may do anything with it."""
        if connection != self.owner:
            raise Refused(
                f"Headless {self._noun} {self.name} is owned by another connection",
                code="owned_elsewhere",
            )

    def end_for(self, reason: str) -> None:
        self.reason = self.reason or reason
