import asyncio
import ssl
import time
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batten.contract.errors import CallerError, ProviderError
from batten.models.address import parse_address, proxy_for
from batten.models.connection import MAX_HEAD
from batten.models.contract import Done, ModelEvent
from batten.models.http import HttpClient, Timeouts
from batten.models.registry import open_model
from tests.examples import examples
from tests.models.calls import FAST, ask, converse, done, failure, gather
from tests.models.server import Fault, ModelServer, Reply, Step, answer, cut, head, refusal
from tests.models.wire import anthropic_turn

NAME = "anthropic/claude-sonnet-4-5"
TURN = anthropic_turn("Hello, world", [("t1", "read", {"path": "x"})])
IMPATIENT = Timeouts(connect_s=5, first_byte_s=0.05, idle_s=0.05)


async def test_a_kept_connection_serves_the_next_call() -> None:
    async with ModelServer([answer(TURN)]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        for _ in range(3):
            assert done(await gather(model.stream(ask()))).stop_reason == "tool_use"
        await model.aclose()
        assert [request.connection for request in server.requests] == [0, 0, 0]


async def test_a_reader_that_stops_at_done_keeps_the_connection_too() -> None:
    async with ModelServer([answer(TURN)]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        for _ in range(2):
            stream = model.stream(ask())
            async for event in stream:
                if isinstance(event, Done):
                    break
            await stream.aclose()  # type: ignore[attr-defined]  # a generator, as every adapter's
        await model.aclose()
        assert server.connections == 1


async def test_a_kept_connection_the_server_closed_is_replaced_unnoticed() -> None:
    for fault in (Fault.CLOSE, Fault.RESET):
        async with ModelServer([answer(TURN), [fault], answer(TURN)]) as server:
            model = open_model(NAME, server.environ(), timeouts=FAST)
            await gather(model.stream(ask()))
            assert done(await gather(model.stream(ask()))).stop_reason == "tool_use"
            await model.aclose()
            assert [request.connection for request in server.requests] == [0, 0, 1]


async def test_a_fresh_connection_closed_unanswered_is_an_error_at_once() -> None:
    async with ModelServer([[Fault.CLOSE]]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        with pytest.raises(ProviderError) as raised:
            await gather(model.stream(ask()))
        assert (raised.value.code, raised.value.retriable) == ("model_unreachable", True)
        assert len(server.requests) == 1


async def test_leaving_a_stream_early_ends_the_call() -> None:
    begun = TURN[: TURN.index(b"content_block_stop")].rsplit(b"event", 1)[0]
    async with ModelServer([cut(begun, Fault.STALL)]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        stream = model.stream(ask())
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]  # a generator, as every adapter's
        async with asyncio.timeout(5):
            await server.client_gone.wait()
        await model.aclose()


async def test_cancelling_a_call_ends_it() -> None:
    async with ModelServer([[Fault.STALL]]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        call = asyncio.create_task(gather(model.stream(ask())))
        await server.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(5):
            await server.client_gone.wait()


@pytest.mark.parametrize(
    "reply",
    [
        [Fault.STALL],
        [b"HTTP/1.1 200 OK\r\ncontent-ty", Fault.STALL],
        cut(TURN[:40], Fault.STALL),
        [head(content_length="100"), Fault.STALL],
        [head(500, content_length="100"), b"half an err", Fault.STALL],
    ],
)
async def test_silence_is_a_timeout_wherever_it_falls(reply: Reply) -> None:
    error = await failure(NAME, [reply], timeouts=IMPATIENT)
    assert (error.code, error.retriable) == ("model_timeout", True)


async def test_patience_counts_from_the_last_piece_not_from_the_start() -> None:
    pieces = [TURN[start : start + 8] for start in range(0, len(TURN), 8)]
    start: list[Step] = [head(content_length=str(len(TURN)))]
    patient = Timeouts(connect_s=5, first_byte_s=5, idle_s=2)
    events, _ = await converse(NAME, [[*start, *pieces]], timeouts=patient)
    assert done(events).stop_reason == "tool_use"


async def flooded(flood: bytes, timeouts: Timeouts) -> ProviderError:
    """The error of a call whose server sends the same again until the client goes away."""

    gone = asyncio.Event()

    async def flooding(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head(content_type="text/event-stream", connection="close"))
        try:
            while True:
                writer.write(flood)
                await writer.drain()
                await asyncio.sleep(0.001)
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
            gone.set()

    server = await asyncio.start_server(flooding, "127.0.0.1", 0)
    async with asyncio.timeout(20), server:
        port = server.sockets[0].getsockname()[1]
        environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}", "ANTHROPIC_API_KEY": "k"}
        model = open_model(NAME, environ, timeouts=timeouts)
        with pytest.raises(ProviderError) as raised:
            await gather(model.stream(ask()))
        await model.aclose()
        await gone.wait()
    return raised.value


@pytest.mark.parametrize(
    "flood", [b": keep\n\n", b'event: ping\ndata: {"type": "ping"}\n\n', b": x\n\n" * 50_000]
)
async def test_a_server_that_only_keeps_the_connection_alive_is_silent(flood: bytes) -> None:
    error = await flooded(flood, Timeouts(connect_s=5, first_byte_s=5, idle_s=0.1))
    assert (error.code, error.retriable) == ("model_timeout", True)
    assert "sent nothing more" in error.message


async def test_an_answer_that_never_ends_is_cut_off() -> None:
    endless = Timeouts(connect_s=5, first_byte_s=5, idle_s=5, total_s=0.1)
    error = await flooded(b'data: {"type": "unheard_of"}\n\n', endless)
    assert error.code == "model_timeout"
    assert "did not come to an end" in error.message


@pytest.mark.parametrize("trailer", [b"x: " + b"y" * 2**20, b"x: y\r\n" * 2**18])
async def test_trailers_without_end_are_a_protocol_error(trailer: bytes) -> None:
    start, body, _ = cut(TURN[:40], Fault.STALL)
    error = await failure(NAME, [[start, body, b"0\r\n" + trailer, Fault.STALL]])
    assert error.code == "model_protocol"


async def test_short_trailers_are_passed_over() -> None:
    start, body, _ = cut(TURN, Fault.STALL)
    events, _ = await converse(NAME, [[start, body, b"0\r\nx: y\r\n\r\n"]])
    assert done(events).stop_reason == "tool_use"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        ([b"this is not HTTP at all\r\n\r\n", Fault.CLOSE], "model_protocol"),
        ([b"\x16\x03\x01\x02\x00\x01", Fault.CLOSE], "model_protocol"),
        ([head(content_length="many"), Fault.CLOSE], "model_protocol"),
        ([head(transfer_encoding="chunked"), b"zz\r\nhello", Fault.CLOSE], "model_protocol"),
        ([head(x="y" * (MAX_HEAD + 10)), Fault.CLOSE], "model_protocol"),
        ([head(content_length=str(len(TURN) - 50)) + TURN, Fault.CLOSE], "model_protocol"),
        ([head(content_length="50") + TURN[:50], Fault.CLOSE], "model_protocol"),
        ([head(content_length=str(len(TURN))) + TURN[:50], Fault.CLOSE], "model_unreachable"),
        ([head(connection="close") + TURN[:50], Fault.CLOSE], "model_protocol"),
        ([head(101, upgrade="websocket", connection="upgrade"), Fault.CLOSE], "model_protocol"),
        ([head(204), Fault.CLOSE], "model_bad_request"),
        ([head(302, location="http://elsewhere/", content_length="0")], "model_protocol"),
    ],
)
async def test_broken_http_is_a_typed_error(reply: Reply, code: str) -> None:
    error = await failure(NAME, [reply])
    assert error.code == code


@pytest.mark.parametrize("name", [NAME, "ollama/qwen3"])
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (answer(b"<html>log in</html>", kind="text/html; charset=utf-8"), "is text/html, not a"),
        (
            [head(content_length="9", content_encoding="gzip"), b"\x1f\x8b\x08\0\0\0\0\0\0"],
            "is compressed (gzip), which was not asked for",
        ),
        ([head(content_length="0")], "the answer is empty"),
    ],
)
async def test_an_answer_that_is_no_stream_is_named_for_what_it_is(
    reply: Reply, words: str, name: str
) -> None:
    error = await failure(name, [reply])
    assert error.code == "model_protocol"
    assert words in error.message


