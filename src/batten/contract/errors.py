"""The errors that this project raises on purpose.

    BattenError
      CallerError      the request is wrong; not retried
        NotFound       it names something that does not exist
        Conflict       it does not fit the current state
        NoCredentials  no model is named, or its API key is missing
        UnknownModel   a model's name leads to no provider
        StoreTooNew    a newer version wrote the store
        BadBundle      a bundle of a session is damaged, or not one
      PeerError        the other side broke the protocol; ends the connection, not the process
      ProviderError    a model or a tool's backend failed; `retriable`: a retry may help
      Refused          a policy or a person refused: an outcome the model sees, not a fault
      NotReady         the runtime is starting, draining or gone; retry later or elsewhere
      HandoverFailed   a hosted runner could not save everything its successor needs
      JournalError     the journal can no longer guarantee what it stores; stops the run
        StoreBusy      other writers held the store longer than the timeout
        StoreFull      no room on the disk
        StoreReadOnly  the store is not writable
        StoreDamaged   the stored bytes are not those written
        FenceLost      another worker executes this run now

A bug is not in this tree. Cancellation is not an error.
"""


class BattenError(Exception):
    """`code` is stable and for programs; the message names the fault and the remedy."""

    code = "error"

    def __init__(self, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code

    @property
    def message(self) -> str:
        return str(self)


class CallerError(BattenError):
    """The request is wrong. Retrying it unchanged gives the same error."""

    code = "invalid_request"


class NotFound(CallerError):
    code = "not_found"


class Conflict(CallerError):
    code = "conflict"


class NoCredentials(CallerError):
    """No model is named, or its API key is missing."""

    code = "config"


class UnknownModel(CallerError):
    """A model's name leads to no provider that is known."""

    code = "config"


class StoreTooNew(CallerError):
    """A newer version wrote the store; this one cannot read it."""

    code = "config"


class BadBundle(CallerError):
    """A bundle of a session is damaged, or not one. Nothing of it was stored."""

    code = "bad_bundle"


class PeerError(BattenError):
    """The other side sent bytes that break the protocol."""

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
        """`answer` is the body of the provider's answer, unchanged; None if there was none."""
        super().__init__(message, code=code)
        self.retriable = retriable
        self.status = status
        self.retry_after_s = retry_after_s
        self.provider = provider
        self.answer = answer


class Refused(BattenError):
    """A policy or a person refused."""

    code = "refused"


class NotReady(BattenError):
    """The request is valid, but no runtime accepts it now."""

    code = "runtime_not_ready"


class HandoverFailed(BattenError):
    """A hosted runner could not save everything its successor needs."""

    code = "handover_failed"


class JournalError(BattenError):
    """The journal can no longer guarantee what it stores."""

    code = "store"
    plain = "the store failed"
    """The fault for clients elsewhere: the message names paths of this machine."""


class StoreBusy(JournalError):
    code = "store_busy"
    plain = "the store is busy: others hold it"


class StoreFull(JournalError):
    code = "store_full"
    plain = "the disk of the store is full"


class StoreReadOnly(JournalError):
    code = "store_read_only"
    plain = "the store cannot be written"


class StoreDamaged(JournalError):
    code = "store_damaged"
    plain = "the store is damaged"


class FenceLost(JournalError):
    code = "fence_lost"
    plain = "another worker has the run now"
