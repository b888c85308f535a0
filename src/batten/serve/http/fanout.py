"""One source for all readers of a stream: it is read and framed once, and a reader is a cursor.

A channel follows its source for as long as it has readers. Its last frames are in a ring. A reader
that has sent everything is handed new frames without a task of its own; one that lags takes them
from the ring, and from the store if it lags more than that.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncGenerator, Hashable
from contextlib import aclosing
from typing import Protocol

from msgspec import Struct

from batten.contract.errors import BattenError, NotReady
from batten.serve.http.sse import OpenStream

_log = logging.getLogger("batten.http")
_ALL_BYTES = 64 << 20
"""In the rings of all channels together."""
_MOST_BYTES = 1 << 20
_LEAST_BYTES = 64 << 10
"""In one ring."""
_PUSHED_BYTES = 16 << 10
"""Frames up to this size are handed to readers; they send larger ones piece by piece."""
_FEW = 8
_TICK_PER_READER_S = 20e-6
_LONGEST_TICK_S = 0.2


class Page(Struct, frozen=True):
    """Frames with their places, in order."""

    frames: list[tuple[int, bytes]]
    last: int
    """The place up to which these are all; later than the last frame's if others were left out."""
    is_end: bool = False
    """Whether nothing follows, ever."""


class Origin(Protocol):
    """Where frames come from."""

    def follow(self, after: int) -> AsyncGenerator[Page, None]:
        """All pages past a place, and each new one; ends with a page that `is_end`."""
        ...

    async def read(self, after: int) -> Page:
        """The first stored page past a place."""
        ...


