"""Our requests to the client: permission for a tool call, its files, its terminals."""

from typing import Any, Literal, TypeVar

import msgspec

from batten.contract.errors import PeerError
from batten.protocols.acp.rpc import Response
from batten.protocols.acp.shape import Shape
from batten.protocols.acp.updates import ToolCallFields

PERMISSION = "session/request_permission"
READ_FILE = "fs/read_text_file"
WRITE_FILE = "fs/write_text_file"
CREATE_TERMINAL = "terminal/create"
TERMINAL_OUTPUT = "terminal/output"
WAIT_FOR_EXIT = "terminal/wait_for_exit"
KILL_TERMINAL = "terminal/kill"
RELEASE_TERMINAL = "terminal/release"

OptionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class PermissionOption(Shape, frozen=True):
    option_id: str
    name: str
    kind: OptionKind


class PermissionParams(Shape, frozen=True):
    session_id: str
    tool_call: ToolCallFields
    options: list[PermissionOption]


class Chosen(Shape, frozen=True):
    """The client's choice: an option, or that the question was cancelled."""

    outcome: Literal["selected", "cancelled"]
    option_id: str | None = None


class PermissionResult(Shape, frozen=True):
    outcome: Chosen


class ReadFileParams(Shape, frozen=True):
    session_id: str
    path: str
    line: int | None = None
    limit: int | None = None


class ReadFileResult(Shape, frozen=True):
    content: str


class WriteFileParams(Shape, frozen=True):
    session_id: str
    path: str
    content: str


class NameAndValue(Shape, frozen=True):
    """An environment variable or a header."""

    name: str
    value: str


class CreateTerminalParams(Shape, frozen=True):
    session_id: str
    command: str
    args: list[str] | None = None
    env: list[NameAndValue] | None = None
    cwd: str | None = None
    output_byte_limit: int | None = None


class CreateTerminalResult(Shape, frozen=True):
    terminal_id: str


class TerminalParams(Shape, frozen=True):
    """The params of `output`, `wait_for_exit`, `kill` and `release`."""

    session_id: str
    terminal_id: str


class ExitStatus(Shape, frozen=True):
    exit_code: int | None = None
    signal: str | None = None


class TerminalOutputResult(Shape, frozen=True):
    output: str
    truncated: bool
    exit_status: ExitStatus | None = None


class Nothing(Shape, frozen=True):
    """An empty result; null means the same."""


Answer = TypeVar("Answer", bound=Shape)


def read_answer(response: Response, kind: type[Answer]) -> Answer:
    """The result as this type. Raises the client's error, or `PeerError` if it is invalid."""
    if response.error is not None:
        raise response.error
    result: Any = {} if response.result is None else response.result
    try:
        return msgspec.convert(result, kind)
    except msgspec.ValidationError as error:
        raise PeerError(f"the client's answer is not what was asked for: {error}") from error
