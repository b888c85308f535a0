"""JWT with JWKS: RS256 and ES256, keys from a file or an address."""

import json
import logging
import threading
import time
import urllib.request
from hashlib import sha256
from importlib import import_module
from typing import Any, cast

from msgspec import Struct

from batten.contract.errors import CallerError
from batten.coordination.rejection import Rejection
from batten.serve.grpc.identity import Identity

_log = logging.getLogger("batten.coordination")
_FRESH_S = 300.0
_GRACE_S = 3600.0
"""How long known keys serve when newer ones cannot be fetched."""
_TIMEOUT_S = 5.0
_RETRY_S = 5.0
_MOST_VERIFIED = 1000
DEFAULT_AUDIENCE = "macp-runtime"
DEFAULT_ALGORITHMS = ("RS256", "ES256")


class JwtOptions(Struct, frozen=True, kw_only=True):
    issuer: str
    audience: str = DEFAULT_AUDIENCE
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    jwks: str = ""
    """A JWKS as text."""
    jwks_url: str = ""


class _Verified(Struct, frozen=True):
    """A token with a good signature."""

    identity: Identity
    kid: str
    expires_at: float


class JwtVerifier:
    """Verifies signed tokens. Keys of an address are fetched beside the calls, never during one:
    a token with a key that is not known yet is refused, and can be sent again.
    """

    def __init__(self, options: JwtOptions) -> None:
        self._options = options
        self._jwt: Any = import_module("jwt")
        self._keys: dict[str, Any] = {}
        self._verified: dict[bytes, _Verified] = {}
        """By the digest of the token; replaced together with the keys."""
        self._fetched_at = float("-inf")
        self._tried_at = float("-inf")
        if options.jwks:
            self._keys = self._read(options.jwks)
        elif options.jwks_url:
            self._fetch()
        else:
            raise CallerError("signed tokens need a JWKS: name a file or an address", code="config")

    def __call__(self, token: str) -> Identity:
        verified, digest = self._verified, sha256(token.encode()).digest()
        known = verified.get(digest)
        if known is None or time.time() >= known.expires_at:
            known = self._verify(token)
            if len(verified) >= _MOST_VERIFIED:
                verified.clear()
            verified[digest] = known
        else:
            self._key(known.kid)  # the keys may have become too old
        return known.identity

    def _verify(self, token: str) -> _Verified:
        try:
            kid = str(self._jwt.get_unverified_header(token).get("kid", ""))
            claims = self._jwt.decode(
                token,
                self._key(kid),
                algorithms=list(self._options.algorithms),
                audience=self._options.audience,
                issuer=self._options.issuer,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            return _Verified(_identity(claims), kid, float(claims["exp"]))
        except Rejection:
            raise
        except Exception as error:  # every fault of a token is a refusal
            raise Rejection("UNAUTHENTICATED", f"the signed token is not valid: {error}") from error

    def _key(self, kid: str) -> Any:
        known = self._keys.get(kid)
        if known is None and not kid and len(self._keys) == 1:
            known = next(iter(self._keys.values()))
        if self._options.jwks_url:
            age = time.monotonic() - self._fetched_at
            if known is None or age > _FRESH_S:
                self._refresh()
            if age > _GRACE_S:
                raise Rejection("UNAUTHENTICATED", "the keys of signed tokens cannot be fetched")
        if known is None:
            raise Rejection("UNAUTHENTICATED", f"no key {kid!r} is known")
        return known

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._tried_at >= _RETRY_S:
            self._tried_at = now
            threading.Thread(target=self._fetch, name="jwks", daemon=True).start()

    def _fetch(self) -> None:
        self._tried_at = time.monotonic()
        try:
            with urllib.request.urlopen(self._options.jwks_url, timeout=_TIMEOUT_S) as answer:
                self._keys = self._read(answer.read(1 << 20).decode())
            self._verified = {}
            self._fetched_at = time.monotonic()
        except (OSError, ValueError, CallerError) as error:
            _log.warning("the keys of signed tokens cannot be fetched: %s", error)

    def _read(self, text: str) -> dict[str, Any]:
        try:
            found = self._jwt.PyJWKSet.from_dict(json.loads(text))
        except Exception as error:  # the library has many kinds of them
            raise CallerError(f"this is no JWKS: {error}", code="config") from error
        return {str(key.key_id or ""): key for key in found.keys}


def _identity(claims: dict[str, Any]) -> Identity:
    scopes = claims.get("macp_scopes")
    given = cast(dict[str, Any], scopes) if isinstance(scopes, dict) else {}
    sender = str(claims["sub"]).strip()
    if not sender:
        raise Rejection("UNAUTHENTICATED", "the signed token names no sender")
    most = given.get("max_open_sessions")
    return Identity(
        sender=sender,
        allowed_modes=tuple(str(mode) for mode in given.get("allowed_modes") or ()),
        can_start_sessions=given.get("can_start_sessions", True) is True,
        max_open_sessions=most if isinstance(most, int) else None,
        can_manage_mode_registry=given.get("can_manage_mode_registry") is True,
        is_observer=given.get("is_observer") is True,
    )
