"""`GET /dashboard/agents/metrics`: what each participant did in all runs."""

from msgspec import Struct

from batten.control.views.folds import MICRO
from batten.journal.sqlite.database import Database


class AgentMetrics(Struct, frozen=True, kw_only=True, rename="camel"):
    participant_id: str
    runs: int
    messages: int
    signals: int
    average_confidence: float
    """Over its signals that have one; 0 without any."""


def read_agents(db: Database) -> list[AgentMetrics]:
    """Those in the most runs first."""
    found = db.execute(
        "SELECT participant, runs, messages, signals, confidence_micros, confident"
        " FROM agents_now ORDER BY runs DESC, participant"
    ).fetchall()
    return [
        AgentMetrics(
            participant_id=name,
            runs=runs,
            messages=messages,
            signals=signals,
            average_confidence=micros / confident / MICRO if confident else 0.0,
        )
        for name, runs, messages, signals, micros, confident in found
    ]
