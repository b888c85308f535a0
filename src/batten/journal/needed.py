"""Names the rows that a store looks up before it folds facts: `rows.fold` never calls the store."""

from collections.abc import Sequence

from msgspec import Struct

from batten.contract import facts

_COMPARED: frozenset[type[facts.Fact]] = frozenset(
    {
        facts.RunQueued,
        facts.ApprovalRequested,
        facts.ApprovalResolved,
        facts.ApprovalTimedOut,
        facts.RequestOpened,
        facts.RequestClosed,
        facts.ArtifactCreated,
        facts.ArtifactUpdated,
        facts.SessionOpened,
        facts.SessionConfigured,
        facts.SessionClosed,
    }
)
"""Facts that `fold` compares with rows."""


class NeededRows(Struct, frozen=True):
    """Rows that `fold` compares facts with."""

    requests: frozenset[str]
    artifacts: frozenset[str]
    session: bool
    """The row of the run's session."""


def needed_rows(new: Sequence[facts.Fact]) -> NeededRows | None:
    """The rows to look up before folding these facts; None for most."""
    if _COMPARED.isdisjoint(map(type, new)):
        return None
    requests: set[str] = set()
    artifacts: set[str] = set()
    session = False
    for fact in new:
        match fact:
            case facts.ApprovalRequested() | facts.ApprovalResolved() | facts.ApprovalTimedOut():
                requests.add(fact.approval_id)
            case facts.RequestOpened() | facts.RequestClosed():
                requests.add(fact.request_id)
            case facts.ArtifactCreated() | facts.ArtifactUpdated():
                artifacts.add(fact.artifact_id)
            case _:
                session = session or type(fact) in _COMPARED
    return NeededRows(frozenset(requests), frozenset(artifacts), session)
