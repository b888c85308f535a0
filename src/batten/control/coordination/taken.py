"""A message that a session has taken and the journal has not stored yet."""

import logging

from batten.contract.errors import BattenError, JournalError
from batten.control.coordination.answers import Answer
from batten.control.coordination.commits import Append
from batten.coordination.engine import Accepted
from batten.coordination.rejection import Rejection

_log = logging.getLogger("batten.coordination")


class Taken:
    """Becomes durable whether `answer` is awaited or not."""

    __slots__ = ("_accepted", "_append")

    def __init__(self, accepted: Accepted, append: Append) -> None:
        self._accepted = accepted
        self._append = append

    async def answer(self) -> Answer:
        """The answer, once the message is durable. Raises `Rejection`."""
        accepted = self._accepted
        try:
            await self._append
        except BattenError as error:
            refused = refusal(error)
            if refused is None:
                raise
            _log.error("message %s is not stored: %s", accepted.message.message_id, error)
            raise refused from error
        return Answer(accepted.state, accepted.at_ms, ordinal=accepted.ordinal)


def refusal(error: BattenError) -> Rejection | None:
    """What the sender of a message is told that could not be stored; None for another error."""
    if isinstance(error, JournalError):
        return Rejection("INTERNAL_ERROR", "the message could not be stored")
    if error.code == "envelope_too_large":
        return Rejection("PAYLOAD_TOO_LARGE", "the message is too large to store")
    return None
