"""MCP servers at a URL: the SDK's transports, and where they may connect to.

The SDK follows no redirect and no `endpoint` event to another origin. What is left is the name,
which may lead elsewhere each time: a server that must be at a public address is connected to at the
address that was checked. Its clients use no proxy of the environment, which would hide the address.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2

from batten.contract.errors import BattenError
from batten.tools.addresses import Allowed
from batten.tools.guard import permitted_addresses
from batten.tools.mcp_config import ServerConfig

_NEXT_S = 2.0
"""How long an address may take to be connected to before the next one of its name is tried."""
_QUIET_S = 24 * 3600.0
"""How long a server may send nothing over SSE: between calls there is nothing to send."""


@asynccontextmanager
async def remote_server(
    config: ServerConfig, allowed: Allowed | None, *, read_s: float
) -> AsyncGenerator[Any, None]:
    """The transport to a server. With `allowed` only to the addresses that it permits."""
    transport = None if allowed is None else CheckedTransport(allowed)

    def client(
        headers: dict[str, Any] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, transport=transport)

    if config.transport == "sse":
        from mcp.client.sse import sse_client

        yield sse_client(
            config.url,
            config.headers,
            timeout=config.timeout_s,
            sse_read_timeout=_QUIET_S,
            httpx_client_factory=client,
        )
        return
    from mcp.client.streamable_http import streamable_http_client

    async with client(config.headers, httpx2.Timeout(config.timeout_s, read=read_s)) as http:
        yield streamable_http_client(config.url, http_client=http)


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Sends each request to an address of its host that was checked, under the host's name."""

    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed
        self._network = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        host = url.raw_host.decode("ascii")
        port = url.port or (443 if url.scheme == "https" else 80)
        try:
            addresses = await permitted_addresses(self._allowed, host.strip("[]"), port)
        except BattenError as error:
            # Of the library: the SDK ends the request with it, whenever that happens.
            raise httpx2.ConnectError(str(error), request=request) from error
        *others, last = addresses
        for address in others:
            with suppress(httpx2.ConnectError, httpx2.ConnectTimeout):  # nothing was sent
                return await self._send(request, host, str(address), _NEXT_S)
        return await self._send(request, host, str(last))

    async def _send(
        self, request: httpx2.Request, host: str, address: str, within_s: float | None = None
    ) -> httpx2.Response:
        """With the `Host` of the original request, and a certificate for it."""
        extensions: dict[str, Any] = {**request.extensions, "sni_hostname": host}
        if within_s is not None:
            extensions["timeout"] = {**extensions.get("timeout", {}), "connect": within_s}
        sent = httpx2.Request(
            request.method,
            request.url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions=extensions,
        )
        return await self._network.handle_async_request(sent)

    async def aclose(self) -> None:
        await self._network.aclose()
