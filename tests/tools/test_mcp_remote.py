"""Tool servers at a URL: those of tasks are connected to at the address that was checked only."""

import asyncio
import json
import os
import socket
import ssl
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from batten.tools.mcp import McpServers
from batten.tools.mcp_config import ServerConfig, Transport
from batten.workspace.keeper import Keeper
from batten.workspace.sandbox import Policy
from tests.models.test_http import certificate

pytestmark = pytest.mark.attack

PUBLIC = "127.0.0.2"
"""Stands for a public address: the tests permit it. All others on this machine are not."""
PRIVATE = "127.0.0.1"


class Listener(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: str, port: int = 0) -> None:
        super().__init__((address, port), Server)
        self.asked: list[str] = []
        """What each request wanted: its path, or the method in its body."""
        self.moved_to = ""
        """Where it sends clients that call a tool."""

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class Server(BaseHTTPRequestHandler):
    """A tool server without sessions; it has one tool."""

    protocol_version = "HTTP/1.1"
    server: Listener  # pyright: ignore[reportIncompatibleVariableOverride]  # what it is here

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path != "/sse":
            self._answer(405, b"")
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(b"event: endpoint\ndata: %s\n\n" % self.server.moved_to.encode())

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.asked.append(asked["method"])
        result: dict[str, Any] = {}
        match asked["method"]:
            case "initialize":
                info = {"name": "s", "version": "1"}
                result = {"protocolVersion": "2025-06-18", "serverInfo": info}
                result["capabilities"] = {"tools": {}}
            case "tools/list" if self.server.moved_to:
                self.send_response(307)
                self.send_header("location", self.server.moved_to)
                self.send_header("content-length", "0")
                self.end_headers()
                return
            case "tools/list":
                result = {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
            case _:
                self._answer(202, b"")
                return
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": result}
        self._answer(200, json.dumps(answer).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def listening(
    address: str, port: int = 0, context: ssl.SSLContext | None = None
) -> Generator[Listener]:
    with Listener(address, port) as listener:
        if context is not None:
            listener.socket = context.wrap_socket(listener.socket, server_side=True)
        thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield listener
        finally:
            listener.shutdown()
            thread.join()


@pytest.fixture
def both() -> Generator[tuple[Listener, Listener]]:
    """A public server, and a private one on the same port."""
    with listening(PUBLIC) as public, listening(PRIVATE, public.port) as private:
        yield public, private


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """The names that are looked up from now on; the last answer is given for good."""
    looks: list[str] = []

    async def resolve(
        loop: asyncio.AbstractEventLoop, host: str, port: int, **more: Any
    ) -> list[Any]:
        looks.append(host)
        found = answers[min(len(looks), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (one, port)) for one in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    return looks


@asynccontextmanager
async def connected(
    url: str, transport: Transport = "http", *, allow: str = PUBLIC, is_confined: bool = True
) -> AsyncGenerator[dict[str, Any]]:
    """The state of a server at this URL: of a task, or of the user's own settings."""
    config = ServerConfig(name="far", transport=transport, url=url, timeout_s=10)
    own = {"far": {"type": transport, "url": url, "timeout": 10}}
    async with asyncio.timeout(30):
        servers = await McpServers.connect(
            {"mcpServers": {} if is_confined else own},
            {**os.environ, "BATTEN_HTTP_ALLOW": allow},
            cwd="/",
            redact=str,
            confined=[config] if is_confined else [],
            sandbox=Keeper("/", Policy()),
        )
        try:
            yield servers.states()[0]
        finally:
            await servers.close()


async def test_a_name_is_connected_to_at_the_address_that_was_checked(
    both: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    public, private = both
    looks = resolving(monkeypatch, [PUBLIC])
    async with connected(f"http://tools.example:{public.port}/mcp") as state:
        assert (state["status"], state["tools"]) == ("connected", 1)
    assert set(looks) == {"tools.example"}
    assert private.asked == []


async def test_a_name_that_turns_private_between_two_looks_is_refused(
    both: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    public, private = both
    resolving(monkeypatch, [PUBLIC], [PRIVATE])
    async with connected(f"http://rebinding.example:{public.port}/mcp") as state:
        assert state["status"] == "failed"
    assert (len(public.asked), private.asked) == (1, [])


@pytest.mark.parametrize("addresses", [[PRIVATE], [PUBLIC, PRIVATE], [PRIVATE, PUBLIC]])
async def test_a_name_with_a_private_address_is_refused_whatever_else_it_has(
    addresses: list[str], both: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    public, private = both
    resolving(monkeypatch, addresses)
    async with connected(f"http://mixed.example:{public.port}/mcp") as state:
        assert f"mixed.example is at {PRIVATE}, which is not a public address" in state["error"]
    assert (public.asked, private.asked) == ([], [])


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1"])
async def test_every_spelling_of_a_private_address_is_refused(
    host: str, both: tuple[Listener, Listener]
) -> None:
    async with connected(f"http://{host}:{both[1].port}/mcp") as state:
        assert state["status"] == "failed"
    assert both[1].asked == []


async def test_the_user_s_own_settings_may_name_this_machine(
    both: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    resolving(monkeypatch, [PRIVATE])
    url = f"http://tools.internal:{both[1].port}/mcp"
    async with connected(url, is_confined=False) as state:
        assert state["status"] == "connected"


async def test_an_address_that_nobody_answers_at_does_not_hide_the_next(
    both: tuple[Listener, Listener], monkeypatch: pytest.MonkeyPatch
) -> None:
    public, _ = both
    resolving(monkeypatch, ["127.0.0.3", PUBLIC])
    allow = f"127.0.0.3,{PUBLIC}"
    async with connected(f"http://many.example:{public.port}/mcp", allow=allow) as state:
        assert state["status"] == "connected"


@pytest.mark.parametrize("is_confined", [True, False])
async def test_a_redirect_to_another_place_is_not_followed(
    is_confined: bool, both: tuple[Listener, Listener]
) -> None:
    public, private = both
    public.moved_to = f"http://{PRIVATE}:{private.port}/mcp"
    url = f"http://{PUBLIC}:{public.port}/mcp"
    async with connected(url, is_confined=is_confined) as state:
        assert state["status"] == "failed"
    assert ("tools/list" in public.asked, private.asked) == (True, [])


@pytest.mark.parametrize("is_confined", [True, False])
async def test_an_endpoint_event_that_names_another_place_is_not_followed(
    is_confined: bool, both: tuple[Listener, Listener]
) -> None:
    public, private = both
    public.moved_to = f"http://{PRIVATE}:{private.port}/messages"
    url = f"http://{PUBLIC}:{public.port}/sse"
    async with connected(url, "sse", is_confined=is_confined) as state:
        assert state["status"] == "failed"
    assert (public.asked, private.asked) == (["/sse"], [])


@pytest.mark.parametrize(("named", "status"), [("tools", "connected"), ("other", "failed")])
async def test_the_certificate_is_that_of_the_name_though_the_address_is_connected_to(
    named: str, status: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trusted, context = certificate(tmp_path, f"{named}.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(trusted))
    resolving(monkeypatch, [PUBLIC])
    with listening(PUBLIC, context=context) as listener:
        async with connected(f"https://tools.example:{listener.port}/mcp") as state:
            assert state["status"] == status
