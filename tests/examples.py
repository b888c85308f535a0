"""How many examples a property is tested with: a part of them every day, all in a soak."""

import os

IS_SOAK = bool(os.environ.get("BATTEN_SOAK"))
_PART = 0.4


def examples(count: int) -> int:
    """Of so many."""
    return count if IS_SOAK else round(count * _PART)
