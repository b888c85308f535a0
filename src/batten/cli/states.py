"""The states of runs that `batten runs --status` takes."""

from argparse import ArgumentTypeError
from typing import get_args

from batten.contract.outcomes import Outcome, RunStatus

ABANDONED = "abandoned"
STATES = tuple(dict.fromkeys((*get_args(RunStatus), *get_args(Outcome), ABANDONED)))


def states(text: str) -> frozenset[str]:
    """States or outcomes, separated by commas."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not set(names) <= set(STATES):
        raise ArgumentTypeError(f"{text!r} is not a list of {', '.join(STATES)}")
    return frozenset(names)
