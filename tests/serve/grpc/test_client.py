"""The client of a runtime: whom it says it is, over TLS and in the clear, and what it makes of
refusals.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.control.observer.contract import RuntimeFault
from batten.serve.grpc.client import Dialling, GrpcRuntime
from batten.serve.grpc.credentials import (
    Credentials,
    FixedCredentials,
    MintedCredentials,
    credentials_of,
)
from batten.settings.control_plane import ControlPlaneSettings
from tests.control.observer.cutting import cutting
from tests.control.observer.elsewhere import OBSERVER, elsewhere
from tests.models.test_http import certificate
from tests.ports import free_port
from tests.serve.grpc.running import grpc, running


class AuthService:
    """Mints tokens over HTTP, as it is told to."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.status = 200
        self.answer: Any = {}
        self.delay_s = 0.0
        self.stopping = asyncio.Event()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(lines["content-length"]))
        assert head.startswith("POST /auth/tokens HTTP/1.1")
        self.asked.append(msgspec.json.decode(body))
        with suppress(TimeoutError):
            async with asyncio.timeout(self.delay_s):
                await self.stopping.wait()
        answer = msgspec.json.encode(self.answer)
        writer.write(
            b"HTTP/1.1 %d Told\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
            b"connection: close\r\n\r\n%b" % (self.status, len(answer), answer)
        )
        with suppress(OSError):
            await writer.drain()


