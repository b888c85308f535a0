"""What every fact is: immutable, JSON-shaped, in the past tense, and named on the wire by TYPE."""

from typing import Any, ClassVar

from msgspec import UNSET, Struct, UnsetType


class Fact(Struct, frozen=True, kw_only=True):
    """Something that happened. Its place and time belong to the envelope."""

    TYPE: ClassVar[str] = ""
    whole_artifact_id: str | UnsetType = UNSET
    """The whole payload as JSON, when it is too large for an event; here its long parts are cut."""

    @property
    def type(self) -> str:
        return self.TYPE


class Unknown(Fact, frozen=True):
    """A fact of a type this version does not know. It is stored and passed through as it is."""

    type: str  # pyright: ignore[reportIncompatibleMethodOverride]  # carried, not declared
    data: dict[str, Any]
