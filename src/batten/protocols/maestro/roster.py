"""The connections of a shared runtime, their subscriptions, and the holder of the lease."""

from collections.abc import Callable

from msgspec import UNSET, Struct
from msgspec.structs import asdict, replace

from batten.contract.envelope import timestamp
from batten.contract.errors import CallerError, NotFound
from batten.protocols.maestro.connection import Connection
from batten.protocols.maestro.hosted import (
    ConnectionSnapshot,
    HeartbeatSnapshot,
    RuntimeSnapshot,
    SubscriptionSnapshot,
)
from batten.protocols.maestro.incoming import Hello
from batten.protocols.maestro.outgoing import ConnectionInfo, ConnectionState
from batten.protocols.maestro.snapshot import RuntimeState
from batten.protocols.maestro.subscription import Member, Subscription
from batten.protocols.maestro.vocabulary import RequestType

NO_CONNECTION = "Headless connection not found"
NO_SUBSCRIPTION = "Headless subscriber not found"


class Timings(Struct, frozen=True, kw_only=True):
    heartbeat_ms: int = 15_000
    """The interval at which clients send heartbeats."""
    connection_idle_ms: int = 45_000
    """How long a silent connection is kept, with its lease."""
    subscription_idle_ms: int = 30_000
    """How long a subscription without a stream is kept."""
    sweep_ms: int = 60_000
    """The interval at which idle ones are removed."""


class Most(Struct, frozen=True, kw_only=True):
    """How many may be there at once."""

    connections: int = 1000
    subscriptions: int = 2000
    """Of all connections together."""


class Gone(Struct, frozen=True):
    """Removed connections and subscriptions."""

    connections: tuple[str, ...]
    subscriptions: tuple[str, ...]
    """Those of the removed connections, and others."""


