"""`tool.*`: the life of every tool call, and the reports of each kind of tool.

Each call has `tool.invoked` and exactly one of completed, failed, cancelled, timed_out.
`tool.invoked` marks the beginning of the effect: it commits only under the current fence and with
no cancel requested. Every event of a call names the tool.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from batten.contract.facts.base import Fact

ToolKind = Literal[
    "shell",
    "edit",
    "multi_edit",
    "glob",
    "grep",
    "file_read",
    "file_write",
    "todo_write",
    "http",
    "web_fetch",
    "web_search",
    "mcp",
    "agent",
    "ask_user",
    "memory",
    "custom",
]
"""The kinds written here. On a fact `kind` is any string: a newer writer's kind must not keep an
older reader from following the call."""


class ToolInvoked(Fact, frozen=True):
    TYPE = "tool.invoked"
    tool_call_id: str
    tool_name: str
    kind: str
    turn_index: int
    attempt: int | UnsetType = UNSET
    mcp_server: str | UnsetType = UNSET
    mcp_tool: str | UnsetType = UNSET
    input: dict[str, Any] | UnsetType = UNSET
    """The arguments it runs with, if a hook or an answer changed the proposed ones."""
    sealed_artifact_id: str | UnsetType = UNSET
    """Those arguments unchanged and encrypted; present if redaction or size altered `input`."""


class ToolStarted(Fact, frozen=True):
    """The tool runs. Absent if there was nothing to run: an unknown tool, unfit arguments."""

    TYPE = "tool.started"
    tool_call_id: str
    tool_name: str
    kind: str
    child_run_id: str | UnsetType = UNSET
    """The run that an `agent` call started."""


class ToolEnded(Fact, frozen=True):
    """The end of a call; each kind of end has a type of its own."""

    tool_call_id: str
    tool_name: str
    kind: str
    duration_ms: int
    summary: str = ""
    """One line for people. Always written, although the protocol makes it optional for MCP calls.
    """
    result_artifact_id: str | UnsetType = UNSET
    output: str | UnsetType = UNSET
    """The result exactly as the model receives it."""
    attempt: int | UnsetType = UNSET
    mcp_server: str | UnsetType = UNSET
    mcp_tool: str | UnsetType = UNSET
    result: Literal["dispatched", "tool_error", "failed"] | UnsetType = UNSET
    """The kind of answer of an MCP server."""
    image_artifact_ids: list[str] | UnsetType = UNSET
    """Images shown to the model beside the text."""

    @property
    def text(self) -> str:
        """What the model receives: the line for people if another program wrote no output."""
        return self.summary if self.output is UNSET else self.output

    @property
    def is_error(self) -> bool:
        """Whether the model is told of a failure."""
        return True


class ToolCompleted(ToolEnded, frozen=True):
    TYPE = "tool.completed"
    ALWAYS = ("output",)
    error: str | UnsetType = UNSET
    """An error reported by an MCP server, without a transport fault."""

    @property
    def is_error(self) -> bool:
        return self.error is not UNSET or self.result in ("tool_error", "failed")


class ToolFailed(ToolEnded, frozen=True):
    TYPE = "tool.failed"
    ALWAYS = ("output",)
    error: str = ""
    error_kind: str | UnsetType = UNSET
    """`outcome_unknown`: the worker that ran it is gone; it is not run again."""


class ToolCancelled(ToolEnded, frozen=True):
    TYPE = "tool.cancelled"
    ALWAYS = ("output",)
    error: str = ""


class ToolTimedOut(ToolEnded, frozen=True):
    """The wall clock or the output cap was exceeded."""

    TYPE = "tool.timed_out"
    ALWAYS = (
        "output",
        "after_ms",
    )
    error: str = ""
    after_ms: int | UnsetType = UNSET


class _Report(Fact, frozen=True, kw_only=True):
    """A report of a running call, between its start and its end."""

    tool_name: str = ""
    """Empty if another program wrote the event without it."""


SandboxLayer = Literal["bwrap", "landlock", "sandbox-exec", "none"]


class ToolShellCommand(_Report, frozen=True):
    TYPE = "tool.shell.command"
    ALWAYS = ("timeout_ms",)
    tool_call_id: str
    argv: list[str]
    cwd: str
    env_keys: list[str]
    sandbox_layer: SandboxLayer
    timeout_ms: int | UnsetType = UNSET
    terminal_id: str | UnsetType = UNSET
    """The client's terminal it runs in, outside our sandbox."""


class ToolShellOutputChunk(_Report, frozen=True):
    TYPE = "tool.shell.output_chunk"
    tool_call_id: str
    stream: Literal["stdout", "stderr"]
    data: str
    byte_offset: int
    """Bytes of this stream before this chunk, counted after redaction."""


class ToolShellExited(_Report, frozen=True):
    TYPE = "tool.shell.exited"
    tool_call_id: str
    exit_code: int
    """-1 when a signal ended it."""
    signal: str | None
    stdout_bytes: int
    stderr_bytes: int
    truncated: bool
    """The chunks stop early; the artifact named by the terminal fact holds the whole output."""


