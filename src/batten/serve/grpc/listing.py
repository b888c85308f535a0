"""Lists the sessions that a caller may see, page by page."""

import logging
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from contextlib import suppress

from batten.contract.errors import Refused, StoreDamaged
from batten.control.coordination.ids import SURFACE
from batten.control.coordination.runtime import Runtime
from batten.coordination.rejection import Rejection
from batten.coordination.session import Session
from batten.journal.contract import SessionRow
from batten.redact.seal import SealKey
from batten.serve.grpc.identity import Identity

_log = logging.getLogger("batten.coordination")
_PAGE = 100
_LARGEST_PAGE = 1000
"""Also how many sessions are looked at for one page: it may be short, and yet not the last."""
_TOKENS = b"page_token"


class SessionList:
    """The stored sessions, latest first."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._key = SealKey(os.urandom(32))
        """Of page tokens: they name the last session that was looked at, the caller's or not."""

    async def page(self, identity: Identity, size: int, token: str) -> tuple[list[Session], str]:
        """Sessions that the caller may see, and the token of the next page."""
        if size < 0:
            raise Rejection("INVALID_REQUEST", "page_size must not be negative")
        size = min(size, _LARGEST_PAGE) if size > 0 else _PAGE
        after, found = self._read(token), list[Session]()
        for _ in range(_LARGEST_PAGE // size):
            wanted = size - len(found)
            rows = await self._runtime.journal.sessions(
                after=after, limit=wanted + 1, surface=SURFACE
            )
            found += [one for one in await self.load(rows[:wanted]) if identity.may_see(one)]
            if len(rows) <= wanted:
                return found, ""
            after = rows[wanted - 1].cursor
            if len(found) == size:
                break
        return found, self._token(after)

    async def load(self, rows: Sequence[SessionRow]) -> list[Session]:
        """The sessions of these rows, without those that cannot be folded."""
        found: list[Session] = []
        for row in rows:
            session_id = str(row.settings.get("macp_session_id", ""))
            try:
                session = await self._runtime.find(session_id)
            except (StoreDamaged, Rejection, AssertionError) as error:
                _log.error("session %s cannot be shown: %s", session_id, error)
                continue
            if session is not None:
                found.append(session)
        return found

    def _token(self, cursor: str | None) -> str:
        return urlsafe_b64encode(self._key.seal((cursor or "").encode(), _TOKENS)).decode()

    def _read(self, token: str) -> str | None:
        if not token:
            return None
        with suppress(ValueError, Refused):
            return self._key.unseal(urlsafe_b64decode(token.encode()), _TOKENS).decode()
        raise Rejection("INVALID_REQUEST", "page_token is not one of this runtime's")
