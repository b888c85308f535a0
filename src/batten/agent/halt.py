"""The ways a loop stops before the model is done."""

from batten.contract.outcomes import Outcome


class Halt(Exception):
    """Ends the run with this outcome. The terminal fact records the message.

    It also records `code` if that is more exact than the outcome's own; no retry helps then.
    """

    def __init__(self, outcome: Outcome, message: str, *, code: str = "", by: str = "") -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.message = message
        self.code = code
        self.by = by
        """The author of the cancellation, if the outcome is `cancelled`."""


class Parked(Exception):
    """A run waits for an answer without a worker: it gave up its lease and has no ending."""

    def __init__(self, run_id: str, request_id: str) -> None:
        super().__init__(f"{run_id} waits for an answer to {request_id}")
        self.run_id = run_id
        self.request_id = request_id


class HandedOver(Exception):
    """A run stopped without an ending: another worker goes on with it. Its lease is still held."""
