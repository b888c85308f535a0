"""The seam between the agent and any tool."""

from collections.abc import Awaitable
from typing import Any, Literal, Protocol

from msgspec import Struct

from batten.contract.conversation import Image
from batten.contract.facts import Fact
from batten.contract.facts.artifact import ArtifactKind, ArtifactStatus
from batten.contract.facts.tool import ToolKind
from batten.journal.contract import Body, BodyWriter
from batten.models.contract import ToolSpec

Effect = Literal["read", "write", "execute", "network", "none"]
"""What a tool can do to the world, for permission modes. `none`: nothing outside the run."""

Ending = Literal["completed", "failed", "cancelled", "timed_out"]


class ToolOutput(Struct, frozen=True, kw_only=True):
    """How one call ended, and what the model is told of it."""

    text: str
    ending: Ending = "completed"
    summary: str = ""
    """One line for people; the first line of the text if empty."""
    error_kind: str = ""
    """A stable word for programs, when it did not complete."""
    artifact_id: str | None = None
    images: tuple[Image, ...] = ()
    mcp_result: Literal["dispatched", "tool_error", "failed"] | None = None
    child_run_id: str | None = None
    left_running: tuple[str, ...] = ()
    """Command lines of what the call left running, which was ended with it."""

    @property
    def is_error(self) -> bool:
        return self.ending != "completed"


class ToolContext(Protocol):
    """What a running call may use. Facts are redacted and ordered before they are stored."""

    @property
    def call_id(self) -> str: ...

    @property
    def turn_index(self) -> int: ...

    def record(self, *facts: Fact) -> Awaitable[object]:
        """Append facts in order. Awaiting waits until they are durable."""
        ...

    async def artifact(
        self,
        kind: ArtifactKind,
        data: bytes | Body,
        *,
        mime_type: str,
        summary: str,
        status: ArtifactStatus = "created",
        metadata: dict[str, Any] | None = None,
        refused_bytes: int = 0,
    ) -> str:
        """Keep a body that is already free of secrets; its id."""
        ...

    def body_writer(self) -> BodyWriter:
        """Streams a body too large for memory; its `Body` is then given to `artifact`."""
        ...

    async def seal(self, data: bytes, *, summary: str) -> str:
        """Keep bytes that must come back unchanged, encrypted; the id of the artifact."""
        ...

    def redact(self, text: str) -> str:
        """The text with secrets replaced."""
        ...

    def may_read(self, path: str) -> bool:
        """Whether no rule denies that the model is shown a file, named as its tools name it."""
        ...

    def check_redirect(self, url: str) -> None:
        """Raises `Refused` unless the rules allow this very call for another address."""
        ...


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    @property
    def kind(self) -> ToolKind: ...

    @property
    def effect(self) -> Effect: ...

    def subject(self, arguments: dict[str, Any]) -> str:
        """What permission rules match: a command, a path, a URL. Empty if there is none."""
        ...

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Do it. Arguments fit the schema. A failure the model should see is an output;
        an exception is a bug. Cancellation ends everything the call started."""
        ...