async def test_a_body_that_ends_with_the_connection_is_whole_if_its_message_is() -> None:
    events, _ = await converse(NAME, [[head(connection="close") + TURN, Fault.CLOSE]])
    assert done(events).stop_reason == "tool_use"


async def test_a_longer_content_length_after_done_does_no_harm() -> None:
    reply: Reply = [head(content_length=str(len(TURN) + 9)) + TURN, Fault.STALL]
    events, _ = await converse(NAME, [reply])
    assert done(events).stop_reason == "tool_use"


async def test_an_interim_answer_is_passed_over() -> None:
    interim: list[Step] = [b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"]
    events, _ = await converse(NAME, [[*interim, *answer(TURN)]])
    assert done(events).stop_reason == "tool_use"


async def test_an_answer_smuggled_behind_another_is_not_taken() -> None:
    second = head(content_length="3") + b"bad"
    async with ModelServer([[*answer(TURN)[:-1], b"0\r\n\r\n" + second], answer(TURN)]) as server:
        model = open_model(NAME, server.environ(), timeouts=FAST)
        for _ in range(2):
            assert done(await gather(model.stream(ask()))).stop_reason == "tool_use"
        await model.aclose()


@pytest.mark.parametrize(
    ("status", "error", "code", "retriable"),
    [
        (400, {"type": "invalid_request_error", "message": "bad"}, "model_bad_request", False),
        (
            400,
            {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"},
            "context_overflow",
            False,
        ),
        (400, {"code": "context_length_exceeded", "message": "m"}, "context_overflow", False),
        (401, {"type": "authentication_error", "message": "key"}, "model_auth", False),
        (403, {"type": "permission_error", "message": "no"}, "model_auth", False),
        (402, {"message": "pay"}, "model_quota", False),
        (404, {"type": "not_found_error", "message": "model"}, "model_not_found", False),
        (413, {"type": "request_too_large", "message": "big"}, "context_overflow", False),
        (429, {"type": "rate_limit_error", "message": "slow"}, "model_rate_limited", True),
        (429, {"code": "insufficient_quota", "message": "no credit"}, "model_rate_limited", True),
        (429, {"type": "authentication_error", "message": "key"}, "model_rate_limited", True),
        (401, {"type": "overloaded_error", "message": "full"}, "model_auth", False),
        (401, {"type": "rate_limit_error", "message": "slow"}, "model_auth", False),
        (403, {"type": "api_error", "message": "oh"}, "model_auth", False),
        (403, {"status": "UNAVAILABLE", "message": "later"}, "model_auth", False),
        (500, {"type": "api_error", "message": "oh"}, "model_server_error", True),
        (502, "a string", "model_server_error", True),
        (503, {"status": "UNAVAILABLE", "message": "later"}, "model_overloaded", True),
        (529, {"type": "overloaded_error", "message": "full"}, "model_overloaded", True),
        (418, 7, "model_bad_request", False),
    ],
)
async def test_error_answers_have_a_code_and_say_whether_to_try_again(
    status: int, error: object, code: str, retriable: bool
) -> None:
    raised = await failure(NAME, [refusal(status, {"error": error})])
    assert (raised.code, raised.retriable, raised.status) == (code, retriable, status)


async def test_an_error_without_json_says_what_the_server_said() -> None:
    page = b"<html>Bad gateway</html>"
    raised = await failure(NAME, [[head(502, content_length=str(len(page))) + page]])
    assert "Bad gateway" in raised.message


async def test_retry_after_is_read_in_every_form() -> None:
    error = {"error": {"message": "slow"}}
    cases = [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after_ms": "1500"}, 1.5),
        ({"retry_after": "nonsense"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "-3"}, None),
    ]
    for headers, seconds in cases:
        raised = await failure(NAME, [refusal(429, error, **headers)])
        assert raised.retry_after_s == seconds
    later = formatdate(time.time() + 100, usegmt=True)
    raised = await failure(NAME, [refusal(429, error, retry_after=later)])
    assert raised.retry_after_s is not None
    assert 90 < raised.retry_after_s <= 100


async def test_a_delay_among_the_details_is_read() -> None:
    details = [{"@type": "x"}, {"@type": "RetryInfo", "retryDelay": "12.5s"}]
    error = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}}
    raised = await failure("google/gemini-2.5-pro", [refusal(429, error)])
    assert (raised.code, raised.retry_after_s) == ("model_rate_limited", 12.5)


