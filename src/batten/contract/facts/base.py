"""The base of all facts: immutable, JSON-shaped, in the past tense, named on the wire by TYPE."""

from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType


class Fact(Struct, frozen=True, kw_only=True):
    """Something that happened. Its place and time belong to the envelope."""

    TYPE: ClassVar[str] = ""
    ALWAYS: ClassVar[tuple[str, ...]] = ()
    """Fields that we always write, although events of other programs may lack them."""
    whole_artifact_id: str | UnsetType = UNSET
    """The whole payload as JSON, if it is too large for an event; its long parts are cut here."""

    @property
    def type(self) -> str:
        return self.TYPE


class Unknown(Fact, frozen=True):
    """A fact of a type that this version does not know, stored and passed through unchanged."""

    type: str  # pyright: ignore[reportIncompatibleMethodOverride]  # carried, not declared
    data: dict[str, Any]
