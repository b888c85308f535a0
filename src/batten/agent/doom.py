"""Doom loops: a model that makes the same calls again and again."""

from collections.abc import Sequence

import msgspec

from batten.contract.conversation import ToolCall

THRESHOLD = 200
"""Far more than a model that waits for something, and polls, makes in a row."""


class DoomDetector:
    """Counts equal turns in a row: the same calls in the same order, with the same arguments."""

    def __init__(self, threshold: int = THRESHOLD) -> None:
        self.threshold = threshold
        self._last = ""
        self._equal = 0

    def saw(self, calls: Sequence[ToolCall]) -> bool:
        """Add one turn's calls; whether the last `threshold` turns were all equal."""
        signature = "|".join(map(_signature, calls))
        self._equal = self._equal + 1 if signature == self._last else 1
        self._last = signature
        return self._equal >= self.threshold


def _signature(call: ToolCall) -> str:
    arguments = call.raw if call.raw is not None else msgspec.json.encode(call.input).decode()
    return f"{call.name}:{arguments}"
