"""Notes in the audit log what is about to be done elsewhere, and records what became of it."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from batten.contract.errors import BattenError
from batten.sinks.audit.log import AuditLog


class Noted:
    """What is about to be done."""

    def __init__(self) -> None:
        self.is_done = True
        """Set this to False if it was refused."""


def was_refused(error: BaseException) -> bool:
    """Whether nothing was done: somebody said why. A call that was cut off says nothing."""
    return isinstance(error, BattenError)


@contextmanager
def noted(
    log: AuditLog, refuses: Callable[[BaseException], bool] = was_refused, **fields: Any
) -> Generator[Noted]:
    """Record what the body does. A process that is killed in it leaves the note, and one that
    looks later records it as done without an answer; so is a body whose error `refuses` nothing.
    """
    number, note = log.intend(**fields), Noted()
    try:
        yield note
    except BaseException as error:
        log.settle(number, "refused" if refuses(error) else "unknown")
        raise
    log.settle(number, "done" if note.is_done else "refused")
