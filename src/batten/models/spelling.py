"""A conversation in a provider's words. It grows at its end, so each message is written once."""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from batten.contract.conversation import Message

Spell = Callable[[Message], Iterable[dict[str, Any]]]
"""What a provider wants to read for one message; may be nothing, or several."""

_encoder = msgspec.json.Encoder()


class Spelling:
    """Remembers how the messages of the last request were written."""

    def __init__(self, spell: Spell) -> None:
        self._spell = spell
        # By identity: a message never changes, and comparing two takes longer than writing one.
        self._known: dict[int, tuple[Message, list[msgspec.Raw]]] = {}

    def of(self, messages: Iterable[Message]) -> list[msgspec.Raw]:
        """The messages as JSON, one after the other. What is not among them is forgotten."""
        before, self._known = self._known, {}
        wire: list[msgspec.Raw] = []
        for message in messages:
            known = before.get(id(message))
            if known is None:
                spelled = self._spell(message)
                known = (message, [msgspec.Raw(_encoder.encode(item)) for item in spelled])
            self._known[id(message)] = known
            wire += known[1]
        return wire
