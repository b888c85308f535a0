"""Requests that two servers in a row could read as different ones: the table, over raw sockets."""

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from tests.serve.http.test_attacks import rest
from tests.serve.http.wire import Toy, request

pytestmark = pytest.mark.attack

ROOT = Path(__file__).parents[3]
NEXT = request("GET", "/toy/page")
POST = b"POST /toy/any HTTP/1.1\r\nHost: localhost\r\n"
LENGTH, CHUNKED = b"Content-Length: 2\r\n", b"Transfer-Encoding: chunked\r\n"
BODY, CHUNKS = b"\r\n{}", b"\r\n2\r\n{}\r\n0\r\n\r\n"

HEADS = {
    "length and chunks": POST + LENGTH + CHUNKED + CHUNKS,
    "chunks and length": POST + CHUNKED + LENGTH + CHUNKS,
    "equal lengths": POST + LENGTH + LENGTH + BODY,
    "different lengths": POST + LENGTH + b"Content-Length: 3\r\n" + BODY,
    "a list of lengths": POST + b"Content-Length: 2, 2\r\n" + BODY,
    "a signed length": POST + b"Content-Length: +2\r\n" + BODY,
    "a negative length": POST + b"Content-Length: -2\r\n" + BODY,
    "a length in hexadecimal": POST + b"Content-Length: 0x2\r\n" + BODY,
    "a length in two": POST + b"Content-Length: 2 2\r\n" + BODY,
    "a length of underscores": POST + b"Content-Length: 1_0\r\n" + BODY,
    "a length of other digits": POST + "Content-Length: ٢\r\n".encode() + BODY,
    "an empty length": POST + b"Content-Length:\r\n" + BODY,
    "a length beyond all": POST + b"Content-Length: 99999999999999999999999\r\n" + BODY,
    "chunks and identity": POST + b"Transfer-Encoding: chunked, identity\r\n" + CHUNKS,
    "identity and chunks": POST + b"Transfer-Encoding: identity, chunked\r\n" + CHUNKS,
    "identity": POST + b"Transfer-Encoding: identity\r\n" + LENGTH + BODY,
    "chunks twice": POST + b"Transfer-Encoding: chunked, chunked\r\n" + CHUNKS,
    "chunks on two lines": POST + CHUNKED + CHUNKED + CHUNKS,
    "codings on two lines": POST + b"Transfer-Encoding: gzip\r\n" + CHUNKED + CHUNKS,
    "an unknown coding": POST + b"Transfer-Encoding: xchunked\r\n" + CHUNKS,
    "a quoted coding": POST + b'Transfer-Encoding: "chunked"\r\n' + CHUNKS,
    "a coding after a tab": POST + b"Transfer-Encoding: \x0bchunked\r\n" + CHUNKS,
    "no coding": POST + b"Transfer-Encoding:\r\n" + CHUNKS,
    "a space before the colon": POST + b"Transfer-Encoding : chunked\r\n" + CHUNKS,
    "a tab before the colon": POST + b"Content-Length\t: 2\r\n" + BODY,
    "a space before a name": POST + b" X: y\r\n" + LENGTH + BODY,
    "a space before the first name": b"POST /toy/any HTTP/1.1\r\n Host: x\r\n" + LENGTH + BODY,
    "a folded line": POST + b"X: a\r\n b\r\n" + LENGTH + BODY,
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n" + CHUNKS,
    "a bare line feed": POST + b"X: a\nTransfer-Encoding: chunked\r\n" + CHUNKS,
    "line feeds alone": POST.replace(b"\r\n", b"\n") + b"\n",
    "a bare carriage return": POST + b"X: a\rContent-Length: 2\r\n" + BODY,
    "a line feed at the end": POST + LENGTH + b"\n{}",
    "a NUL in a value": POST + b"X: a\0b\r\n" + LENGTH + BODY,
    "a NUL in a name": POST + b"X\0: b\r\n" + LENGTH + BODY,
    "a NUL in a coding": POST + b"Transfer-Encoding: chunked\0\r\n" + CHUNKS,
    "a name without colon": POST + b"Content-Length 2\r\n" + BODY,
    "an empty name": POST + b": x\r\n" + LENGTH + BODY,
    "a name that is no token": POST + b"X(y): z\r\n" + LENGTH + BODY,
    "a name that is no ASCII": POST + "Ü: z\r\n".encode() + LENGTH + BODY,
    "words after the version": b"POST /toy/any HTTP/1.1 x\r\nHost: x\r\n" + LENGTH + BODY,
    "chunks in HTTP/1.0": POST.replace(b"1.1", b"1.0") + CHUNKED + LENGTH + CHUNKS,
    "an upgrade in chunks": POST + b"Connection: Upgrade\r\nUpgrade: x\r\n" + CHUNKED + CHUNKS,
}
"""Refused before anything is read of a body."""

