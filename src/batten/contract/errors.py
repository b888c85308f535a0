"""Every error this project raises on purpose.

    BattenError
      CallerError      the request is wrong; not retried
        NotFound       it names something that is not there
        Conflict       it does not fit the present state
        NoCredentials  no model can be asked: none is named, or its key is missing
      PeerError        the other side broke the protocol; ends the connection, not the process
      ProviderError    a model or a tool's backend failed; `retriable` says if trying again may help
      Refused          a policy or a person said no: an outcome the model sees, not a fault
      NotReady         a runtime that is not there yet or any more; another, or a later one, may be
      HandoverFailed   a hosted runner cannot leave behind what its successor needs
      JournalError     the journal cannot keep its promise; stops the run, nothing is guessed
        StoreBusy      other writers held the store longer than the patience given
        StoreFull      no room on the disk
        StoreReadOnly  the store may not be written
        StoreDamaged   what is stored is not what was written
        FenceLost      somebody else executes this run now

A bug is not in this tree. Cancellation is not an error.
"""


class BattenError(Exception):
    """`code` is stable and for programs; the message says what is wrong and what would be right."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    @property
    def message(self) -> str:
        return str(self)


class CallerError(BattenError):
    """The request is wrong. Trying it again unchanged gives the same answer."""

    code = "invalid_request"


class NotFound(CallerError):
    code = "not_found"


class Conflict(CallerError):
    code = "conflict"


class NoCredentials(CallerError):
    """No model can be asked: none is named, or its key is missing."""

    code = "config"


class PeerError(BattenError):
    """Bytes from outside that break their protocol."""

    code = "protocol_error"


class ProviderError(BattenError):
    """A model or a tool's backend failed."""

    code = "provider_error"

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retriable: bool = False,
        status: int | None = None,
        retry_after_s: float | None = None,
        provider: str = "",
        answer: object = None,
    ) -> None:
        """`answer` is what the provider said, as it said it; None if it said nothing."""
        super().__init__(message, code=code)
        self.retriable = retriable
        self.status = status
        self.retry_after_s = retry_after_s
        self.provider = provider
        self.answer = answer


class Refused(BattenError):
    """A policy or a person said no."""

    code = "refused"


class NotReady(BattenError):
    """Nothing is wrong with the request, but no runtime takes it now."""

    code = "runtime_not_ready"


class HandoverFailed(BattenError):
    """A hosted runner cannot leave behind what its successor needs."""

    code = "handover_failed"


class JournalError(BattenError):
    """The journal cannot keep its promise."""

    code = "store"


class StoreBusy(JournalError):
    code = "store_busy"


class StoreFull(JournalError):
    code = "store_full"


class StoreReadOnly(JournalError):
    code = "store_read_only"


class StoreDamaged(JournalError):
    code = "store_damaged"


class FenceLost(JournalError):
    code = "fence_lost"
