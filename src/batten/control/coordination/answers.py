"""What the runtime tells: the answer to a sender, and what watchers hear."""

from msgspec import Struct

from batten.coordination.envelope import Message
from batten.coordination.session import Session, State


class Answer(Struct, frozen=True):
    """The runtime has taken a message, now or before."""

    state: State
    at_ms: int
    duplicate: bool = False
    ordinal: int = 0
    """The message's place in the session; 0 for a duplicate, and for what is no message."""


class Lifecycle(Struct, frozen=True):
    """A change of a session that watchers hear of."""

    kind: str
    """`CREATED`, `RESOLVED`, `EXPIRED`, `SUSPENDED`, `RESUMED` or `CANCELLED`."""
    session: Session
    at_ms: int


class Heard(Struct, frozen=True):
    """A Signal or Progress; one that belongs to a live session is in the record of its run."""

    message: Message
    is_authenticated: bool