async def test_nobody_listening_is_unreachable() -> None:
    async with ModelServer([answer(TURN)]) as server:
        port = server.port
    environ = {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}"}
    model = open_model(NAME, environ, timeouts=FAST)
    with pytest.raises(ProviderError) as raised:
        await gather(model.stream(ask()))
    assert (raised.value.code, raised.value.retriable) == ("model_unreachable", True)


async def test_a_key_that_would_break_the_headers_is_a_configuration_error() -> None:
    environ = {"ANTHROPIC_API_KEY": "a\r\nx-evil: 1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}
    model = open_model(NAME, environ, timeouts=FAST)
    with pytest.raises(CallerError) as raised:
        await gather(model.stream(ask()))
    assert raised.value.code == "config"


async def test_a_slow_reader_bounds_what_is_buffered_and_loses_nothing() -> None:
    body = b"x" * (8 * 1024 * 1024)
    reply: Reply = [head(content_length=str(len(body))), body]
    async with ModelServer([reply]) as server:
        client = HttpClient("test", {}, FAST)
        async with client.post(parse_address(server.url), {}, b"{}") as response:
            largest = size = 0
            async for chunk in response.chunks(5):
                for _ in range(20):
                    await asyncio.sleep(0)
                largest = max(largest, len(chunk))
                size += len(chunk)
        await client.aclose()
    assert size == len(body)
    assert largest < 2 * 1024 * 1024


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(1, 2000), max_size=12), st.booleans())
def test_however_the_connection_cuts_the_answer_the_events_are_the_same(
    cuts: list[int], chunked: bool
) -> None:
    plain: list[Step] = [head(content_length=str(len(TURN))) + TURN]
    reply = list(answer(TURN, piece=100)) if chunked else plain
    wire = b"".join(step for step in reply if isinstance(step, bytes))
    places = sorted({min(place, len(wire)) for place in cuts} | {0, len(wire)})
    pieces = [wire[a:b] for a, b in pairwise(places)]

    async def both() -> tuple[list[ModelEvent], list[ModelEvent]]:
        whole, _ = await converse(NAME, [answer(TURN)])
        cut_up, _ = await converse(NAME, [pieces])
        return whole, cut_up

    whole, cut_up = asyncio.run(both())
    assert cut_up == whole


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_a_damaged_byte_of_the_connection_is_a_provider_error_or_other_data(
    data: st.DataObject,
) -> None:
    wire = bytearray(b"".join(s for s in answer(TURN, piece=200) if isinstance(s, bytes)))
    wire[data.draw(st.integers(0, len(wire) - 1))] = data.draw(st.integers(0, 255))

    async def play() -> None:
        try:
            events, _ = await converse(NAME, [[bytes(wire), Fault.CLOSE]])
        except ProviderError:
            return
        done(events)

    asyncio.run(play())


