"""Who may use the API of a hosted runner: whoever has one of its keys."""

import hmac
from collections.abc import Mapping, Sequence

from batten.serve.http.keys import RUNNER_HEADERS
from batten.serve.http.table import Authenticate, Principal

PLATFORM = Principal("platform", "admin")
_HEADERS = (*RUNNER_HEADERS, b"x-api-key")


def by_key(keys: Sequence[str]) -> Authenticate | None:
    """Accepts `Authorization: Bearer` and the key headers; without keys the door decides."""
    known = tuple(key.encode() for key in keys)
    if not known:
        return None

    def authenticate(headers: Mapping[bytes, bytes]) -> Principal | None:
        given = _presented(headers)
        # Each is compared: the time tells nothing about them.
        matches = [hmac.compare_digest(given, key) for key in known]
        return PLATFORM if any(matches) else None

    return authenticate


def _presented(headers: Mapping[bytes, bytes]) -> bytes:
    scheme, _, text = headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        return text.strip()
    return next((headers[name].strip() for name in _HEADERS if name in headers), b"")
