"""The remainder that pruning keeps of removed facts, the same for every store."""

from collections.abc import Iterable
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from batten.contract.envelope import decode
from batten.contract.errors import CallerError, Conflict, StoreDamaged
from batten.contract.facts import ArtifactCreated
from batten.journal import remains
from batten.journal.appending import RunState, first_hash
from batten.journal.contract import ArtifactRow, RunRow, Stored
from batten.journal.remains import Remains
from batten.journal.rows import Base, Changes, FactContext, RunFold, base_of, fold


class KeptBase(remains.Base, frozen=True):
    """A base with what the store keeps of the facts before it: their chain and their rows."""

    chain: bytes
    rows: Base


class Cut(Struct, frozen=True):
    """A folded prefix that is about to be removed."""

    run_id: str
    first: int
    before: int
    chain: bytes
    rows: Base
    artifact_ids: list[str]
    """Artifacts created in the prefix: they no longer need their bodies, unless one is pinned."""

    def spare(self, rows: Iterable[ArtifactRow]) -> "Cut":
        """The cut without the artifacts that the run's present rows pin."""
        held: set[str] = set()
        for row in rows:
            if row.pinned and row.deleted_at is None:
                held |= {row.artifact_id, str(row.metadata.get("sealed_artifact_id", ""))}
        kept = [each for each in self.artifact_ids if each in held]
        released = [each for each in self.artifact_ids if each not in held]
        return replace(self, rows=replace(self.rows, kept=kept), artifact_ids=released)

    def check(self, run: RunState, chain: bytes) -> None:
        """Raise unless the run still has the folded prefix."""
        if run.base_sequence != self.first:
            raise Conflict(f"run {self.run_id} was pruned by somebody else meanwhile")
        if chain != self.chain:
            raise StoreDamaged(
                f"the chain of run {self.run_id} is broken: verify it before pruning"
            )


class Prefix:
    """Folds the facts to remove, page by page."""

    def __init__(self, run: RunRow, kept: KeptBase | None, before: int) -> None:
        if before > run.next_sequence:
            raise CallerError(
                f"run {run.run_id} has {run.next_sequence} facts: at most those before"
                f" {run.next_sequence} can be removed, not before {before}"
            )
        self._run = run
        self._before = before
        self._fold = kept.rows.fold if kept else RunFold(kind=run.kind)
        self._changes = kept.rows.changes() if kept else Changes()
        self._chain = kept.chain if kept else first_hash(run.run_id)
        self._remains = kept.remains.copy() if kept else Remains()
        self._artifact_ids: list[str] = list(kept.rows.kept) if kept else []
        self.sequence = run.base_sequence
        """The next fact to take."""

    @property
    def left(self) -> int:
        """How many facts remain to be taken."""
        return max(0, self._before - self.sequence)

    def take(self, page: list[Stored]) -> None:
        run = self._run
        if not page or page[0].sequence != self.sequence:
            raise StoreDamaged(f"run {run.run_id} has no fact {self.sequence}: verify it")
        for stored in page:
            self._chain = sha256(self._chain + stored.body).digest()
            envelope = decode(stored.body)
            fact, at = envelope.data, envelope.occurred_at
            place = FactContext(run.run_id, run.task_id, run.session_id, stored.sequence, at)
            self._fold = fold(self._fold, self._changes, place, fact)
            self._remains.take(envelope)
            if isinstance(fact, ArtifactCreated):
                self._artifact_ids.append(fact.artifact_id)
        self.sequence = page[-1].sequence + 1

    def cut(self) -> Cut:
        run, rows = self._run, base_of(self._fold, self._changes, self._remains)
        first = run.base_sequence
        return Cut(run.run_id, first, self._before, self._chain, rows, self._artifact_ids)
