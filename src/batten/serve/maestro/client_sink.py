"""Whom a session speaks to and where it works, as its parts know it: one client on a pair of
pipes, or everybody who is connected to a runtime.
"""

import asyncio
from typing import Protocol

from batten.protocols.maestro.outgoing import Message
from batten.protocols.maestro.vocabulary import RequestType
from batten.serve.guard import SessionGuard
from batten.serve.pace import Pace
from batten.serve.renderer import Renderer


class ClientSink(Protocol):
    """Who hears messages, and what was agreed with whoever answers requests now."""

    @property
    def serves(self) -> frozenset[RequestType]:
        """The classes of requests that are answered."""
        ...

    @property
    def wants_raw(self) -> bool: ...

    @property
    def wants_endings(self) -> bool: ...

    @property
    def has_room(self) -> bool: ...

    def send(self, message: Message) -> None: ...

    async def room(self) -> None:
        """Wait while they read slower than we write."""
        ...


class ServeContext(Protocol):
    """What a session works in: tasks that end with it, and somebody who sees to its end."""

    @property
    def group(self) -> asyncio.TaskGroup: ...

    @property
    def output(self) -> Pace: ...

    def guard(self, renderer: Renderer) -> SessionGuard: ...
