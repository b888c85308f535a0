"""The tools that speak HTTP, against a real server on loopback."""

import asyncio
import gzip
import socket
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.contract.errors import BattenError, CallerError, ProviderError, Refused
from batten.contract.facts import (
    ArtifactCreated,
    ErrorToolUnavailable,
    ToolHttpRequested,
    ToolWebSearchResponse,
)
from batten.redact.redactor import Redactor
from batten.tools.contract import ToolOutput
from batten.tools.outbound import Outbound, check_url
from batten.tools.readable import MOST_HTML, readable
from batten.tools.web import MOST_CHARACTERS, HttpRequest, WebFetch, WebSearch, web_tools
from tests.models.test_http import certificate
from tests.ports import free_port
from tests.tools.recording import RecordingContext
from tests.tools.web_server import WebServer, web_server

LOOPBACK = ["127.0.0.0/8"]
SECRET = "s3kr1t-Value-99"


@pytest.fixture
async def server() -> AsyncIterator[WebServer]:
    async with asyncio.timeout(20), web_server() as running:
        yield running


async def failure(url: str, out: Outbound | None = None, **more: Any) -> BattenError:
    with pytest.raises(BattenError) as raised:
        await (out or Outbound()).send("GET", url, **more)
    return raised.value


async def test_loopback_is_refused_at_connect_time_and_nothing_arrives(server: WebServer) -> None:
    error = await failure(server.page("/", b"hello"))
    assert isinstance(error, Refused)
    assert error.code == "address_refused"
    assert server.requests == []


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001", "[::1]", "0"])
async def test_every_spelling_of_loopback_is_refused(server: WebServer, host: str) -> None:
    error = await failure(f"http://{host}:{server.port}/")
    assert error.code in ("address_refused", "unreachable")
    assert server.requests == []


async def test_a_name_is_checked_on_the_address_it_is_connected_to(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(["93.184.216.34", "127.0.0.1"])
    asked: list[str] = []

    async def rebinding(host: str, port: int, **_: object) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (next(answers), port))]

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "getaddrinfo", rebinding)
    next(answers)
    error = await failure(f"http://rebound.example:{server.port}/")
    assert error.code == "address_refused"
    assert asked == ["rebound.example"]
    assert server.requests == []


