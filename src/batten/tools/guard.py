"""The network as tools see it: every connection is checked by the address it goes to.

Names are resolved here and the connection uses the checked address, so DNS rebinding and
redirects gain nothing. Environment proxies are ignored: they would hide the address.
"""

import asyncio
import socket
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any, cast

import httpcore

from batten.contract.errors import ProviderError, Refused
from batten.tools.addresses import Address, Allowed


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Connects to permitted addresses only."""

    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed
        # Defined under a condition, so type checkers do not see the class.
        self._network: httpcore.AsyncNetworkBackend = cast(Any, httpcore).AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        failure: Exception | None = None
        for address in await permitted_addresses(self._allowed, host, port):
            try:
                return await self._network.connect_tcp(
                    str(address), port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise ProviderError(
            f"could not connect to {host}:{port}", code="unreachable", retriable=True
        ) from failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def permitted_addresses(allowed: Allowed, host: str, port: int) -> list[Address]:
    """The host's addresses that tools may reach. Raises `Refused` if there are none."""
    addresses = await _resolve(host, port)
    permitted = [one for one in addresses if allowed.permits(host, one)]
    if not permitted:
        shown = ", ".join(map(str, addresses))
        raise Refused(
            f"{host} is at {shown}, which is not a public address; it can be allowed with"
            " BATTEN_HTTP_ALLOW (hosts or ranges)",
            code="address_refused",
        )
    return permitted


async def _resolve(host: str, port: int) -> list[Address]:
    with suppress(ValueError):  # an address needs no resolver, which would cost a thread
        return [ip_address(host)]
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
    except (OSError, UnicodeError) as error:
        raise ProviderError(
            f"the name {host} has no address: {error}", code="unreachable", retriable=True
        ) from error
    # In the resolver's order, without duplicates; a scope (`fe80::1%eth0`) is kept.
    return list({ip_address(str(entry[4][0])): None for entry in found})