class _Ring:
    """The last frames of a channel."""

    def __init__(self, base: int) -> None:
        self.base = base
        """Every frame after this place, up to `last`, is in the ring."""
        self.last = base
        self._places: list[int] = []
        self._frames: list[bytes] = []
        self._size = 0

    def add(self, page: Page, most: int) -> None:
        self._places += [place for place, _ in page.frames]
        self._frames += [frame for _, frame in page.frames]
        self._size += sum(len(frame) for _, frame in page.frames)
        self.last = page.last
        if self._size > most:
            self._cut(most // 2)

    def _cut(self, most: int) -> None:
        """Drop the oldest frames. By half at once: each cut moves all that is left."""
        count = 0
        while self._size > most:
            self._size -= len(self._frames[count])
            count += 1
        self.base = self._places[count - 1]
        del self._places[:count], self._frames[:count]

    def after(self, place: int) -> bytes:
        return b"".join(self._frames[bisect_right(self._places, place) :])


class Channel:
    """The readers of one source."""

    def __init__(self, origin: Origin, base: int) -> None:
        self._origin = origin
        self._ring = _Ring(base)
        self._ready: dict[OpenStream, asyncio.Future[int]] = {}
        """Readers that have sent everything up to the ring's last place. The future of one that
        lags gets its place.
        """
        self._far: list[asyncio.Future[int]] = []
        """Readers that wait for a place after the ring's last one."""
        self._ended = False
        self._error: BattenError | None = None
        self.readers = 0
        self.task: asyncio.Task[None] | None = None

    async def pump(self, fanout: "Fanout") -> None:
        """Follow the source, until it ends or nobody reads."""
        try:
            async with aclosing(self._origin.follow(self._ring.base)) as pages:
                async for page in pages:
                    before = self._ring.last
                    self._ring.add(page, fanout.room)
                    self._hand_on(page, before)
                    if page.is_end:
                        break
                    # Every wake-up costs all readers: the more there are, the more frames it takes.
                    if self.readers > _FEW:
                        await asyncio.sleep(min(self.readers * _TICK_PER_READER_S, _LONGEST_TICK_S))
        except BattenError as error:
            self._error = error
        except Exception as error:  # a bug in one stream must not end the others
            _log.error("a stream failed", exc_info=error)
            self._error = NotReady("the stream broke off; connect again in a moment")
        finally:
            self._ended = True
            for waiting in (*self._ready.values(), *self._far):
                _wake(waiting, self._ring.last)

    def _hand_on(self, page: Page, before: int) -> None:
        """Hand a page to those who have sent all before it."""
        far, self._far = self._far, []
        for waiting in far:
            _wake(waiting, page.last)
        if not page.frames:
            return
        frames = b"".join([frame for _, frame in page.frames])
        is_small = len(frames) <= _PUSHED_BYTES
        now = asyncio.get_running_loop().time()
        busy = [reader for reader in self._ready if not (is_small and reader.push(frames, now))]
        for reader in busy:
            _wake(self._ready.pop(reader), page.last if reader.is_sending else before)

    async def send_to(self, reader: OpenStream, after: int) -> None:
        """Send everything past a place to a reader, until the source ends."""
        ring = self._ring
        while True:
            if after < ring.base:
                page = await self._origin.read(after)
                frames = b"".join([frame for _, frame in page.frames])
                # A page may hold nothing for these readers and still be followed by others.
                after = page.last if page.last > after else ring.base
            elif after < ring.last:
                frames, after = ring.after(after), ring.last
            elif self._ended:
                break
            else:
                frames = b""
                if after > ring.last:
                    await self._grown()
                else:
                    after = await self._stay(reader)
            if frames:
                await reader.send(frames)
        if self._error is not None:
            raise self._error

    async def _grown(self) -> None:
        """Wait until the source has grown."""
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._far.append(waiting)
        try:
            await waiting
        finally:
            if waiting in self._far:
                self._far.remove(waiting)

    async def _stay(self, reader: OpenStream) -> int:
        """Let the reader be handed new frames; returns its place when it lags, or at the end."""
        waiting: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ready[reader] = waiting
        try:
            place = await waiting
        finally:
            self._ready.pop(reader, None)
        await reader.settle()
        return place


def _wake(waiting: "asyncio.Future[int]", place: int) -> None:
    if not waiting.done():
        waiting.set_result(place)


class Fanout:
    """All channels of a server."""

    def __init__(self) -> None:
        self._channels: dict[Hashable, Channel] = {}
        self._group: asyncio.TaskGroup | None = None

    def __len__(self) -> int:
        return len(self._channels)

    @property
    def room(self) -> int:
        """Bytes for the ring of one channel."""
        return max(_LEAST_BYTES, min(_MOST_BYTES, _ALL_BYTES // max(1, len(self._channels))))

    async def run(self) -> None:
        """Channels live while this runs, until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            await asyncio.Event().wait()

    async def send(
        self, key: Hashable, origin: Origin, base: int, reader: OpenStream, after: int
    ) -> None:
        """Send a source to a reader through the channel of this key; `base`: where to begin one."""
        channel = self._channels.get(key)
        if channel is None:
            channel = self._open(key, origin, base)
        channel.readers += 1
        try:
            await channel.send_to(reader, after)
        finally:
            channel.readers -= 1
            if not channel.readers and channel.task is not None:
                channel.task.cancel()
                self._forget(key, channel)

    def _open(self, key: Hashable, origin: Origin, base: int) -> Channel:
        if self._group is None:
            raise NotReady("the server is starting; connect again in a moment")
        channel = Channel(origin, base)

        async def pump() -> None:
            try:
                await channel.pump(self)
            finally:
                self._forget(key, channel)

        self._channels[key] = channel
        channel.task = self._group.create_task(pump())
        return channel

    def _forget(self, key: Hashable, channel: Channel) -> None:
        """Those who read on keep it; the next reader opens another."""
        if self._channels.get(key) is channel:
            del self._channels[key]


class Shared:
    """The source of a stream, shared with all readers under the same key."""

    def __init__(
        self, fanout: Fanout, key: Hashable, origin: Origin, base: int, after: int
    ) -> None:
        self._fanout = fanout
        self._key = key
        self._origin = origin
        self._base = base
        self._after = after

    async def send_to(self, reader: OpenStream) -> None:
        await self._fanout.send(self._key, self._origin, self._base, reader, self._after)
