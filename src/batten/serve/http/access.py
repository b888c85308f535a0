"""Who may call: a door for each socket, with the checks of what comes through it."""

from collections.abc import Callable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from batten.serve.http.errors import HttpError
from batten.serve.http.guard import Guard
from batten.serve.http.keys import KEYLESS, OUR_NAMES, KeyRing
from batten.serve.http.table import RANKS, Authenticate, Principal, Route

LOCAL = Principal("operator", "admin")
"""The user of this machine, where no key is wanted; protocols call such a user the operator."""
PUBLIC = Principal("anonymous", "public")


class Door(Struct, frozen=True):
    """How far the requests of one socket are trusted."""

    authenticate: Authenticate
    guard: Guard | None = None
    """None for a socket that no browser can reach."""
    is_counted: bool = True
    """Whether clients have a rate that surfaces limit."""
    still_admits: Callable[[Principal], bool] = lambda _: True
    """Whether a client that was let in would be let in again: its key may be revoked meanwhile."""


def local_door() -> Door:
    """For a Unix socket that only its owner can open."""
    return Door(lambda _: LOCAL, is_counted=False)


def network_door(keys: KeyRing, guard: Guard, *, is_local: bool) -> Door:
    """For a TCP socket. On loopback no key is wanted as long as there is none."""

    def authenticate(headers: Mapping[bytes, bytes]) -> Principal | None:
        if is_local and keys.is_empty:
            return LOCAL
        return _distinct(keys.principal(headers))

    def still_admits(principal: Principal) -> bool:
        try:
            if not principal.key_id:
                return is_local and keys.is_empty
            return keys.holds(principal.key_id)
        except OSError:  # the keys cannot be read now: the next look tells
            return True

    return Door(authenticate, guard, still_admits=still_admits)


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
