"""Clients that send too much, too slowly, too often, or garbage."""

import asyncio
import resource
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batten.serve.http.limits import Limits
from tests.examples import examples
from tests.serve.http.test_server import program
from tests.serve.http.wire import PATIENCE_S, Connection, Toy, request, toy

pytestmark = pytest.mark.attack

MIB = 1 << 20


async def rest(connection: Connection) -> bytes:
    """All that comes until the server closes."""
    async with asyncio.timeout(PATIENCE_S):
        with suppress(ConnectionError):
            return await connection.reader.read()
        return b""


async def test_a_body_that_says_it_is_too_large_is_refused_unread(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(
        b"POST /toy/notes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n"
    )
    answer = await connection.answer()
    assert (answer.status, answer.error["type"]) == (413, "request_too_large")
    assert answer.error["max_bytes"] == MIB
    assert answer.headers["connection"] == "close"
    assert await rest(connection) == b""


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_client_that_sends_all_of_a_large_body_still_gets_its_answer(
    server: Toy, is_chunked: bool
) -> None:
    connection = await server.connect()
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % (32 * MIB)
    await connection.send(b"POST /toy/notes HTTP/1.1\r\nHost: localhost\r\n" + length + b"\r\n\r\n")
    piece = b"x" * MIB
    for _ in range(32):
        await connection.send(b"%x\r\n%b\r\n" % (MIB, piece) if is_chunked else piece)
    if is_chunked:
        await connection.send(b"0\r\n\r\n")
    answer = await connection.answer()
    assert (answer.status, answer.error["type"]) == (413, "request_too_large")


async def test_a_client_that_asks_before_it_sends_is_answered_and_sends_nothing(
    server: Toy,
) -> None:
    connection = await server.connect()
    head = b"POST /toy/notes HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
    await connection.send(head + b"Content-Length: %d\r\n\r\n" % (32 * MIB))
    answer = await connection.answer()
    assert (answer.status, answer.headers["connection"]) == (413, "close")
    connection = await server.connect()
    await connection.send(head.replace(b"/toy/notes", b"/nowhere") + b"Content-Length: 9\r\n\r\n")
    answer = await connection.answer()
    # It will not be read, so that the next request could not be told from it.
    assert (answer.status, answer.headers["connection"]) == (404, "close")


@pytest.mark.parametrize(("size", "status"), [(1000, 200), (1001, 413)])
async def test_a_body_may_have_as_many_bytes_as_its_route_says(
    server: Toy, size: int, status: int
) -> None:
    assert (await server.ask("PUT", "/toy/raw", b"x" * size)).status == status


async def test_a_body_without_a_length_is_counted_as_it_arrives(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(
        b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for _ in range(11):
        await connection.send(b"64\r\n%b\r\n" % (b"x" * 100))
    answer = await connection.answer()
    assert (answer.status, answer.error["type"]) == (413, "request_too_large")


async def test_chunks_are_put_together(server: Toy) -> None:
    connection = await server.connect()
    head = b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    await connection.send(head + b"64\r\n%b\r\n0\r\n\r\n" % (b"x" * 100))
    assert (await connection.answer()).json == {"bytes": 100}


@pytest.mark.parametrize("is_chunked", [True, False])
async def test_a_dripping_body_is_given_up(tmp_path: Path, is_chunked: bool) -> None:
    async with toy(tmp_path, Limits(body_timeout_s=0.3)) as server:
        connection = await server.connect()
        length = "Transfer-Encoding: chunked" if is_chunked else "Content-Length: 900"
        await connection.send(
            f"PUT /toy/raw HTTP/1.1\r\nHost: x.localhost\r\n{length}\r\n\r\n".encode()
        )

        async def drip() -> None:
            with suppress(ConnectionError):
                while True:
                    await connection.send(b"1\r\nx\r\n" if is_chunked else b"x")
                    await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        answer = await connection.answer()
        assert (answer.status, answer.error["type"]) == (408, "request_body_timeout")
        dripping.cancel()
        assert (await server.ask("GET", "/toy/page")).status == 200


async def test_a_client_that_leaves_in_its_body_is_no_error(
    server: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    connection = await server.connect()
    await connection.send(
        b"POST /toy/notes HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"
    )
    connection.close()
    async with asyncio.timeout(PATIENCE_S):
        while 'status="499"' not in server.app.metrics.text():
            assert (await server.ask("GET", "/toy/page")).status == 200
    assert "failed" not in caplog.text


async def test_a_body_that_is_no_body_is_answered_while_its_client_is_there(server: Toy) -> None:
    connection = await server.connect()
    head = b"POST /toy/notes HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    await connection.send(head + b"no chunk\r\n")
    answer = await connection.answer()
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("count", [101, 5000])
async def test_a_flood_of_headers_is_refused(server: Toy, count: int) -> None:
    connection = await server.connect()
    lines = b"".join(b"x-%d: 1\r\n" % number for number in range(count))
    await connection.send(b"GET /toy/page HTTP/1.1\r\nHost: localhost\r\n" + lines + b"\r\n")
    assert (await connection.head())[0] == 431
    assert (await server.ask("GET", "/toy/page")).status == 200


async def test_a_header_without_end_is_refused(server: Toy) -> None:
    connection = await server.connect()
    with suppress(ConnectionError):
        await connection.send(b"GET /toy/page HTTP/1.1\r\nHost: localhost\r\nx: ")
        for _ in range(64):
            await connection.send(b"a" * 16_384)
    assert (await rest(connection)).split(b"\r\n")[0] in (
        b"HTTP/1.1 431 Request Header Fields Too Large",
        b"",
    )
    assert (await server.ask("GET", "/toy/page")).status == 200


@pytest.mark.parametrize("sent", [b"", b"GET /toy/page HT", b"GET /toy/page HTTP/1.1\r\nHost: l"])
async def test_headers_that_do_not_arrive_end_the_connection(tmp_path: Path, sent: bytes) -> None:
    async with toy(tmp_path, Limits(header_timeout_s=0.2)) as server:
        connection = await server.connect()
        await connection.send(sent)
        assert await rest(connection) == b""


async def test_an_idle_connection_is_closed(tmp_path: Path) -> None:
    async with toy(tmp_path, Limits(header_timeout_s=0.2)) as server:
        connection = await server.connect()
        assert (await connection.ask("GET", "/toy/page")).status == 200
        assert await rest(connection) == b""


@pytest.mark.parametrize("is_unix", [False, True])
async def test_an_answer_that_nobody_reads_is_dropped(tmp_path: Path, is_unix: bool) -> None:
    path = tmp_path / "serve.sock"
    limits = {"unread_s": 0.5, "header_timeout_s": 1000}
    async with program(tmp_path, limits=limits, unix_socket=str(path)) as server:
        asking = await server.connect()
        assert (await asking.ask("GET", "/toy/page")).status == 200
        files = Path(f"/proc/{server.process.pid}/fd")
        before = len(list(files.iterdir()))
        reader = await (server.opened.connect_unix(path) if is_unix else server.connect())
        await reader.send(request("GET", "/toy/large"))
        # It reads no further than this and what fits its buffer.
        assert (await reader.head())[0] == 200
        assert len(list(files.iterdir())) > before
        async with asyncio.timeout(PATIENCE_S):
            while len(list(files.iterdir())) > before:
                assert (await asking.ask("GET", "/toy/page")).status == 200
        reader.writer.transport.abort()


async def test_a_reader_of_a_download_that_takes_nothing_is_cut_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with toy(tmp_path, Limits(stall_s=0.3)) as server:
        reader = await server.connect()
        await reader.send(request("GET", "/toy/download/endless"))
        async with asyncio.timeout(PATIENCE_S):
            await server.boxes.closed.get()
        assert (await server.ask("GET", "/toy/page")).status == 200
        assert "failed" not in caplog.text
        reader.writer.transport.abort()


async def test_requests_beyond_the_limit_are_refused_and_those_in_work_go_on(
    tmp_path: Path,
) -> None:
    async with toy(tmp_path, Limits(max_requests=1)) as server:
        connection = await server.connect()
        await connection.send(request("GET", "/toy/patient"))
        await server.boxes.began.wait()
        answer = await server.ask("GET", "/toy/page")
        assert (answer.status, answer.error["type"]) == (503, "overloaded")
        server.boxes.go_on.set()
        assert (await connection.answer()).json == {"waited": True}
        assert (await server.ask("GET", "/toy/page")).status == 200


@pytest.fixture
def many_files() -> Generator[None]:
    """This process may hold a few thousand connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory_kib(process_id: int) -> int:
    status = Path(f"/proc/{process_id}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


@pytest.mark.usefixtures("many_files")
async def test_2000_idle_connections_cost_little_and_keep_nobody_out(tmp_path: Path) -> None:
    async with program(tmp_path) as server:
        first = await server.connect()
        assert (await first.ask("GET", "/toy/page")).status == 200
        before = memory_kib(server.process.pid)
        for _ in range(2000):
            await server.connect()
        assert (await first.ask("GET", "/toy/page")).status == 200
        assert (await (await server.connect()).ask("GET", "/toy/page")).status == 200
        assert memory_kib(server.process.pid) - before < 2000 * 30


@pytest.mark.usefixtures("many_files")
async def test_connections_beyond_the_limit_wait_until_idle_ones_are_closed(
    tmp_path: Path,
) -> None:
    limits = Limits(max_connections=50, header_timeout_s=0.5)
    async with toy(tmp_path, limits) as server:
        for _ in range(500):
            await server.connect()
        assert (await server.ask("GET", "/toy/page")).status == 200


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
async def test_damaged_requests_are_answered_or_cut_and_crash_nothing(
    server: Toy, data: st.DataObject
) -> None:
    valid = request("POST", "/toy/boxes/é/notes/x?limit=1", {"text": "a"}, {"X-Request-Id": "r"})
    sent = bytearray(valid)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(sent) - 1))
        sent[place] = data.draw(st.integers(0, 255))
    connection = await server.connect()
    await connection.send(bytes(sent))
    connection.writer.write_eof()
    first = (await rest(connection)).split(b"\r\n")[0]
    assert first == b"" or first.startswith((b"HTTP/1.1 4", b"HTTP/1.1 200"))
    connection.close()
    assert (await server.ask("GET", "/toy/page")).status == 200
