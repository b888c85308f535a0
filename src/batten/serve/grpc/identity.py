"""Who sends: static tokens, API keys, signed tokens, or any name in development."""

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError
from batten.control.coordination.chair import CHAIR
from batten.coordination.rejection import Rejection, forbidden

Verify = Callable[[str], "Identity"]
"""The identity of a credential; raises `Rejection` for one that is not valid."""
Lookup = Callable[[str], "Identity | None"]


class Identity(Struct, frozen=True, kw_only=True):
    """An authenticated sender and what it may do."""

    sender: str
    allowed_modes: tuple[str, ...] = ()
    """Empty for all."""
    can_start_sessions: bool = True
    max_open_sessions: int | None = None
    can_manage_mode_registry: bool = False
    is_observer: bool = False
    """May look at any session."""

    def check_mode(self, mode: str, *, starts: bool) -> None:
        """Raise `FORBIDDEN` unless this sender may send in the mode."""
        if starts and not self.can_start_sessions:
            raise forbidden(f"{self.sender} may not start sessions")
        if self.allowed_modes and mode not in self.allowed_modes:
            raise forbidden(f"{self.sender} may not send in mode {mode!r}")


class StaticToken(Identity, frozen=True, kw_only=True):
    """One entry of a tokens file."""

    token: str


class _Wrapped(Struct, frozen=True):
    tokens: list[StaticToken]


def read_tokens(text: bytes, origin: str) -> dict[bytes, Identity]:
    """Identities by the digest of their token: an array, or an object with `tokens`."""
    try:
        found = msgspec.json.decode(text, type=list[StaticToken] | _Wrapped)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise CallerError(f"{origin} holds no tokens: {error}", code="config") from error
    tokens = found.tokens if isinstance(found, _Wrapped) else found
    for one in tokens:
        if not one.token.strip() or not one.sender.strip():
            raise CallerError(f"{origin}: token and sender must not be blank", code="config")
    return {_digest(one.token): one for one in tokens}


def observer_token(token: str) -> dict[bytes, Identity]:
    """The identity of the server that started this runtime: it looks, and keeps the registries."""
    if not token:
        return {}
    observer = Identity(
        sender="macp-control-plane",
        can_start_sessions=False,
        can_manage_mode_registry=True,
        is_observer=True,
    )
    return {_digest(token): observer}


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


class Authenticator:
    """Asks each source of identities in turn; the first that knows a credential decides."""

    def __init__(
        self,
        *,
        tokens: Mapping[bytes, Identity] | None = None,
        jwt: Verify | None = None,
        keys: Lookup | None = None,
        allow_anyone: Callable[[], bool] = lambda: False,
        reserved: Iterable[str] = (),
    ) -> None:
        """`allow_anyone` says whether a bearer value is the sender itself: development only.

        No caller may use a `reserved` name: agents of this process have it.
        """
        self._reserved = frozenset((CHAIR, *reserved))
        self._tokens = tokens or {}
        self._jwt = jwt
        self._keys = keys
        self._allow_anyone = allow_anyone

    @property
    def allows_anyone(self) -> bool:
        """Whether callers may give themselves any name now."""
        return self._allow_anyone()

    def identify(self, metadata: Mapping[str, Any]) -> Identity:
        """The sender of a call. Raises `UNAUTHENTICATED`."""
        identity = self._identify(metadata)
        if identity.sender in self._reserved:
            name = identity.sender
            raise Rejection("UNAUTHENTICATED", f"{name} is a name of the runtime's: use another")
        return identity

    def _identify(self, metadata: Mapping[str, Any]) -> Identity:
        bearer, token = _credential(metadata)
        if bearer and self._jwt is not None and "." in bearer:
            return self._jwt(bearer)
        credential = bearer or token
        if credential:
            known = self._tokens.get(_digest(credential)) if "." not in credential else None
            if known is None and self._keys is not None:
                known = self._keys(credential)
            if known is not None:
                return known
        if self._allow_anyone():
            name = credential or str(metadata.get("x-macp-agent-id", "")).strip()
            if name:
                return Identity(sender=name, can_manage_mode_registry=True)
        raise Rejection(
            "UNAUTHENTICATED", "send a valid token: metadata authorization: Bearer TOKEN"
        )


def _credential(metadata: Mapping[str, Any]) -> tuple[str, str]:
    given = str(metadata.get("authorization", ""))
    scheme, _, bearer = given.partition(" ")
    token = str(metadata.get("x-macp-token", "")).strip()
    return (bearer.strip() if scheme.lower() == "bearer" else "", token)
