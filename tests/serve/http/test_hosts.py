"""Which host a request is for, and which sites may have caused it, over plain sockets."""

from pathlib import Path

import pytest

from tests.serve.http.wire import Answer, Toy, request, toy

pytestmark = pytest.mark.attack

CROSS = {"Sec-Fetch-Site": "cross-site"}
NAVIGATION = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


async def answer_to(server: Toy, head: bytes) -> Answer:
    """The answer to a GET with these lines after the first one, or to a whole head."""
    if not head.startswith((b"GET ", b"OPTIONS ", b"PRI ")):
        head = b"GET /toy/page HTTP/1.1\r\n" + head
    connection = await server.connect()
    await connection.send(head + b"\r\n")
    try:
        return await connection.answer()
    finally:
        connection.close()


BAD_HOSTS = {
    "none": b"",
    "an empty one": b"Host:\r\n",
    "two": b"Host: localhost\r\nHost: localhost\r\n",
    "two names": b"Host: localhost, localhost\r\n",
    "two names apart": b"Host: localhost evil.example\r\n",
    "a tab": b"Host: local\thost\r\n",
    "a path": b"Host: localhost/x\r\n",
    "an address": b"Host: http://localhost\r\n",
    "credentials": b"Host: user@localhost\r\n",
    "a query": b"Host: localhost?x\r\n",
    "a fragment": b"Host: localhost#x\r\n",
    "a backslash": b"Host: localhost\\@evil.example\r\n",
    "an escape": b"Host: local%68ost\r\n",
    "no ASCII": "Host: löcalhost\r\n".encode(),
    "a port in hexadecimal": b"Host: localhost:0x1f\r\n",
    "a port beyond all": b"Host: localhost:99999\r\n",
    "a negative port": b"Host: localhost:-1\r\n",
    "a long port": b"Host: localhost:000080\r\n",
    "two ports": b"Host: localhost:80:80\r\n",
    "a name as port": b"Host: localhost:1.evil.example\r\n",
    "a colon alone": b"Host: :80\r\n",
    "a name after brackets": b"Host: [::1].evil.example\r\n",
    "a port without colon": b"Host: [::1]80\r\n",
    "brackets without end": b"Host: [::1\r\n",
    "no brackets": b"Host: ::1\r\n",
    "a name in brackets": b"Host: [localhost]\r\n",
    "IPv4 in brackets": b"Host: [127.0.0.1]\r\n",
    "a zone": b"Host: [fe80::1%25lo]\r\n",
    "a long name": b"Host: " + b"x" * 256 + b"\r\n",
}


@pytest.mark.parametrize("lines", BAD_HOSTS.values(), ids=BAD_HOSTS.keys())
async def test_a_host_that_is_missing_doubled_or_no_host_is_a_bad_request(
    server: Toy, lines: bytes
) -> None:
    answer = await answer_to(server, lines)
    assert (answer.status, answer.error["type"]) == (400, "invalid_request")
    assert "host" in answer.error["message"].lower()


@pytest.mark.parametrize("lines", [b"", b"Host: localhost/x\r\n"])
async def test_the_socket_of_the_owner_wants_a_valid_host_too(tmp_path: Path, lines: bytes) -> None:
    path = tmp_path / "serve.sock"
    async with toy(tmp_path, unix_socket=str(path)) as server:
        connection = await server.opened.connect_unix(path)
        await connection.send(b"GET /toy/page HTTP/1.1\r\n" + lines + b"\r\n")
        assert (await connection.answer()).status == 400
        assert (await connection.ask("GET", "/toy/page")).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:", 200),  # a port may be empty (RFC 3986, 3.2.3)
        ("localhost.", 200),
        ("localhost:00080", 200),
        ("127.0.0.1.", 200),
        ("[0:0::1]:80", 200),
        ("localhost.evil", 403),
        ("evil.localhost.example", 403),
        ("127.0.0.1.nip.io", 403),
        ("localhost.evil.:80", 403),
        ("0.0.0.0", 403),
        ("127.1", 403),
        ("2130706433", 403),
        ("[::ffff:1.2.3.4]", 403),
    ],
)
async def test_only_a_name_of_this_machine_passes_on_loopback(
    server: Toy, host: str, status: int
) -> None:
    answer = await answer_to(server, f"Host: {host}\r\n".encode())
    assert answer.status == status


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost/toy/page", "localhost", 200),
        ("HTTP://LOCALHOST:8765/toy/page?limit=2", "localhost", 200),
        # The host of the target counts, and `Host` does not.
        ("http://evil.example/toy/page", "localhost", 403),
        ("http://localhost/toy/page", "evil.example", 200),
        ("http://user@localhost/toy/page", "localhost", 400),
        ("http:///toy/page", "localhost", 400),
        ("http://localhost:x/toy/page", "localhost", 400),
        ("ftp://localhost/toy/page", "localhost", 400),
        # Both are wanted, and valid (RFC 9112, 3.2).
        ("http://localhost/toy/page", "local/host", 400),
        ("http://localhost/toy/page", None, 400),
    ],
)
async def test_the_host_of_an_address_as_target_takes_the_place_of_host(
    server: Toy, target: str, host: str | None, status: int
) -> None:
    line = "" if host is None else f"Host: {host}\r\n"
    answer = await answer_to(server, f"GET {target} HTTP/1.1\r\n{line}".encode())
    assert answer.status == status


