"""What a client does in a workspace beside any run: what is asked for, and what is said of it.

What is said here is said once. That a command or a watch was started and ended are facts of the
session; its output and its events are not kept.
"""

from typing import Literal

from msgspec import Struct

Stream = Literal["stdout", "stderr"]
ChangeType = Literal["create", "modify", "delete", "rename"]


class StartCommand(Struct, frozen=True, kw_only=True):
    """A command of the client's own."""

    command_id: str
    command: str
    cwd: str | None = None
    """Inside the workspace; its root if absent."""
    env: dict[str, str] = {}
    shell: bool = True
    """Whether a shell reads it; otherwise it is split into words and nothing is expanded."""
    size: tuple[int, int] | None = None
    """Columns and rows of its terminal; it has none if absent."""
    stdin: bool = False
    """Whether it may be written to; otherwise it sees the end of its input at once."""


class StartWatch(Struct, frozen=True, kw_only=True):
    watch_id: str
    root: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    debounce_ms: int


class CommandStarted(Struct, frozen=True, kw_only=True):
    asked: StartCommand
    cwd: str
    pid: int
    owner: str


class CommandOutput(Struct, frozen=True, kw_only=True):
    command_id: str
    stream: Stream
    text: str


class CommandResized(Struct, frozen=True, kw_only=True):
    command_id: str
    columns: int
    rows: int


class CommandExited(Struct, frozen=True, kw_only=True):
    """Said once of each command, also of one that could not be started."""

    command_id: str
    exit_code: int | None
    """None if a signal ended it, or if it never began."""
    signal: str | None = None
    reason: str = ""
    """Why it ended, where it was not by itself."""


class WatchStarted(Struct, frozen=True, kw_only=True):
    asked: StartWatch
    root: str
    owner: str


class WatchChanged(Struct, frozen=True, kw_only=True):
    watch_id: str
    change: ChangeType
    path: str
    relative_path: str
    at_ms: int
    is_directory: bool


class WatchStopped(Struct, frozen=True, kw_only=True):
    watch_id: str
    reason: str = ""


Said = (
    CommandStarted
    | CommandOutput
    | CommandResized
    | CommandExited
    | WatchStarted
    | WatchChanged
    | WatchStopped
)


class FoundFile(Struct, frozen=True):
    path: str
    score: int


class FoundFiles(Struct, frozen=True, kw_only=True):
    query: str
    cwd: str
    files: tuple[FoundFile, ...]
    truncated: bool
    """More files matched than are given."""


class ReadLines(Struct, frozen=True, kw_only=True):
    """Some lines of a file, numbered from 1, both ends included; all 0 for an empty file."""

    path: str
    relative_path: str
    cwd: str
    content: str
    start_line: int
    end_line: int
    total_lines: int
    truncated: bool
