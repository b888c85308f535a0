"""Sends server-sent events: heartbeats, readers that leave or stall, and a clean end at shutdown.

Each stream is one task that iterates its source, with one beside it that waits for the reader to
leave: servers do not cancel a task whose client is gone, nor does sending to it fail. One ticker
for all streams sends heartbeats and cuts off readers that take nothing.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Literal

import msgspec

from batten.contract.errors import BattenError, JournalError, NotReady
from batten.serve.http.errors import ErrorShape, HttpError, problem
from batten.serve.http.limits import Limits
from batten.serve.http.request import SENT, ClientGone, Request
from batten.serve.http.table import Stream
from batten.serve.http.wire import Header

Why = Literal["left", "stalled", "closing"]

HEADERS = (
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    # Proxies such as nginx would collect frames otherwise.
    (b"x-accel-buffering", b"no"),
    (b"connection", b"keep-alive"),
)

_log = logging.getLogger("batten.http")
_PIECE = 1 << 16
"""Bytes given to the server at once: a slow reader makes progress by the piece."""
_TICK_S = 1.0


class OpenStream:
    """One reader."""

    __slots__ = (
        "_beat",
        "_pending",
        "_request",
        "_task",
        "ended",
        "heartbeat",
        "heartbeat_s",
        "is_admitted",
        "sending_since",
        "sent_at",
    )

    def __init__(
        self,
        request: Request,
        heartbeat: bytes | Callable[[], bytes],
        heartbeat_s: float,
        is_admitted: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_admitted`: whether the reader would be let in again."""
        self._request = request
        self.is_admitted = is_admitted
        self._task = asyncio.current_task()
        self._beat: asyncio.Task[None] | None = None
        self._pending: Awaitable[None] | None = None
        self.heartbeat = heartbeat
        self.heartbeat_s = heartbeat_s
        self.sent_at = asyncio.get_running_loop().time()
        self.sending_since = 0.0
        """When the send began that has not returned; 0 while there is none."""
        self.ended: Why | None = None

    async def send(self, frames: bytes) -> None:
        """Send whole frames; waits for the reader."""
        if self._beat is not None:
            await asyncio.wait({self._beat})
        time = asyncio.get_running_loop().time
        for start in range(0, len(frames), _PIECE):
            self.sending_since = time()
            piece = frames[start : start + _PIECE] if len(frames) > _PIECE else frames
            await self._request.write(piece)
        self.sending_since = 0.0
        self.sent_at = time()

    def push(self, frames: bytes, now: float) -> bool:
        """Send whole frames now, without waiting.

        False if the reader lags: it takes them later, in `settle`, if it `is_sending`; else it has
        not got them.
        """
        if self.sending_since:
            return False
        sent = self._request.write(frames)
        if sent is SENT:
            self.sent_at = now
            return True
        self._pending = sent
        self.sending_since = now
        return False

    @property
    def is_sending(self) -> bool:
        """Whether pushed frames are on their way."""
        return self._pending is not None

    async def settle(self) -> None:
        """Wait until the reader has taken what was pushed."""
        pending, self._pending = self._pending, None
        if pending is not None:
            await pending
            self.sending_since = 0.0
            self.sent_at = asyncio.get_running_loop().time()

    def beat(self, group: asyncio.TaskGroup) -> None:
        """Send a heartbeat in a task of `group`; frames wait for it."""

        async def send() -> None:
            beat = self.heartbeat if isinstance(self.heartbeat, bytes) else self.heartbeat()
            try:
                await self._request.write(beat)
                self.sent_at = asyncio.get_running_loop().time()
            except Exception as error:
                _log.debug("a heartbeat was not sent", exc_info=error)
                self.end("left")
            finally:
                self._beat = None
                self.sending_since = 0.0

        self.sending_since = asyncio.get_running_loop().time()
        self._beat = group.create_task(send())

    def end(self, why: Why) -> None:
        """Cancel the stream's task, once."""
        if self.ended is not None:
            return
        self.ended = why
        if self._beat is not None and why != "closing":
            self._beat.cancel()
        if self._task is not None:
            self._task.cancel(why)

    async def watch(self) -> None:
        """Wait until the reader leaves."""
        await self._request.left()
        self.end("left")

    def resume(self) -> None:
        """Take back the cancellation that `end` asked for."""
        if self._task is not None:
            self._task.uncancel()


