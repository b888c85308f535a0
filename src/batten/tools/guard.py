"""The network as tools see it: every connection is checked by the address it goes to.

Names are resolved here and the connection uses the checked address, so DNS rebinding and
redirects gain nothing. Environment proxies are ignored: they would hide the address.
"""

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_address

from batten.contract.errors import ProviderError, Refused
from batten.tools.addresses import Address, Allowed
from batten.tools.own_ports import is_own_port


async def permitted_addresses(allowed: Allowed, host: str, port: int) -> list[Address]:
    """The host's addresses, if tools may reach all of them. Raises `Refused` otherwise.

    A name with a public and a private address is refused: no honest service has one. So is a port
    where Batten itself listens, whatever is allowed.
    """
    addresses = await _resolve(host, port)
    private = [one for one in addresses if not allowed.permits(host, one)]
    if private:
        shown = ", ".join(map(str, private))
        raise Refused(
            f"{host} is at {shown}, which is not a public address; it can be allowed with"
            " BATTEN_HTTP_ALLOW (hosts or ranges)",
            code="address_refused",
        )
    if any(is_own_port(one, port) for one in addresses):
        raise Refused(
            f"{host}:{port} is a port of Batten itself, which tools never reach; BATTEN_HTTP_ALLOW"
            " does not change that",
            code="address_refused",
        )
    return addresses


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
