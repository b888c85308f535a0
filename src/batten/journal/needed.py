"""Names the rows that a store looks up before it folds facts: `rows.fold` never calls the store."""

from collections.abc import Sequence

from msgspec import Struct

from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    ApprovalTimedOut,
    ArtifactCreated,
    ArtifactUpdated,
    Fact,
    RequestClosed,
    RequestOpened,
    RunQueued,
    SessionClosed,
    SessionConfigured,
    SessionOpened,
)

_COMPARED: frozenset[type[Fact]] = frozenset(
    {
        RunQueued,
        ApprovalRequested,
        ApprovalResolved,
        ApprovalTimedOut,
        RequestOpened,
        RequestClosed,
        ArtifactCreated,
        ArtifactUpdated,
        SessionOpened,
        SessionConfigured,
        SessionClosed,
    }
)
"""Facts that `fold` compares with rows."""


class NeededRows(Struct, frozen=True):
    """Rows that `fold` compares facts with."""

    requests: frozenset[str]
    artifacts: frozenset[str]
    session: bool
    """The row of the run's session."""


def needed_rows(facts: Sequence[Fact]) -> NeededRows | None:
    """The rows to look up before folding these facts; None for most."""
    if _COMPARED.isdisjoint(map(type, facts)):
        return None
    requests: set[str] = set()
    artifacts: set[str] = set()
    session = False
    for fact in facts:
        match fact:
            case ApprovalRequested() | ApprovalResolved() | ApprovalTimedOut():
                requests.add(fact.approval_id)
            case RequestOpened() | RequestClosed():
                requests.add(fact.request_id)
            case ArtifactCreated() | ArtifactUpdated():
                artifacts.add(fact.artifact_id)
            case _:
                session = session or type(fact) in _COMPARED
    return NeededRows(frozenset(requests), frozenset(artifacts), session)
