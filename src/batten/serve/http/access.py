"""Who may call: a door for each connection, with the checks of what comes through it."""

import socket
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest

from msgspec import Struct
from msgspec.structs import replace

from batten.serve.caller_check import why_refused
from batten.serve.http.errors import HttpError
from batten.serve.http.guard import Guard
from batten.serve.http.keys import KEYLESS, OUR_NAMES, KeyRing, presented_key
from batten.serve.http.table import RANKS, Authenticate, Principal, Route
from batten.serve.tcp_peers import TcpPeers

LOCAL = Principal("operator", "admin")
"""The user of this machine, where no key is wanted; protocols call such a user the operator."""
PUBLIC = Principal("anonymous", "public")


class Door(Struct, frozen=True):
    """How far the requests of one connection are trusted."""

    authenticate: Authenticate
    guard: Guard | None = None
    """None for a socket that no browser can reach."""
    is_counted: bool = True
    """Whether clients have a rate that surfaces limit."""
    still_admits: Callable[[Principal], bool] = lambda _: True
    """Whether a client that was let in would be let in again: its key may be revoked meanwhile."""
    refusal: str = ""
    """Why every request is refused, whatever it asks for; empty for none."""


Entrance = Callable[[socket.socket], Door]
"""The door for a connection just accepted. Never raises."""


def local_entrance(connection: socket.socket) -> Door:
    """For a Unix socket that only its owner can open; a command in its sandbox is refused."""
    reason = why_refused(connection)
    if not reason:
        return _OWNERS
    return Door(
        lambda _: None,
        is_counted=False,
        refusal=f"this socket does not serve the process that connected: {reason}; connect over"
        " TCP with a key (batten keys create NAME)",
    )


_OWNERS = Door(lambda _: LOCAL, is_counted=False)


class NotTheOwner(HttpError):
    """No key is wanted of the owner, and this connection is not known to be the owner's."""

    remedy = (
        'As the user of the service: curl -H "Authorization: Bearer $(batten token)" …, and for'
        ' commands of Batten BATTEN_SERVER_KEY="$(batten token)"'
    )
    """The first key would end that no key is wanted of the owner."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            "unauthorized",
            f"without a key only the user of this service is served, and {reason}: send the token"
            " that `batten token` prints, as Authorization: Bearer TOKEN. `batten serve --open`"
            " serves every user of this machine",
            headers=(("www-authenticate", "Bearer"),),
        )


class Trust(Struct, frozen=True, kw_only=True):
    """Whom a TCP socket serves without a key."""

    token: str
    """Of the home; who has it is its owner."""
    keyless: Principal | None = None
    """Who calls without a key where that may be; None if everybody needs one."""
    has_keys: bool = True
    """Whether `keyless` ends with the first key of the home."""
    is_open: bool = False
    """Whether every user of this machine is served."""
    wants_token: str = ""
    """Why not even the owner is served without the token; empty if the owner is."""
    serves_others: bool = False
    """Whether other machines are served without a key."""


class NetworkEntrance:
    """For a TCP socket. Without a key it serves the user of this process alone."""

    def __init__(self, keys: KeyRing, guard: Guard, trust: Trust) -> None:
        self._keys = keys
        self._guard = guard
        self._trust = trust
        self._peers = TcpPeers()
        self._digest = sha256(trust.token.encode()).digest()
        self._holder = replace(trust.keyless or LOCAL)
        """Who has the token; the same name, and told apart by identity."""
        self._keyless_door = self._door(self._keyless)

    def __call__(self, connection: socket.socket) -> Door:
        trust = self._trust
        if trust.keyless is None or trust.is_open:
            return self._keyless_door
        if trust.serves_others and not self._peers.is_of_this_machine(connection):
            return self._keyless_door
        reason = trust.wants_token or self._peers.why_not_ours(connection)
        if not reason:
            return self._keyless_door

        def authenticate(headers: Mapping[bytes, bytes]) -> Principal | None:
            found = self._by_key(headers)
            if found is None and self._is_keyless():
                raise NotTheOwner(reason)
            return found

        return self._door(authenticate)

    def close(self) -> None:
        self._peers.close()

    def _door(self, authenticate: Authenticate) -> Door:
        return Door(authenticate, self._guard, still_admits=self._still_admits)

    def _is_keyless(self) -> bool:
        trust = self._trust
        return trust.keyless is not None and not (trust.has_keys and not self._keys.is_empty)

    def _keyless(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        return self._trust.keyless if self._is_keyless() else self._by_key(headers)

    def _by_key(self, headers: Mapping[bytes, bytes]) -> Principal | None:
        text = presented_key(headers)
        if text is not None and compare_digest(sha256(text).digest(), self._digest):
            return self._holder
        return _distinct(self._keys.principal(headers))

    def _still_admits(self, principal: Principal) -> bool:
        if principal is self._holder:
            return True
        try:
            return self._keys.holds(principal.key_id) if principal.key_id else self._is_keyless()
        except OSError:  # the keys cannot be read now: the next look tells
            return True


def _distinct(principal: Principal | None) -> Principal | None:
    """A key of an earlier version may have the name of an author that is no key: its id tells."""
    if principal is None or principal.name not in OUR_NAMES | KEYLESS:
        return principal
    return replace(principal, name=f"{principal.name}@{principal.key_id}")


def authorized(
    route: Route, authenticate: Authenticate, headers: Mapping[bytes, bytes]
) -> Principal:
    """Who calls; raises `unauthorized` without a key and `forbidden` without the route's scope."""
    if route.scope == "public":
        return PUBLIC
    principal = authenticate(headers)
    if principal is None:
        raise HttpError(
            "unauthorized",
            "this needs a valid key: send Authorization: Bearer KEY, or X-Api-Key: KEY",
            headers=(("www-authenticate", "Bearer"),),
        )
    if RANKS[principal.scope] < RANKS[route.scope]:
        raise HttpError(
            "forbidden",
            f"this needs the scope {route.scope}; the key of {principal.name} has"
            f" {principal.scope}",
        )
    return principal
