"""One session shared by any number of connections of this process.

Viewers only read; at most one connection holds the controller lease and may send messages. Every
message of the runtime has a cursor, and each client reads at its own pace. A drained runtime leaves
a manifest, from which another is restored. The session itself runs in this process or in one of its
own: see `ServedSession`.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

from batten.client.transport import MOST_COMPLAINTS
from batten.contract.errors import BattenError, CallerError, NotFound, NotReady
from batten.contract.facts.session import DONE, TTL_EXPIRED
from batten.protocols.maestro.connection import LOCAL
from batten.protocols.maestro.hosted import (
    ConnectAsk,
    ConnectionClosed,
    ConnectionSnapshot,
    Envelope,
    HeartbeatSnapshot,
    RuntimeSnapshot,
    SubscribeAsk,
    SubscriptionSnapshot,
)
from batten.protocols.maestro.incoming import (
    Cancel,
    ClientToolResult,
    Hello,
    Incoming,
    Init,
    Interrupt,
    ServerRequestResponse,
    ShutDown,
    ToolResponse,
)
from batten.protocols.maestro.received import asked
from batten.protocols.maestro.received import message as received
from batten.protocols.maestro.registry import Entitled, Registry
from batten.protocols.maestro.roster import Gone
from batten.protocols.maestro.vocabulary import Notification, Role
from batten.protocols.tail import Tail
from batten.runner.drain import Drained
from batten.runner.request import DrainRequest
from batten.runner.request import received as request_received
from batten.runner.restore import Restored
from batten.runner.runner import Runner
from batten.serve.maestro.client_hub import ClientHub
from batten.serve.maestro.outbox import Mailbox, Outbox, Posted
from batten.serve.maestro.served_session import ServedSession
from batten.serve.maestro.sharing import sharing_of
from batten.serve.maestro.shielded_tasks import ShieldedTask, ShieldedTasks
from batten.serve.output import instead_of_people, redact_for_people
from batten.serve.words import redacting

HEARTBEAT_S = 15.0
"""Seconds of silence after which a stream sends a heartbeat."""
NO_SESSION = "Headless session not found"
NOT_HOSTED = "hosted runner drain unavailable"

Found = TypeVar("Found")


class Runtime:
    """Raises `NotFound` or `Conflict`, `Refused` for a missing role, `NotReady` during and after a
    drain, and other `CallerError`s.
    """

    def __init__(
        self,
        make: Callable[[ClientHub], ServedSession],
        environ: Mapping[str, str],
        *,
        runner: Runner | None = None,
        restored: Restored | None = None,
        now: Callable[[], float] = time.time,
        cursor: int = 0,
        last_init: Init | None = None,
    ) -> None:
        """`make` gives the session that is served; draining needs a `runner`. `cursor` and
        `last_init` are those of an earlier runtime of the session, whose messages are not repeated.
        """
        self._environ = environ
        self._hub = ClientHub(sharing_of(environ), restored, now, cursor, last_init)
        self._registry, self._outbox = self._hub.registry, self._hub.outbox
        self._served = make(self._hub)
        self._restored = restored
        self.runner = runner
        """Its identity for a control plane, and whether it accepts clients."""
        self._said = Tail(MOST_COMPLAINTS)
        self._is_live = restored is None or restored.is_ready
        """Whether there is a session. A runtime restored from a failed drain is read-only."""
        self._is_shut = False
        self._closed = asyncio.Event()
        self._begun = asyncio.Event()
        self._shielded: ShieldedTasks | None = None
        self._unheard: ShieldedTask[Drained] | None = None
        """A drain whose caller was cancelled; the next caller receives its result."""

    @property
    def session_id(self) -> str:
        return self._hub.session_id

    @property
    def cursor(self) -> int:
        """Of the last message."""
        return self._outbox.cursor

    @property
    def last_init(self) -> Init | None:
        """The clients' last `init`."""
        return self._hub.last_init

    @property
    def is_live(self) -> bool:
        """Whether the session is open, or will be. A drained or failed one can still be read."""
        return self._is_live and not self._is_shut and not self._served.is_over

    @property
    def is_shut(self) -> bool:
        """Whether there is nothing left to read."""
        return self._is_shut

    @property
    def is_idle(self) -> bool:
        """Whether nobody reads and nothing runs."""
        state = self._hub.state
        is_working = state.is_responding or state.active_utility_commands
        return not (is_working or self._registry.subscriber_count)

    @property
    def is_working(self) -> bool:
        """Whether a prompt is being answered."""
        return self._hub.state.is_responding

    @property
    def connection_count(self) -> int:
        return self._registry.connection_count

    @property
    def subscriber_count(self) -> int:
        return self._registry.subscriber_count

    @property
    def pending_count(self) -> int:
        """Requests that wait for an answer."""
        return len(self._hub.state.pending_requests)

    @property
    def complaints(self) -> str:
        """The last lines for people, which go to standard error outside an embedder's process."""
        return self._said.text()

    async def run(self) -> None:
        """Serve until `close`, in a task of the embedder."""
        instead_of_people.set(self._said.add)
        redact_for_people.set(redacting(self._environ))
        async with asyncio.TaskGroup() as group:
            self._shielded = ShieldedTasks(group)
            self._begun.set()
            sweeping = group.create_task(self._sweep())
            try:
                if self._is_live:
                    await self._served.run()
                await self._closed.wait()
            finally:
                sweeping.cancel()

    async def opened(self) -> None:
        """Wait until the session is open, if there is one; raises the error that prevented it."""
        await self._begun.wait()
        if self._is_live:
            await self._served.opened()

    async def close(self, reason: str = DONE) -> None:
        """End the session, unless it was drained, and close every stream; `reason` is recorded."""
        self._served.reason = reason
        try:
            if self._is_live:
                with suppress(Exception):  # `Served` has already reported it
                    await self._served.end()
        finally:
            self._is_shut = True
            self._hub.dismiss(self._registry.clear())
            self._closed.set()

    def state(self) -> RuntimeSnapshot:
        self._exists()
        return self._outbox.snapshot()

    def encoded_state(self) -> bytes:
        """The same as JSON."""
        self._exists()
        return self._hub.encoded_snapshot()

    async def connect(self, ask: ConnectAsk) -> ConnectionSnapshot:
        """Open a connection without a subscription; a controller takes the lease."""
        self._check()
        holder = self._registry.controller_connection_id
        connection_id = self._registry.connect(asked(ask, ConnectAsk))
        if holder != self._registry.controller_connection_id:
            self._hub.welcome(connection_id)
        self._served.audience_changed()
        return self._registry.connection_snapshot(connection_id, self.state())

    async def subscribe(self, ask: SubscribeAsk) -> SubscriptionSnapshot:
        """Open a subscription for all messages from now on; read it with `attach`."""
        self._check()
        subscription_id = self._registry.subscribe(asked(ask, SubscribeAsk))
        subscription = self._registry.subscription(subscription_id)
        self._hub.welcome(subscription.connection.connection_id)
        self._outbox.open(subscription)
        self._served.audience_changed()
        return self._registry.subscription_snapshot(subscription_id, self.state())

    async def unsubscribe(self, subscription_id: str) -> None:
        """Close a subscription, and its connection if it was the last one."""
        self._exists()
        connection_id = self._registry.unsubscribe(subscription_id)
        gone = Gone(() if connection_id is None else (connection_id,), (subscription_id,))
        await self._begin(self._part(gone)).result()

    def heartbeat(
        self, connection_id: str | None = None, subscription_id: str | None = None
    ) -> HeartbeatSnapshot:
        """Keep a connection or subscription from expiring."""
        self._exists()
        return self._registry.heartbeat(connection_id, subscription_id)

    async def disconnect(
        self, connection_id: str | None = None, subscription_id: str | None = None
    ) -> ConnectionClosed:
        """Close a connection and end its utilities; the run and its pending requests stay."""
        self._exists()
        closed = self._registry.disconnect(connection_id, subscription_id)
        gone = Gone((closed.connection_id,), closed.disconnected_subscription_ids)
        await self._begin(self._part(gone)).result()
        return closed

    async def message(
        self,
        message: Incoming | dict[str, Any],
        *,
        connection_id: str | None = None,
        subscription_id: str | None = None,
    ) -> None:
        """Carry out one message; returns after its immediate effects were published."""
        said = received(message)
        entitle = partial(self._entitle, said, connection_id, subscription_id)
        entitled = entitle()
        if entitled.claimed and entitled.connection_id is not None:
            self._hub.announce(entitled.connection_id)
        self._served.audience_changed()
        match said:
            case Hello():
                if entitled.connection_id is None:
                    raise CallerError("hello needs a connection: connect or subscribe first")
                self._hub.greet(entitled.connection_id, said)
                self._served.audience_changed()
            case ShutDown():
                await self._begin(self._shut_down()).result()
            case _:
                await self._take(said, entitled.connection_id or LOCAL, entitle)

    def attach(
        self,
        subscription_id: str | None = None,
        *,
        cursor: int | None = None,
        role: Role = "viewer",
        opt_out_notifications: tuple[Notification, ...] | None = None,
    ) -> AsyncGenerator[Envelope, None]:
        """A stream of messages, until the subscription or the runtime is closed.

        A subscription's stream begins where the subscription was opened, or after a `cursor`, if an
        earlier stream broke. Without one, a temporary viewer reads from the current state, or after
        a `cursor`. Close the stream when you are done
        with it (`contextlib.aclosing`).
        """
        return _envelopes(
            self.stream(
                subscription_id,
                cursor=cursor,
                role=role,
                opt_out_notifications=opt_out_notifications,
            )
        )

    def stream(
        self,
        subscription_id: str | None = None,
        *,
        cursor: int | None = None,
        role: Role = "viewer",
        opt_out_notifications: tuple[Notification, ...] | None = None,
    ) -> "Reading":
        """The same as the bytes that all readers share. Close it when you are done with it."""
        self._exists()
        if subscription_id is not None:
            unread = self._outbox.mailbox(subscription_id)
            # The first stream has all since the subscription was opened, whatever its cursor.
            if cursor is not None and unread.was_read:
                unread = self._outbox.resume(subscription_id, cursor)
            return Reading(self._registry, unread)
        ask = SubscribeAsk(role=role, opt_out_notifications=opt_out_notifications)
        looking_on = self._registry.look_on(asked(ask, SubscribeAsk))
        mailbox = self._outbox.attach(self._registry.subscription(looking_on), cursor)
        return Reading(self._registry, mailbox, self._outbox)

    async def drain(self, request: DrainRequest | dict[str, Any] | None = None) -> Drained:
        """Accept no more messages or subscriptions, end the session, and leave a manifest.

        Earlier messages stay readable. A second drain, or one after a shutdown, finds nothing to
        stop. A refused request changes nothing. A drain continues when its caller is cancelled; the
        next caller receives its result.
        """
        if self.runner is None:
            raise NotFound(NOT_HOSTED)
        if self._closed.is_set():
            raise NotFound(NO_SESSION, code="stale_session")
        wanted = request_received(request)
        with self.runner.turning_away():  # now, not only when the drain task starts
            if self._unheard is not None:
                unheard, self._unheard = self._unheard, None
                with suppress(CallerError):  # the refusal was that caller's
                    return await self._heard(unheard)
            if wanted.reason == TTL_EXPIRED:
                self._served.reason = TTL_EXPIRED
            runtime = self._served if self._is_live and not self._is_shut else None
            drain = self.runner.drain(wanted, runtime, self.session_id)
            try:
                return await self._heard(self._begin(drain))
            except BattenError:
                self._served.reason = DONE
                raise

    async def _heard(self, draining: ShieldedTask[Drained]) -> Drained:
        try:
            return await draining.result()
        except asyncio.CancelledError:
            self._unheard = draining
            raise

    def _begin(self, work: Coroutine[Any, Any, Found]) -> ShieldedTask[Found]:
        assert self._shielded is not None
        return self._shielded.begin(work)

    def _exists(self) -> None:
        if self._is_shut:
            raise NotFound(NO_SESSION, code="stale_session")

    def _check(self) -> None:
        """Raise unless the runtime accepts clients and messages."""
        self._exists()
        if self.runner is not None:
            self.runner.check_ready()
        if self._restored is not None and not self._restored.is_ready:
            raise NotReady(self._restored.status)
        self._served.check()

    def _entitle(
        self, said: Incoming, connection_id: str | None, subscription_id: str | None
    ) -> Entitled:
        self._check()
        return self._registry.entitle(said, connection_id, subscription_id)

    async def _take(self, said: Incoming, sender: str, is_entitled: Callable[[], object]) -> None:
        def begin() -> None:
            is_entitled()
            if isinstance(said, Interrupt | Cancel):
                self._hub.heed(said)

        def done() -> None:
            match said:
                case Init():
                    self._hub.heed(said)
                case Interrupt() | Cancel():
                    self._outbox.publish_snapshot()
                case ToolResponse() | ClientToolResult() | ServerRequestResponse():
                    self._hub.heed(said)
                    self._outbox.publish_snapshot()
                case _:
                    pass  # `MaestroSession` passes prompts to `heed` before their first message

        await self._served.take(said, sender, begin, done)

    async def _shut_down(self) -> None:
        try:
            await self._served.end()
        finally:  # a session that could not end by itself is over too
            self._hub.heed(ShutDown())
            self._outbox.publish_snapshot()
            self._hub.dismiss(self._registry.clear())
            self._is_shut = True

    async def _part(self, gone: Gone) -> None:
        self._hub.dismiss(gone)
        self._served.audience_changed()
        await asyncio.gather(*map(self._served.leave, gone.connections))
        self._outbox.publish_snapshot()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(self._registry.timings.sweep_ms / 1000)
            gone = self._registry.expire()
            if gone.connections or gone.subscriptions:
                await self._part(gone)


