"""How fast a client reads: the seam between the display of a session and its output."""

from collections.abc import Callable
from typing import Protocol

STALLED_S = 10.0
"""How long a reader may read nothing before we stop waiting for it."""


class Pace(Protocol):
    """Back-pressure of one client."""

    @property
    def closed(self) -> bool:
        """Whether the client has stopped reading for good."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether more may be shown without waiting."""
        ...

    @property
    def stalled_s(self) -> float:
        """How long the client has read nothing of the queued bytes."""
        ...

    async def room(self) -> None:
        """Wait until there is room."""
        ...


class Outlet(Protocol):
    """Output that the guard drains from its thread before the process ends."""

    def on_closed(self, call: Callable[[], object]) -> None:
        """Set a callback, called from any thread when the reader closes."""
        ...

    def drain(self, stalled_s: float) -> None:
        """Wait until all is read, or the reader reads nothing for `stalled_s`."""
        ...
