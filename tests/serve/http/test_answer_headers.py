"""What every answer tells browsers and proxies: how it may be read, kept, shown and reached."""

import ssl
from pathlib import Path

import pytest

from batten.serve.http.docs_page import POLICY
from batten.serve.http.listener import Tls
from tests.serve.http.test_server import certificate
from tests.serve.http.wire import Answer, Toy, request, toy

ALWAYS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


def told(answer: Answer) -> dict[str, str]:
    return {name: value for name, value in answer.headers.items() if name in ALWAYS}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/toy/page", 200),
        ("HEAD", "/toy/page", 200),
        ("OPTIONS", "/toy/page", 204),
        ("DELETE", "/toy/notes/x", 204),
        ("GET", "/toy/notes/x", 404),
        ("GET", "/toy/fail/bug", 500),
        ("GET", "/toy/download/exact", 200),
        ("GET", "/other/fail/own", 429),
        ("PUT", "/toy/page", 405),
        ("BREW", "/toy/page", 405),
    ],
)
async def test_no_answer_is_kept_framed_guessed_at_or_told_to_other_sites(
    server: Toy, method: str, path: str, status: int
) -> None:
    connection = await server.connect()
    await connection.send(request(method, path))
    answer = await connection.answer(method)
    assert (answer.status, told(answer)) == (status, ALWAYS)


async def test_what_is_no_request_is_answered_alike(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(b"no request\r\n\r\n")
    assert told(await connection.answer()) == ALWAYS


async def test_a_stream_may_be_kept_by_nobody_unasked(server: Toy) -> None:
    connection = await server.connect()
    await connection.send(request("GET", "/toy/follow"))
    status, headers = await connection.head()
    answer = Answer(status, headers, b"")
    assert (status, told(answer)) == (200, {**ALWAYS, "cache-control": "no-cache"})


async def test_no_line_of_an_answer_is_there_twice(server: Toy) -> None:
    connection = await server.connect()
    for path in ("/toy/kept", "/toy/page", "/toy/follow"):
        await connection.send(request("GET", path))
        lines = (await connection.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[1:-2]
        names = [line.partition(b":")[0] for line in lines]
        assert len(set(names)) == len(names)
        if path != "/toy/follow":
            length = next(line for line in lines if line.startswith(b"content-length"))
            await connection.reader.readexactly(int(length.split()[1]))


async def test_an_answer_may_say_itself_how_it_is_kept(server: Toy) -> None:
    answer = await server.ask("GET", "/toy/kept")
    own = {"cache-control": "private, no-cache", "content-security-policy": POLICY}
    assert told(answer) == {**ALWAYS, **own}
    assert "frame-ancestors 'none'" in POLICY


@pytest.mark.parametrize(
    ("host", "is_told"),
    [
        ("batten.example", True),
        ("batten.example:8443", True),
        # Browsers would want TLS of every other program of this machine.
        ("localhost", False),
        ("app.localhost:8443", False),
        ("127.0.0.1", False),
    ],
)
async def test_browsers_are_told_to_come_by_tls_alone_under_a_name_of_its_own(
    tmp_path: Path, host: str, is_told: bool
) -> None:
    files = certificate(tmp_path)
    context = ssl.create_default_context(cafile=files["certificate"])
    context.check_hostname = False
    async with toy(tmp_path, tls=Tls(**files), allow_hosts=("batten.example",)) as server:
        connection = await server.opened.connect_to(server.server.url, ssl=context)
        for path in ("/toy/page", "/toy/notes/x", "/toy/download/exact"):
            answer = await connection.ask("GET", path, headers={"Host": host})
            given = answer.headers.get("strict-transport-security")
            assert given == ("max-age=31536000" if is_told else None)
    async with toy(tmp_path / "plain", allow_hosts=("batten.example",)) as server:
        answer = await server.ask("GET", "/toy/page", headers={"Host": host})
        assert "strict-transport-security" not in answer.headers
