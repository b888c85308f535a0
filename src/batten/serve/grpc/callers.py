"""Who may call under any name: the user of this process, and whoever has the token of its home."""

from hashlib import sha256
from hmac import compare_digest
from ipaddress import ip_address
from urllib.parse import unquote

from batten.serve.tcp_peers import UNKNOWN, TcpPeers


class Callers:
    """Tells the owner's connections from those of other users of this machine."""

    def __init__(
        self, token: str, host: str, *, is_open: bool = False, wants_token: str = ""
    ) -> None:
        """`host`: where the runtime listens. `wants_token`: why not even the owner is served
        without the token; empty if the owner is.
        """
        self.port = 0
        """Where it listens, once it does."""
        self._digest = sha256(token.encode()).digest()
        self._host = host
        self._is_open = is_open
        self._wants_token = wants_token
        self._peers = TcpPeers()

    def close(self) -> None:
        self._peers.close()

    def has_token(self, credential: str) -> bool:
        return compare_digest(sha256(credential.encode()).digest(), self._digest)

    def why_not(self, peer: str) -> str:
        """Why a caller without the token is not served; empty if it is.

        gRPC does not tell when a connection ends, so each call is asked about: its port may be
        another's by then.
        """
        if self._is_open:
            return ""
        if self._wants_token:
            return self._wants_token
        kind, _, place = unquote(peer).partition(":")
        host, _, port = place.rpartition(":")
        if kind not in ("ipv4", "ipv6") or not port.isdecimal():
            return UNKNOWN
        host = host.strip("[]")
        return self._peers.why_not_our_peer(host, int(port), self._own(host), self.port)

    def _own(self, peer: str) -> str:
        """Our end of a connection: gRPC tells only the other one."""
        try:
            own = ip_address(self._host)
        except ValueError:  # localhost, in the family of the peer
            return "::1" if ":" in peer and "." not in peer else "127.0.0.1"
        return peer if own.is_unspecified else self._host
