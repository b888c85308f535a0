"""The rules of a shared runtime: which clients may subscribe, and which one may send messages.

Any number of viewers listen. At most one connection holds the controller lease, and only that one
may send messages. Nothing here waits or reads a clock of its own.
"""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.errors import CallerError, Conflict, Refused
from batten.protocols.maestro.connection import (
    ROLE_CHANGED,
    VIEWER_REFUSED,
    Connection,
    inherited,
    problem,
)
from batten.protocols.maestro.hosted import (
    Ask,
    ConnectAsk,
    ConnectionClosed,
    HeartbeatSnapshot,
    SubscribeAsk,
)
from batten.protocols.maestro.incoming import Hello, Incoming
from batten.protocols.maestro.outgoing import HelloOk
from batten.protocols.maestro.roster import NO_CONNECTION, Most, Roster, Timings
from batten.protocols.maestro.subscription import Member, Subscription
from batten.protocols.maestro.vocabulary import INTERACTIVE, RequestType, Role

ALREADY_HELD = "Controller lease is already held by another connection"
HELD_ELSEWHERE = "Controller lease is currently held by another connection"
LEASE_HELD = "controller_lease_held"
NOT_ITS_OWN = "Headless subscriber belongs to another connection"

REFUSED_ON_ENTRY: tuple[RequestType, ...] = ("mcp_elicitation", "user_input")
"""Requests that a viewer may not announce on entry; it may announce retries, without effect."""


class Entitled(Struct, frozen=True):
    """The permission to send a message."""

    connection_id: str | None
    """None: a sender without a connection, while the lease is free."""
    claimed: bool
    """Whether the sender has just taken the lease."""


