"""Streams of a service behind a gateway: real sockets, with answers as gateways give them."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest

from batten.client import PeerError, Unreachable
from batten.client.frames import Frame, FrameReader, StreamFailed
from batten.client.link import Link
from batten.contract.errors import NotFound

AWAY = b"HTTP/1.1 %d Away\r\ncontent-type: text/html\r\ncontent-length: 13\r\n\r\n<html></html>"
OVER = b"HTTP/1.1 204 No Content\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


@asynccontextmanager
async def answering(answers: Sequence[bytes]) -> AsyncGenerator[Link, None]:
    """A link to a server that gives one of these answers to each request, the last one again."""
    left = list(answers)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0) if len(left) > 1 else left[0])
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        link = Link(f"http://127.0.0.1:{port}", patience_s=0.5)
        try:
            async with asyncio.timeout(60):
                yield link
        finally:
            await link.close()


async def read(link: Link) -> list[Frame]:
    async with aclosing(link.frames("/events")) as pages:
        return [frame async for page in pages for frame in page]


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_stream_goes_on_when_the_service_behind_a_gateway_is_back(status: int) -> None:
    first, second = (STREAM + b"id: %d\ndata: x\n\n" % cursor for cursor in (1, 2))
    async with answering([first, AWAY % status, AWAY % status, second, OVER]) as link:
        assert await read(link) == [Frame(1, b"x"), Frame(2, b"x")]


async def test_a_service_that_stays_away_is_unreachable() -> None:
    async with answering([AWAY % 502]) as link:
        with pytest.raises(Unreachable, match="a gateway answers for it, with status 502"):
            await read(link)


FAILED = b'event: error\ndata: {"error":{"type":"%b","message":"%b"}}\n\n'


async def test_a_stream_that_the_service_ends_with_an_error_goes_on_after_its_last_frame() -> None:
    first, second = (STREAM + b"id: %d\ndata: x\n\n" % cursor for cursor in (1, 2))
    broken = first + FAILED % (b"runtime_not_ready", b"connect again in a moment")
    async with answering([broken, second, OVER]) as link:
        assert await read(link) == [Frame(1, b"x"), Frame(2, b"x")]


async def test_a_stream_that_always_fails_is_told_in_the_words_of_the_service() -> None:
    async with answering([STREAM + FAILED % (b"internal_error", b"the log has it")]) as link:
        with pytest.raises(StreamFailed, match="the service ends the stream: the log has it"):
            await read(link)


async def test_a_stream_of_what_is_deleted_ends_at_once() -> None:
    async with answering([STREAM + FAILED % (b"not_found", b"there is no run")]) as link:
        with pytest.raises(NotFound, match="there is no run"):
            await read(link)


async def test_a_failure_that_is_no_gateways_is_not_tried_again() -> None:
    async with answering([AWAY % 500, OVER]) as link:
        with pytest.raises(PeerError, match="is no service of Batten"):
            await read(link)


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_frames_are_read_however_they_are_cut_and_lines_are_ended(end: bytes, size: int) -> None:
    lines = [
        b": hello",
        b"",
        b"event: x",
        b"id: 7",
        b"data: {",
        b"data: }",
        b"",
        b"id: 8",
        b"data:",
        b"",
    ]
    wire = end.join(lines) + end
    reader = FrameReader()
    pieces = [wire[start : start + size] for start in range(0, len(wire), size)]
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    assert frames == [Frame(7, b"{\n}"), Frame(8, b"")]
