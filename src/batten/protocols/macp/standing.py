"""What the fold of a run's events holds between two of them."""

from typing import Literal

from msgspec import Struct, field

from batten.protocols.macp import state as st


class Vote(Struct):
    """A voter's last word on a proposal; a vote outranks an evaluation."""

    side: Literal["allow", "deny", "none"]
    is_vote: bool


class Weight(Struct):
    """How sure the participants are together."""

    votes: dict[str, st.Side] = {}
    """Of each voter the last one."""
    stated: float | None = None
    """What the last one said who named a confidence."""

    @property
    def confidence(self) -> float | None:
        """The share that allows, of those who voted; without a vote, what was stated."""
        if not self.votes:
            return self.stated
        return sum(side == "allow" for side in self.votes.values()) / len(self.votes)


class Projection(Struct, kw_only=True):
    """The blocks of a run's state, with what their rules remember."""

    run: st.RunBlock
    participants: dict[str, st.ParticipantBlock] = {}
    nodes: dict[str, st.Node] = {}
    edges: dict[str, st.Edge] = {}
    current: st.Current | None = None
    signals: list[st.Signal] = []
    progress: list[st.ProgressEntry] = []
    timeline: st.Timeline = field(default_factory=st.Timeline)
    trace: st.TraceBlock = field(default_factory=st.TraceBlock)
    outbound: st.OutboundMessages = field(default_factory=st.OutboundMessages)
    policy: st.Policy = field(default_factory=st.Policy)
    calls: list[st.LlmCall] = []
    totals: st.LlmTotals = field(default_factory=st.LlmTotals)
    cost_nanos: int = 0
    initiator: str = ""
    declared: int = 0
    """Participants that the session declared."""
    emitted: dict[str, int] = {}
    """The last event that each participant emitted, by its number."""
    votes: dict[str, dict[str, Vote]] = {}
    """By proposal and voter."""
    weight: Weight = field(default_factory=Weight)
    counted: dict[str, bool] = {}
    """Messages that the counts hold, the newest of them."""
