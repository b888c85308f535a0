"""What a shared runtime says, numbered once and kept for each reader at its own pace.

Nobody who reads slowly holds anybody up. A mailbox that is full is emptied, and its reader is told
what is true by then in place of all that it missed.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from batten.contract.errors import NotFound
from batten.protocols.maestro.hosted import (
    Envelope,
    HeartbeatEnvelope,
    MessageEnvelope,
    ResetEnvelope,
    RuntimeSnapshot,
    SnapshotEnvelope,
    encode,
)
from batten.protocols.maestro.outgoing import Message
from batten.protocols.maestro.roster import NO_SUBSCRIPTION
from batten.protocols.maestro.subscription import Subscription

MOST_UNREAD = 16 << 20
"""Bytes that one mailbox holds, however few they are in number."""
MOST_KEPT = 64 << 20
"""Bytes that the ring holds."""


class Mailbox:
    """What one subscription has not read yet. It has one reader at a time."""

    def __init__(self, outbox: "Outbox", subscription: Subscription, room: int) -> None:
        self._outbox = outbox
        self.subscription = subscription
        self._room = room
        self._backlog: deque[Envelope] = deque()
        """What was said before it was opened, beside the room it has."""
        self._queue: deque[tuple[Envelope, int]] = deque()
        self._bytes = 0
        self._lagged = False
        """Something was thrown away, and its reader was not told yet."""
        self._closed = False
        self._arrived = asyncio.Event()

    def recall(self, envelopes: Iterable[Envelope]) -> None:
        """Begin with what was said before."""
        heard = (self._heard(one) for one in envelopes)
        self._backlog.extend(one for one in heard if one is not None)
        self._arrived.set()

    def put(self, envelope: Envelope, size: int) -> None:
        if self._closed or self._lagged:
            return  # what is told of the lag comes later than this
        heard = self._heard(envelope)
        if heard is None:
            return
        if len(self._queue) < self._room and self._bytes + size <= MOST_UNREAD:
            self._queue.append((heard, size))
            self._bytes += size
        else:
            self._backlog.clear()
            self._queue.clear()
            self._bytes = 0
            self._lagged = True
        self._arrived.set()

    def close(self) -> None:
        """Nothing more comes; what is there may be read."""
        self._closed = True
        self._arrived.set()

    async def next(self, heartbeat_s: float | None = None) -> Envelope | None:
        """The next one; None when it is closed and empty.

        Where heartbeats are wanted, one comes when there was nothing else for so long.
        """
        beats = heartbeat_s is not None and self.subscription.wants_heartbeats
        while not (self._lagged or self._backlog or self._queue):
            if self._closed:
                return None
            self._arrived.clear()
            try:
                async with asyncio.timeout(heartbeat_s if beats else None):
                    await self._arrived.wait()
            except TimeoutError:
                return HeartbeatEnvelope(cursor=self._outbox.cursor)
        if self._lagged:
            self._lagged = False
            return ResetEnvelope(reason="lagged", snapshot=self._outbox.snapshot())
        if self._backlog:
            return self._backlog.popleft()
        envelope, size = self._queue.popleft()
        self._bytes -= size
        return envelope

    def _heard(self, envelope: Envelope) -> Envelope | None:
        if not isinstance(envelope, MessageEnvelope):
            return envelope
        message = self.subscription.hears(envelope.message)
        if message is None or message is envelope.message:
            return None if message is None else envelope
        return MessageEnvelope(cursor=envelope.cursor, message=message)


class Outbox:
    """Numbers what is said from `cursor` on. `snapshot` tells what is true at a cursor: all that
    was published up to there, so whoever publishes has changed the state before.
    """

    def __init__(
        self,
        snapshot: Callable[[int], RuntimeSnapshot],
        *,
        ring: int = 512,
        mailbox: int = 128,
        cursor: int = 0,
        first: Envelope | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._mailbox = mailbox
        self._mailboxes: dict[str, Mailbox] = {}
        self.cursor = cursor
        self._ring_size = ring
        self._ring: deque[tuple[int, Envelope, int]] = deque()
        """Each with the first cursor of a reader that has no need of it, and with its size."""
        self._bytes = 0
        self._lost = 0
        """A reader whose cursor is before this has missed what the ring has no more."""
        if first is None:
            self._lost = cursor
        else:
            self._keep(cursor + 1, first, len(encode(first)))

    def snapshot(self) -> RuntimeSnapshot:
        """What is true now."""
        return self._snapshot(self.cursor)

    def publish(self, message: Message, only: str | None = None) -> None:
        """Say something to everybody, or to `only` one connection: that is not said again."""
        self.cursor += 1
        self._send(MessageEnvelope(cursor=self.cursor, message=message), only)

    def publish_snapshot(self) -> None:
        """Say what is true now; that has a cursor too."""
        self.cursor += 1
        self._send(SnapshotEnvelope(snapshot=self.snapshot()))

    def open(self, subscription: Subscription) -> Mailbox:
        """A mailbox for all that is said from now on."""
        mailbox = Mailbox(self, subscription, self._mailbox)
        self._mailboxes[subscription.subscription_id] = mailbox
        return mailbox

    def attach(self, subscription: Subscription, cursor: int | None = None) -> Mailbox:
        """A mailbox that begins with what is true now, or with all that was said after a cursor."""
        mailbox = self.open(subscription)
        mailbox.recall(self._since(cursor))
        return mailbox

    def mailbox(self, subscription_id: str) -> Mailbox:
        if subscription_id not in self._mailboxes:
            raise NotFound(NO_SUBSCRIPTION)
        return self._mailboxes[subscription_id]

    def close(self, subscription_id: str) -> None:
        """Nothing more is said there."""
        mailbox = self._mailboxes.pop(subscription_id, None)
        if mailbox is not None:
            mailbox.close()

    def _since(self, cursor: int | None) -> list[Envelope]:
        if cursor is None:
            return [SnapshotEnvelope(snapshot=self.snapshot())]
        # One beyond the end is of another life of this session.
        if cursor < self._lost or cursor > self.cursor:
            return [ResetEnvelope(reason="replay_gap", snapshot=self.snapshot())]
        return [envelope for known_at, envelope, _ in self._ring if cursor < known_at]

    def _send(self, envelope: Envelope, only: str | None = None) -> None:
        size = len(encode(envelope))
        if only is None:
            self._keep(self.cursor, envelope, size)
        for mailbox in self._mailboxes.values():
            if only in (None, mailbox.subscription.connection.connection_id):
                mailbox.put(envelope, size)

    def _keep(self, known_at: int, envelope: Envelope, size: int) -> None:
        self._ring.append((known_at, envelope, size))
        self._bytes += size
        while len(self._ring) > self._ring_size or self._bytes > MOST_KEPT:
            self._lost, _, size = self._ring.popleft()
            self._bytes -= size
