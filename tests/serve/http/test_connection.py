"""Connections byte by byte: what is a request, what follows it, and how a connection ends."""

import asyncio
import gc
import struct
from itertools import pairwise
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batten.serve.http.connection import Connection as Served
from batten.serve.http.limits import Limits
from batten.serve.http.wire import head, read_target
from tests.examples import examples
from tests.serve.http.test_attacks import MIB, rest
from tests.serve.http.wire import PATIENCE_S, Toy, request, toy

GET = request("GET", "/toy/page")


async def test_requests_sent_at_once_are_answered_in_order(server: Toy) -> None:
    connection = await server.connect()
    texts = [f"text {number}" for number in range(50)]
    await connection.send(b"".join(request("POST", "/toy/notes", {"text": one}) for one in texts))
    answers = [await connection.answer() for _ in texts]
    assert [answer.json["data"]["text"] for answer in answers] == texts


@settings(
    max_examples=examples(30),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(cuts=st.lists(st.integers(1, 400), max_size=8))
async def test_requests_are_the_same_however_their_bytes_arrive(
    server: Toy, cuts: list[int]
) -> None:
    chunked = (
        b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: ignored\r\n\r\n"
    )
    sent = request("POST", "/toy/notes", {"text": "a"}) + chunked + GET
    connection = await server.connect()
    places = [0, *sorted(cut for cut in cuts if cut < len(sent)), len(sent)]
    for begin, end in pairwise(places):
        await connection.send(sent[begin:end])
        await asyncio.sleep(0)
    assert (await connection.answer()).json["data"]["text"] == "a"
    assert (await connection.answer()).json == {"bytes": 5}
    assert (await connection.answer()).status == 200
    connection.close()


async def test_a_body_that_no_row_reads_is_left_out_and_the_connection_goes_on(
    server: Toy,
) -> None:
    connection = await server.connect()
    body = b"GET /toy/page HTTP/1.1\r\n\r\n" * 10_000
    for path, status in (("/nowhere", 404), ("/toy/page", 405)):
        assert (await connection.ask("POST", path, body)).status == status
    assert (await connection.ask("GET", "/toy/page")).status == 200


SMUGGLED = {
    "a length beside chunks": b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
    "two lengths": b"Content-Length: 3\r\nContent-Length: 4\r\n",
    "a signed length": b"Content-Length: +3\r\n",
    "chunks that are not last": b"Transfer-Encoding: chunked, gzip\r\n",
    "another coding": b"Transfer-Encoding: gzip, chunked\r\n",
    "a name with a space": b"Transfer-Encoding : chunked\r\n",
    "a folded line": b"X: a\r\n b\r\n",
    "an upgrade with chunks": b"Connection: Upgrade\r\nUpgrade: x\r\n"
    b"Transfer-Encoding: chunked\r\n",
    "a NUL": b"X: a\0b\r\n",
    "a bare line feed": b"X: a\nY: b\r\n",
}


@pytest.mark.parametrize("line", SMUGGLED.values(), ids=SMUGGLED.keys())
async def test_a_head_that_two_servers_could_read_differently_is_refused(
    server: Toy, line: bytes
) -> None:
    connection = await server.connect()
    await connection.send(b"POST /toy/notes HTTP/1.1\r\nHost: localhost\r\n" + line + b"\r\n" + GET)
    answer = await connection.answer()
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert answer.headers["connection"] == "close"
    assert await rest(connection) == b""


async def test_another_coding_on_a_line_of_its_own_is_refused(server: Toy) -> None:
    connection = await server.connect()
    head = b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n"
    await connection.send(head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
    assert (await connection.answer()).error["type"] == "invalid_request"
    assert await rest(connection) == b""


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"BREW /toy/page HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"\x16\x03\x01\x02\x00\x01\x00", 400),
        (b"GET /toy/page\r\n\r\n", 400),
        (b"GET /toy/page HTTP/1.1\r\nHost\r\n\r\n", 400),
        (b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
    ],
)
async def test_what_is_no_request_gets_a_typed_error(server: Toy, sent: bytes, status: int) -> None:
    connection = await server.connect()
    await connection.send(sent)
    answer = await connection.answer()
    assert answer.status == status
    assert set(answer.error) == {"type", "message", "request_id"}
    assert answer.error["request_id"] == answer.headers["x-request-id"]
    assert await rest(connection) == b""


async def test_an_unknown_method_is_told_which_ones_there_are(server: Toy) -> None:
    assert "GET, HEAD" in (await server.ask("BREW", "/toy/page")).headers["allow"]


async def test_garbage_after_requests_does_not_cost_their_answers(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(GET * 3 + b"no request\r\n\r\n" + b"x" * MIB)
    answers = [await connection.answer() for _ in range(3)]
    assert [answer.status for answer in answers] == [200, 200, 200]
    assert [answer.headers.get("connection") for answer in answers] == [None, None, "close"]
    assert await connection.reader.read() == b""  # not reset


async def test_a_head_is_measured_alike_however_its_bytes_arrive(server: Toy) -> None:
    sent = request("GET", "/toy/page", headers={"X": "a" * 12_000})
    connection = await server.connect()
    for cuts in ([], [1], [1, 5000], [100, 11_000]):
        for begin, end in pairwise([0, *cuts, len(sent)]):
            await connection.send(sent[begin:end])
            assert (await server.ask("GET", "/toy/page")).status == 200  # so the piece was read
        assert (await connection.answer()).status == 200


@pytest.mark.parametrize("begin", [b"0\r\nX: ", b"0\r\n", b"3;x=", b"0" * 10])
async def test_a_trailer_or_a_chunks_head_without_end_is_refused(server: Toy, begin: bytes) -> None:
    connection = await server.connect()
    head = b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    await connection.send(head + begin)
    for _ in range(64):
        await connection.send(b"0" * 16_384)
    answer = await connection.answer()
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert await connection.reader.read() == b""


async def test_a_client_reads_the_answer_to_a_broken_body_though_it_sends_on(server: Toy) -> None:
    connection = await server.connect()
    head = b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    await connection.send(head + b"no chunk\r\n" + b"x" * 8 * MIB)
    assert (await connection.answer()).status == 400
    assert await connection.reader.read() == b""


async def test_an_answer_that_cannot_be_sent_is_an_error_and_the_next_one_is_its_own(
    server: Toy,
) -> None:
    connection = await server.connect()
    await connection.send(request("GET", "/toy/split") + GET)
    assert (await connection.answer()).error["type"] == "internal_error"
    assert "query" in (await connection.answer()).json


@pytest.mark.parametrize(("how", "most"), [("short", 1000), ("long", 0)])
async def test_nothing_follows_an_answer_that_is_not_as_long_as_it_says(
    server: Toy, how: str, most: int
) -> None:
    connection = await server.connect()
    await connection.send(request("GET", f"/toy/download/{how}") + GET)
    assert (await connection.head())[0] == 200
    assert len(await rest(connection)) <= most


async def test_a_client_that_resets_its_connection_is_no_error(
    server: Toy, caplog: pytest.LogCaptureFixture
) -> None:
    half = b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"
    waiting = half.replace(b"\r\n\r\nx", b"\r\nExpect: 100-continue\r\n\r\n")
    for sent in (half, waiting, request("GET", "/toy/wait"), request("GET", "/toy/wait") * 2):
        connection = await server.connect()
        await connection.send(sent)
        assert (await server.ask("GET", "/toy/page")).status == 200
        never = struct.pack("ii", 1, 0)
        connection.writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, never)
        connection.writer.transport.abort()
    async with asyncio.timeout(PATIENCE_S):
        while server.app.metrics.text().count('status="499"} 2') < 2:  # a count for each route
            assert (await server.ask("GET", "/toy/page")).status == 200
    assert "failed" not in caplog.text


async def test_a_connection_that_is_over_leaves_nothing_to_the_collector_of_cycles(
    server: Toy,
) -> None:
    gc.collect()
    gc.disable()
    try:
        for sent in (
            b"",
            GET,
            GET[:9],
            GET * 2 + b"x",
            b"\x16\x03\x01",
            GET.replace(b"1.1", b"1.0"),
        ):
            connection = await server.connect()
            await connection.send(sent)
            connection.writer.write_eof()
            await rest(connection)
            connection.close()
        async with asyncio.timeout(PATIENCE_S):
            while any(type(one) is Served for one in gc.get_objects()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # its last task ends after its socket
    finally:
        gc.enable()


@pytest.mark.parametrize(
    "target", ["/toy/page?limit=3", "http://localhost/toy/page?limit=3", "/toy/p%61ge?limit=3"]
)
async def test_a_target_may_be_an_address_or_escaped(server: Toy, target: str) -> None:
    assert (await server.ask("GET", target)).json["query"]["limit"] == 3


def test_a_target_becomes_a_path_and_a_query() -> None:
    assert read_target(b"/a%2Fb/c?x=%20&y") == ("/a/b/c", b"/a%2Fb/c", b"x=%20&y", None)
    assert read_target(b"http://host:1?x") == ("/", b"/", b"x", b"host:1")
    assert read_target(b"*") == ("*", b"*", b"", None)
    assert read_target(b"/%ff") == ("/\N{REPLACEMENT CHARACTER}", b"/%ff", b"", None)


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: x", b"a\nb", b"a\rb"])
def test_a_header_with_the_end_of_a_line_is_never_sent(value: bytes) -> None:
    with pytest.raises(ValueError, match="end of a line"):
        head(200, [(b"x", value)], b"")


async def test_an_upgrade_is_answered_without_one(server: Toy) -> None:
    connection = await server.connect()
    asked = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AA"}
    await connection.send(request("POST", "/toy/notes", {"text": "a"}, asked) + GET)
    assert (await connection.answer()).json["data"]["text"] == "a"
    assert (await connection.answer()).status == 200


async def test_a_client_of_http_1_0_gets_an_answer_that_ends_with_the_connection(
    server: Toy,
) -> None:
    connection = await server.connect()
    await connection.send(GET.replace(b"HTTP/1.1", b"HTTP/1.0"))
    answer = await connection.answer()
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await rest(connection) == b""
    reader = await server.connect()
    await reader.send(request("GET", "/toy/follow").replace(b"HTTP/1.1", b"HTTP/1.0"))
    head = await reader.reader.readuntil(b"\r\n\r\n")
    assert b"transfer-encoding" not in head
    assert head.count(b"connection: ") == head.count(b"connection: close") == 1
    server.boxes.frames.put_nowait(b"data: 1\n\n")
    server.boxes.frames.put_nowait(None)
    assert await rest(reader) == b": ok\n\ndata: 1\n\n"


async def test_a_client_that_asks_to_close_is_obeyed(server: Toy) -> None:
    connection = await server.connect()
    answer = await connection.ask("GET", "/toy/page", headers={"Connection": "close"})
    assert (answer.status, answer.headers["connection"]) == (200, "close")
    assert await rest(connection) == b""


async def test_a_client_that_waits_is_told_to_send_its_body(server: Toy) -> None:
    connection = await server.connect()
    sent = request("POST", "/toy/notes", {"text": "a"}, {"Expect": "100-continue"})
    place = sent.index(b"\r\n\r\n") + 4
    await connection.send(sent[:place])
    assert (await connection.head())[0] == 100
    await connection.send(sent[place:])
    assert (await connection.answer()).json["data"]["text"] == "a"
    assert (await connection.ask("GET", "/toy/page")).status == 200


async def test_a_client_of_http_1_0_is_not_told_to_send_its_body(server: Toy) -> None:
    connection = await server.connect()
    sent = request("POST", "/toy/notes", {"text": "a"}, {"Expect": "100-continue"})
    place = sent.index(b"\r\n\r\n") + 4
    await connection.send(sent[:place].replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (await server.ask("GET", "/toy/page")).status == 200
    await connection.send(sent[place:])
    assert (await connection.answer()).json["data"]["text"] == "a"


async def test_a_client_that_has_closed_its_side_still_gets_its_answer(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(request("GET", "/toy/patient"))
    await server.boxes.began.wait()
    connection.writer.write_eof()
    server.boxes.go_on.set()
    assert (await connection.answer()).json == {"waited": True}
    assert await rest(connection) == b""


async def test_answers_that_nobody_reads_hold_back_further_requests(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(request("GET", "/toy/large") * 20)
    counted = 'route="/toy/large",status="200"} '
    # The others are not begun before this one is read.
    assert (await connection.head())[0] == 200
    assert (await server.ask("GET", "/toy/page")).status == 200
    assert counted not in server.app.metrics.text()
    await connection.reader.readexactly(64 << 20)
    async with asyncio.timeout(PATIENCE_S):
        while f"{counted}1" not in server.app.metrics.text():
            assert (await server.ask("GET", "/toy/page")).status == 200
    connection.writer.transport.abort()


@pytest.mark.parametrize("sent", [b"", b"GET /toy/page HT", b"GET /toy/page HTTP/1.1\r\nHost: l"])
async def test_half_a_head_does_not_delay_a_stop(tmp_path: Path, sent: bytes) -> None:
    async with toy(tmp_path, Limits(grace_s=1000, header_timeout_s=1000)) as server:
        connection = await server.connect()
        await connection.send(GET + sent)
        assert (await connection.answer()).status == 200
        async with asyncio.timeout(PATIENCE_S):
            await server.server.stop(1000)
        assert await rest(connection) == b""


async def test_a_stop_lets_a_client_send_the_rest_of_its_request(tmp_path: Path) -> None:
    async with toy(tmp_path, Limits(grace_s=1000)) as server:
        connection = await server.connect()
        sending = asyncio.create_task(
            connection.send(request("GET", "/toy/patient", b"x" * 8 * MIB))
        )
        await server.boxes.began.wait()
        stopping = asyncio.create_task(server.server.stop(1000))
        await asyncio.sleep(0)
        server.boxes.go_on.set()
        assert (await connection.answer()).json == {"waited": True}
        async with asyncio.timeout(PATIENCE_S):
            await sending
            assert await connection.reader.read() == b""
            await stopping


async def test_every_answer_has_the_date(server: Toy) -> None:
    assert (await server.ask("GET", "/toy/page")).headers["date"].endswith(" GMT")
    assert (await server.ask("BREW", "/toy/page")).headers["date"].endswith(" GMT")