def test_addresses_are_taken_apart() -> None:
    for text, expected in {
        "http://localhost": ("http", "localhost", 80, ""),
        "https://API.example.com/v1": ("https", "api.example.com", 443, "/v1"),
        "http://[::1]:8080/a/b?c=d": ("http", "::1", 8080, "/a/b?c=d"),
        "HTTP://h:65535/": ("http", "h", 65535, "/"),
    }.items():
        address = parse_address(text)
        assert (address.scheme, address.host, address.port, address.path) == expected
    assert parse_address("http://u:p@h:1").user == "u:p"
    assert parse_address("http://[::1]:8080").authority == "[::1]:8080"
    assert parse_address("https://h:443").authority == "h"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "ftp://x",
        "http://",
        "http://h:0",
        "http://h:99999",
        "http://h:x",
        "http://h\r\nx: y",
        "http://a b/",
        "http://bücher/",
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(CallerError, match="is not http://host") as raised:
        parse_address(text)
    assert raised.value.code == "config"


def test_the_environment_chooses_the_proxy() -> None:
    target = parse_address("https://api.example.com/v1")
    environ = {"HTTPS_PROXY": "http://proxy:3128", "http_proxy": "other:80"}
    proxy = proxy_for(target, environ)
    assert proxy is not None
    assert (proxy.host, proxy.port) == ("proxy", 3128)
    plain = proxy_for(parse_address("http://api.example.com"), environ)
    assert plain is not None
    assert plain.host == "other"
    assert proxy_for(parse_address("https://localhost"), environ) is None
    for exempt in ("*", "example.com", ".example.com", "x, api.example.com:443", "*.example.com"):
        assert proxy_for(target, {**environ, "NO_PROXY": exempt}) is None
    for other in ("ample.com", "api.example.com:80", "10.0.0.0/8", "nonsense/8"):
        assert proxy_for(target, {**environ, "NO_PROXY": other}) is not None
    inner = parse_address("https://10.1.2.3")
    assert proxy_for(inner, {**environ, "no_proxy": "10.0.0.0/8"}) is None
    with pytest.raises(CallerError, match="HTTPS_PROXY"):
        proxy_for(target, {"HTTPS_PROXY": "https://proxy"})


