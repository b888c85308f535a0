"""What pruning keeps of removed facts beside their rows: what readers are told of an ended run."""

from msgspec import UNSET, Struct
from msgspec.structs import replace

from batten.contract import facts
from batten.contract.envelope import Envelope
from batten.contract.tracing import place_of


class Question(Struct, frozen=True, kw_only=True):
    """A request, without what it asked for."""

    kind: str
    """The tool's name, or the class of a question."""
    reason: str = ""
    at: str
    resolved_at: str = ""


class Remains(Struct, kw_only=True):
    """What the rows of a run do not tell of its facts."""

    started_at: str = ""
    last_error: str = ""
    trace_id: str = ""
    prior_cost_micros_usd: int = 0
    requests: dict[str, Question] = {}
    artifacts: dict[str, str] = {}
    """When each artifact was last changed."""

    def copy(self) -> "Remains":
        return replace(self, requests=dict(self.requests), artifacts=dict(self.artifacts))

    def take(self, envelope: Envelope) -> None:
        """Move on by one more fact."""
        fact, at = envelope.data, envelope.occurred_at
        match fact:
            case facts.RunQueued():
                self.trace_id = self.trace_id or place_of(envelope.run_id, fact).trace_id
                if fact.prior_cost_micros_usd is not UNSET:
                    self.prior_cost_micros_usd = fact.prior_cost_micros_usd
            case facts.RunStarted():
                self.started_at = self.started_at or at
            case facts.RunFailed():
                self.last_error = fact.message or fact.code
            case facts.RunCancelled():
                self.last_error = fact.reason
            case facts.ApprovalRequested():
                asked = Question(kind=fact.kind, reason=fact.policy_reason, at=at)
                self.requests[fact.approval_id] = asked
            case facts.RequestOpened():
                self.requests[fact.request_id] = Question(kind=fact.request_class, at=at)
            case facts.ApprovalResolved() | facts.ApprovalTimedOut():
                self._close(fact.approval_id, at)
            case facts.RequestClosed():
                self._close(fact.request_id, at)
            case facts.ArtifactUpdated():
                self.artifacts[fact.artifact_id] = at
            case _:
                pass

    def _close(self, request_id: str, at: str) -> None:
        if (asked := self.requests.get(request_id)) is not None:
            self.requests[request_id] = replace(asked, resolved_at=at)


class Base(Struct, frozen=True):
    """The first stored fact of a pruned run, and what is kept of those before it."""

    sequence: int
    state: bytes | None
    """The bytes that the pruner stored with it; the store does not read them."""
    remains: Remains
