"""The interfaces a session is served through: a sink for messages, to one client on a pair of
pipes or to all clients of a runtime, and a context with a task group and a guard.
"""

import asyncio
from typing import Protocol

from batten.protocols.maestro.outgoing import Message
from batten.protocols.maestro.vocabulary import RequestType
from batten.serve.guard import SessionGuard
from batten.serve.pace import Pace
from batten.serve.renderer import Renderer


class ClientSink(Protocol):
    """Receives messages, and knows the capabilities of the client that answers requests."""

    @property
    def serves(self) -> frozenset[RequestType]:
        """The request classes that the client answers."""
        ...

    @property
    def wants_raw(self) -> bool: ...

    @property
    def wants_endings(self) -> bool: ...

    @property
    def has_room(self) -> bool: ...

    def send(self, message: Message) -> None: ...

    async def room(self) -> None:
        """Wait while the client reads slower than we write."""
        ...


class ServeContext(Protocol):
    """The environment of a session: its task group, its output and its guard."""

    @property
    def group(self) -> asyncio.TaskGroup: ...

    @property
    def output(self) -> Pace: ...

    def guard(self, renderer: Renderer) -> SessionGuard: ...