async def test_a_plain_call_through_a_proxy_names_the_whole_address() -> None:
    async with ModelServer([answer(TURN)]) as proxy:
        environ = {
            "HTTP_PROXY": f"http://me:p%40ss@127.0.0.1:{proxy.port}",
            "ANTHROPIC_BASE_URL": "http://models.invalid:8080",
        }
        model = open_model(NAME, environ, timeouts=FAST)
        events = await gather(model.stream(ask()))
        await model.aclose()
    assert done(events).stop_reason == "tool_use"
    request = proxy.requests[0]
    assert request.line == "POST http://models.invalid:8080/v1/messages HTTP/1.1"
    assert request.headers["proxy-authorization"] == "Basic bWU6cEBzcw=="


async def test_a_proxy_that_refuses_the_tunnel_is_unreachable() -> None:
    async with ModelServer([refusal(407, {})]) as proxy:
        environ = {
            "HTTPS_PROXY": f"http://127.0.0.1:{proxy.port}",
            "ANTHROPIC_BASE_URL": "https://models.invalid",
        }
        model = open_model(NAME, environ, timeouts=FAST)
        with pytest.raises(ProviderError) as raised:
            await gather(model.stream(ask()))
    assert (raised.value.code, raised.value.status) == ("model_unreachable", 407)
    assert proxy.requests[0].line == "CONNECT models.invalid:443 HTTP/1.1"


def certificate(folder: Path, host: str) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for `host`, as a PEM file and as a server's context."""
    import datetime

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "cert.pem", folder / "key.pem"
    public.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    return public, context


async def test_tls_trusts_what_the_environment_names_and_nothing_else(tmp_path: Path) -> None:
    public, context = certificate(tmp_path, "localhost")
    async with ModelServer([answer(TURN)], context=context) as server:
        base = f"https://localhost:{server.port}"
        trusted = {"ANTHROPIC_BASE_URL": base, "SSL_CERT_FILE": str(public)}
        model = open_model(NAME, trusted, timeouts=FAST)
        for _ in range(2):
            assert done(await gather(model.stream(ask()))).stop_reason == "tool_use"
        await model.aclose()
        assert server.connections == 1
        stranger = open_model(NAME, {"ANTHROPIC_BASE_URL": base}, timeouts=FAST)
        with pytest.raises(ProviderError) as raised:
            await gather(stranger.stream(ask()))
        assert raised.value.code == "model_unreachable"
        assert "certificate" in raised.value.message.lower()


async def test_a_tunnel_through_a_proxy_is_encrypted_to_the_end(tmp_path: Path) -> None:
    public, context = certificate(tmp_path, "models.invalid")
    asked: list[bytes] = []
    async with ModelServer([answer(TURN)], context=context) as server:

        async def carry(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            try:
                while data := await source.read(65536):
                    target.write(data)
            except ConnectionError:
                pass
            target.transport.abort()

        async def tunnel(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            inner, outer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            await asyncio.gather(carry(reader, outer), carry(inner, writer), return_exceptions=True)

        proxy = await asyncio.start_server(tunnel, "127.0.0.1", 0)
        environ = {
            "HTTPS_PROXY": f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}",
            "ANTHROPIC_BASE_URL": "https://models.invalid",
            "SSL_CERT_FILE": str(public),
        }
        model = open_model(NAME, environ, timeouts=FAST)
        events = await gather(model.stream(ask()))
        await model.aclose()
        proxy.close()
        await proxy.wait_closed()
    assert done(events).stop_reason == "tool_use"
    assert asked[0].startswith(b"CONNECT models.invalid:443 HTTP/1.1\r\n")


async def test_an_unreadable_certificate_file_is_a_configuration_error(tmp_path: Path) -> None:
    environ = {
        "ANTHROPIC_BASE_URL": "https://localhost:1",
        "SSL_CERT_FILE": str(tmp_path / "missing.pem"),
    }
    model = open_model(NAME, environ, timeouts=FAST)
    with pytest.raises(CallerError, match="SSL_CERT_FILE") as raised:
        await gather(model.stream(ask()))
    assert raised.value.code == "config"