@asynccontextmanager
async def minting() -> AsyncGenerator[AuthService]:
    service = AuthService()
    server = await asyncio.start_server(service.handle, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/auth"
    async with server:
        yield service
        service.stopping.set()
        await asyncio.sleep(0.01)  # for the connections that wait


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def minted(service: AuthService, clock: Clock, **changed: Any) -> Credentials:
    settings = ControlPlaneSettings(macp_auth_service_url=service.url, **changed)
    bearer = settings.runtime_bearer_token
    return MintedCredentials(settings, FixedCredentials(bearer=bearer), clock)


async def bearer_of(credentials: Credentials) -> str:
    ((name, value),) = await credentials.metadata()
    assert name == "authorization"
    return value.removeprefix("Bearer ")


async def test_a_minted_token_has_the_scope_of_an_observer_and_is_kept_until_it_nears_its_end() -> (
    None
):
    clock = Clock()
    async with minting() as service:
        service.answer = {"token": "one", "sender": "x", "expires_in_seconds": 100}
        credentials = minted(service, clock, macp_auth_token_ttl_seconds=100)
        assert await bearer_of(credentials) == "one"
        clock.now += 59
        service.answer = {"token": "two", "sender": "x"}
        assert await bearer_of(credentials) == "one"
        clock.now += 1
        assert await bearer_of(credentials) == "two"
        clock.now += 59
        assert await bearer_of(credentials) == "two"
        assert service.asked == 2 * [
            {
                "sender": "macp-control-plane",
                "ttl_seconds": 100,
                "scopes": {"can_start_sessions": False, "is_observer": True},
            }
        ]


async def test_a_token_that_lasts_shorter_is_kept_for_the_shortest_time() -> None:
    clock = Clock()
    async with minting() as service:
        service.answer = {"token": "one", "expires_in_seconds": 5}
        credentials = minted(service, clock)
        for _ in range(2):
            assert await bearer_of(credentials) == "one"
            clock.now += 19
        assert len(service.asked) == 1
        clock.now += 2
        await bearer_of(credentials)
        assert len(service.asked) == 2


async def test_calls_at_the_same_time_share_one_request() -> None:
    async with minting() as service:
        service.answer = {"token": "one"}
        service.delay_s = 0.05
        credentials = minted(service, Clock())
        found = await asyncio.gather(*(bearer_of(credentials) for _ in range(20)))
        assert set(found) == {"one"}
        assert len(service.asked) == 1


async def test_the_right_to_keep_registries_is_asked_for_by_setting() -> None:
    async with minting() as service:
        service.answer = {"token": "one"}
        await bearer_of(minted(service, Clock(), macp_auth_token_can_manage_registry=True))
        assert service.asked[0]["scopes"]["can_manage_mode_registry"] is True


@pytest.mark.parametrize(
    ("status", "answer"),
    [(500, {}), (200, {"no": "token"}), (200, {"token": " "}), (200, [1]), (302, {})],
)
async def test_an_auth_service_that_fails_falls_through_to_the_fixed_token(
    status: int, answer: Any
) -> None:
    clock = Clock()
    async with minting() as service:
        service.status, service.answer = status, answer
        credentials = minted(service, clock, runtime_bearer_token="fixed")
        assert await bearer_of(credentials) == "fixed"
        assert await bearer_of(credentials) == "fixed"
        assert len(service.asked) == 1  # left alone for a while
        service.status, service.answer = 200, {"token": "one"}
        clock.now += 6
        assert await bearer_of(credentials) == "one"


async def test_an_auth_service_that_hangs_is_given_up() -> None:
    async with minting() as service:
        service.delay_s, service.answer = 5.0, {"token": "late"}
        settings = {"macp_auth_service_timeout_ms": 50, "runtime_bearer_token": "fixed"}
        assert await bearer_of(minted(service, Clock(), **settings)) == "fixed"


async def test_a_token_that_the_runtime_refuses_is_not_sent_again(tmp_path: Path) -> None:
    async with minting() as service:
        with elsewhere(tmp_path) as server:
            service.answer = {"token": "worthless"}
            client = GrpcRuntime(server.address, minted(service, Clock()), Dialling(timeout_s=10))
            with pytest.raises(RuntimeFault) as refused:
                await client.policies("")
            assert refused.value.code == "UNAUTHENTICATED"
            service.answer = {"token": OBSERVER}
            assert await client.policies("")
            await client.close()


async def test_a_runtime_that_is_far_away_is_reached_at_the_first_attempt(tmp_path: Path) -> None:
    with elsewhere(tmp_path) as server:
        async with cutting() as proxy:
            proxy.target, proxy.delay_s = server.address, 0.6
            credentials = FixedCredentials(bearer=OBSERVER)
            client = GrpcRuntime(proxy.address, credentials, Dialling(timeout_s=10))
            assert await client.policies("")
            await client.close()


async def test_a_new_client_does_not_wait_for_the_failed_attempt_of_another() -> None:
    address = f"127.0.0.1:{free_port()}"
    first, second = (
        GrpcRuntime(address, credentials_of(ControlPlaneSettings()), Dialling(timeout_s=10))
        for _ in range(2)
    )
    with pytest.raises(RuntimeFault) as failed:
        await first.policies("")
    assert failed.value.code == "RUNTIME_UNAVAILABLE"
    server = grpc.aio.server()
    server.add_insecure_port(address)
    await server.start()
    with pytest.raises(RuntimeFault) as answered:
        await second.policies("")
    assert answered.value.code == "NOT_IMPLEMENTED"
    for client in (first, second):
        await client.close()
    await server.stop(None)


async def test_the_chain_ends_with_a_name_for_runtimes_in_development() -> None:
    named = ControlPlaneSettings(runtime_use_dev_header=True, runtime_dev_agent_id="watcher")
    assert await credentials_of(named).metadata() == (("x-macp-agent-id", "watcher"),)
    both = ControlPlaneSettings(runtime_use_dev_header=True, runtime_bearer_token="fixed")
    assert await bearer_of(credentials_of(both)) == "fixed"
    assert await credentials_of(ControlPlaneSettings()).metadata() == ()


async def test_a_runtime_that_is_not_there_is_unavailable() -> None:
    client = GrpcRuntime("127.0.0.1:1", FixedCredentials(), Dialling(timeout_s=10))
    with pytest.raises(RuntimeFault) as refused:
        await client.manifest()
    assert refused.value.code == "RUNTIME_UNAVAILABLE"
    with pytest.raises(RuntimeFault) as cut:
        async for _ in client.transcript("s", 0, live=True):
            pass
    assert cut.value.code == "RUNTIME_UNAVAILABLE"
    await client.close()


async def test_calls_have_a_deadline() -> None:
    async with hanging() as address:
        client = GrpcRuntime(address, FixedCredentials(), Dialling(timeout_s=0.2))
        with pytest.raises(RuntimeFault) as late:
            await client.manifest()
        assert late.value.code == "RUNTIME_TIMEOUT"
        await client.close()


@asynccontextmanager
async def hanging() -> AsyncGenerator[str]:
    """The address of a runtime that takes every call and answers none."""

    async def wait(request: bytes, context: object) -> bytes:
        await asyncio.Event().wait()
        return request

    class Handler(grpc.GenericRpcHandler):  # type: ignore[misc] # gRPC has no types
        def service(self, details: object) -> object:
            return grpc.unary_unary_rpc_method_handler(wait)

    server: Any = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(None)


async def test_tls_is_used_if_it_is_asked_for(tmp_path: Path) -> None:
    public, _ = certificate(tmp_path, "localhost")
    flags = ("--tls-cert", str(public), "--tls-key", str(tmp_path / "key.pem"))
    with running(tmp_path / "home", *flags) as server:
        address = server.address.replace("127.0.0.1", "localhost")
        trusting = Dialling(timeout_s=10, tls=True, roots=public.read_bytes())
        secure = GrpcRuntime(address, FixedCredentials(bearer="x"), trusting)
        assert (await secure.manifest()).agent_id == "macp-runtime"
        await secure.close()
        for other in (Dialling(timeout_s=10), Dialling(timeout_s=10, tls=True)):
            client = GrpcRuntime(address, FixedCredentials(bearer="x"), other)
            with pytest.raises(RuntimeFault) as refused:
                await client.manifest()
            assert refused.value.code == "RUNTIME_UNAVAILABLE"
            await client.close()
