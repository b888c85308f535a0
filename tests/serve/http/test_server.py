"""The server as a process: sockets, signals, TLS and what it says when it cannot listen."""

import asyncio
import gc
import signal
import socket
import ssl
import stat
import sys
import warnings
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from batten.serve.http.keys import KeyStore
from batten.serve.http.limits import Limits
from batten.serve.http.listener import Listener, Tls
from batten.serve.http.request import Request
from tests.serve.http.wire import PATIENCE_S, Clients, Connection, clients, request, toy

ROOT = Path(__file__).resolve().parents[3]
LOCAL = "localhost"


async def start(home: Path, **options: Any) -> Process:
    given = [f"{name}={msgspec.json.encode(value).decode()}" for name, value in options.items()]
    command = (sys.executable, "-m", "tests.serve.http.toy_program", str(home), *given)
    return await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE, cwd=ROOT)


class Program:
    """A running server, with the address it printed."""

    def __init__(self, process: Process, url: str, opened: Clients) -> None:
        self.process = process
        self.url = url
        self.opened = opened

    async def connect(self, **more: Any) -> Connection:
        return await self.opened.connect_to(self.url, **more)


@asynccontextmanager
async def program(home: Path, **options: Any) -> AsyncGenerator[Program]:
    process = await start(home, **options)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("listening on "), await ended(process)
        async with clients() as opened:
            yield Program(process, line.removeprefix("listening on ").strip(), opened)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(process: Process) -> tuple[int, str, str]:
    """The exit code, and the rest of both outputs."""
    async with asyncio.timeout(PATIENCE_S):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_streams_and_waits_for_requests(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with program(tmp_path) as server:
        stream, idle, waiting = [await server.connect() for _ in range(3)]
        assert (await idle.ask("GET", "/toy/page")).status == 200
        await stream.send(request("GET", "/toy/follow"))
        assert (await stream.head())[0] == 200
        assert await stream.chunk() == b": ok\n\n"
        await waiting.send(request("GET", "/toy/wait"))
        # Answered in order on one loop: the one before has begun.
        assert (await idle.ask("GET", "/toy/page")).status == 200
        server.process.send_signal(number)
        assert await stream.chunk() == b""
        # Its time limit ends it, not the signal.
        assert (await waiting.answer()).error["type"] == "request_timeout"
        code, out, err = await ended(server.process)
        assert (code, out) == (0, "closed\n")
        logged = [msgspec.json.decode(line) for line in err.splitlines()]
        assert [(line["path"], line["status"]) for line in logged] == [("/toy/wait", 503)]


async def test_requests_beyond_the_grace_are_cut(tmp_path: Path) -> None:
    async with program(tmp_path, limits={"grace_s": 0.2}) as server:
        waiting, probe = await server.connect(), await server.connect()
        await waiting.send(request("GET", "/toy/patient"))
        assert (await probe.ask("GET", "/toy/page")).status == 200
        server.process.send_signal(signal.SIGTERM)
        code, out, err = await ended(server.process)
        assert (code, out) == (0, "closed\n")
        logged = [msgspec.json.decode(line) for line in err.splitlines()]
        assert [line["message"] for line in logged] == ["1 requests were cut after 0.2 s"]


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a request"])
async def test_half_a_head_does_not_hold_the_end(tmp_path: Path, beside: bool) -> None:
    async with program(tmp_path, limits={"grace_s": 1000, "header_timeout_s": 1000}) as server:
        half, mute, waiting, probe = [await server.connect() for _ in range(4)]
        await half.send(b"GET /toy/page HTTP/1.1\r\nHost: localh")
        if beside:
            await waiting.send(request("GET", "/toy/wait"))
        assert (await probe.ask("GET", "/toy/page")).status == 200
        server.process.send_signal(signal.SIGTERM)
        if beside:
            assert (await waiting.answer()).error["type"] == "request_timeout"
        async with asyncio.timeout(PATIENCE_S):
            assert await half.reader.read() == b""
            assert await mute.reader.read() == b""
        assert (await ended(server.process))[:2] == (0, "closed\n")


async def test_an_answer_that_is_read_slowly_is_whole_though_half_a_head_is_cut(
    tmp_path: Path,
) -> None:
    async with program(tmp_path, limits={"grace_s": 1000, "header_timeout_s": 1000}) as server:
        slow, half = await server.connect(), await server.connect()
        await half.send(b"GET /toy/page HTTP/1.1\r\nHost: localh")
        await slow.send(request("GET", "/toy/large"))
        status, headers = await slow.head()
        assert status == 200
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await half.reader.read() == b""
            whole = await slow.reader.readexactly(int(headers["content-length"]))
        assert whole == b"x" * (64 << 20)
        assert (await ended(server.process))[:2] == (0, "closed\n")


HALF = b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"
CHUNKS = b"PUT /toy/raw HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nx"


@pytest.mark.parametrize("sent", [HALF, HALF[:-1], CHUNKS], ids=["half", "nothing", "chunks"])
async def test_a_body_that_stops_coming_does_not_hold_the_end(tmp_path: Path, sent: bytes) -> None:
    limits = {"grace_s": 1000, "body_timeout_s": 1000}
    async with program(tmp_path, limits=limits) as server:
        half, probe = await server.connect(), await server.connect()
        await half.send(sent)
        assert (await probe.ask("GET", "/toy/page")).status == 200
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            refused = await half.answer()
        assert (refused.status, refused.error["type"]) == (408, "request_body_timeout")
        assert refused.headers["connection"] == "close"
        assert (await ended(server.process))[:2] == (0, "closed\n")


async def test_a_body_that_goes_on_is_answered_though_the_server_stops(tmp_path: Path) -> None:
    async with program(tmp_path, limits={"grace_s": 1000}) as server:
        half, probe = await server.connect(), await server.connect()
        await half.send(HALF)
        assert (await probe.ask("GET", "/toy/page")).status == 200
        server.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(PATIENCE_S):
            assert await probe.reader.read() == b""
            await half.send(b"12345678")
            assert (await half.answer()).json == {"bytes": 9}
        assert (await ended(server.process))[:2] == (0, "closed\n")


async def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with program(tmp_path, limits={"grace_s": 1000}) as server:
        waiting, probe = await server.connect(), await server.connect()
        await waiting.send(request("GET", "/toy/patient"))
        assert (await probe.ask("GET", "/toy/page")).status == 200
        server.process.send_signal(signal.SIGTERM)
        # It closes idle connections first; the second signal comes after the first was heard.
        async with asyncio.timeout(PATIENCE_S):
            assert await probe.reader.read() == b""
        server.process.send_signal(signal.SIGTERM)
        assert (await ended(server.process))[0] == -signal.SIGTERM


async def test_a_port_in_use_is_an_error_of_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = await ended(await start(tmp_path, port=port))
    assert (code, out) == (78, "")
    assert err == (
        f"port {port} of 127.0.0.1 is in use; choose another with --port, or 0 for a free one\n"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"host": "no.such.host.invalid"}, "name an address of this machine"),
        ({"host": "203.0.113.7"}, "203.0.113.7 is served with API keys only"),
        ({"host": "0.0.0.0"}, "Create one: batten keys create NAME --scope admin"),
        ({"tls": {"certificate": "/none", "key": "/none"}}, "/none is no file"),
        ({"tls": {"certificate": __file__, "key": __file__}}, "are no certificate with its key"),
        ({"unix_socket": "/nowhere/serve.sock"}, "cannot serve on the socket /nowhere/serve.sock"),
        ({"unix_socket": "/tmp/" + "x" * 200}, "AF_UNIX path too long"),
    ],
)
async def test_an_address_that_cannot_be_served_is_an_error_of_one_line(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    code, out, err = await ended(await start(tmp_path, **options))
    assert (code, out) == (78, "")
    assert message in err
    assert err.count("\n") == 1


async def test_an_address_of_another_machine_is_refused_with_a_key_too(tmp_path: Path) -> None:
    KeyStore(str(tmp_path)).create("ci", "admin")
    code, _, err = await ended(await start(tmp_path, host="203.0.113.7"))
    assert code == 78
    assert err == "203.0.113.7 is no address of this machine; choose another with --host\n"


async def test_ipv6_is_served(tmp_path: Path) -> None:
    async with program(tmp_path, host="::1") as server:
        assert server.url.startswith("http://[::1]:")
        connection = await server.connect()
        assert (await connection.ask("GET", "/toy/page", headers={"Host": "[::1]:1"})).status == 200


async def test_the_owner_has_a_socket_without_keys(tmp_path: Path) -> None:
    path = tmp_path / "serve.sock"
    KeyStore(str(tmp_path)).create("ci", "viewer")
    async with program(tmp_path, unix_socket=str(path)) as server:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        connection = await server.opened.connect_unix(path)
        answer = await connection.ask("GET", "/toy/page", headers={"Host": "any"})
        assert (answer.status, answer.json["principal"]) == (200, "operator")
        assert (await (await server.connect()).ask("GET", "/toy/page")).status == 401
        server.process.send_signal(signal.SIGTERM)
        assert (await ended(server.process))[0] == 0
    assert not path.exists()


async def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    path.write_text("mine")
    code, _, err = await ended(await start(tmp_path, unix_socket=str(path)))
    assert (code, err) == (78, f"cannot serve on the socket {path}: another file is there\n")
    assert path.read_text() == "mine"


async def test_a_socket_left_by_a_killed_server_is_replaced_and_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    path = tmp_path / "serve.sock"
    async with program(tmp_path, unix_socket=str(path)) as server:
        server.process.kill()
        await server.process.wait()
    assert path.exists()
    async with program(tmp_path, unix_socket=str(path)) as server:
        async with program(tmp_path, unix_socket=str(path)) as second:
            assert (await (await second.connect()).ask("GET", "/toy/page")).status == 200
        connection = await server.opened.connect_unix(path)
        assert (await connection.ask("GET", "/toy/page")).status == 200


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
async def test_the_server_that_still_runs_takes_over_the_socket(
    tmp_path: Path, end: signal.Signals
) -> None:
    path = tmp_path / "serve.sock"
    given = {"unix_socket": str(path)}
    async with program(tmp_path, **given) as first, program(tmp_path, **given) as second:
        first.process.send_signal(end)
        await first.process.wait()

        connection = await _connected(second, path)

        assert (await connection.ask("GET", "/toy/page")).status == 200
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        second.process.send_signal(signal.SIGTERM)
        assert (await ended(second.process))[0] == 0
    assert not path.exists()


async def _connected(server: Program, path: Path) -> Connection:
    """A connection as soon as the socket is served."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await server.opened.connect_unix(path)
            except OSError:
                await asyncio.sleep(0.01)  # nothing tells when a file appears


def certificate(folder: Path) -> dict[str, str]:
    """A certificate for localhost that nobody signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "certificate.pem").write_bytes(signed.public_bytes(Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    )
    return {"certificate": str(folder / "certificate.pem"), "key": str(folder / "key.pem")}


async def test_tls_is_served_and_plain_text_is_not(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    async with program(tmp_path, tls=tls) as server:
        assert server.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=tls["certificate"])
        connection = await server.connect(ssl=context, server_hostname="localhost")
        for _ in range(2):
            assert (await connection.ask("GET", "/toy/page")).status == 200
        plain = await server.connect()
        await plain.send(request("GET", "/toy/page"))
        async with asyncio.timeout(PATIENCE_S):
            assert b"HTTP/1.1 200" not in await plain.reader.read()


async def test_a_large_answer_waits_for_its_client_over_tls(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    context = ssl.create_default_context(cafile=tls["certificate"])
    async with toy(tmp_path, tls=Tls(**tls)) as server:
        first, other = [
            await server.opened.connect_to(server.server.url, ssl=context, server_hostname=LOCAL)
            for _ in range(2)
        ]
        await first.send(request("GET", "/toy/large", headers={"Connection": "close"}))
        assert (await first.head())[0] == 200
        assert (await other.ask("GET", "/toy/page")).status == 200
        # Else it would be cut short when the closing takes too long.
        assert 'route="/toy/large"' not in server.app.metrics.text()
        async with asyncio.timeout(PATIENCE_S):
            assert len(await first.reader.read()) == 64 << 20


async def test_a_stop_waits_for_no_client_of_tls_that_says_nothing(tmp_path: Path) -> None:
    tls = certificate(tmp_path)
    async with program(tmp_path, tls=tls, limits={"grace_s": 1000}) as server:
        silent = await server.connect()
        halfway = await server.connect()
        await halfway.send(b"\x16\x03\x01\x02\x00\x01")
        context = ssl.create_default_context(cafile=tls["certificate"])
        port = int(server.url.rpartition(":")[2])

        def ask(path: str) -> ssl.SSLSocket:
            made = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
            wrapped = context.wrap_socket(made, server_hostname="localhost")
            wrapped.sendall(request("GET", path))
            return wrapped

        # They do not look at their connections again, nor say that they close them.
        idle, served = await asyncio.to_thread(ask, "/toy/page"), ask("/toy/wait")
        assert idle.recv(12) == b"HTTP/1.1 200"
        server.process.send_signal(signal.SIGTERM)
        assert served.recv(12) == b"HTTP/1.1 503"
        code, out, _ = await ended(server.process)
        assert (code, out) == (0, "closed\n")
        for one in (idle, served, silent):
            one.close()


async def test_a_process_with_few_descriptors_serves_more_than_one_client(tmp_path: Path) -> None:
    few = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))"
    command = (sys.executable, "-c", f"{few}; os.execv(sys.executable, sys.argv[1:])")
    program_ = (sys.executable, "-m", "tests.serve.http.toy_program", str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        *command, *program_, stdout=PIPE, stderr=PIPE, cwd=ROOT
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE_S), clients() as opened:
            url = (await process.stdout.readline()).decode().removeprefix("listening on ").strip()
            for _ in range(30):
                connection = await opened.connect_to(url)
                assert (await connection.ask("GET", "/toy/page")).status == 200
    finally:
        process.kill()
        await process.communicate()


