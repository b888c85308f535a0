"""What the dashboard adds up: one line a run, and sums over participants."""

from msgspec import Struct

from batten.control.views.folds import AgentShare, RunFold


class AgentMetrics(Struct, frozen=True, kw_only=True, rename="camel"):
    """`GET /dashboard/agents/metrics`: what one participant did in all runs."""

    participant_id: str
    runs: int
    messages: int
    signals: int
    average_confidence: float
    """Over its signals that have one; 0 without any."""


class Board:
    """The runs of a home, in memory; it changes run by run."""

    def __init__(self, runs: dict[str, RunFold]) -> None:
        self.runs: dict[str, RunFold] = {}
        self.changes = 0
        """Grows with every change: equal numbers, equal answers."""
        self._agents: dict[str, dict[str, AgentShare]] = {}
        for run_id, state in runs.items():
            self.put(run_id, state)

    def take(self, run_id: str) -> RunFold:
        """The line of a run to move on, or a first one."""
        return self.runs.get(run_id) or RunFold()

    def put(self, run_id: str, state: RunFold) -> None:
        self.changes += 1
        self.runs[run_id] = state
        for name, share in state.agents.items():
            self._agents.setdefault(name, {})[run_id] = share

    def remove(self, run_id: str) -> None:
        state = self.runs.pop(run_id, None)
        self.changes += 1
        for name in () if state is None else state.agents:
            del self._agents[name][run_id]
            if not self._agents[name]:
                del self._agents[name]

    def agents(self) -> list[AgentMetrics]:
        """Those in the most runs first."""
        made = [_agent(name, shares) for name, shares in self._agents.items()]
        return sorted(made, key=lambda one: (-one.runs, one.participant_id))


def _agent(name: str, shares: dict[str, AgentShare]) -> AgentMetrics:
    ordered = [shares[run_id] for run_id in sorted(shares)]
    confident = sum(one.confident for one in ordered)
    total = sum(one.confidence for one in ordered)
    return AgentMetrics(
        participant_id=name,
        runs=len(ordered),
        messages=sum(one.messages for one in ordered),
        signals=sum(one.signals for one in ordered),
        average_confidence=total / confident if confident else 0.0,
    )
