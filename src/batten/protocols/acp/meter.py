"""The usage and the title of a session, as updates beside those of its runs."""

from collections.abc import Callable

from batten.contract.facts import AssistantMessageComplete, Fact, UserMessage
from batten.protocols.acp.updates import AnyUpdate, Cost, SessionInfoUpdate, UsageUpdate

_LONGEST_TITLE = 80
_MICROS = 1_000_000

Spent = Callable[[], int | None]
"""The cost of the whole session so far in micro-dollars; None if a part is unknown."""


def title_of(prompt: str) -> str | None:
    """The title of a session: the first words of its first prompt."""
    return " ".join(prompt[: 10 * _LONGEST_TITLE].split())[:_LONGEST_TITLE] or None


class Meter:
    """Follows the facts of a session's runs."""

    def __init__(self, window: int, spent: Spent, *, titled: bool) -> None:
        """`window` is the model's context size in tokens."""
        self._window = window
        self._spent = spent
        self._titled = titled

    def feed(self, fact: Fact, at: str) -> list[AnyUpdate]:
        match fact:
            case UserMessage() if not self._titled:
                self._titled = True
                return [SessionInfoUpdate(title=title_of(fact.text), updated_at=at)]
            case AssistantMessageComplete():
                micros = self._spent()
                cost = None if micros is None else Cost(amount=micros / _MICROS, currency="USD")
                used = fact.usage.input_tokens + fact.usage.output_tokens
                return [UsageUpdate(used=used, size=self._window, cost=cost)]
            case _:
                return []
