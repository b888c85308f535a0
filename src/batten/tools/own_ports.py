"""The ports of Batten itself, which tools never connect to.

A tool or a task that reaches a service of Batten could give itself what it was not given. Each
listener of ours holds a socket whose name tells its port, in the network namespace of the port. So
those of other homes and users are known too, and a process that was killed leaves none behind.
Nobody can take such a name away; a forged one only closes a port.
"""

import secrets
import socket
from collections.abc import Generator
from contextlib import contextmanager
from ipaddress import IPv4Address, IPv6Address

_NAME = "batten-port"
_TABLE = "/proc/self/net/unix"


@contextmanager
def own_port(port: int) -> Generator[None]:
    """While this is open, tools refuse to connect to this port of this machine."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as marker:
        # Without a random part, others could take the name first and give it back later.
        marker.bind(f"\0{_NAME}/{port}/{secrets.token_hex(8)}")
        yield


def is_own_port(address: IPv4Address | IPv6Address, port: int) -> bool:
    """Whether something of Batten listens there: on this machine, in this network namespace.

    Where the kernel does not tell, every port of this machine counts.
    """
    if not is_of_this_machine(address):
        return False
    wanted = f"@{_NAME}/{port}/".encode()
    try:
        with open(_TABLE, "rb") as table:
            return any(wanted in line for line in table)
    except OSError:
        return True


def is_of_this_machine(address: IPv4Address | IPv6Address) -> bool:
    """Whether the address is one of this machine's: only such can be bound."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
    if address.is_unspecified:
        return True
    try:
        with socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as probe:
            probe.bind((str(address), 0))
    except OSError:  # also where the kernel knows no IPv6
        return False
    return True
