"""Commands: what a client asks of a session. A codec makes them; a live session takes them."""

from typing import Any

from msgspec import Struct

from batten.contract.conversation import Image


class Command(Struct, frozen=True, kw_only=True):
    """A request to a session, not carried out yet."""


class Prompt(Command, frozen=True):
    """Start a run with this as its first message, once the runs before it have ended."""

    text: str
    images: tuple[Image, ...] = ()
    prompt_id: str | None = None
    """The client's own name for it, given back where its protocol has a place for that."""


class GoOn(Command, frozen=True):
    """Finish the run that was left open when its process died."""


class Interrupt(Command, frozen=True):
    """End the current run, or the one that is about to begin."""

    reason: str = "interrupted by the client"


class Resolve(Command, frozen=True):
    """Answer a request."""

    request_id: str
    granted: bool
    by: str = "client"
    text: str = ""
    updated_input: dict[str, Any] | None = None
    """Arguments to run with instead of the proposed ones."""
    halt: bool = False
    """Whether a refusal ends the run."""


class Configure(Command, frozen=True):
    """Change settings from now on; those not named stay as they are."""

    changes: dict[str, Any]


class ShutDown(Command, frozen=True):
    """Finish the prompts before this, and take no more."""

    reason: str = "the client is done"
    at_once: bool = False
    """Cancel the current run and drop the prompts that wait, instead of finishing them."""
