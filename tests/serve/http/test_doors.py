"""Who comes in without a key: the owner, and nobody else."""

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from batten.client.home_service import home_token
from batten.serve.http.keys import KeyStore
from batten.serve.http.server import ServeOptions
from batten.serve.http.table import Principal
from batten.serve.tcp_peers import UNKNOWN, TcpPeers
from tests.serve.http.wire import Toy, request, toy
from tests.strangers import AS_ROOT, NOBODY, Told, ask_as

pytestmark = pytest.mark.attack

CONFINED = """
import ctypes, socket, sys
assert not ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
head = (sys.argv[2] + " HTTP/1.1", "Host: localhost", "Connection: close", "", "")
s.sendall("\\r\\n".join(head).encode())
while data := s.recv(65536):
    sys.stdout.buffer.write(data)
"""


async def ask_as_in(server: Toy, user: int | None, path: str, **more: object) -> Told:
    port = urlsplit(server.server.url).port
    return await asyncio.to_thread(ask_as, user, port, path, **more)  # type: ignore[arg-type]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# The Unix socket


@pytest.mark.parametrize("line", ["GET /toy/page", "GET /open", "DELETE /toy/notes/x", "GET /no"])
async def test_a_confined_process_gets_nothing_at_the_unix_socket_but_the_reason(
    tmp_path: Path, line: str
) -> None:
    path = tmp_path / "serve.sock"
    async with toy(tmp_path, unix_socket=str(path)):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", CONFINED, str(path), line), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(20):
            told, _ = await process.communicate()
    assert told.startswith(b"HTTP/1.1 403 Forbidden")
    assert b"it is confined otherwise than Batten (NoNewPrivs); connect over TCP with a key" in told


async def test_the_owner_is_served_at_the_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "serve.sock"
    async with toy(tmp_path, unix_socket=str(path)) as server:
        connection = await server.opened.connect_unix(path)
        assert (await connection.ask("GET", "/toy/page")).json["principal"] == "operator"


# TCP


@AS_ROOT
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_another_user_of_this_machine_is_told_why_and_what_to_do(
    tmp_path: Path, host: str
) -> None:
    async with toy(tmp_path, host=host) as server:
        at = {"host": urlsplit(server.server.url).hostname}
        told = await ask_as_in(server, NOBODY, "/toy/page", **at)
        assert told.status == 401
        assert f"the user {NOBODY} has connected, not 0" in told.message
        assert "batten token" in told.message
        assert (await ask_as_in(server, None, "/toy/page", **at)).status == 200
        # What needs no key of anybody needs none here.
        assert (await ask_as_in(server, NOBODY, "/open", **at)).status == 200
        token = bearer(home_token(str(tmp_path)))
        assert (await ask_as_in(server, NOBODY, "/toy/page", headers=token, **at)).status == 200
        wrong = bearer(home_token(str(tmp_path))[:-1] + "~")
        assert (await ask_as_in(server, NOBODY, "/toy/page", headers=wrong, **at)).status == 401


@AS_ROOT
async def test_with_open_every_user_of_this_machine_is_served(tmp_path: Path) -> None:
    async with toy(tmp_path, is_open=True, wants_token="a reason") as server:
        assert (await ask_as_in(server, NOBODY, "/toy/page")).status == 200


async def test_where_a_command_could_connect_the_owner_needs_the_token(tmp_path: Path) -> None:
    async with toy(tmp_path, wants_token="its commands may use the network") as server:
        answer = await server.ask("GET", "/toy/page")
        assert (answer.status, answer.error["type"]) == (401, "unauthorized")
        assert "its commands may use the network" in answer.error["message"]
        # Not a key: with the first one the owner would need one for everything.
        assert "batten token" in answer.error["operator_action"]
        assert "batten keys" not in answer.error["operator_action"]
        for header in ("X-Api-Key", "X-Hecate-Runtime-Token"):
            headers = {header: home_token(str(tmp_path))}
            told = (await server.ask("GET", "/toy/page", headers=headers)).json
            assert told["principal"] == "operator"


async def test_the_token_is_taken_beside_keys_too(tmp_path: Path) -> None:
    _, key = KeyStore(str(tmp_path)).create("ci", "viewer")
    async with toy(tmp_path) as server:
        assert (await server.ask("GET", "/toy/page")).status == 401
        for text, name in ((key, "ci"), (home_token(str(tmp_path)), "operator")):
            told = await server.ask("GET", "/toy/page", headers=bearer(text))
            assert told.json["principal"] == name


