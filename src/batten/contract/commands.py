"""What a client asks of a session. A codec makes these from frames; a surface carries them out."""

from typing import Any, Literal

from msgspec import Struct

from batten.contract.conversation import Image

Scope = Literal["run", "session"]


class Command(Struct, frozen=True, kw_only=True):
    """Something to be done, not yet done."""


class Prompt(Command, frozen=True):
    """Start a run with this as its first message, once the runs before it have ended."""

    text: str
    images: tuple[Image, ...] = ()
    prompt_id: str | None = None
    """The client's own name for it, given back where its protocol has a place for that."""


class GoOn(Command, frozen=True):
    """Finish the run that was left open when its process died."""


class Interrupt(Command, frozen=True):
    """End what runs now; a session's utilities and watches too, with that scope."""

    scope: Scope = "run"
    reason: str = "interrupted by the client"


class Resolve(Command, frozen=True):
    """Answer a request."""

    request_id: str
    granted: bool
    text: str = ""
    updated_input: dict[str, Any] | None = None
    """Arguments to run with instead of those asked about."""
    halt: bool = False
    """Whether a refusal ends the run."""


class Configure(Command, frozen=True):
    """Settings that hold from now on; those not named stay as they are."""

    changes: dict[str, Any]


class ShutDown(Command, frozen=True):
    """Finish what was asked before this, and close the session."""

    reason: str = "the client is done"
