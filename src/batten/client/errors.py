"""Errors of the client.

    WorkerError       the worker failed
      NotStarted      it did not start; has the exit code and the end of standard error
      WorkerDied      it ended during use; likewise
      WorkerClosed    it was closed before the call
      NoAnswer        it did not answer in time; also a `TimeoutError`
      FellBehind      the embedder did not read its events, and the buffer is full
    UtilityRefused    the worker refused a command, search, read or watch
    NoOutput          a run has no structured output: it did not complete, or its answer is unfit
    ServerError       a service did not do what was asked
      Unreachable     nothing answers at its address, or the connection broke
      NoReply         it was silent for too long; also a `TimeoutError`
      ServerRefused   it refused: a missing key or scope, too many requests, its own failure

A service that answers with something else raises `PeerError`; what it says about the request itself
is a `NotFound`, a `Conflict` or another `CallerError`.

A worker that breaks the protocol raises `PeerError`. A call that does not fit the state, such as a
second prompt beside a running one or a second answer, raises `Conflict`.
"""

from batten.contract.errors import BattenError, CallerError
from batten.contract.outcomes import Outcome


class WorkerError(BattenError):
    """The worker cannot do its work; another one may."""

    code = "worker"


class _Ended(WorkerError):
    def __init__(self, message: str, *, exit_code: int | None = None, complaints: str = "") -> None:
        """`complaints` is the end of the worker's standard error."""
        last = complaints.strip().rpartition("\n")[2]
        super().__init__(f"{message}: {last}" if last else message)
        self.exit_code = exit_code
        self.complaints = complaints


class NotStarted(_Ended):
    """The worker did not start."""

    code = "worker_not_started"


class WorkerDied(_Ended):
    """The worker ended during use. The journal has everything it did until then."""

    code = "worker_died"


class WorkerClosed(WorkerError):
    code = "worker_closed"


class NoAnswer(WorkerError, TimeoutError):
    """The worker did not answer in time."""

    code = "worker_no_answer"


class FellBehind(WorkerError):
    """The buffer of unread events is full. The journal has all of them."""

    code = "worker_fell_behind"


class UtilityRefused(CallerError):
    """The worker refused; its message says why."""

    code = "utility_refused"


class NoOutput(BattenError):
    """A run has no structured output; `outcome` tells how it ended."""

    code = "no_output"

    def __init__(self, message: str, outcome: Outcome) -> None:
        super().__init__(message)
        self.outcome = outcome


class ServerError(BattenError):
    """A service did not do what was asked."""

    code = "server"


class Unreachable(ServerError):
    """Nothing answers at the address of the service, or the connection broke."""

    code = "server_unreachable"


class NoReply(ServerError, TimeoutError):
    """The service was silent for too long. What was asked may have happened."""

    code = "server_timeout"


class ServerRefused(ServerError):
    """The service refused; `code` is its own, such as `unauthorized`, and `status` that of HTTP."""

    def __init__(self, message: str, *, code: str, status: int) -> None:
        super().__init__(message, code=code)
        self.status = status

    @property
    def is_temporary(self) -> bool:
        """Whether it may accept the same request later."""
        return self.status in (429, 503)
