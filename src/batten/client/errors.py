"""What can go wrong with a worker.

    WorkerError       something is wrong with the worker itself
      NotStarted      it did not come up: its exit code and what it said last
      WorkerDied      it ended in the middle: likewise
      WorkerClosed    it was closed, and is asked for something all the same
      NoAnswer        it did not answer in time; also a `TimeoutError`
      FellBehind      events were not read, and more came than are kept
    UtilityRefused    a command, search, read or watch that the worker does not carry out

A worker that breaks the protocol is a `PeerError`; what does not fit the state, such as a second
prompt beside a running one or a second answer, is a `Conflict`.
"""

from batten.contract.errors import BattenError, CallerError


class WorkerError(BattenError):
    """The worker cannot do what it is there for; another one may."""

    code = "worker"


class _Ended(WorkerError):
    def __init__(self, message: str, *, exit_code: int | None = None, complaints: str = "") -> None:
        """`complaints` is the end of what the worker wrote on standard error."""
        last = complaints.strip().rpartition("\n")[2]
        super().__init__(f"{message}: {last}" if last else message)
        self.exit_code = exit_code
        self.complaints = complaints


class NotStarted(_Ended):
    """The worker did not come up."""

    code = "worker_not_started"


class WorkerDied(_Ended):
    """The worker ended while it was needed. Its journal knows what it did until then."""

    code = "worker_died"


class WorkerClosed(WorkerError):
    """The worker was closed."""

    code = "worker_closed"


class NoAnswer(WorkerError, TimeoutError):
    """The worker did not answer in time."""

    code = "worker_no_answer"


class FellBehind(WorkerError):
    """More waits to be read than is kept here. The journal has all of it."""

    code = "worker_fell_behind"


class UtilityRefused(CallerError):
    """The worker does not carry this out; its message says why."""

    code = "utility_refused"
