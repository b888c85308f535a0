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
