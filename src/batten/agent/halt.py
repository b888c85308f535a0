"""The ways a loop stops before the model says it is done."""

from batten.contract.outcomes import Outcome


class Halt(Exception):
    """Ends the run with this outcome. The message is recorded in the terminal fact."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        self.message = message
