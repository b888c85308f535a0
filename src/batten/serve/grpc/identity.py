"""Who sends: static tokens, API keys, signed tokens, or any name in development."""

import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import Struct

from batten.contract.errors import CallerError
from batten.control.coordination.chair import CHAIR
from batten.coordination.envelope import RUNTIME
from batten.coordination.rejection import Rejection, forbidden
from batten.coordination.session import Session, may_manage
from batten.protocols.macp.judgements import AUTHOR
from batten.serve.grpc.callers import Callers
from batten.serve.http.errors import HttpError
from batten.serve.http.keys import KEYLESS, OUR_NAMES
from batten.serve.http.limits import WrongKeys

Verify = Callable[[str], "Identity"]
"""The identity of a credential; raises `Rejection` for one that is not valid."""
Lookup = Callable[[str], "Identity | None"]
_FRESH_S = 10.0
"""A known identity is looked up again after this time, so that the use of its key is noted."""
_MOST_KNOWN = 10_000
_AUTHORS = OUR_NAMES | KEYLESS
"""No caller may give itself such a name: events and the audit log name authors so."""


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

    def may_see(self, session: Session) -> bool:
        """Whether the caller takes part in the session, may commit in it, or may look at any."""
        return (
            self.is_observer or session.panel.has(self.sender) or may_manage(session, self.sender)
        )


class StaticToken(Identity, frozen=True, kw_only=True):
    """One entry of a tokens file."""

    token: str


class ServerIdentity(Identity, frozen=True, kw_only=True):
    """The server that started this runtime: it records itself what its clients do."""


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
    observer = ServerIdentity(
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
        keys_version: Callable[[], int] = lambda: 0,
        allow_anyone: Callable[[], bool] = lambda: False,
        reserved: Iterable[str] = (),
        callers: Callers | None = None,
    ) -> None:
        """`keys_version` changes when `keys` or `allow_anyone` would answer otherwise than before.
        `allow_anyone` says whether a bearer value is the sender itself: development only, and for
        those `callers` that may; None for all.

        No caller may use a `reserved` name: agents of this process have it. Nor may one give
        itself a name by which events and the audit log tell what Batten and its operators do.
        """
        self._reserved = frozenset((CHAIR, RUNTIME, AUTHOR, *reserved))
        self._tokens = tokens or {}
        self._jwt = jwt
        self._keys = keys
        self._keys_version = keys_version
        self._allow_anyone = allow_anyone
        self.callers = callers
        self._wrong_keys = WrongKeys()
        self._version = -1
        self._known: dict[bytes, tuple[Identity, float]] = {}
        """Identities by the digest of their credentials, and until when they are fresh."""

    @property
    def allows_anyone(self) -> bool:
        """Whether callers may give themselves any name now."""
        return self._allow_anyone()

    def identify(self, metadata: Mapping[str, Any], peer: str = "") -> Identity:
        """The sender of a call by this peer, as gRPC names it. Raises `UNAUTHENTICATED`, and
        `RATE_LIMITED` if it guesses.
        """
        bearer, token = _credential(metadata)
        try:
            return self._identity(metadata, bearer, token, peer)
        except Rejection as error:
            is_guess = error.code == "UNAUTHENTICATED" and (bearer or token)
            if is_guess and not self._allow_anyone():  # else it is a name
                self._count_guess(peer)
            raise

    def _count_guess(self, peer: str) -> None:
        kind, _, place = unquote(peer).partition(":")
        if kind not in ("ipv4", "ipv6"):
            return
        try:
            self._wrong_keys.count(place.rpartition(":")[0].strip("[]"))
        except HttpError as error:
            raise Rejection("RATE_LIMITED", error.message) from error

    def _identity(
        self, metadata: Mapping[str, Any], bearer: str, token: str, peer: str
    ) -> Identity:
        if bearer and self._jwt is not None and "." in bearer:
            return self._checked(self._jwt(bearer))
        name = str(metadata.get("x-macp-agent-id", "")).strip()
        version, now = self._keys_version(), time.monotonic()
        if version != self._version or len(self._known) >= _MOST_KNOWN:
            self._version = version
            self._known.clear()
        digest = _digest(f"{bearer}\n{token}\n{name}")
        known = self._known.get(digest)
        if known is not None and now < known[1]:
            return known[0]
        found = self._by_credential(bearer or token)
        if found is None:  # whether any name is taken depends on the connection
            return self._checked(self._by_name(bearer or token, name, peer))
        identity = self._checked(found)
        self._known[digest] = (identity, now + _FRESH_S)
        return identity

    def _checked(self, identity: Identity) -> Identity:
        if identity.sender in self._reserved:
            raise _reserved(identity.sender)
        return identity

    def _by_credential(self, credential: str) -> Identity | None:
        if not credential:
            return None
        known = self._tokens.get(_digest(credential)) if "." not in credential else None
        if known is None and self._keys is not None:
            known = self._keys(credential)
        return known

    def _by_name(self, credential: str, name: str, peer: str) -> Identity:
        if not (credential or name) or not self._allow_anyone():
            raise Rejection(
                "UNAUTHENTICATED", "send a valid token: metadata authorization: Bearer TOKEN"
            )
        sender = credential or name
        if self.callers is not None and credential and self.callers.has_token(credential):
            sender = name
            if not name:
                raise Rejection(
                    "UNAUTHENTICATED", "say who sends, beside the token: metadata x-macp-agent-id"
                )
        elif self.callers is not None and (why := self.callers.why_not(peer)):
            raise Rejection(
                "UNAUTHENTICATED",
                f"without a token only the user of this runtime is served, and {why}: send the one"
                " that `batten token` prints as authorization: Bearer TOKEN, and your name as"
                " x-macp-agent-id. --open serves every user of this machine",
            )
        if sender.casefold() in _AUTHORS:
            raise _reserved(sender)
        return Identity(sender=sender, can_manage_mode_registry=True)


def _reserved(sender: str) -> Rejection:
    return Rejection("UNAUTHENTICATED", f"{sender} is a name of the runtime's: use another")


def _credential(metadata: Mapping[str, Any]) -> tuple[str, str]:
    given = str(metadata.get("authorization", ""))
    scheme, _, bearer = given.partition(" ")
    token = str(metadata.get("x-macp-token", "")).strip()
    return (bearer.strip() if scheme.lower() == "bearer" else "", token)