async def test_a_stream_of_the_token_goes_on_when_there_is_a_first_key(tmp_path: Path) -> None:
    async with toy(tmp_path) as server:
        connection = await server.connect()
        headers = bearer(home_token(str(tmp_path)))
        await connection.send(request("GET", "/toy/follow", headers=headers))
        assert (await connection.head())[0] == 200
        assert await connection.chunk() == b": ok\n\n"
        KeyStore(str(tmp_path)).create("ci", "viewer")
        other = await server.connect()
        async with asyncio.timeout(20):
            while (await other.ask("GET", "/toy/page")).status != 401:
                pass
        server.boxes.frames.put_nowait(b"data: on\n\n")
        assert await connection.chunk() == b"data: on\n\n"


@AS_ROOT
async def test_without_keys_a_runner_serves_other_users_of_its_machine_with_the_token_only(
    tmp_path: Path,
) -> None:
    """And other machines as before, where it listens for them: a control plane calls from there."""
    platform = Principal("platform", "admin")
    for host in ("127.0.0.1", "0.0.0.0"):
        async with toy(tmp_path, host=host, wants_keys=False, keyless=platform) as server:
            told = await ask_as_in(server, NOBODY, "/toy/page")
            assert (told.status, "has connected" in told.message) == (401, True)
            assert '"platform"' in (await ask_as_in(server, None, "/toy/page")).body
            token = bearer(home_token(str(tmp_path)))
            assert (await ask_as_in(server, NOBODY, "/toy/page", headers=token)).status == 200


def test_options_close_by_default() -> None:
    options = ServeOptions(home="/nowhere")
    assert (options.is_open, options.keyless) == (False, None)


# The kernel


@contextmanager
def connected(family: int, host: str) -> Generator[tuple[socket.socket, socket.socket]]:
    """A client's end and ours."""
    with socket.socket(family) as listening:
        listening.bind((host, 0))
        listening.listen()
        client = socket.create_connection(listening.getsockname()[:2])
        accepted, _ = listening.accept()
        with client, accepted:
            yield client, accepted


@pytest.fixture
def peers() -> Generator[TcpPeers]:
    made = TcpPeers()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("family", "host"),
    [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "127.0.0.9"), (socket.AF_INET6, "::1")],
)
def test_the_kernel_tells_whose_a_connection_is(peers: TcpPeers, family: int, host: str) -> None:
    with connected(family, host) as (client, accepted):
        assert peers.why_not_ours(accepted) == ""
        client.shutdown(socket.SHUT_WR)  # it may still read
        assert peers.why_not_ours(accepted) == ""


@pytest.mark.parametrize("client_family", [socket.AF_INET, socket.AF_INET6])
def test_an_ipv4_connection_to_an_ipv6_socket_is_found(peers: TcpPeers, client_family: int) -> None:
    with socket.socket(socket.AF_INET6) as listening, socket.socket(client_family) as client:
        listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(("::", 0))
        listening.listen()
        mapped = "::ffff:" if client_family == socket.AF_INET6 else ""
        client.connect((f"{mapped}127.0.0.1", listening.getsockname()[1]))
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getpeername()[0] == "::ffff:127.0.0.1"
            assert peers.why_not_ours(accepted) == ""


def test_a_connection_that_was_closed_at_once_is_nobodys(peers: TcpPeers) -> None:
    """The kernel shows root as the user of such a socket; what it sent is still to be read."""
    with connected(socket.AF_INET, "127.0.0.1") as (client, accepted):
        client.sendall(b"DELETE / HTTP/1.1\r\n\r\n")
        client.close()
        assert peers.why_not_ours(accepted) == UNKNOWN


def test_who_listens_at_the_port_of_a_client_that_left_is_not_taken_for_it(
    peers: TcpPeers,
) -> None:
    with socket.socket() as listening, socket.socket() as client:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        client.bind(("127.0.0.77", 0))  # an address that nobody else here connects from
        client.connect(listening.getsockname())
        accepted, _ = listening.accept()
        with accepted, socket.socket() as other:
            place = client.getsockname()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()  # with a reset: its port is free
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(place)
            other.listen()
            assert peers.user_of(*place, *accepted.getsockname()) is None


def test_a_connection_of_another_network_namespace_is_nobodys() -> None:
    """As behind a forwarded port: the kernel of here does not know the other end."""
    if os.geteuid():
        pytest.skip("only root can make a network namespace")
    program = (
        "import ctypes, socket, sys; from batten.serve.tcp_peers import TcpPeers;"
        "taken = socket.socket(fileno=int(sys.argv[1])); peers = TcpPeers();"
        "print(peers.why_not_ours(taken)); peers.close();"
        "assert not ctypes.CDLL(None).unshare(0x40000000);"
        "print(peers.why_not_ours(taken)); peers.close()"
    )
    with connected(socket.AF_INET, "127.0.0.1") as (_, accepted):
        done = subprocess.run(
            [sys.executable, "-c", program, str(accepted.fileno())],
            pass_fds=[accepted.fileno()],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    assert done.stdout.split("\n") == ["", UNKNOWN, ""]