async def test_a_key_of_another_certificate_is_refused(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    for folder in folders:
        folder.mkdir()
    one, other = (certificate(folder) for folder in folders)
    tls = {"certificate": one["certificate"], "key": other["key"]}
    code, _, err = await ended(await start(tmp_path, tls=tls))
    assert code == 78
    assert "are no certificate with its key" in err


async def test_the_log_has_an_object_a_line_with_the_request_id(tmp_path: Path) -> None:
    async with program(tmp_path) as server:
        connection = await server.connect()
        ids = {"X-Request-Id": "trace-7"}
        assert (await connection.ask("POST", "/toy/notes?key=s", {"text": "t"}, ids)).status == 200
        assert (await connection.ask("GET", "/toy/fail/bug", headers=ids)).status == 500
        assert (await connection.ask("GET", "/toy/page", headers=ids)).status == 200
        assert (await connection.ask("DELETE", "/toy/notes/n1", headers=ids)).status == 204
        server.process.send_signal(signal.SIGTERM)
        _, _, err = await ended(server.process)
    logged = [msgspec.json.decode(line) for line in err.splitlines()]
    assert {line["request_id"] for line in logged} == {"trace-7"}
    shown = [(line["level"], line["message"], line.get("status")) for line in logged]
    assert shown == [
        ("info", "request", 200),
        ("error", "a request failed: /toy/fail/bug", None),
        ("info", "request", 500),
        ("info", "request", 204),
    ]
    assert logged[3]["note_id"] == "n1"
    assert (logged[0]["path"], logged[0]["principal"]) == ("/toy/notes", "operator")
    assert "a secret of the code" in logged[1]["error"]


async def test_a_connection_that_is_accepted_as_the_server_stops_is_closed() -> None:
    """In whatever turn of the loop it stops: also before the connection's task has begun."""

    async def respond(request: Request) -> None:
        raise AssertionError("nothing is asked")

    gc.collect()  # what others left
    for turns in range(5):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
                bound = socket.create_server(("127.0.0.1", 0))
                address = bound.getsockname()
                listener = Listener(bound, lambda _: respond, Limits(), 10, group)
                with socket.create_connection(address):
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    listener.stop()
                    await listener.closed()
            gc.collect()
        assert not [str(one.message) for one in told], turns
