"""Why a run stopped working, and which error stops it how."""

from msgspec import Struct

from batten.agent.halt import Halt
from batten.contract import errors
from batten.contract.outcomes import Outcome


class Stop(Struct, frozen=True):
    """The end of a run's work, before its ending is recorded."""

    outcome: Outcome
    message: str = ""
    answer: str = ""
    traceback: str = ""
    code: str = ""
    """The error's own code, if more exact than the outcome's; `retriable` then belongs to it."""
    retriable: bool = False
    halt: Halt | None = None
    """The exception that stopped the loop, if it was one."""


def stop_of(error: Exception) -> Stop:
    """How an error of a model, of the settings or of the code stops a run."""
    match error:
        case errors.ProviderError(code="context_overflow"):
            return Stop("context_overflow", str(error), code=error.code, retriable=error.retriable)
        case errors.ProviderError():
            return Stop("model_error", str(error), code=error.code, retriable=error.retriable)
        case errors.NoCredentials():  # as if the provider had refused the key
            return Stop("model_error", str(error), code="model_auth")
        case errors.CallerError():
            return Stop("config", str(error))
        case _:  # a bug ends this run, with its traceback, and nothing else
            import traceback

            where = "".join(traceback.format_exception(error))
            return Stop("internal", f"{type(error).__name__}: {error}", traceback=where)
