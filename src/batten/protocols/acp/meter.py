"""Updates beside those of a session's runs: its title, tokens and cost."""

from batten.contract.facts import AssistantMessageComplete, Fact, UserMessage
from batten.contract.marks import plain
from batten.protocols.acp.updates import AnyUpdate, Cost, SessionInfoUpdate, UsageUpdate

_LONGEST_TITLE = 80
_MICROS = 1_000_000


def title_of(prompt: str) -> str | None:
    """The title of a session: the first words of its first prompt."""
    return plain(" ".join(prompt[: 10 * _LONGEST_TITLE].split())[:_LONGEST_TITLE]) or None


class Meter:
    """Follows the facts of a session's runs."""

    def __init__(self, window: int, *, titled: bool) -> None:
        """`window` is the model's context window in tokens."""
        self._window = window
        self._titled = titled

    def feed(self, fact: Fact, at: str, spent: int | None) -> list[AnyUpdate]:
        """The updates of one fact. `spent` is what the session has cost so far, in micro-dollars;
        None if that is not known.
        """
        match fact:
            case UserMessage() if not self._titled:
                self._titled = True
                return [SessionInfoUpdate(title=title_of(fact.text), updated_at=at)]
            case AssistantMessageComplete():
                cost = None if spent is None else Cost(amount=spent / _MICROS, currency="USD")
                used = fact.usage.input_tokens + fact.usage.output_tokens
                return [UsageUpdate(used=used, size=self._window, cost=cost)]
            case _:
                return []
