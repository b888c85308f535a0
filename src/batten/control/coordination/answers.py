"""What the runtime tells senders and watchers."""

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
    """A Signal or Progress; nothing keeps it."""

    message: Message
    is_authenticated: bool
