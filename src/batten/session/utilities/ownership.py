"""The owner of a running utility, and its end."""

import asyncio
from collections.abc import Awaitable, Callable

from batten.contract.errors import Refused
from batten.contract.facts import Fact
from batten.contract.utilities import Said

Tell = Callable[[Said], Awaitable[None]]
"""Sends a message to the clients, and waits for slow ones."""
Record = Callable[[Fact], Awaitable[object]]


class Owned:
    """A utility that runs for one connection until it ends or is ended."""

    def __init__(self, noun: str, name: str, owner: str) -> None:
        self._noun = noun
        self.name = name
        self.owner = owner
        self.reason = ""
        """Why it was ended; the first reason counts."""
        self.settled = asyncio.Event()
        """Set once it has started or will not start."""
        self.over = asyncio.Event()

    def check(self, connection: str) -> None:
        """Raise `Refused` unless this connection owns it."""
        if connection != self.owner:
            raise Refused(
                f"Headless {self._noun} {self.name} is owned by another connection",
                code="owned_elsewhere",
            )

    def end_for(self, reason: str) -> None:
        self.reason = self.reason or reason
