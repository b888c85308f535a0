"""The journal's ids of a coordination session, from the session id of the protocol."""

from hashlib import sha256

from batten.contract.ids import SessionId, from_uuid

SURFACE = "macp"
"""The surface of coordination sessions in the journal."""


def journal_session(session_id: str) -> SessionId:
    """The journal's session of a coordination session: the same number where it is a UUID."""
    try:
        return SessionId(from_uuid(session_id, "chat"))
    except ValueError:
        digest = sha256(b"macp session " + session_id.encode()).hexdigest()
        return SessionId(from_uuid(digest[:32], "chat"))
