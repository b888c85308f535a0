"""Doom loops: a model that makes the same calls again and again."""

from collections import deque
from collections.abc import Sequence

import msgspec

from batten.contract.conversation import ToolCall

THRESHOLD = 3


class DoomDetector:
    """Remembers the calls of the last turns, with their order and arguments."""

    def __init__(self, threshold: int = THRESHOLD) -> None:
        self.threshold = threshold
        self._signatures: deque[str] = deque(maxlen=threshold)

    def saw(self, calls: Sequence[ToolCall]) -> bool:
        """Add one turn's calls; whether the last `threshold` turns were all equal."""
        self._signatures.append("|".join(map(_signature, calls)))
        full = len(self._signatures) == self.threshold
        return full and len(set(self._signatures)) == 1


def _signature(call: ToolCall) -> str:
    arguments = call.raw if call.raw is not None else msgspec.json.encode(call.input).decode()
    return f"{call.name}:{arguments}"