async def test_an_address_that_hangs_or_refuses_does_not_hold_up_the_others_of_its_name(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = server.page("/", b"hello").replace("127.0.0.1", "many.example")
    addresses = ["127.0.0.2", "127.0.0.3", "127.0.0.1"]

    async def resolve(host: str, port: int, **_: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in addresses]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with socket.socket() as full, socket.socket() as first:
        full.bind(("127.0.0.2", server.port))
        full.listen(0)  # its queue has room for one: others get no answer
        first.connect(full.getsockname())
        answer = await Outbound(LOOPBACK).send("GET", url)
        assert answer.body == b"hello"
        addresses.pop()
        error = await failure(url, Outbound(LOOPBACK), deadline_s=0.5)
        assert error.code == "timeout"


async def test_a_certificate_that_is_not_trusted_is_told(tmp_path: Path) -> None:
    _, context = certificate(tmp_path, "127.0.0.1")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with asyncio.timeout(20), listener:
        port = listener.sockets[0].getsockname()[1]
        error = await failure(f"https://127.0.0.1:{port}/", Outbound(LOOPBACK))
    assert str(error).startswith(f"could not connect to 127.0.0.1:{port}: its certificate is not")


async def test_a_redirect_to_a_forbidden_address_is_refused(server: WebServer) -> None:
    hidden = server.page("/hidden", b"private").replace("127.0.0.1", "127.0.0.2")
    error = await failure(server.redirect("/", hidden), Outbound(["127.0.0.1"]))
    assert error.code == "address_refused"
    assert len(server.requests) == 1


async def test_redirects_are_followed_and_counted(server: WebServer) -> None:
    out = Outbound(LOOPBACK)
    server.page("/end", b"here")
    answer = await out.send("GET", server.redirect("/start", "/end"))
    assert (answer.status, answer.body, answer.url) == (200, b"here", server.url + "/end")
    error = await failure(server.redirect("/round", "/round"), out)
    assert error.code == "too_many_redirects"
    error = await failure(server.redirect("/away", "file:///etc/passwd"), out)
    assert error.code == "invalid_url"


async def test_a_redirect_elsewhere_does_not_carry_headers(server: WebServer) -> None:
    server.page("/end", b"here")
    elsewhere = f"http://localhost:{server.port}/end"
    start = server.redirect("/start", elsewhere)
    await Outbound(LOOPBACK).send(
        "GET", start, headers={"Authorization": "Bearer x", "X-Api-Key": "k", "X-Plain": "y"}
    )
    first, second = server.requests
    assert b"Authorization" in first
    assert b"X-Api-Key" in first
    assert b"Authorization" not in second
    assert b"X-Api-Key" not in second
    assert b"X-Plain" not in second


async def test_a_redirect_elsewhere_does_not_carry_a_body(server: WebServer) -> None:
    elsewhere = f"http://localhost:{server.port}/end"
    start = server.redirect("/start", elsewhere, "307 Temporary Redirect")
    with pytest.raises(Refused, match="does not follow") as refused:
        await Outbound(LOOPBACK).send("POST", start, body=b"data")
    assert refused.value.code == "redirect_refused"
    assert len(server.requests) == 1


async def test_each_redirect_is_checked_before_it_is_followed(server: WebServer) -> None:
    server.page("/end", b"here")
    start = server.redirect("/start", server.redirect("/middle", "/end"))
    checked: list[str] = []

    def check(url: str) -> None:
        checked.append(url)
        if url.endswith("/end"):
            raise Refused("not there", code="redirect_refused")

    with pytest.raises(Refused, match="not there"):
        await Outbound(LOOPBACK).send("GET", start, check_redirect=check)
    assert checked == [f"{server.url}/middle", f"{server.url}/end"]
    assert len(server.requests) == 2


async def test_a_post_that_is_redirected_becomes_a_get(server: WebServer) -> None:
    server.page("/end", b"here")
    start = server.redirect("/start", "/end", "303 See Other")
    await Outbound(LOOPBACK).send("POST", start, body=b"data")
    assert server.requests[0].endswith(b"data")
    assert server.requests[1].startswith(b"GET /end ")


@pytest.mark.parametrize(
    "url", ["ftp://x/", "file:///etc/passwd", "http://", "http://u:p@host/", "http://[x", "x"]
)
def test_addresses_that_are_no_web_addresses_are_refused(url: str) -> None:
    with pytest.raises(CallerError):
        check_url(url)


@pytest.mark.parametrize("name", ["Host", "content-length", "Transfer-Encoding"])
async def test_headers_of_the_connection_cannot_be_set(name: str) -> None:
    error = await failure("http://example.org/", headers={name: "1"})
    assert error.code == "invalid_header"


async def test_a_header_cannot_hold_a_second_one() -> None:
    error = await failure("http://example.org/", headers={"X": "a\r\nHost: b"})
    assert error.code == "invalid_header"


async def test_a_long_body_is_cut_and_a_compressed_one_cannot_burst(server: WebServer) -> None:
    out = Outbound(LOOPBACK)
    answer = await out.send("GET", server.page("/long", b"x" * 5000), max_bytes=1000)
    assert (len(answer.body), answer.truncated) == (1000, True)
    packed = gzip.compress(b"\0" * 10_000_000)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    server.answers["/bomb"] = head + packed
    answer = await out.send("GET", server.url + "/bomb", max_bytes=1000)
    assert (len(answer.body), answer.truncated) == (1000, True)


async def test_a_compressed_body_is_read(server: WebServer) -> None:
    packed = gzip.compress(b"hello " * 100)
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed)
    server.answers["/"] = head + packed
    answer = await Outbound(LOOPBACK).send("GET", server.url + "/")
    assert answer.body == b"hello " * 100


async def test_a_server_that_hangs_is_given_up_at_the_deadline(server: WebServer) -> None:
    error = await failure(server.url + "/hang", Outbound(LOOPBACK), deadline_s=0.2)
    assert isinstance(error, ProviderError)
    assert error.code == "timeout"


