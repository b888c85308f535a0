"""Updates to the client while a session works: the kinds of `session/update`."""

from typing import Any, Literal

from batten.protocols.acp.content import Block, Location, ToolContent, ToolKind, ToolStatus
from batten.protocols.acp.options import SelectOption
from batten.protocols.acp.shape import Shape


class Update(Shape, frozen=True, tag_field="sessionUpdate"):
    """One kind of update."""


class _Chunk(Update, frozen=True):
    content: Block
    message_id: str | None = None
    """Chunks with the same id are one message."""


class UserMessageChunk(_Chunk, frozen=True, tag="user_message_chunk"):
    pass


class AgentMessageChunk(_Chunk, frozen=True, tag="agent_message_chunk"):
    pass


class AgentThoughtChunk(_Chunk, frozen=True, tag="agent_thought_chunk"):
    pass


class ToolCallFields(Shape, frozen=True):
    """The known fields of a tool call. A list replaces the one before."""

    tool_call_id: str
    title: str | None = None
    kind: ToolKind | None = None
    status: ToolStatus | None = None
    content: list[ToolContent] | None = None
    locations: list[Location] | None = None
    raw_input: Any = None
    raw_output: Any = None


class ToolCallStart(ToolCallFields, frozen=True, tag_field="sessionUpdate", tag="tool_call"):
    """The first update of a call; it has a title."""


class ToolCallProgress(
    ToolCallFields, frozen=True, tag_field="sessionUpdate", tag="tool_call_update"
):
    pass


class PlanEntry(Shape, frozen=True):
    content: str
    priority: Literal["high", "medium", "low"]
    status: Literal["pending", "in_progress", "completed"]


class Plan(Update, frozen=True, tag="plan"):
    """The whole plan; it replaces the one before."""

    entries: list[PlanEntry]


class CommandInput(Shape, frozen=True):
    hint: str


class AvailableCommand(Shape, frozen=True):
    name: str
    description: str
    input: CommandInput | None = None


class AvailableCommands(Update, frozen=True, tag="available_commands_update"):
    available_commands: list[AvailableCommand]


class CurrentMode(Update, frozen=True, tag="current_mode_update"):
    current_mode_id: str


class ConfigOptions(Update, frozen=True, tag="config_option_update"):
    """All options; they replace the ones before."""

    config_options: list[SelectOption]


class Cost(Shape, frozen=True):
    amount: float
    currency: str


class UsageUpdate(Update, frozen=True, tag="usage_update"):
    used: int
    """Tokens of the context in use."""
    size: int
    """Size of the context in tokens."""
    cost: Cost | None = None


class SessionInfoUpdate(Update, frozen=True, tag="session_info_update"):
    title: str | None = None
    updated_at: str | None = None


AnyUpdate = (
    UserMessageChunk
    | AgentMessageChunk
    | AgentThoughtChunk
    | ToolCallStart
    | ToolCallProgress
    | Plan
    | AvailableCommands
    | CurrentMode
    | ConfigOptions
    | UsageUpdate
    | SessionInfoUpdate
)


class SessionUpdate(Shape, frozen=True):
    """The params of `session/update`."""

    session_id: str
    update: AnyUpdate
