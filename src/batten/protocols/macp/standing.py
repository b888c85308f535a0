"""What the fold of a run's events holds between two of them."""

from typing import Literal

from msgspec import Struct, field

from batten.protocols.macp import state as st


class Vote(Struct):
    """A voter's last word on a proposal; a vote outranks an evaluation."""

    side: Literal["allow", "deny", "none"]
    is_vote: bool


class Weight(Struct):
    """How sure the participants are together, of each proposal."""

    votes: dict[str, dict[str, Vote]] = {}
    """By proposal and voter; those about a task or a handoff are under no name."""
    withdrawn: dict[str, bool] = {}
    latest: str = ""
    """The proposal that was spoken of last."""
    stated: float | None = None
    """What the last one said who named a confidence."""

    def confidence(self, proposal_id: str) -> float | None:
        """The share that allows, of those who took sides; if nobody did, what was stated."""
        allow, deny = self.sides(proposal_id)
        return allow / (allow + deny) if allow or deny else self.stated

    def sides(self, proposal_id: str) -> tuple[int, int]:
        """How many allow a proposal, and how many deny it."""
        said = [vote.side for vote in self.votes.get(proposal_id, {}).values()]
        return said.count("allow"), said.count("deny")

    @property
    def favourite(self) -> str:
        """The proposal that most allow; of equal ones, and if nobody allows any, the latest."""

        def support(proposal_id: str) -> int:
            allow, deny = self.sides(proposal_id)
            return allow - deny

        alive = (one for one in self.votes if one not in self.withdrawn)
        found = max(alive, key=support, default=self.latest)
        return found if support(found) > max(0, support(self.latest)) else self.latest


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
    weight: Weight = field(default_factory=Weight)
    counted: dict[str, bool] = {}
    """Messages that the counts hold, the newest of them."""
