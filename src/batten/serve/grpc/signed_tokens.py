"""JWT with JWKS: RS256 and ES256, HS256 where it is asked for; keys from a file or an address."""

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
FRESH_S = 300
_GRACE_S = 3600.0
"""How long known keys serve when newer ones cannot be fetched."""
_TIMEOUT_S = 5.0
_RETRY_S = 5.0
_MOST_VERIFIED = 1000
DEFAULT_AUDIENCE = "macp-runtime"
DEFAULT_ALGORITHMS = ("RS256", "ES256")
KNOWN_ALGORITHMS = (*DEFAULT_ALGORITHMS, "HS256")
"""HS256 signs with a secret that the issuer shares: it must be asked for."""


class JwtOptions(Struct, frozen=True, kw_only=True):
    issuer: str
    audience: str = DEFAULT_AUDIENCE
    algorithms: tuple[str, ...] = DEFAULT_ALGORITHMS
    jwks: str = ""
    """A JWKS as text."""
    jwks_url: str = ""
    fresh_s: float = FRESH_S
    """How long fetched keys are used before newer ones are looked for."""


class _Verified(Struct, frozen=True):
    """A token with a good signature."""

    identity: Identity
    kid: object
    expires_at: float


class JwtVerifier:
    """Verifies signed tokens. Keys of an address are fetched beside the calls, never during one:
    a token with a key that is not known yet is refused, and can be sent again.

    A token is verified with the key that it names; with all of them if it names none of ours.
    """

    def __init__(self, options: JwtOptions) -> None:
        self._options = options
        self._jwt: Any = import_module("jwt")
        unknown = sorted(set(options.algorithms) - set(KNOWN_ALGORITHMS))
        if unknown:
            known = ", ".join(KNOWN_ALGORITHMS)
            raise CallerError(
                f"no tokens are signed with {', '.join(unknown)}: name some of {known}",
                code="config",
            )
        self._keys: tuple[Any, ...] = ()
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
            self._candidates(known.kid)  # the keys may have become too old
        return known.identity

    def _verify(self, token: str) -> _Verified:
        try:
            kid = self._jwt.get_unverified_header(token).get("kid")
            claims = self._claims(token, self._candidates(kid))
            return _Verified(_identity(claims), kid, float(claims["exp"]))
        except Rejection:
            raise
        except Exception as error:  # every fault of a token is a refusal
            raise Rejection("UNAUTHENTICATED", f"the signed token is not valid: {error}") from error

    def _claims(self, token: str, keys: tuple[Any, ...]) -> dict[str, Any]:
        """The claims, by the first key that signed them; else raises the fault of the last."""
        fault: Exception = Rejection("UNAUTHENTICATED", "no key of signed tokens is known")
        for key in keys:
            try:
                claims: dict[str, Any] = self._jwt.decode(
                    token,
                    key,
                    algorithms=list(self._options.algorithms),
                    audience=self._options.audience,
                    issuer=self._options.issuer,
                    # When it was signed is not asked: the issuer's clock may be ahead of ours.
                    options={"require": ["exp", "iss", "aud", "sub"], "verify_iat": False},
                )
            except (self._jwt.InvalidSignatureError, self._jwt.InvalidAlgorithmError) as error:
                fault = error
            else:
                return claims
        raise fault

    def _candidates(self, kid: object) -> tuple[Any, ...]:
        named = tuple(key for key in self._keys if kid and key.key_id == kid)
        if self._options.jwks_url:
            age = time.monotonic() - self._fetched_at
            if not named or age > self._options.fresh_s:
                self._refresh()
            if age > self._options.fresh_s + _GRACE_S:
                raise Rejection("UNAUTHENTICATED", "the keys of signed tokens cannot be fetched")
        return named or self._keys

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

    def _read(self, text: str) -> tuple[Any, ...]:
        try:
            found = self._jwt.PyJWKSet.from_dict(json.loads(text))
        except Exception as error:  # the library has many kinds of them
            raise CallerError(f"this is no JWKS: {error}", code="config") from error
        return tuple(found.keys)


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
