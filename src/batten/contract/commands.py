"""Commands of a client to a session. Codecs build them; a live session takes them."""

from typing import Any

from msgspec import Struct

from batten.contract.conversation import File, Image


class Command(Struct, frozen=True, kw_only=True):
    """A requested action, not yet executed."""


class Prompt(Command, frozen=True):
    """Start a run with this as its first message, after the runs before it have ended."""

    text: str
    images: tuple[Image, ...] = ()
    files: tuple[File, ...] = ()
    """Attached files, whose content the text holds too."""
    prompt_id: str | None = None
    """The client's own id for the prompt, echoed where its protocol has a field for it."""


class GoOn(Command, frozen=True):
    """Finish the run left open by a process that died."""


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
    """Arguments to run with instead of those in the request."""
    halt: bool = False
    """Whether a refusal ends the run."""


class Configure(Command, frozen=True):
    """Settings for everything from now on; those not named keep their values."""

    changes: dict[str, Any]
    by: str = "client"


class ShutDown(Command, frozen=True):
    """Finish the prompts received before this one, and take no more."""

    reason: str = "the client is done"
    at_once: bool = False
    """Cancel the current run and drop the queued prompts instead of finishing them."""
