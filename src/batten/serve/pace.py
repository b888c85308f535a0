"""Whoever reads what is shown, as a dialogue and its guard know them: by their pace."""

from collections.abc import Callable
from typing import Protocol


class Pace(Protocol):
    """How what is shown is taken."""

    @property
    def closed(self) -> bool:
        """Whether nobody will take anything any more."""
        ...

    @property
    def has_room(self) -> bool:
        """Whether more may be shown without waiting."""
        ...

    @property
    def stalled_s(self) -> float:
        """How long nothing was taken of what waits."""
        ...

    async def room(self) -> None:
        """Wait while there is none."""
        ...


class Outlet(Protocol):
    """Where last words go, also from a thread."""

    def on_closed(self, call: Callable[[], object]) -> None:
        """What to call, from whichever thread, once nobody takes anything any more."""
        ...

    def drain(self, stalled_s: float) -> None:
        """Wait for what was said to be taken, unless nothing is for this long."""
        ...
