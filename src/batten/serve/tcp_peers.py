"""Which user of this machine made a TCP connection: asked of the kernel, for exactly this one.

One question and one answer over netlink (`sock_diag`) take 4 µs; `/proc/net/tcp` lists every socket
of the machine.
"""

import os
import socket
import struct
from contextlib import suppress
from functools import cache
from ipaddress import IPv4Address, IPv6Address, ip_address

from batten.serve.caller_check import why_refused_by_socket
from batten.serve.http.errors import HttpError
from batten.serve.http.limits import Throttle
from batten.tools.own_ports import is_of_this_machine
from batten.workspace.network_mark import is_marked

_SOCK_DIAG = 4
_BY_FAMILY = 20
_REQUEST = 1
_HEADER = struct.Struct("=IHHII")
_ASKED = struct.Struct("=BBBxI")
_PORTS = struct.Struct("!HH")
_REST = struct.Struct("=III")
"""The interface and two halves of a cookie."""
_ANY_COOKIE = 0xFFFFFFFF
_ID_BYTES = 48
_TOLD = struct.Struct("=BBBB")
_OWNER = struct.Struct("=IIIII")
"""After the id: expiry, both queues, user, inode."""
_SEARCHES, _SEARCHES_S = 100, 10.0
"""So many searches through the processes in this time: each takes some ms of the event loop."""
_CONNECTED = frozenset((1, 4, 5, 8))
"""States in which a program may still have the socket: established, or closed on one side."""

UNKNOWN = (
    "the kernel does not tell whose connection this is (it was closed, or comes through a forwarded"
    " port or from another network namespace)"
)


class TcpPeers:
    """Asks the kernel. One socket serves all questions."""

    def __init__(self) -> None:
        self._kernel: socket.socket | None = None
        self._searches = Throttle(_SEARCHES, _SEARCHES_S)

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def why_not_ours(self, connection: socket.socket) -> str:
        """Why the other end of an accepted connection is not known to be of our user; empty if it
        is. Says so in the third person, as part of a sentence.
        """
        try:
            peer, own = connection.getpeername(), connection.getsockname()
        except OSError:
            return UNKNOWN
        return self.why_not_our_peer(peer[0], peer[1], own[0], own[1])

    def why_not_our_peer(self, host: str, port: int, own_host: str, own_port: int) -> str:
        user, inode = self._owner_of(host, port, own_host, own_port)
        if user is None:
            return UNKNOWN
        if user != os.geteuid():
            return f"the user {user} has connected, not {os.geteuid()}"
        # Commands in a sandbox are of our user too. Mostly there is none that could connect.
        why = self._why_confined(inode) if is_marked() else ""
        return f"commands of a run may use the network, and {why}" if why else ""

    def _why_confined(self, inode: int) -> str:
        try:
            self._searches.take("")
        except HttpError:
            return "so many connect that the processes are not searched for"
        return why_refused_by_socket(inode)

    def user_of(self, host: str, port: int, own_host: str, own_port: int) -> int | None:
        """The user who made the socket at `host` that is connected to ours; None if the kernel
        does not tell.
        """
        return self._owner_of(host, port, own_host, own_port)[0]

    def _owner_of(
        self, host: str, port: int, own_host: str, own_port: int
    ) -> tuple[int | None, int]:
        """The user, and the number of the socket."""
        try:
            found = self._ask(_unmapped(host), port, _unmapped(own_host), own_port)
        except (OSError, ValueError, struct.error):
            self.close()
            return None, 0
        # Users without a number in our user namespace are all shown as one.
        if found is None or (found[0] == _nobody() and _is_partial()):
            return None, 0
        return found

    def is_of_this_machine(self, connection: socket.socket) -> bool:
        """Whether the other end is on this machine; yes if that cannot be said."""
        with suppress(OSError, ValueError):
            return is_of_this_machine(_unmapped(connection.getpeername()[0]))
        return True

    def _ask(
        self,
        peer: IPv4Address | IPv6Address,
        port: int,
        own: IPv4Address | IPv6Address,
        own_port: int,
    ) -> tuple[int, int] | None:
        if self._kernel is None:
            made = socket.socket(
                socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG
            )
            made.setblocking(False)  # the kernel answers before `send` returns
            made.connect((0, 0))
            self._kernel = made
        family = socket.AF_INET if peer.version == 4 else socket.AF_INET6
        ends = (
            _PORTS.pack(port, own_port) + peer.packed.ljust(16, b"\0") + own.packed.ljust(16, b"\0")
        )
        asked = _ASKED.pack(family, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends
        asked += _REST.pack(0, _ANY_COOKIE, _ANY_COOKIE)
        size = _HEADER.size + len(asked)
        self._kernel.send(_HEADER.pack(size, _BY_FAMILY, _REQUEST, 0, 0) + asked)
        told = self._kernel.recv(8192)
        _, kind, *_ = _HEADER.unpack_from(told)
        if kind != _BY_FAMILY:
            return None
        its_family, state, _, _ = _TOLD.unpack_from(told, _HEADER.size)
        at = _HEADER.size + _TOLD.size
        *_, user, inode = _OWNER.unpack_from(told, at + _ID_BYTES)
        # Without such a connection the kernel tells of whoever listens at that address.
        is_exact = _ends_of(told[at : at + _ID_BYTES], its_family) == (peer, port, own, own_port)
        # A socket that its program has closed belongs to nobody, which is shown as root.
        return (user, inode) if is_exact and state in _CONNECTED and inode else None


def _ends_of(told: bytes, family: int) -> tuple[object, int, object, int]:
    port, own_port = _PORTS.unpack_from(told)
    size = 4 if family == socket.AF_INET else 16
    peer, own = (ip_address(told[at : at + size]) for at in (4, 20))
    return _plain(peer), port, _plain(own), own_port


def _unmapped(host: str) -> IPv4Address | IPv6Address:
    return _plain(ip_address(host.partition("%")[0]))


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return getattr(address, "ipv4_mapped", None) or address


@cache
def _nobody() -> int:
    with open("/proc/sys/kernel/overflowuid", "rb") as file:
        return int(file.read())


@cache
def _is_partial() -> bool:
    """Whether there are users without a number here: we are in a user namespace."""
    with open("/proc/self/uid_map", "rb") as file:
        return file.read().split() != [b"0", b"0", b"4294967295"]