class Roster:
    """Stores the connections and describes them. `Registry` has the rules."""

    def __init__(self, timings: Timings, now: Callable[[], float], most: Most) -> None:
        self.timings = timings
        self._most = most
        self._now = now
        self._members: dict[str, Member] = {}
        self._subscribed: dict[str, Member] = {}
        self._holder: str | None = None
        self._last_hello: Hello | None = None
        """The `hello` of the last controller: the defaults for new connections."""
        self.version: int = 0
        """Grows with each change of what `shown` shows."""

    @property
    def controller_connection_id(self) -> str | None:
        """The connection with the lease."""
        return self._holder

    @property
    def controller_subscription_id(self) -> str | None:
        """The first subscription of the lease's holder."""
        if self._holder is None:
            return None
        return next(iter(self._members[self._holder].subscriptions), None)

    @property
    def lease_expires_at(self) -> str | None:
        if self._holder is None:
            return None
        seen_ms = round(self._members[self._holder].seen_at * 1000)
        return timestamp((seen_ms + self.timings.connection_idle_ms) * 1_000_000)

    @property
    def connection_count(self) -> int:
        return len(self._members)

    @property
    def subscriber_count(self) -> int:
        return len(self._subscribed)

    @property
    def serves(self) -> frozenset[RequestType]:
        """The classes of requests that the lease's holder answers."""
        return frozenset() if self._holder is None else self.connection(self._holder).serves

    @property
    def wants_raw(self) -> bool:
        """Whether any connection requested raw events."""
        return any(one.connection.wants_raw for one in self._members.values())

    @property
    def wants_endings(self) -> bool:
        """Whether any connection requested endings."""
        return any(one.connection.wants_endings for one in self._members.values())

    def connection(self, connection_id: str) -> Connection:
        return self._member(connection_id).connection

    def subscription(self, subscription_id: str) -> Subscription:
        return self._subscriber(subscription_id).subscriptions[subscription_id]

    def expire(self) -> Gone:
        """Remove idle connections and subscriptions."""
        now = self._now()
        self.version += 1
        connections: list[str] = []
        subscriptions: list[str] = []
        for member in tuple(self._members.values()):
            if member.idle_s(now) * 1000 > self.timings.connection_idle_ms:
                connections.append(member.connection_id)
                subscriptions += self._close(member)
                continue
            for one in tuple(member.subscriptions.values()):
                if one.idle_s(now) * 1000 > self.timings.subscription_idle_ms:
                    subscriptions.append(one.subscription_id)
                    self._drop(one.subscription_id)
        return Gone(tuple(connections), tuple(subscriptions))

    def clear(self) -> Gone:
        """Remove all: the runtime ends."""
        gone = Gone(tuple(self._members), tuple(self._subscribed))
        for member in tuple(self._members.values()):
            self._close(member)
        return gone

    def info(self, connection_id: str) -> ConnectionInfo:
        """The connections, as one of them sees them."""
        connections = self._states()
        return replace(
            self.connection(connection_id).info(),
            connection_count=len(connections),
            controller_connection_id=self._holder,
            lease_expires_at=self.lease_expires_at,
            connections=connections,
        )

    def shown(self, state: RuntimeState) -> RuntimeState:
        """The state of a conversation, with the current connections.

        The client's fields describe the last controller.
        """
        connections = self._states()
        if self._last_hello is not None:
            last = self._last().state()
            state = replace(
                state,
                client_protocol_version=last.client_protocol_version,
                client_info=last.client_info,
                capabilities=last.capabilities,
                opt_out_notifications=last.opt_out_notifications,
                connection_role=last.role,
            )
        return replace(
            state,
            connection_count=len(connections),
            subscriber_count=self.subscriber_count,
            controller_subscription_id=self.controller_subscription_id,
            controller_connection_id=self._holder,
            connections=connections,
        )

    def connection_snapshot(
        self, connection_id: str, snapshot: RuntimeSnapshot
    ) -> ConnectionSnapshot:
        connection = self.connection(connection_id)
        return ConnectionSnapshot(
            **asdict(self._beat(connection_id)),
            session_id=snapshot.session_id,
            role=connection.role,
            opt_out_notifications=connection.opted_out or UNSET,
            snapshot=snapshot,
        )

    def subscription_snapshot(
        self, subscription_id: str, snapshot: RuntimeSnapshot
    ) -> SubscriptionSnapshot:
        subscription = self.subscription(subscription_id)
        return SubscriptionSnapshot(
            **asdict(self._beat(subscription.connection.connection_id)),
            subscription_id=subscription_id,
            role=subscription.connection.role,
            opt_out_notifications=subscription.opted_out or UNSET,
            controller_subscription_id=self.controller_subscription_id,
            snapshot=snapshot,
        )

    def _member(self, connection_id: str) -> Member:
        if connection_id not in self._members:
            raise NotFound(NO_CONNECTION, code="stale_connection")
        return self._members[connection_id]

    def _subscriber(self, subscription_id: str) -> Member:
        if subscription_id not in self._subscribed:
            raise NotFound(NO_SUBSCRIPTION, code="stale_connection")
        return self._subscribed[subscription_id]

    def _either(self, connection_id: str | None, subscription_id: str | None) -> Member:
        """The connection that the ids name; a known subscription takes precedence."""
        if subscription_id in self._subscribed:
            return self._subscribed[subscription_id]
        if connection_id is not None:
            return self._member(connection_id)
        if subscription_id is not None:
            raise NotFound(NO_SUBSCRIPTION, code="stale_connection")
        raise CallerError("connectionId and subscriptionId are missing; one of them says who asks")

    def _last(self) -> Connection:
        """The rules for a sender without a connection: those of the last controller."""
        connection = Connection()
        connection.greet(self._last_hello or Hello())
        return connection

    def _add(self, connection: Connection) -> Member:
        if len(self._members) >= self._most.connections:
            raise _too_many("connections", self._most.connections)
        member = Member(connection, self._now())
        self._members[connection.connection_id] = member
        self.version += 1
        return member

    def _see(self, member: Member) -> None:
        """A sign of life, which extends the lease."""
        member.seen_at = self._now()
        self.version += 1

    def _check_room(self) -> None:
        """Raise if there may be no further subscription."""
        if len(self._subscribed) >= self._most.subscriptions:
            raise _too_many("subscriptions", self._most.subscriptions)

    def _listen(self, member: Member, subscription: Subscription) -> None:
        member.subscriptions[subscription.subscription_id] = subscription
        self._subscribed[subscription.subscription_id] = member
        self.version += 1

    def _grant(self, member: Member) -> None:
        """Give the lease to a controller; a previous holder loses it."""
        self._holder, self._last_hello = member.connection_id, member.connection.hello
        self.version += 1

    def _drop(self, subscription_id: str) -> None:
        del self._subscribed.pop(subscription_id).subscriptions[subscription_id]
        self.version += 1

    def _close(self, member: Member) -> tuple[str, ...]:
        """Remove a connection and its lease; returns its subscriptions."""
        subscriptions = tuple(member.subscriptions)
        for subscription_id in subscriptions:
            self._drop(subscription_id)
        del self._members[member.connection_id]
        self.version += 1
        if self._holder == member.connection_id:
            self._holder = None
        return subscriptions

    def _beat(self, connection_id: str) -> HeartbeatSnapshot:
        return HeartbeatSnapshot(
            connection_id=connection_id,
            controller_lease_granted=connection_id == self._holder,
            controller_connection_id=self._holder,
            lease_expires_at=self.lease_expires_at,
            heartbeat_interval_ms=self.timings.heartbeat_ms,
        )

    def _states(self) -> tuple[ConnectionState, ...]:
        return tuple(self._state(member) for member in self._members.values())

    def _state(self, member: Member) -> ConnectionState:
        granted = member.connection_id == self._holder
        return replace(
            member.connection.state(),
            subscription_count=len(member.subscriptions),
            attached_subscription_count=member.attached,
            controller_lease_granted=granted,
            lease_expires_at=self.lease_expires_at if granted else None,
        )


def _too_many(what: str, most: int) -> CallerError:
    message = f"Headless session has {most} {what}, the most it takes; close one first"
    return CallerError(message, code="quota_exceeded")