class Reading:
    """A stream that is read; its subscription counts as attached until it is closed.

    It ends when another stream of its subscription begins.
    """

    def __init__(
        self, registry: Registry, mailbox: Mailbox, temporary: Outbox | None = None
    ) -> None:
        """`temporary` is the outbox of a subscription that ends with its stream."""
        self._registry = registry
        self._mailbox = mailbox
        self._number = mailbox.begin()
        self._temporary = temporary
        self._is_open = True
        self._subscription_id = mailbox.subscription.subscription_id
        with suppress(NotFound):  # already closed: its queued messages stay readable
            registry.attached(self._subscription_id, True)

    async def next(self) -> Posted | None:
        """The next envelope; None at the end."""
        return await self._mailbox.next_posted(HEARTBEAT_S, self._number)

    def queued(self) -> Posted | None:
        """The next envelope if it can be had without waiting."""
        return self._mailbox.queued(self._number)

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        self._registry.attached(self._subscription_id, False)
        if self._temporary is not None:
            self._temporary.close(self._subscription_id)
            with suppress(NotFound):  # closed together with the runtime
                self._registry.unsubscribe(self._subscription_id)


async def _envelopes(reading: Reading) -> AsyncGenerator[Envelope, None]:
    try:
        while (posted := await reading.next()) is not None:
            yield posted.envelope
    finally:
        reading.close()
