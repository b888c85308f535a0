"""How far the observation of a run has come, folded from its facts."""

from collections import deque
from collections.abc import Sequence

from msgspec import UNSET, Struct, field

from batten.contract import facts
from batten.contract.envelope import Envelope, decode
from batten.contract.facts.macp import SessionState
from batten.contract.tracing import identity_in, traceparent_of
from batten.control.observer.contract import NO_TRACE, Trace
from batten.coordination.envelope import AMBIENT
from batten.journal.contract import Journal
from batten.protocols.macp.json_values import object_of, texts_of

_PAGE = 500
_RECENT = 512
"""Messages that are known again if the runtime tells them twice."""


class Progress(Struct, kw_only=True):
    """What the facts of an observed run tell its next observer."""

    session_id: str = ""
    mode: str = ""
    hidden: list[str] = []
    """Patterns of texts that are not shown."""
    trace: Trace = NO_TRACE
    is_elsewhere: bool = False
    """The run observes a session of a runtime elsewhere."""
    started_at: str = ""
    """When an observer first took the run; empty before."""
    state: SessionState | None = None
    """The session's state as it was last told; None before the run is bound to it."""
    expires_at_unix_ms: int = 0
    ordinal: int = 0
    """Messages of the session that are stored."""
    members: frozenset[str] = frozenset()
    """Who takes part in the session, as far as it was told."""
    is_open: bool = True
    """The session names no participants: whoever speaks of it takes part."""
    recent: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """Ids of its latest messages."""
    heard: deque[tuple[str, str]] = field(default_factory=lambda: deque(maxlen=_RECENT))
    """Senders and ids of the latest signals and progress."""

    def admit(self, initiator: str, participants: Sequence[str]) -> None:
        """Note who takes part, by a snapshot of the session."""
        self.members |= {initiator, *participants}
        self.is_open = self.is_open and not participants

    def includes(self, sender: str) -> bool:
        """Whether the sender takes part in the session."""
        return self.is_open or sender in self.members

    def take(self, envelope: Envelope) -> None:
        """Move on by the run's next fact."""
        fact = envelope.data
        match fact:
            case facts.RunQueued():
                identity = identity_in(fact)
                parent = traceparent_of(envelope.run_id, identity)
                self.trace = Trace(parent, identity.get("tracestate", ""))
            case facts.MacpRunDescribed():
                self.session_id = fact.session_id
                self.hidden = [] if fact.redact is UNSET else fact.redact
                session = object_of(fact.descriptor.get("session")) or {}
                self.mode = str(session.get("modeName", ""))
                self.is_elsewhere = fact.elsewhere is True
            case facts.RunStarted():
                self.started_at = self.started_at or envelope.occurred_at
            case facts.MacpFrameObserved(kind="session_snapshot"):
                told = str(fact.detail.get("state", "")).removeprefix("SESSION_STATE_")
                self.state = told  # type: ignore[assignment] # as it was written
                self.expires_at_unix_ms = int(fact.detail.get("expiresAtUnixMs") or 0)
                names = texts_of(fact.detail.get("participants"))
                self.admit(str(fact.detail.get("initiator") or ""), names)
            case facts.MacpFrameObserved(kind="envelope"):
                if fact.ordinal is UNSET and fact.message_type in AMBIENT:
                    self.heard.append((fact.sender or "", fact.message_id or ""))
                else:
                    self.recent.append((fact.sender or "", fact.message_id or ""))
                    self.ordinal = fact.ordinal or self.ordinal
            case _:
                pass


async def read_progress(journal: Journal, run_id: str) -> Progress:
    progress, after = Progress(), -1
    while page := await journal.read(run_id, after=after, limit=_PAGE):
        after = page[-1].sequence
        for stored in page:
            progress.take(decode(stored.body))
    return progress
