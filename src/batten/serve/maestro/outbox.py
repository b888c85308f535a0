"""The messages of a shared runtime: numbered and encoded once, read by each client at its own pace.

A slow reader delays no other. A full mailbox is emptied, and its reader receives a snapshot instead
of the messages it missed.
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
"""Bytes that one mailbox holds, besides its limit on messages."""
MOST_KEPT = 64 << 20
"""Bytes that the ring holds."""


class Posted:
    """An envelope and its encoding, which every reader shares."""

    __slots__ = ("_encoded", "envelope", "is_private")

    def __init__(self, envelope: Envelope, *, is_private: bool = False) -> None:
        self.envelope = envelope
        self.is_private = is_private
        """Whether it is for one connection alone, and so not in the ring."""
        self._encoded: bytes | None = None

    @property
    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = encode(self.envelope)
        return self._encoded

    @property
    def cursor(self) -> int:
        envelope = self.envelope
        if isinstance(envelope, MessageEnvelope | HeartbeatEnvelope):
            return envelope.cursor
        return envelope.snapshot.cursor

    @property
    def size(self) -> int:
        return len(self.encoded)


class Mailbox:
    """The messages that one subscription has not read yet. The newest reader gets them."""

    def __init__(self, outbox: "Outbox", subscription: Subscription, room: int) -> None:
        self._outbox = outbox
        self.subscription = subscription
        self._room = room
        self._backlog: deque[Posted] = deque()
        """Messages from before it was opened; they do not count against its limits."""
        self._queue: deque[tuple[Posted, int]] = deque()
        self._bytes = 0
        self._lagged = False
        """Messages were dropped, and the reader has not received the snapshot yet."""
        self._closed = False
        self._arrived = asyncio.Event()
        self._readers = 0

    @property
    def was_read(self) -> bool:
        """Whether it had a reader before."""
        return self._readers > 0

    def begin(self) -> int:
        """The number of a new reader. The one before it has reached its end: its client may have
        lost the connection, which takes a while to be noticed here."""
        self._readers += 1
        self._arrived.set()
        return self._readers

    def recall(self, posted: Iterable[Posted]) -> None:
        """Begin with earlier messages."""
        heard = (self._heard(one) for one in posted)
        self._backlog.extend(one for one in heard if one is not None)
        self._arrived.set()

    def rewind(self, posted: list[Posted]) -> None:
        """Begin with these instead of what is unread; messages to this connection alone stay."""
        own = [one for one, _ in self._queue if one.is_private]
        self._backlog.clear()
        self._queue.clear()
        self._bytes = 0
        self._lagged = False
        self.recall(sorted((*posted, *own), key=lambda one: one.cursor))

    def put(self, posted: Posted) -> None:
        if self._closed or self._lagged:
            return  # the snapshot that ends the lag will include this message
        heard = self._heard(posted)
        if heard is None:
            return
        size = posted.size
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
        """Accept no more messages; queued ones stay readable."""
        self._closed = True
        self._arrived.set()

    async def next(self, heartbeat_s: float | None = None) -> Envelope | None:
        """The next envelope; None when the mailbox is closed and empty."""
        posted = await self.next_posted(heartbeat_s)
        return None if posted is None else posted.envelope

    async def next_posted(
        self, heartbeat_s: float | None = None, reader: int | None = None
    ) -> Posted | None:
        """The next envelope with its encoding; None when the mailbox is closed and empty, or has a
        newer reader.

        A subscription with heartbeats receives one after `heartbeat_s` of silence.
        """
        beats = heartbeat_s is not None and self.subscription.wants_heartbeats
        while (posted := self.queued(reader)) is None:
            if self._closed or self._is_replaced(reader):
                return None
            self._arrived.clear()
            try:
                async with asyncio.timeout(heartbeat_s if beats else None):
                    await self._arrived.wait()
            except TimeoutError:
                return Posted(HeartbeatEnvelope(cursor=self._outbox.cursor))
        return posted

    def queued(self, reader: int | None = None) -> Posted | None:
        """The next envelope if there is one for this reader."""
        if self._is_replaced(reader):
            return None
        if self._lagged:
            self._lagged = False
            return Posted(ResetEnvelope(reason="lagged", snapshot=self._outbox.snapshot()))
        if self._backlog:
            return self._backlog.popleft()
        if not self._queue:
            return None
        posted, size = self._queue.popleft()
        self._bytes -= size
        return posted

    def _is_replaced(self, reader: int | None) -> bool:
        return reader not in (None, self._readers)

    def _heard(self, posted: Posted) -> Posted | None:
        """The message as this subscription receives it; None if it opted out."""
        envelope = posted.envelope
        if not isinstance(envelope, MessageEnvelope):
            return posted
        message = self.subscription.hears(envelope.message)
        if message is None or message is envelope.message:
            return None if message is None else posted
        changed = MessageEnvelope(cursor=envelope.cursor, message=message)
        return Posted(changed, is_private=posted.is_private)


class Outbox:
    """Numbers messages from `cursor` on. `snapshot` returns the state after all messages up to a
    cursor, so callers change the state before they publish a message.
    """

    def __init__(
        self,
        snapshot: Callable[[int], RuntimeSnapshot],
        *,
        ring: int = 512,
        mailbox: int = 128,
        cursor: int = 0,
        restored: RuntimeSnapshot | None = None,
    ) -> None:
        """With `restored`, the state that a manifest left, every stream begins with a reset."""
        self._snapshot = snapshot
        self._mailbox = mailbox
        self._mailboxes: dict[str, Mailbox] = {}
        self.cursor = cursor
        self._ring_size = ring
        self._ring: deque[tuple[int, Posted]] = deque()
        """Each with the first cursor at which a reader already has it."""
        self._bytes = 0
        self._lost = 0
        """A reader whose cursor is before this has missed messages that left the ring."""
        self._is_restored = restored is not None
        if restored is None:
            self._lost = cursor
        else:
            first = ResetEnvelope(reason="restored_from_snapshot", snapshot=restored)
            self._keep(cursor + 1, Posted(first))

    def snapshot(self) -> RuntimeSnapshot:
        return self._snapshot(self.cursor)

    def publish(self, message: Message, only: str | None = None) -> None:
        """Send a message to every reader, or to `only` one connection, bypassing the ring."""
        self.cursor += 1
        envelope = MessageEnvelope(cursor=self.cursor, message=message)
        self._send(Posted(envelope, is_private=only is not None), only)

    def publish_snapshot(self) -> None:
        """Send the state to every reader, under a cursor of its own."""
        self.cursor += 1
        self._send(Posted(SnapshotEnvelope(snapshot=self.snapshot())))

    def publish_end(self) -> None:
        """Send the last state to every reader, under the cursor of the last message."""
        self._send(Posted(SnapshotEnvelope(snapshot=self.snapshot())), known_at=self.cursor + 1)

    def open(self, subscription: Subscription) -> Mailbox:
        """A mailbox for all messages from now on."""
        return self._open(subscription, [self._beginning()] if self._is_restored else [])

    def attach(self, subscription: Subscription, cursor: int | None = None) -> Mailbox:
        """A mailbox that begins with the current state, or with all messages after a cursor."""
        return self._open(subscription, self._since(cursor))

    def mailbox(self, subscription_id: str) -> Mailbox:
        if subscription_id not in self._mailboxes:
            raise NotFound(NO_SUBSCRIPTION, code="stale_connection")
        return self._mailboxes[subscription_id]

    def resume(self, subscription_id: str, cursor: int) -> Mailbox:
        """The mailbox of a subscription whose reader has messages up to a cursor, and lost those
        that were on their way when its stream broke.
        """
        mailbox = self.mailbox(subscription_id)
        mailbox.rewind(self._since(cursor))
        return mailbox

    def close(self, subscription_id: str) -> None:
        mailbox = self._mailboxes.pop(subscription_id, None)
        if mailbox is not None:
            mailbox.close()

    def _open(self, subscription: Subscription, earlier: list[Posted]) -> Mailbox:
        mailbox = Mailbox(self, subscription, self._mailbox)
        self._mailboxes[subscription.subscription_id] = mailbox
        mailbox.recall(earlier)
        return mailbox

    def _beginning(self) -> Posted:
        """The current state, as the first envelope of a stream."""
        if self._is_restored:
            restored = ResetEnvelope(reason="restored_from_snapshot", snapshot=self.snapshot())
            return Posted(restored)
        return Posted(SnapshotEnvelope(snapshot=self.snapshot()))

    def _since(self, cursor: int | None) -> list[Posted]:
        if cursor is None:
            return [self._beginning()]
        # A cursor beyond the end comes from an earlier process of this session.
        if cursor < self._lost or cursor > self.cursor:
            return [Posted(ResetEnvelope(reason="replay_gap", snapshot=self.snapshot()))]
        return [posted for known_at, posted in self._ring if cursor < known_at]

    def _send(self, posted: Posted, only: str | None = None, known_at: int | None = None) -> None:
        if only is None:
            self._keep(known_at or self.cursor, posted)
        for mailbox in self._mailboxes.values():
            if only in (None, mailbox.subscription.connection.connection_id):
                mailbox.put(posted)

    def _keep(self, known_at: int, posted: Posted) -> None:
        self._ring.append((known_at, posted))
        self._bytes += posted.size
        while len(self._ring) > self._ring_size or self._bytes > MOST_KEPT:
            self._lost, dropped = self._ring.popleft()
            self._bytes -= dropped.size