BODIES = {
    "a size beyond all": b"FFFFFFFFFFFFFFFFF\r\n{}\r\n0\r\n\r\n",
    "a size that turns negative": b"8000000000000002\r\n{}\r\n0\r\n\r\n",
    "a size with a sign": b"+2\r\n{}\r\n0\r\n\r\n",
    "a negative size": b"-2\r\n{}\r\n0\r\n\r\n",
    "a size with 0x": b"0x2\r\n{}\r\n0\r\n\r\n",
    "a size after a space": b" 2\r\n{}\r\n0\r\n\r\n",
    "a size before a space": b"2 \r\n{}\r\n0\r\n\r\n",
    "a size of nothing": b"\r\n{}\r\n0\r\n\r\n",
    "a size that is no number": b"x\r\n{}\r\n0\r\n\r\n",
    "a size before a line feed": b"2\n{}\r\n0\r\n\r\n",
    "a size before a carriage return": b"2\r{}\r\n0\r\n\r\n",
    "a chunk without its end": b"2\r\n{}0\r\n\r\n",
    "a chunk with another end": b"2\r\n{}xx0\r\n\r\n",
    "a chunk that ends in a line feed": b"2\r\n{}\n0\r\n\r\n",
    "a chunk that ends in a carriage return": b"2\r\n{}\r0\r\n\r\n",
    "a chunk that is longer": b"2\r\n{}}\r\n0\r\n\r\n",
    "an extension with a line feed": b"2;a\nb\r\n{}\r\n0\r\n\r\n",
    "an extension with a carriage return": b"2;a\rb\r\n{}\r\n0\r\n\r\n",
    "an extension with a NUL": b"2;a\0\r\n{}\r\n0\r\n\r\n",
    "an end of line feeds": b"2\r\n{}\r\n0\n\n",
    "a trailer with a line feed": b"2\r\n{}\r\n0\r\nX: y\n\r\n",
    "a trailer without a colon": b"2\r\n{}\r\n0\r\nX y\r\n\r\n",
    "a trailer with a space before its colon": b"2\r\n{}\r\n0\r\nX : y\r\n\r\n",
    "a trailer with a length": b"2\r\n{}\r\n0\r\nContent-Length: 9\r\n\r\n",
    "a trailer with a coding": b"2\r\n{}\r\n0\r\nTransfer-Encoding: gzip\r\n\r\n",
    "a folded trailer": b"2\r\n{}\r\n0\r\nX: y\r\n z\r\n\r\n",
}
"""Chunks that end the connection, so that nothing after them is a request."""

HARMLESS = {
    "a length": POST + LENGTH + BODY,
    "a length with zeros": POST + b"Content-Length: 0002\r\n" + BODY,
    "chunks": POST + CHUNKED + CHUNKS,
    "chunks in capitals": POST + b"TRANSFER-ENCODING: CHUNKED\r\n" + CHUNKS,
    "an extension": POST + CHUNKED + b'\r\n2;a=b;c="d e"\r\n{}\r\n0;e\r\n\r\n',
    "sizes with zeros": POST + CHUNKED + b"\r\n0002\r\n{}\r\n000\r\n\r\n",
    "a trailer": POST + CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n",
    "a trailer that says more": POST
    + CHUNKED
    + b"\r\n2\r\n{}\r\n0\r\nAuthorization: x\r\nHost: x/y\r\n\r\n",
    "a coding that is offered": POST + b"TE: trailers, gzip\r\n" + LENGTH + BODY,
    "two spaces in its first line": POST.replace(b"POST ", b"POST  ") + LENGTH + BODY,
    "empty lines before it": b"\r\n\r\n" + POST + LENGTH + BODY,
}


@pytest.mark.parametrize("sent", HEADS.values(), ids=HEADS.keys())
async def test_an_ambiguous_head_is_refused_with_all_that_follows(server: Toy, sent: bytes) -> None:
    connection = await server.connect()
    await connection.send(sent + NEXT)
    answer = await connection.answer()
    assert (answer.status, answer.headers["connection"]) == (400, "close")
    assert await rest(connection) == b""


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
async def test_an_ambiguous_body_is_refused_with_all_that_follows(server: Toy, body: bytes) -> None:
    connection = await server.connect()
    await connection.send(POST + CHUNKED + b"\r\n" + body + NEXT)
    connection.writer.write_eof()
    answers = await rest(connection)
    assert answers.count(b"HTTP/1.1 ") == 1
    assert answers.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("sent", HARMLESS.values(), ids=HARMLESS.keys())
async def test_what_can_be_read_in_one_way_only_is_answered_and_so_is_the_next(
    server: Toy, sent: bytes
) -> None:
    connection = await server.connect()
    await connection.send(sent + NEXT)
    first, second = await connection.answer(), await connection.answer()
    assert (first.status, first.json["body"], first.json["principal"]) == (200, {}, "operator")
    assert (second.status, second.json["body"]) == (200, None)


def test_no_version_of_the_parser_is_allowed_that_reads_ambiguous_requests() -> None:
    """0.6.0 and 0.6.1 take a space before a colon, and a chunk without its end."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (wanted,) = [one for one in project["dependencies"] if one.startswith("httptools")]
    pinned = re.findall(r"^httptools==(\S+)$", (ROOT / "requirements.txt").read_text(), re.M)
    for text in (wanted.removeprefix("httptools>="), *pinned, version("httptools")):
        assert tuple(map(int, text.split(".")[:2])) >= (0, 9)
    assert len(pinned) == 1
