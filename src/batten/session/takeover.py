"""Runs whose worker is gone: taken over in place, with what is unknown said so.

A tool that was begun and has no ending is reported as failed with its outcome unknown.
It is never run again.
"""

from msgspec import UNSET

from batten.agent.execution import terminal_fact
from batten.agent.loop import Progress
from batten.agent.rig import Rig
from batten.contract.envelope import decode
from batten.contract.facts import (
    TOOL_TERMINAL,
    ArtifactCreated,
    AssistantMessageComplete,
    Fact,
    GapRunDisconnected,
    ToolFailed,
    ToolInvoked,
)
from batten.contract.outcomes import Outcome
from batten.journal.contract import Lease, RunRow
from batten.session.history import facts_of

UNKNOWN = (
    "Error: outcome unknown: the process that ran this call is gone. "
    "It may or may not have taken effect; check before doing it again."
)


async def take_over(rig: Rig, row: RunRow) -> Lease:
    """Hold the run's lease and settle what its last worker left open."""
    lease = await rig.journal.take_over(row.run_id, rig.worker_id)
    last = rig.journal.read(row.run_id, after=row.next_sequence - 2, limit=1)
    gone = GapRunDisconnected(
        since_sequence=row.next_sequence - 1,
        since_at=decode(last[-1].body).occurred_at if last else row.created_at,
        reason="worker_lost",
        prior_worker_id=row.worker_id or UNSET,
    )
    unknown = [_unknown(call) for call in _left_open(rig, row.run_id)]
    await rig.journal.append(row.run_id, [gone, *unknown], fence=lease.fence)
    for child in rig.journal.runs(parent_run_id=row.run_id, limit=1000):
        if child.outcome is None and rig.journal.is_abandoned(child):
            await end_abandoned(rig, child)
    return lease


async def end_abandoned(rig: Rig, row: RunRow) -> None:
    """Write the ending an abandoned run never got."""
    lease = await take_over(rig, row)
    progress = progress_of(rig, row)
    outcome: Outcome = "cancelled" if row.cancel_requested else "interrupted"
    fact = terminal_fact(outcome, "the process that ran it is gone", progress, 0, by="runtime")
    await rig.journal.append(row.run_id, [fact], fence=lease.fence)
    await rig.journal.release(lease)


def progress_of(rig: Rig, row: RunRow) -> Progress:
    """How far a run had come, from its own facts."""
    progress = Progress(patch_artifact_ids=[])
    for fact in facts_of(rig.journal, row.run_id):
        if isinstance(fact, AssistantMessageComplete):
            progress.turns = fact.turn_index
            progress.cost_micros_usd += fact.cost_micros_usd or 0
            progress.cost_unknown = progress.cost_unknown or fact.cost_micros_usd is None
            progress.input_tokens += fact.usage.input_tokens
            progress.output_tokens += fact.usage.output_tokens
        elif isinstance(fact, ArtifactCreated) and fact.kind == "patch":
            progress.patch_artifact_ids.append(fact.artifact_id)
    return progress


def _left_open(rig: Rig, run_id: str) -> list[ToolInvoked]:
    begun: dict[str, ToolInvoked] = {}
    for fact in facts_of(rig.journal, run_id):
        if isinstance(fact, ToolInvoked):
            begun[fact.tool_call_id] = fact
        elif fact.type in TOOL_TERMINAL:
            begun.pop(_call_id(fact), None)
    return list(begun.values())


def _call_id(fact: Fact) -> str:
    return str(getattr(fact, "tool_call_id", ""))


def _unknown(call: ToolInvoked) -> ToolFailed:
    return ToolFailed(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        kind=call.kind,
        duration_ms=0,
        summary="outcome unknown",
        output=UNKNOWN,
        error="the process that ran this call is gone",
        error_kind="outcome_unknown",
    )