class Streams:
    """All open streams of an application."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: set[OpenStream] = set()
        self._is_closed = False
        self.stalled = 0
        """Readers that were cut off."""

    def __len__(self) -> int:
        return len(self._open)

    def admit(self) -> None:
        """Raise if no further stream may begin."""
        if self._is_closed:
            raise NotReady("the server is stopping; connect again in a moment")
        if len(self._open) >= self._limits.max_streams:
            most = self._limits.max_streams
            raise HttpError("overloaded", f"the server has {most} open streams, its limit")

    def close(self) -> None:
        """End every stream with a complete response, and admit no others."""
        self._is_closed = True
        for stream in tuple(self._open):
            stream.end("closing")

    async def tick(self) -> None:
        """Send heartbeats, end streams whose key was revoked, and cut off stalled readers, until
        cancelled.
        """
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            while True:
                shortest = min(
                    (stream.heartbeat_s for stream in self._open), default=self._limits.heartbeat_s
                )
                await asyncio.sleep(min(_TICK_S, shortest / 3))
                now = loop.time()
                for stream in tuple(self._open):
                    if not stream.is_admitted():
                        stream.end("closing")
                    elif stream.sending_since:
                        if now - stream.sending_since > self._limits.stall_s:
                            self.stalled += 1
                            stream.end("stalled")
                    elif now - stream.sent_at >= stream.heartbeat_s:
                        stream.beat(group)

    async def serve(
        self,
        stream: Stream,
        request: Request,
        headers: list[Header],
        request_id: str,
        shape: ErrorShape,
        is_admitted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Send an admitted stream to its end. Its source is closed in any case."""
        beat_s = stream.heartbeat_s or self._limits.heartbeat_s
        reader = OpenStream(request, stream.heartbeat, beat_s, is_admitted)
        try:
            self._open.add(reader)
            await request.begin(200, [*HEADERS, *headers])
            last = await self._pump(stream, reader, request_id, shape)
        finally:
            self._open.discard(reader)
            await close_source(stream.source)
        if last is not None:
            await request.finish(last)

    async def _pump(
        self,
        stream: Stream,
        reader: OpenStream,
        request_id: str,
        shape: ErrorShape,
    ) -> bytes | None:
        """Send all frames. Returns the last bytes to send; None if the reader takes no more."""
        last = b""
        try:
            async with asyncio.TaskGroup() as group:
                watch = group.create_task(reader.watch())
                try:
                    if stream.first:
                        await reader.send(stream.first)
                    if isinstance(stream.source, AsyncIterator):
                        async for frames in stream.source:
                            await reader.send(frames)
                    else:
                        await stream.source.send_to(reader)
                except ClientGone:
                    reader.ended = "left"
                except Exception as error:
                    if isinstance(error, JournalError) or not isinstance(error, BattenError):
                        _log.error("a stream failed", exc_info=error)
                    last = error_frame(error, request_id, shape)
                watch.cancel()
        except asyncio.CancelledError:
            if reader.ended is None:
                raise
            reader.resume()
        return last if reader.ended in (None, "closing") else None


async def close_source(source: object) -> None:
    """Let a source release what it holds, if it has a way to."""
    close = getattr(source, "aclose", None)
    if close is not None:
        await close()


def error_frame(error: BaseException, request_id: str, shape: ErrorShape) -> bytes:
    """The frame that tells of an error after the headers; without an id."""
    data = msgspec.json.encode(shape(problem(error, request_id)))
    return b"event: error\ndata: %b\n\n" % data
