"""Operations of a client in a workspace outside any run: requests and reports.

Reports are not stored. The start and end of a command or watch are facts of the session; its output
and events are not.
"""

from typing import Literal

from msgspec import Struct

Stream = Literal["stdout", "stderr"]
ChangeType = Literal["create", "modify", "delete", "rename"]


class StartCommand(Struct, frozen=True, kw_only=True):
    command_id: str
    command: str
    cwd: str | None = None
    """Inside the workspace; its root if absent."""
    env: dict[str, str] = {}
    shell: bool = True
    """Whether a shell runs it; otherwise it is split into words and nothing is expanded."""
    size: tuple[int, int] | None = None
    """Columns and rows of its terminal; without a size it has no terminal."""
    stdin: bool = False
    """Whether it accepts input; otherwise its input is at its end from the start."""


class StartWatch(Struct, frozen=True, kw_only=True):
    watch_id: str
    root: str | None = None
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    debounce_ms: int


class CommandStarted(Struct, frozen=True, kw_only=True):
    asked: StartCommand
    cwd: str
    pid: int | None
    """As the process that serves sees it; None where the kernel does not tell."""
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
    """Sent once for each command, also for one that failed to start."""

    command_id: str
    exit_code: int | None
    """None if a signal ended it, or if it never started."""
    signal: str | None = None
    reason: str = ""
    """Why it ended, unless it exited by itself."""


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
    """More files matched than are listed."""


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
