"""A conversation in a provider's format. It grows at its end, so each message is encoded once."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from batten.contract.conversation import Message

Spell = Callable[[Message], Iterable[dict[str, Any]]]
"""Converts one message to the provider's format; may return none, or several."""

_encoder = msgspec.json.Encoder()

_NAME = r"[a-zA-Z0-9_-]{1,128}"


def tool_name(name: str) -> str:
    """The name of a called tool as providers take it.

    A model may call what no tool is named (`functions.bash`); providers would refuse the answer,
    and with it the rest of the conversation.
    """
    return name if re.fullmatch(_NAME, name) else re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64]


class Spelling:
    """Caches the encoded messages of the last request."""

    def __init__(self, spell: Spell) -> None:
        self._spell = spell
        # By identity: messages never change, and comparing two takes longer than encoding one.
        self._known: dict[int, tuple[Message, list[msgspec.Raw]]] = {}

    def of(self, messages: Iterable[Message]) -> list[msgspec.Raw]:
        """The messages as JSON, in order. Messages not among them leave the cache."""
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
