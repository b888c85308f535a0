"""A connection of a shared runtime with its subscriptions, and when each was last seen."""

from batten.protocols.maestro.connection import Connection
from batten.protocols.maestro.outgoing import Message
from batten.protocols.maestro.vocabulary import Notification


class Subscription:
    """A subscription of a connection, with or without a stream attached."""

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
        """Notifications that it does not receive: its own list, or else the connection's."""
        return self.connection.opted_out if self._own is None else self._own

    @property
    def is_attached(self) -> bool:
        return self._streams > 0

    @property
    def wants_heartbeats(self) -> bool:
        return "heartbeat" not in self.opted_out

    def hears(self, message: Message) -> Message | None:
        """A message as this subscription receives it; None if it does not."""
        return self.connection.heard(message, self.opted_out)

    def attach(self, is_attached: bool, at: float) -> None:
        """A stream was attached or detached."""
        self._streams = max(0, self._streams + (1 if is_attached else -1))
        self._detached_at = at

    def idle_s(self, at: float) -> float:
        """Seconds without a reader; a clock set back restarts the count."""
        self._detached_at = min(self._detached_at, at)
        return 0.0 if self.is_attached else at - self._detached_at


class Member:
    """A connection of a shared runtime and its subscriptions."""

    def __init__(self, connection: Connection, at: float) -> None:
        self.connection = connection
        self.subscriptions: dict[str, Subscription] = {}
        self.seen_at = at

    @property
    def connection_id(self) -> str:
        return self.connection.connection_id

    @property
    def attached(self) -> int:
        """Subscriptions with a stream."""
        return sum(one.is_attached for one in self.subscriptions.values())

    def idle_s(self, at: float) -> float:
        """Seconds without a sign of life; an attached stream is one.

        A clock set back restarts the count.
        """
        self.seen_at = min(self.seen_at, at)
        return 0.0 if self.attached else at - self.seen_at