@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Le"])
async def test_a_broken_answer_is_a_typed_error(server: WebServer, answer: bytes) -> None:
    server.answers["/"] = answer
    assert (await failure(server.url + "/", Outbound(LOOPBACK))).code == "unreachable"


async def test_a_server_that_answers_before_it_is_asked_is_heard() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 503 Overloaded\r\nContent-Length: 0\r\n\r\n")
        await reader.read(1)
        writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(20), listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        answer = await Outbound(LOOPBACK).send("GET", url)
    assert (answer.status, answer.reason) == (503, "Overloaded")


async def test_a_closed_port_and_an_unknown_name_are_unreachable(server: WebServer) -> None:
    port = free_port()
    error = await failure(f"http://127.0.0.1:{port}/", Outbound(LOOPBACK))
    assert error.code == "unreachable"
    assert (await failure("http://nowhere.invalid/")).code == "unreachable"


async def fetch(url: str, context: RecordingContext | None = None) -> ToolOutput:
    return await WebFetch(LOOPBACK).run({"url": url}, context or RecordingContext())


async def test_web_fetch_returns_the_text_of_a_page_and_keeps_both(server: WebServer) -> None:
    page = b"<html><head><style>p{}</style></head><body><h1>Hi</h1><p>a &amp; b</p></body></html>"
    context = RecordingContext()
    output = await fetch(server.page("/", page), context)
    assert output.text == "Hi\na & b"
    assert not output.is_error
    assert context.types == [
        "tool.web_fetch.requested",
        "artifact.created",
        "artifact.created",
        "tool.web_fetch.response",
    ]
    assert list(context.bodies.values()) == [page, b"Hi\na & b"]


async def test_web_fetch_says_what_went_wrong_in_the_known_words(server: WebServer) -> None:
    picture = server.page("/p", b"\x89PNG", "image/png")
    gone = server.page("/gone", b"", status="410 Gone")
    told = {url: (await fetch(url)).text for url in (picture, gone, "ftp://x")}
    assert told == {
        picture: "Error: Non-text content type: image/png",
        gone: "Error: HTTP 410 Gone",
        "ftp://x": "Error: URL must start with http:// or https://",
    }


async def test_web_fetch_cuts_long_pages(server: WebServer) -> None:
    output = await fetch(server.page("/", b"x" * 60_000, "text/plain"))
    assert len(output.text) == 50_000


async def test_web_fetch_refuses_what_is_not_public_by_default(server: WebServer) -> None:
    context = RecordingContext()
    url = server.page("/", b"internal")
    output = await WebFetch().run({"url": url}, context)
    assert output.error_kind == "address_refused"
    assert context.types == []  # nothing was sent


async def test_nothing_is_requested_of_a_server_that_does_not_answer() -> None:
    context = RecordingContext()
    closed = "http://127.0.0.1:1/"
    for tool in (WebFetch(["127.0.0.1"]), HttpRequest(["127.0.0.1"]), WebSearch(closed)):
        output = await tool.run({"url": closed, "query": "x"}, context)
        assert output.error_kind == "unreachable"
    assert context.types == []


async def test_a_secret_in_a_page_is_in_no_artifact_and_not_told(server: WebServer) -> None:
    context = RecordingContext(Redactor([SECRET]))
    output = await fetch(server.page("/", f"<p>it is {SECRET}</p>".encode()), context)
    assert output.text == "it is <redacted>"
    assert not any(SECRET.encode() in body for body in context.bodies.values())


