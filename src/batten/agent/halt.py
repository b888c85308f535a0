"""The ways a loop stops before the model says it is done."""

from batten.contract.outcomes import Outcome


class Halt(Exception):
    """Ends the run with this outcome. The message is recorded in the terminal fact.

    So is `code`, where it says more than the outcome's own; trying again would not help then.
    """

    def __init__(self, outcome: Outcome, message: str, *, code: str = "", by: str = "") -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.message = message
        self.code = code
        self.by = by
        """Who wanted a cancelled run to end."""


class Parked(Exception):
    """A run waits for an answer without a worker: its lease is given up, and it has no ending."""

    def __init__(self, run_id: str, request_id: str) -> None:
        super().__init__(f"{run_id} waits for an answer to {request_id}")
        self.run_id = run_id
        self.request_id = request_id