class Registry(Roster):
    """`now` gives seconds since the epoch, `new_id` an id for `conn` or `sub`."""

    def __init__(
        self,
        timings: Timings,
        now: Callable[[], float],
        new_id: Callable[[str], str],
        most: Most | None = None,
    ) -> None:
        super().__init__(timings, now, most or Most())
        self._new_id = new_id

    def connect(self, ask: ConnectAsk) -> str:
        """Connect, or update a known connection; a controller takes the lease. Returns the id."""
        member = None if ask.connection_id is None else self._member(ask.connection_id)
        if member is not None and ask.role not in (None, member.connection.role):
            raise Conflict(ROLE_CHANGED)
        return self._enter(member, ask).connection_id

    def subscribe(self, ask: SubscribeAsk) -> str:
        """Subscribe on a new or known connection; a controller takes the lease.

        A client that connected as the controller and subscribes next may leave out its connection's
        id.
        """
        self._check_room()
        if ask.connection_id is None:
            member = self._bootstrapped(ask)
        elif ask.connection_id in self._members:
            member = self._members[ask.connection_id]
        else:
            raise CallerError(NO_CONNECTION)
        return self._subscribe(self._enter(member, ask), ask)

    def look_on(self, ask: SubscribeAsk) -> str:
        """Subscribe for one stream, on a new connection that never takes the lease.

        It inherits nothing. The caller unsubscribes it when the stream ends.
        """
        self._check_room()
        hello = ask.hello()
        _check(None, hello, REFUSED_ON_ENTRY)
        return self._subscribe(self._meet(hello), ask)

    def unsubscribe(self, subscription_id: str) -> str | None:
        """Drop a subscription; returns the connection that closes with its last one."""
        member = self._subscriber(subscription_id)
        self._drop(subscription_id)
        if member.subscriptions:
            return None
        self._close(member)
        return member.connection_id

    def attached(self, subscription_id: str, is_attached: bool) -> None:
        """A stream was attached or detached; its subscription may be gone before it detaches."""
        if not is_attached and subscription_id not in self._subscribed:
            return
        member = self._subscriber(subscription_id)
        self._see(member)
        member.subscriptions[subscription_id].attach(is_attached, member.seen_at)

    def heartbeat(
        self, connection_id: str | None = None, subscription_id: str | None = None
    ) -> HeartbeatSnapshot:
        member = self._either(connection_id, subscription_id)
        self._see(member)
        return self._beat(member.connection_id)

    def disconnect(
        self, connection_id: str | None = None, subscription_id: str | None = None
    ) -> ConnectionClosed:
        member = self._either(connection_id, subscription_id)
        subscriptions = self._close(member)
        return ConnectionClosed(
            connection_id=member.connection_id,
            controller_connection_id=self._holder,
            disconnected_subscription_ids=subscriptions,
        )

    def greet(self, connection_id: str, hello: Hello) -> HelloOk:
        """Accept a `hello` on an existing connection."""
        member = self._member(connection_id)
        _check(member.connection.role, hello)
        agreed = member.connection.greet(hello)
        self.version += 1
        if connection_id == self._holder:
            self._grant(member)
        return replace(
            agreed,
            controller_connection_id=self._holder,
            lease_expires_at=self.lease_expires_at,
        )

    def entitle(
        self,
        message: Incoming,
        connection_id: str | None = None,
        subscription_id: str | None = None,
    ) -> Entitled:
        """Check that the sender may send this message; a controller takes a free lease.

        A `hello` concerns only its own connection and needs no lease.
        """
        member = self._speaker(connection_id, subscription_id)
        if member is not None and isinstance(message, Hello):
            _check(member.connection.role, message)
            return self._accept(member)
        if member is not None and member.connection.role == "viewer":
            raise Refused(VIEWER_REFUSED)
        if self._holder is not None and (member is None or member.connection_id != self._holder):
            raise Conflict(HELD_ELSEWHERE, code=LEASE_HELD)
        speaker = self._last() if member is None else member.connection
        refusal = speaker.refusal(message)
        if refusal is not None:
            raise Refused(refusal)
        return Entitled(None, False) if member is None else self._accept(member)

    def _bootstrapped(self, ask: SubscribeAsk) -> Member | None:
        """The controller's connection that has no subscription yet."""
        if self._holder is None or ask.role == "viewer" or ask.take_control:
            return None
        member = self._members[self._holder]
        return None if member.subscriptions else member

    def _enter(self, member: Member | None, ask: Ask) -> Member:
        """Add or update a connection; a refused request changes nothing."""
        known = None if member is None else member.connection
        hello = ask.hello()
        _check(None if known is None else known.role, hello, REFUSED_ON_ENTRY)
        role = ask.role or ("controller" if known is None else known.role)
        others = self._holder is not None and (known is None or known.connection_id != self._holder)
        if role == "controller" and others and not ask.take_control:
            raise Conflict(ALREADY_HELD, code=LEASE_HELD)
        agreed = inherited(hello, (known or self._last()).hello, role)
        if member is None:
            member = self._meet(agreed)
        else:
            member.connection.greet(agreed)
            self._see(member)
        if role == "controller":
            self._grant(member)
        return member

    def _meet(self, hello: Hello) -> Member:
        connection = Connection(self._new_id("conn"))
        connection.greet(hello)
        return self._add(connection)

    def _subscribe(self, member: Member, ask: SubscribeAsk) -> str:
        subscription = Subscription(
            self._new_id("sub"), member.connection, ask.opt_out_notifications, self._now()
        )
        self._listen(member, subscription)
        return subscription.subscription_id

    def _speaker(self, connection_id: str | None, subscription_id: str | None) -> Member | None:
        """The sender of a message; None if the request names none."""
        if connection_id is not None and connection_id not in self._members:
            raise Refused(NO_CONNECTION)
        if subscription_id is None:
            return None if connection_id is None else self._members[connection_id]
        member = self._subscriber(subscription_id)
        if connection_id not in (None, member.connection_id):
            raise Refused(NOT_ITS_OWN)
        return member

    def _accept(self, member: Member) -> Entitled:
        self._see(member)
        claimed = self._holder is None and member.connection.role == "controller"
        if claimed:
            self._grant(member)
        return Entitled(member.connection_id, claimed)


def _check(
    established: Role | None, hello: Hello, interactive: tuple[RequestType, ...] = INTERACTIVE
) -> None:
    wrong = problem(established, hello, interactive)
    if wrong is not None:
        raise CallerError(wrong)
