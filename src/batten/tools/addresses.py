"""Addresses that tools may connect to: public ones, and those the user allows by name or range."""

from collections.abc import Iterable
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)

from batten.contract.errors import CallerError

Address = IPv4Address | IPv6Address
LOOPBACK = "loopback"
"""An entry for this machine where it is named as such; a name that only leads here is not meant."""

_NAT64 = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_V4_COMPATIBLE = IPv6Network("::/96")
_V4_TRANSLATED = IPv6Network("::ffff:0:0:0/96")

# A table of our own: the interpreter's differs from version to version. From the registries of
# special-purpose addresses (IANA, RFC 6890 and its updates).
_SPECIAL_V4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # shared between carriers and their customers
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local, with the metadata services of clouds
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # automatic multicast tunnels
            "192.88.99.0/24",  # relays of 6to4
            "192.168.0.0/16",  # private
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
            # Public by their number, but a cloud answers there from inside the machine.
            "168.63.129.16/32",
        ),
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
"""All that is assigned for global unicast; everything else is special."""
_SPECIAL_V6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: benchmarks, ORCHID, drone ids
            "2001:db8::/32",  # documentation
            "2620:4f:8000::/48",  # AS112
            "3fff::/20",  # documentation
        ),
    )
)


def is_public(address: Address) -> bool:
    """Whether an address is public; an embedded IPv4 address decides if there is one."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    inner = _wrapped(address)
    if inner is not None:
        return is_public(inner)
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)


def _wrapped(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address behind this one, if a translator or tunnel unwraps it."""
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if any(address in network for network in (*_NAT64, _V4_COMPATIBLE, _V4_TRANSLATED)):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


class Allowed:
    """Hosts and ranges that tools may connect to although they are not public."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._hosts: set[str] = set()
        self._is_local = False
        self._networks: list[IPv4Network | IPv6Network] = []
        for entry in entries:
            self._add(entry.strip())

    def _add(self, entry: str) -> None:
        if not entry:
            return
        if entry == LOOPBACK:
            self._is_local = True
            return
        try:
            self._networks.append(ip_network(entry, strict=False))
        except ValueError:
            if "/" in entry or ":" in entry:
                raise CallerError(
                    f"{entry!r} is neither a host name nor a range such as 10.0.0.0/8",
                    code="config",
                ) from None
            self._hosts.add(entry.lower().rstrip("."))

    def permits(self, host: str, address: Address) -> bool:
        """Whether a connection to `host` may use `address`."""
        name = host.lower().rstrip(".")
        if is_public(address) or name in self._hosts:
            return True
        if self._is_local and address.is_loopback and _names_this_machine(name):
            return True
        inner = _wrapped(address) if isinstance(address, IPv6Address) else None
        return any(
            one.version == network.version and one in network
            for one in (address, inner)
            if one is not None
            for network in self._networks
        )


def _names_this_machine(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
