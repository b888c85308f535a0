"""The session of a run as it was when the run was queued, from the session's own stream."""

from msgspec import Struct

from batten.contract.envelope import decode
from batten.contract.errors import PeerError
from batten.contract.facts import RunQueued, SessionClosed, SessionOpened
from batten.contract.ids import SessionId, session_stream
from batten.journal.contract import Stored
from batten.sinks.contract import Feed

_PAGE = 256


class SessionBefore(Struct, frozen=True):
    surface: str = ""
    """The one that opened it."""
    is_closed: bool = False
    """It was closed, and no other run has gone on with it since."""


async def session_before(journal: Feed, queued: Stored) -> SessionBefore:
    """What to know of the session of a run; `queued` is the run's first fact about itself."""
    try:
        envelope = decode(queued.body)
    except PeerError:
        return SessionBefore()
    fact, session_id = envelope.data, envelope.session_id
    if not session_id or not isinstance(fact, RunQueued):
        return SessionBefore()
    surface, closed_at, last = "", 0, -1
    while page := await journal.read(
        session_stream(SessionId(session_id)), after=last, limit=_PAGE
    ):
        for one in page:
            if one.position > queued.position:
                break
            if one.type == SessionClosed.TYPE:
                closed_at = one.position
            elif one.type == SessionOpened.TYPE:
                surface = _surface(one)
        last = page[-1].sequence
        if len(page) < _PAGE or page[-1].position > queued.position:
            break
    if not closed_at or fact.prior_run_id is None:
        return SessionBefore(surface)
    prior = await journal.read(fact.prior_run_id, limit=1)
    return SessionBefore(surface, is_closed=not prior or prior[0].position < closed_at)


def _surface(stored: Stored) -> str:
    try:
        fact = decode(stored.body).data
    except PeerError:
        return ""
    return fact.surface if isinstance(fact, SessionOpened) else ""