@pytest.mark.parametrize("room", [3, 8])
async def test_a_secret_is_not_left_in_half_where_a_body_is_cut(
    server: WebServer, room: int
) -> None:
    context = RecordingContext(Redactor([SECRET]))
    page = "x " * (MOST_CHARACTERS // 2 - room) + SECRET
    url = server.page("/", page.encode(), "text/plain")
    output = await HttpRequest(LOOPBACK).run({"url": url}, context)
    assert SECRET[:4] not in output.text


async def test_a_secret_is_not_left_in_half_where_an_excerpt_is_cut(server: WebServer) -> None:
    hits = [{"title": "T", "url": "http://x/", "content": "x " * 248 + SECRET}]
    url = server.page("/", msgspec.json.encode({"results": hits}), "application/json")
    context = RecordingContext(Redactor([SECRET]))
    output = await WebSearch(url).run({"query": "q"}, context)
    assert SECRET[:4] not in output.text
    assert SECRET[:4] not in str(context.facts)


async def test_a_fetched_body_is_kept_with_how_it_came(server: WebServer) -> None:
    context = RecordingContext()
    url = server.page("/api", b"{}", "application/json")
    await HttpRequest(LOOPBACK).run({"url": url, "headers": {"X-Key": SECRET}}, context)
    created = context.facts[1]
    assert isinstance(created, ArtifactCreated)
    assert isinstance(created.metadata, dict)
    assert created.metadata["response_header_keys"]
    assert isinstance(created.metadata["duration_ms"], int)
    known = {"url": url, "method": "GET", "status": 200, "truncated": False}
    assert created.metadata.items() >= {**known, "request_header_keys": ["X-Key"]}.items()


async def test_results_of_a_search_are_kept_with_what_was_asked(server: WebServer) -> None:
    hits = [{"title": "T", "url": "http://x/", "content": "c", "score": 1}]
    url = server.page("/", msgspec.json.encode({"results": hits}), "application/json")
    context = RecordingContext()
    await WebSearch(url).run({"query": "q"}, context)
    created = context.facts[1]
    assert isinstance(created, ArtifactCreated)
    assert isinstance(created.metadata, dict)
    assert created.metadata.pop("fetched_at")
    assert created.metadata == {"query": "q", "provider": "127.0.0.1", "result_count": 1}
    assert msgspec.json.decode(context.bodies["art_1"]) == [
        {"title": "T", "url": "http://x/", "snippet": "c"}
    ]


async def test_http_request_sends_what_it_is_told_and_records_only_header_names(
    server: WebServer,
) -> None:
    context = RecordingContext()
    url = server.page("/api", b'{"ok":true}', "application/json", "201 Created")
    output = await HttpRequest(LOOPBACK).run(
        {"method": "POST", "url": url, "headers": {"X-Key": SECRET}, "body": "héllo"}, context
    )
    assert output.text == 'HTTP 201 Created\ncontent-type: application/json\n\n{"ok":true}'
    assert server.requests[0].startswith(b"POST /api HTTP/1.1\r\n")
    assert server.requests[0].endswith("héllo".encode())
    assert context.facts[0] == ToolHttpRequested("call_1", "POST", url, ["X-Key"])
    assert context.types == ["tool.http.requested", "artifact.created", "tool.http.response"]
    assert SECRET.encode() not in msgspec.json.encode(context.facts)


async def test_the_request_is_recorded_before_it_is_sent(server: WebServer) -> None:
    context = RecordingContext()
    task = asyncio.ensure_future(HttpRequest(LOOPBACK).run({"url": server.url + "/hang"}, context))
    await server.asked.wait()
    assert context.durable == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_web_search_without_a_backend_says_so() -> None:
    context = RecordingContext()
    output = await WebSearch(None).run({"query": "x"}, context)
    assert output.error_kind == "tool_unavailable"
    assert isinstance(context.facts[0], ErrorToolUnavailable)
    assert context.facts[0].reason == "no_provider_configured"


async def test_web_search_asks_the_configured_backend(server: WebServer) -> None:
    hits = [
        {"title": f"T{i}", "url": f"http://x/{i}", "content": "c", "score": i} for i in range(12)
    ]
    url = server.page("/search", msgspec.json.encode({"results": hits}), "application/json")
    context = RecordingContext()
    output = await WebSearch(url + "?lang=en").run({"query": "a b"}, context)
    assert output.text.startswith("T0\nhttp://x/0\nc\n\nT1\n")
    assert server.requests[0].startswith(b"GET /search?lang=en&q=a+b&format=json ")
    response = context.facts[-1]
    assert isinstance(response, ToolWebSearchResponse)
    assert isinstance(response.hits, list)
    assert response.hits[0] == {"title": "T0", "url": "http://x/0", "snippet": "c"}
    assert len(response.hits) == 10


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"results": [1]}'])
async def test_a_search_backend_that_answers_something_else_is_a_failure(
    server: WebServer, body: bytes
) -> None:
    url = server.page("/", body, "application/json")
    output = await WebSearch(url).run({"query": "x"}, RecordingContext())
    assert output.error_kind == "bad_answer"


