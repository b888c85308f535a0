"""The session of a runtime, wherever it runs: what a runtime asks of it."""

from collections.abc import Callable
from typing import Protocol

from batten.protocols.maestro.hosted import RuntimeSnapshot
from batten.protocols.maestro.incoming import Incoming
from batten.runner.flush import SessionFile


class ServedSession(Protocol):
    """A session that publishes its messages through a `ClientHub`."""

    reason: str
    """Why it will end, recorded when it does."""

    @property
    def is_over(self) -> bool: ...

    def check(self) -> object:
        """Raise `NotReady` with the reason if there is no open session."""
        ...

    async def run(self) -> None:
        """Open the session and serve it until it ends."""
        ...

    async def opened(self) -> None:
        """Wait until the session is open; raises the error that prevented it."""
        ...

    async def take(
        self,
        message: Incoming,
        sender: str,
        begin: Callable[[], object],
        done: Callable[[], object],
    ) -> None:
        """Carry out one message. `begin`, which may raise, runs before it and `done` after it."""
        ...

    def audience_changed(self) -> None:
        """Connections of the hub, or what they take, may have changed."""
        ...

    async def leave(self, connection_id: str) -> None:
        """A connection was closed: end the utilities that it started."""
        ...

    async def end(self) -> None:
        """End all work, and wait until everything is stored."""
        ...

    def snapshot(self) -> RuntimeSnapshot: ...

    async def stop(self) -> None:
        """The same as `end` for a drain: publishes the final state before it returns."""
        ...

    async def keep(self) -> SessionFile | None:
        """Write the session where the next runner finds it; None if it is not stored."""
        ...
