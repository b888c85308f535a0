"""Server-sent events over real sockets."""

import asyncio
from pathlib import Path

import pytest

from batten.contract.errors import StoreBusy
from batten.serve.http.limits import Limits
from tests.serve.http.wire import PATIENCE_S, Connection, Toy, request, toy


async def follow(server: Toy, path: str = "/toy/follow") -> Connection:
    connection = await server.connect()
    await connection.send(request("GET", path))
    return connection


async def until_closed(server: Toy, count: int = 1) -> None:
    """Wait until so many sources were closed."""
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(count):
            await server.boxes.closed.get()


async def test_frames_reach_the_reader_as_they_are(server: Toy) -> None:
    connection = await follow(server)
    status, headers = await connection.head()
    assert status == 200
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["x-accel-buffering"] == "no"
    assert headers["connection"] == "keep-alive"
    assert headers["x-request-id"].startswith("req_")
    assert await connection.chunk() == b": ok\n\n"
    for frame in (b"id: 1\ndata: {}\n\n", b"id: 2\ndata: {}\n\n"):
        server.boxes.frames.put_nowait(frame)
        assert await connection.chunk() == frame
    server.boxes.frames.put_nowait(None)
    assert await connection.chunk() == b""
    assert len(server.app.streams) == 0
    # The answer is complete: the connection can be used again.
    assert (await connection.ask("GET", "/toy/page")).status == 200
    connection.close()


async def test_the_last_event_id_reaches_the_handler(server: Toy) -> None:
    answer = await server.ask("GET", "/toy/follow", headers={"Last-Event-ID": "end"})
    assert answer.status == 204


async def test_a_head_request_begins_no_stream(server: Toy) -> None:
    answer = await server.ask("HEAD", "/toy/follow")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.headers["transfer-encoding"] == "chunked"
    assert "content-length" not in answer.headers  # a GET has none
    assert len(server.app.streams) == 0


async def test_a_reader_that_leaves_closes_the_source(server: Toy) -> None:
    connection = await follow(server)
    await connection.head()
    await server.boxes.began.wait()
    connection.close()
    await until_closed(server)


async def test_a_reader_that_is_reset_closes_the_source(server: Toy) -> None:
    connection = await follow(server)
    await connection.head()
    await server.boxes.began.wait()
    connection.writer.transport.abort()
    await until_closed(server)


@pytest.mark.parametrize(
    ("error", "frame"),
    [
        (StoreBusy("others write"), b'"type":"store_busy","message":"the store is busy'),
        (ZeroDivisionError("a secret"), b'"type":"internal_error"'),
    ],
)
async def test_an_error_after_the_headers_is_the_last_frame(
    server: Toy, error: Exception, frame: bytes
) -> None:
    connection = await follow(server)
    await connection.head()
    assert await connection.chunk() == b": ok\n\n"
    server.boxes.frames.put_nowait(error)
    last = await connection.chunk()
    assert last.startswith(b'event: error\ndata: {"error":{')
    assert last.endswith(b"}}\n\n")
    assert frame in last
    assert b"secret" not in last
    assert await connection.chunk() == b""
    connection.close()


async def test_a_quiet_stream_has_heartbeats(tmp_path: Path) -> None:
    async with toy(tmp_path, Limits(heartbeat_s=0.1)) as server:
        connection = await follow(server)
        await connection.head()
        assert await connection.chunk() == b": ok\n\n"
        assert await connection.chunk() == b": heartbeat\n\n"
        assert await connection.chunk() == b": heartbeat\n\n"
        server.boxes.frames.put_nowait(b"data: 1\n\n")
        frame = await connection.chunk()
        while frame == b": heartbeat\n\n":
            frame = await connection.chunk()
        assert frame == b"data: 1\n\n"
        connection.close()


async def test_a_reader_that_takes_nothing_is_cut_off_and_another_is_not(tmp_path: Path) -> None:
    async with toy(tmp_path, Limits(stall_s=0.3, heartbeat_s=0.3)) as server:
        stalled = await follow(server, "/toy/flood")
        reading = await follow(server)
        await reading.head()
        await until_closed(server)
        assert server.app.streams.stalled == 1
        server.boxes.frames.put_nowait(b"data: still here\n\n")
        async with asyncio.timeout(PATIENCE_S):
            while await reading.chunk() != b"data: still here\n\n":
                pass
        reading.close()
        stalled.writer.transport.abort()


async def test_streams_beyond_the_limit_are_refused_and_closed(tmp_path: Path) -> None:
    async with toy(tmp_path, Limits(max_streams=1)) as server:
        first = await follow(server)
        await first.head()
        answer = await server.ask("GET", "/toy/follow")
        assert (answer.status, answer.error["type"]) == (503, "overloaded")
        assert answer.headers["retry-after"] == "1"
        first.close()
        await until_closed(server, 1)
        assert (await (await follow(server)).head())[0] == 200


async def test_closing_ends_streams_with_a_complete_answer(server: Toy) -> None:
    connections = [await follow(server) for _ in range(20)]
    for connection in connections:
        assert (await connection.head())[0] == 200
        assert await connection.chunk() == b": ok\n\n"
    server.app.close()
    for connection in connections:
        assert await connection.chunk() == b""
    await until_closed(server, 20)
    answer = await server.ask("GET", "/toy/follow")
    assert (answer.status, answer.error["type"]) == (503, "runtime_not_ready")
    assert (await server.ask("GET", "/toy/page")).status == 200
    for connection in connections:
        connection.close()
