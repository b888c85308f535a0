"""The seam between the agent and any tool."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, Unpack

from msgspec import Struct

from batten.contract.conversation import Image
from batten.contract.facts import Fact
from batten.contract.facts.artifact import ArtifactKind
from batten.contract.facts.tool import ToolKind
from batten.journal.contract import Body, BodyWriter
from batten.journal.keeping import ArtifactDetails
from batten.models.contract import ToolSpec

GRACE_S = 2.0
"""Between SIGTERM and SIGKILL for a command that is cancelled or out of time."""

Effect = Literal["read", "write", "execute", "network", "none"]
"""The effect class of a tool, for permission modes. `none`: no effect outside the run."""

Ending = Literal["completed", "failed", "cancelled", "timed_out"]


class ToolOutput(Struct, frozen=True, kw_only=True):
    """How one call ended, and the text the model receives."""

    text: str
    ending: Ending = "completed"
    summary: str = ""
    """One line for people; the first line of the text if empty."""
    error_kind: str = ""
    """A stable identifier for programs, if the call did not complete."""
    artifact_id: str | None = None
    images: tuple[Image, ...] = ()
    mcp_result: Literal["dispatched", "tool_error", "failed"] | None = None
    child_run_id: str | None = None
    left_running: tuple[str, ...] = ()
    """Command lines of processes the call left running, which were ended with it."""

    @property
    def is_error(self) -> bool:
        return self.ending != "completed"


def failure(message: str, kind: str) -> ToolOutput:
    """A call that failed; the model sees the message."""
    return ToolOutput(text=f"Error: {message}", ending="failed", error_kind=kind)


def object_schema(required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object, such as the arguments of a tool."""
    return {"type": "object", "properties": properties, "required": required}


class ToolContext(Protocol):
    """Services for a running call. Facts are redacted and ordered before they are stored."""

    @property
    def call_id(self) -> str: ...

    @property
    def tool_name(self) -> str: ...

    @property
    def turn_index(self) -> int: ...

    @property
    def auto_apply(self) -> bool:
        """Whether edits change files. If not, they stay proposed until a client decides."""
        ...

    async def proposals(self) -> dict[str, bytes | None]:
        """The contents that the run's undecided edits would give files, by path as shown."""
        ...

    def record(self, *facts: Fact) -> Awaitable[object]:
        """Append facts in order. Awaiting waits until they are durable."""
        ...

    async def artifact(
        self,
        kind: ArtifactKind,
        data: bytes | Body,
        *,
        refused_bytes: int = 0,
        **details: Unpack[ArtifactDetails],
    ) -> str:
        """Store a body that is already free of secrets; returns its id."""
        ...

    async def body_writer(self) -> BodyWriter:
        """Streams a body too large for memory; pass the resulting `Body` to `artifact`."""
        ...

    async def seal(self, data: bytes, *, summary: str) -> str:
        """Store bytes encrypted, for exact retrieval; returns the artifact's id."""
        ...

    def interrupted(self, partial: ToolOutput) -> None:
        """Keep what a call had done, before it raises its cancellation."""
        ...

    def afterwards(self, finish: Callable[[], Awaitable[None]]) -> None:
        """Let the call end before its last facts are known. `finish` waits for them and records
        them; it is called before the run's next edit, and before the run ends.
        """
        ...

    def redact(self, text: str) -> str:
        """The text with secrets replaced, for text from outside: names and shapes count too."""
        ...

    def redact_authored(self, text: str) -> str:
        """The same for text that a model or a person wrote: it makes no guesses."""
        ...

    def may_read(self, path: str) -> bool:
        """Whether no rule denies that the model is shown a file, named as its tools name it."""
        ...

    def check_redirect(self, url: str) -> None:
        """Raises `Refused` unless the rules allow this very call for another address."""
        ...


class JudgedTool(Protocol):
    """What rules know of a tool."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def kind(self) -> ToolKind: ...

    @property
    def effect(self) -> Effect: ...

    def subject(self, arguments: dict[str, Any]) -> str:
        """The text that permission rules match: a command, a path, a URL. May be empty."""
        ...


class Tool(JudgedTool, Protocol):
    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        """Run the call. The arguments have passed the schema. A failure that the model should see
        is an output; an exception is a bug. Cancellation ends everything the call started."""
        ...


def judged(tool: JudgedTool) -> JudgedTool:
    """The tool whose rules and hooks hold for this one: the one it stands for, else itself."""
    stands_for: JudgedTool = getattr(tool, "stands_for", tool)
    return stands_for


class BoundedTool(Protocol):
    """A tool with bounds of its own besides the rules: the workspace, public addresses."""

    async def check_bounds(self, arguments: dict[str, Any]) -> None:
        """Raises `Refused` for a call that the tool would refuse: it is blocked before it begins.

        `run` checks again, since files and addresses may change in between.
        """
        ...
