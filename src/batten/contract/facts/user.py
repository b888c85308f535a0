"""`user.*`: input to the conversation."""

from msgspec import UNSET, UnsetType

from batten.contract.facts.base import Fact


class UserMessage(Fact, frozen=True):
    TYPE = "user.message"
    turn_index: int
    text: str
    sealed_artifact_id: str | UnsetType = UNSET
    """The message unchanged and encrypted; present if a secret in it was replaced."""
    artifact_id: str | UnsetType = UNSET
    """The whole message, if it is too large for an event; `text` is then its beginning."""


class UserAttachment(Fact, frozen=True):
    TYPE = "user.attachment"
    turn_index: int
    kind: str
    """`image`, or `file`: then the text of the message holds its content too."""
    mime: str
    artifact_id: str
    name: str | UnsetType = UNSET
