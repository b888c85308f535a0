"""What a run has used so far: tokens and money, folded from its facts and its children's."""

from batten.contract.facts import AssistantMessageComplete, CostCallUnfinished, Fact, TurnStarted
from batten.serve.terminal.measures import count, dollars


class Totals:
    """Sums over the model calls of one invocation."""

    def __init__(self) -> None:
        self.input_tokens = 0
        self.output_tokens = 0
        self.cost_micros_usd = 0
        self.is_cost_unknown = False
        self._sent_estimate = 0
        self._received_characters = 0

    def feed(self, fact: Fact) -> None:
        match fact:
            case TurnStarted():
                self._sent_estimate = fact.input_tokens_estimate
                self._received_characters = 0
            case AssistantMessageComplete() | CostCallUnfinished():
                self._sent_estimate = self._received_characters = 0
                self.input_tokens += fact.usage.input_tokens
                self.output_tokens += fact.usage.output_tokens
                self.cost_micros_usd += fact.cost_micros_usd or 0
                if fact.cost_micros_usd is None:
                    self.is_cost_unknown = True
            case _:
                pass

    def receive(self, text: str) -> None:
        """A piece of an answer: counted by its length until the provider reports its tokens."""
        self._received_characters += len(text)

    @property
    def tokens(self) -> str:
        sent = self.input_tokens + self._sent_estimate
        received = self.output_tokens + self._received_characters // 4
        return f"↑ {count(sent)} ↓ {count(received)} tokens"

    @property
    def cost(self) -> str:
        mark = "+" if self.is_cost_unknown else ""
        return f"{dollars(self.cost_micros_usd)}{mark}"