async def test_an_origin_is_compared_with_the_host_of_the_target(server: Toy) -> None:
    own = b"Host: localhost\r\nOrigin: http://localhost\r\n"
    for target, status in ((b"http://localhost", 200), (b"http://x.localhost", 403)):
        answer = await answer_to(server, b"GET %b/toy/page HTTP/1.1\r\n%b" % (target, own))
        assert answer.status == status


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (b"", 200),  # a health check, such as HAProxy's; no browser leaves `Host` out
        (b"Host: localhost\r\n", 200),
        (b"Host: evil.example\r\n", 403),
        (b"Host: local/host\r\n", 400),
        (b"Origin: http://evil.example\r\n", 403),
        (b"Sec-Fetch-Site: cross-site\r\n", 403),
    ],
)
async def test_http_1_0_may_leave_its_host_out_and_pass_no_check_by_it(
    server: Toy, lines: bytes, status: int
) -> None:
    # The second time, the guard knows the first one's.
    for _ in range(2):
        answer = await answer_to(server, b"GET /toy/page HTTP/1.0\r\n" + lines)
        assert (answer.status, answer.headers["connection"]) == (status, "close")
    assert (await answer_to(server, b"")).status == 400


async def test_the_check_of_a_proxy_without_settings_is_answered(server: Toy) -> None:
    """HAProxy's own: anything but 2xx and 3xx would mean that the server is down."""
    assert (await answer_to(server, b"OPTIONS / HTTP/1.0\r\n")).status == 204


@pytest.mark.parametrize(
    ("version", "status"),
    [
        ("1.1", 200),
        ("1.2", 200),
        ("1.9", 200),
        ("1.10", 400),
        ("1.", 400),
        ("11.1", 400),
        ("0.9", 400),
        ("2.0", 505),
        ("3.0", 505),
        ("9.1", 505),
    ],
)
async def test_every_minor_version_of_http_1_is_answered_and_no_other_version(
    server: Toy, version: str, status: int
) -> None:
    line = f"GET /toy/page HTTP/{version}\r\nHost: localhost\r\n"
    answer = await answer_to(server, line.encode())
    assert answer.status == status
    assert answer.headers.get("connection") == (None if status == 200 else "close")


async def test_a_request_of_a_later_minor_version_may_come_in_chunks(server: Toy) -> None:
    connection = await server.connect()
    head = b"PUT /toy/raw HTTP/1.2\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    await connection.send((head + b"3\r\nabc\r\n0\r\n\r\n") * 2)
    assert [(await connection.answer()).json for _ in range(2)] == [{"bytes": 3}] * 2


@pytest.mark.parametrize("cut", [0, 5, 20])
async def test_the_preface_of_http_2_is_told_which_version_there_is(server: Toy, cut: int) -> None:
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    connection = await server.connect()
    await connection.send(preface[:cut])
    await connection.send(preface[cut:])
    answer = await connection.answer()
    assert (answer.status, answer.error["type"]) == (505, "http_version_not_supported")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "unheard-of", ""])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/toy/page"),
        ("HEAD", "/toy/page"),
        ("GET", "/toy/follow"),
        ("DELETE", "/toy/notes/x"),
    ],
)
async def test_what_a_page_of_another_site_loads_is_refused(
    server: Toy, site: str, method: str, path: str
) -> None:
    connection = await server.connect()
    for more in ({}, NAVIGATION):
        await connection.send(request(method, path, headers={"Sec-Fetch-Site": site, **more}))
        assert (await connection.answer(method)).status == 403


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_what_a_page_of_this_server_or_a_person_asks_for_is_answered(
    server: Toy, site: str
) -> None:
    assert (await server.ask("GET", "/toy/page", headers={"Sec-Fetch-Site": site})).status == 200


async def test_another_site_may_look_at_what_is_public_and_change_nothing_there(
    server: Toy,
) -> None:
    assert (await server.ask("GET", "/open", headers=CROSS)).status == 200
    assert (await server.ask("POST", "/open", headers=CROSS)).status == 403


async def test_a_link_of_another_site_leads_to_a_page_for_people_alone(server: Toy) -> None:
    link = {**CROSS, **NAVIGATION}
    assert (await server.ask("GET", "/page", headers=link)).status == 200
    framed = {**link, "Sec-Fetch-Dest": "iframe"}
    for headers in (CROSS, framed):
        assert (await server.ask("GET", "/page", headers=headers)).status == 403


async def test_pages_that_a_name_of_this_server_shows_are_no_other_site(tmp_path: Path) -> None:
    async with toy(tmp_path, allow_hosts=("batten.example",)) as server:
        own = {"Host": "batten.example", "Origin": "https://batten.example"}
        own["Sec-Fetch-Site"] = "same-origin"
        assert (await server.ask("GET", "/toy/page", headers=own)).status == 200