class ToolEditProposed(_Report, frozen=True):
    TYPE = "tool.edit.proposed"
    tool_call_id: str
    path: str
    patch_artifact_id: str
    summary: str
    auto_apply: bool


class ToolEditApplied(_Report, frozen=True):
    TYPE = "tool.edit.applied"
    tool_call_id: str
    patch_artifact_id: str
    applied_at: str
    applied_by: str | UnsetType = UNSET
    """The client that applied it; absent if the run did."""


class ToolEditReverted(Fact, frozen=True):
    TYPE = "tool.edit.reverted"
    patch_artifact_id: str
    reverted_by: str
    reason: str
    inverse_artifact_id: str | UnsetType = UNSET


class ToolMultiEditProposed(_Report, frozen=True):
    TYPE = "tool.multi_edit.proposed"
    tool_call_id: str
    patch_artifact_ids: list[str]
    summary: str
    auto_apply: bool


class ToolMultiEditApplied(_Report, frozen=True):
    TYPE = "tool.multi_edit.applied"
    tool_call_id: str
    patch_artifact_ids: list[str]
    applied_at: str
    applied_by: str | UnsetType = UNSET
    """The client that applied it; absent if the run did."""


class ToolMultiEditReverted(Fact, frozen=True):
    TYPE = "tool.multi_edit.reverted"
    patch_artifact_ids: list[str]
    reverted_by: str
    reason: str


class ToolFileWriteProposed(_Report, frozen=True):
    """A new file. Writing an existing one is an edit."""

    TYPE = "tool.file_write.proposed"
    tool_call_id: str
    path: str
    patch_artifact_id: str
    summary: str
    auto_apply: bool


class ToolFileWriteApplied(_Report, frozen=True):
    TYPE = "tool.file_write.applied"
    tool_call_id: str
    patch_artifact_id: str
    applied_at: str
    applied_by: str | UnsetType = UNSET
    """The client that applied it; absent if the run did."""


class ToolFilePatch(_Report, frozen=True):
    """An edit, in the types of an earlier version of the protocol. Read, never written here."""

    TYPE = "tool.file.patch"
    tool_call_id: str
    path: str
    artifact_id: str
    operation: str | UnsetType = UNSET
    artifact_status: str | UnsetType = UNSET
    before_existed: bool | UnsetType = UNSET


class ToolFileApplied(Fact, frozen=True):
    TYPE = "tool.file.applied"
    artifact_id: str
    path: str
    artifact_status: str | UnsetType = UNSET


class ToolFileReverted(Fact, frozen=True):
    TYPE = "tool.file.reverted"
    artifact_id: str
    path: str
    artifact_status: str | UnsetType = UNSET
    before_existed: bool | UnsetType = UNSET


class ToolGlobCompleted(_Report, frozen=True):
    TYPE = "tool.glob.completed"
    tool_call_id: str
    pattern: str
    matches: list[str]
    match_count: int
    truncated: bool


class GrepMatch(Struct, frozen=True):
    path: str
    line: int
    text: str


class ToolGrepCompleted(_Report, frozen=True):
    TYPE = "tool.grep.completed"
    tool_call_id: str
    pattern: str
    files_searched: int
    matches: list[GrepMatch]
    match_count: int
    truncated: bool


class ToolFileReadCompleted(_Report, frozen=True):
    TYPE = "tool.file_read.completed"
    tool_call_id: str
    path: str
    size_bytes: int
    lines: int
    snippet_artifact_id: str | UnsetType = UNSET


class Todo(Struct, frozen=True):
    content: str
    status: Literal["pending", "in_progress", "completed"]


class ToolTodoWriteUpdated(_Report, frozen=True):
    """The whole list; it replaces the one before."""

    TYPE = "tool.todo_write.updated"
    tool_call_id: str
    todos: list[Todo]


class _Requested(_Report, frozen=True):
    tool_call_id: str
    method: str
    url: str
    header_keys: list[str]


class _Response(_Report, frozen=True):
    tool_call_id: str
    status: int
    duration_ms: int
    body_artifact_id: str | UnsetType = UNSET
    body_truncated: bool = False


class ToolHttpRequested(_Requested, frozen=True):
    TYPE = "tool.http.requested"


class ToolHttpResponse(_Response, frozen=True):
    TYPE = "tool.http.response"


class ToolWebFetchRequested(_Requested, frozen=True):
    TYPE = "tool.web_fetch.requested"


class ToolWebFetchResponse(_Response, frozen=True):
    TYPE = "tool.web_fetch.response"
    extracted_text_artifact_id: str | UnsetType = UNSET


class ToolWebSearchRequested(_Requested, frozen=True):
    TYPE = "tool.web_search.requested"
    query: str | UnsetType = UNSET


class ToolWebSearchResponse(_Response, frozen=True):
    TYPE = "tool.web_search.response"
    hits: list[dict[str, Any]] | UnsetType = UNSET
