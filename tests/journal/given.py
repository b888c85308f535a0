"""Facts and runs for the journal's tests, and the rows that folding all facts again gives."""

from typing import Any

import msgspec
from hypothesis import strategies as st

from batten.contract.envelope import decode
from batten.contract.facts import (
    ApprovalRequested,
    ApprovalResolved,
    ArtifactCreated,
    ArtifactUpdated,
    AssistantMessageComplete,
    AssistantTextDelta,
    ContextCompacted,
    Fact,
    RequestClosed,
    RequestOpened,
    RunCancelRequested,
    RunFailed,
    RunFinished,
    RunQueued,
    RunStarted,
    ToolInvoked,
    TurnCompleted,
    Unknown,
    UserMessage,
)
from batten.contract.facts.assistant import Usage
from batten.contract.ids import new_run_id, new_task_id
from batten.journal.contract import Journal, Lease, NewRun, Stored
from batten.journal.rows import Changes, FactContext, RunFold, fold
from batten.journal.workers import this_worker

QUEUED = RunQueued("agent_loop", "m", "p", "/work", "in_place", None)
STARTED = RunStarted("w", "2026-01-01T00:00:00.000Z")
FINISHED = RunFinished("completed", 1, 0, 5)
FAILED = RunFailed("model_unreachable", "gone", retriable=True, turns=0)
INVOKED = ToolInvoked("call_1", "bash", "shell", 1)
CANCEL = RunCancelRequested("somebody", "enough")


def text(words: str) -> AssistantTextDelta:
    return AssistantTextDelta(1, 0, words)


def called(cost: int | None = 100, turn: int = 1) -> AssistantMessageComplete:
    return AssistantMessageComplete(
        turn, "m", "p", [], Usage(10, 5, 2, 1), "end_turn", cost, "2026-01-01", 7, None
    )


def approval(request_id: str = "appr_1") -> ApprovalRequested:
    return ApprovalRequested(request_id, "call_1", "bash", "run it?", "ask", resolvers=["user"])


def approved(request_id: str = "appr_1", by: str = "ann") -> ApprovalResolved:
    return ApprovalResolved(request_id, "approved", by, "fine")


def artifact(artifact_id: str = "art_1", digest: str = "") -> ArtifactCreated:
    return ArtifactCreated(
        artifact_id,
        "patch",
        3,
        "a patch",
        sha256=digest or msgspec.UNSET,
        status="proposed",
        metadata={"target_path": "a.py"},
    )


def new_run(**given: Any) -> NewRun:
    fields: dict[str, Any] = {
        "run_id": new_run_id(),
        "kind": "agent_loop",
        "worker_id": this_worker(),
        "task_id": new_task_id(),
    }
    return NewRun(**{**fields, **given})


async def started(journal: Journal, **given: Any) -> Lease:
    lease, _ = await journal.create(new_run(**given), [QUEUED, STARTED])
    assert lease is not None
    return lease


facts = st.one_of(
    st.text(max_size=40).map(text),
    st.just(STARTED),
    st.just(CANCEL),
    st.builds(called, st.none() | st.integers(0, 10**6), st.integers(1, 9)),
    st.builds(UserMessage, st.just(1), st.text(max_size=300)),
    st.builds(TurnCompleted, st.integers(1, 9), *[st.just(1)] * 6, st.just("end_turn")),
    st.sampled_from(["appr_1", "appr_2"]).map(approval),
    st.sampled_from(["appr_1", "appr_2", "appr_3"]).map(approved),
    st.sampled_from(["art_1", "art_2"]).map(artifact),
    st.builds(
        ArtifactUpdated,
        st.sampled_from(["art_1", "art_2"]),
        st.just("status"),
        st.just("proposed"),
        st.sampled_from(["applied", "rejected"]),
    ),
    st.just(RequestOpened("req_1", "user_input", "call_2", "name?", {}, "d")),
    st.just(RequestClosed("req_1", "answered", "bob", {"name": "x"})),
    st.just(ContextCompacted("short", 3, 100, 10, 2, "m", "p", Usage(1, 1), 5)),
    st.just(Unknown("x.novel", {"a": [1, None]})),
    st.sampled_from([FINISHED, FAILED, INVOKED]),
)
"""Facts in any order: those that do not fit are refused, and must leave no trace."""


def own_ids(run_id: str, fact: Fact) -> Fact:
    """The fact with ids of its run's own: requests and artifacts belong to one run."""
    names = ("approval_id", "request_id", "artifact_id")
    changed = {name: f"{getattr(fact, name)}_{run_id}" for name in names if hasattr(fact, name)}
    return msgspec.structs.replace(fact, **changed) if changed else fact


async def all_facts(journal: Journal) -> list[Stored]:
    found: list[Stored] = []
    while page := await journal.feed(after=found[-1].position if found else 0, limit=7):
        found += page
    return found


async def rebuilt(journal: Journal) -> tuple[dict[str, RunFold], Changes]:
    """Every row, folded again from the stored bytes."""
    runs: dict[str, RunFold] = {}
    changes = Changes()
    for stored in await all_facts(journal):
        envelope = decode(stored.body)
        place = FactContext(
            envelope.run_id,
            envelope.task_id or None,
            envelope.session_id or None,
            envelope.sequence,
            envelope.occurred_at,
        )
        before = runs.get(stored.run_id, RunFold(kind="agent_loop"))
        runs[stored.run_id] = fold(before, changes, place, envelope.data)
    return runs, changes
