"""Who listens to a shared runtime: a connection with its subscriptions, and when each was seen."""

from batten.protocols.maestro.connection import Connection
from batten.protocols.maestro.outgoing import Message
from batten.protocols.maestro.vocabulary import Notification


class Subscription:
    """One way in which a connection listens, whether or not a stream is attached to it now."""

    def __init__(
        self,
        subscription_id: str,
        connection: Connection,
        opt_out: tuple[Notification, ...] | None,
        at: float,
    ) -> None:
        self.subscription_id = subscription_id
        self.connection = connection
        self._own = None if opt_out is None else tuple(dict.fromkeys(opt_out))
        self._streams = 0
        self._detached_at = at

    @property
    def opted_out(self) -> tuple[Notification, ...]:
        """What it is spared: by a list of its own, or else by its connection's."""
        return self.connection.opted_out if self._own is None else self._own

    @property
    def is_attached(self) -> bool:
        return self._streams > 0

    @property
    def wants_heartbeats(self) -> bool:
        return "heartbeat" not in self.opted_out

    def hears(self, message: Message) -> Message | None:
        """A message as it is told here, if it is."""
        return self.connection.heard(message, self.opted_out)

    def attach(self, is_attached: bool, at: float) -> None:
        """A stream came or went."""
        self._streams = max(0, self._streams + (1 if is_attached else -1))
        self._detached_at = at

    def idle_s(self, at: float) -> float:
        """For how long nobody has read it; since the clock was put back, if it was."""
        self._detached_at = min(self._detached_at, at)
        return 0.0 if self.is_attached else at - self._detached_at


class Member:
    """A connection of a shared runtime, and what it has there."""

    def __init__(self, connection: Connection, at: float) -> None:
        self.connection = connection
        self.subscriptions: dict[str, Subscription] = {}
        self.seen_at = at

    @property
    def connection_id(self) -> str:
        return self.connection.connection_id

    @property
    def attached(self) -> int:
        """How many of its subscriptions are read now."""
        return sum(one.is_attached for one in self.subscriptions.values())

    def idle_s(self, at: float) -> float:
        """For how long it was not heard of; a stream that is attached says that it is there.

        A clock that was put back counts anew.
        """
        self.seen_at = min(self.seen_at, at)
        return 0.0 if self.attached else at - self.seen_at
