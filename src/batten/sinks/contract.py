"""What a sink is: a pure fold from the facts of a run to messages, and a transport for them.

A message has an id that the same fact always gives again, so that a receiver can drop repeats.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from batten.contract.envelope import Envelope
from batten.journal.contract import RunRow, Stored

LEASE_S = 60.0
"""How long a reader holds its sink without renewal: longer than any attempt."""
ATTEMPT_S = 15.0
"""How long a receiver may take to answer."""


class Message(Struct, frozen=True, kw_only=True):
    """One message to one receiver."""

    message_id: str
    run_id: str
    """Messages of one run are told in order; a sink may order by sessions instead."""
    type: str
    occurred_at: str
    """The time of the fact, as its envelope has it."""
    body: bytes
    position: int = 0
    """The position of the fact."""


Result = Literal["delivered", "retry", "refused"]


class Attempt(Struct, frozen=True, kw_only=True):
    """How one try to tell a message ended."""

    result: Result
    """`refused`: telling it again cannot help."""
    status: int | None = None
    """The receiver's HTTP status, if it answered with one."""
    problem: str = ""
    retry_after_s: float | None = None
    """How long the receiver asks to wait."""


class Fold(Protocol):
    """Turns the facts of one run into messages; equal facts give equal messages."""

    def take(self, envelope: Envelope) -> Iterable[Message]:
        """The messages of the next fact of the run."""
        ...


class Transport(Protocol):
    """The way to a receiver. Failures are results, not exceptions."""

    async def send(self, message: Message) -> Attempt: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class BatchTransport(Transport, Protocol):
    """The way to a receiver that takes the messages of many runs in one request."""

    most: int
    """Messages of one batch."""

    async def send_all(self, messages: Sequence[Message]) -> Sequence[Attempt]:
        """One attempt for each message, in the same order."""
        ...


class Sink(Struct, frozen=True, kw_only=True):
    """One receiver with its cursor, as it is configured."""

    name: str
    version: str = ""
    """Changes with its configuration: its reader then begins anew, at the same cursor."""
    fold: Callable[[str], Fold]
    """Makes the fold of a run, by its id."""
    types: frozenset[str]
    """The facts that the fold reads; it sees no others."""
    connect: Callable[[], Transport]
    logs: bool = False
    """Keep what was delivered for a while, to look at and to tell again."""
    in_flight: int = 16
    """Messages on their way at once; of one run, one."""
    max_pending: int = 1000
    """Messages that wait for another try; at more the reader reads no further."""
    give_up_s: float | None = None
    """The age at which a message that was not taken becomes a dead letter; None for never."""
    from_start: bool = False
    """Whether a new sink begins with the first fact of the store instead of the next one."""


class Feed(Protocol):
    """The part of a journal that a reader needs."""

    async def feed(self, *, after: int = 0, limit: int = 256) -> list[Stored]: ...

    async def read(self, run_id: str, *, after: int = -1, limit: int = 256) -> list[Stored]: ...

    async def position(self) -> int: ...

    async def run(self, run_id: str) -> RunRow | None: ...