def test_the_environment_says_where_to_search_and_what_to_allow() -> None:
    tools = web_tools(
        {"BATTEN_HTTP_ALLOW": "localhost,10.0.0.0/8", "BATTEN_SEARCH_URL": "http://s/"}
    )
    assert [tool.spec.name for tool in tools] == ["web_fetch", "http_request", "web_search"]


def test_text_of_a_page_has_no_scripts_and_survives_broken_html() -> None:
    page = "<title>T</title><script>var a='<p>'</script><ul><li>one<li>two</ul><p>x<br>y<"
    assert readable(page) == "T\n- one\n- two\nx\ny<"


def test_text_between_tags_and_comments_is_kept_as_it_reads() -> None:
    page = (
        "<HEAD><title>no</title><BODY>1 < 2<!-- <p>no --> &lt;b&gt;<STYLE>p</STYLE><td>c<br/>d</x"
    )
    assert readable(page) == "1 < 2 <b> c\nd"


@pytest.mark.parametrize(
    "piece",
    ["<a ", "<", "<!", "<!--x", "<?", "</a ", "&#", "&", "<svg></head>", "<script></", "a='"],
)
def test_a_page_of_one_piece_again_and_again_is_read(piece: str) -> None:
    whole = readable("<p>first</p>" + piece * (10 * MOST_HTML // len(piece)))
    assert whole.startswith("first")
    assert len(whole) <= MOST_HTML


def test_a_character_number_without_end_is_shown_as_it_is() -> None:
    assert readable("&#" + "1" * 5000 + ";") == "&#" + "1" * 5000 + ";"


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("iso-8859-1", b"\xe9", "é"),
        ('"Windows-1252"', b"\x80", "€"),
        ("utf-16", "é".encode("utf-16"), "é"),
        ("utf-16", b"ab", "ab"),
        ("punycode", b"a-z9", "a-z9"),
        ("us-ascii", b"a\xe9", "a\ufffd"),
        ("", b"\xc3\xa9", "é"),
    ],
)
async def test_only_the_character_sets_of_the_web_are_decoded(
    server: WebServer, charset: str, body: bytes, text: str
) -> None:
    assert (await fetch(server.page("/", body, f"text/plain; charset={charset}"))).text == text


async def test_the_loop_goes_on_while_a_large_body_is_cleaned(server: WebServer) -> None:
    looping = threading.get_ident()
    threads: list[int] = []

    class Watching(RecordingContext):
        def redact(self, text: str) -> str:
            if len(text) > 1000:
                threads.append(threading.get_ident())
            return super().redact(text)

    url = server.page("/", b"<p>token=a " * 20_000)
    output = await fetch(url, Watching())
    assert not output.is_error
    assert threads
    assert looping not in threads


async def test_a_secret_where_a_page_is_cut_is_not_left_in_half(server: WebServer) -> None:
    context = RecordingContext(Redactor([SECRET]))
    page = "<b></b>" * ((MOST_HTML - 5) // 7) + "<p>" + SECRET + "</p>" * 10
    output = await fetch(server.page("/", page.encode()), context)
    assert SECRET[:2] not in output.text
    assert not any(SECRET[:4].encode() in body for body in context.bodies.values())


@pytest.mark.parametrize("keep_s", [None, 60.0])
async def test_connections_are_kept_on_request_and_replaced_once_they_are_closed(
    keep_s: float | None,
) -> None:
    connections: list[asyncio.StreamWriter] = []
    closed = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        except asyncio.IncompleteReadError:
            closed.set()
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with asyncio.timeout(20), listener:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/"
        out = Outbound(LOOPBACK, keep_s=keep_s)
        for _ in range(3):
            assert (await out.send("GET", url)).body == b"hi"
        assert len(connections) == (3 if keep_s is None else 1)
        connections[-1].close()
        await connections[-1].wait_closed()
        assert (await out.send("GET", url)).body == b"hi"
        assert len(connections) == (4 if keep_s is None else 2)
        closed.clear()
        await out.aclose()
        if keep_s is not None:
            await closed.wait()
