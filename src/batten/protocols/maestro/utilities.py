"""Translates utility messages to operations of a session, and their reports to messages."""

from msgspec import UNSET
from msgspec.structs import asdict

from batten.contract import utilities
from batten.contract.errors import CallerError
from batten.protocols.maestro import incoming
from batten.protocols.maestro import outgoing as out

_COLUMNS, _ROWS = 80, 24
_DEBOUNCE_MS = 100


def whole(value: incoming.Number, name: str) -> int:
    """A number that must be an integer."""
    if value != int(value):
        raise CallerError(f"{name} is {value}; it is a whole number")
    return int(value)


def limit(value: incoming.Number | None) -> int | None:
    return None if value is None else int(value)


def command_asked(message: incoming.CommandStart) -> utilities.StartCommand:
    size: tuple[int, int] | None = None
    if message.terminal_mode == "pty":
        columns = _COLUMNS if message.columns is None else whole(message.columns, "columns")
        rows = _ROWS if message.rows is None else whole(message.rows, "rows")
        size = (columns, rows)
    elif message.columns is not None or message.rows is not None:
        raise CallerError("Utility command columns and rows require terminal_mode=pty")
    return utilities.StartCommand(
        command_id=message.command_id,
        command=message.command,
        cwd=message.cwd,
        env=message.env,
        shell=message.shell_mode == "shell",
        size=size,
        stdin=message.allow_stdin,
    )


def watch_asked(message: incoming.WatchStart) -> utilities.StartWatch:
    debounce = _DEBOUNCE_MS if message.debounce_ms is None else message.debounce_ms
    return utilities.StartWatch(
        watch_id=message.watch_id,
        root=message.root_dir,
        include=message.include_patterns,
        exclude=message.exclude_patterns,
        debounce_ms=int(debounce),
    )


def found(search_id: str, files: utilities.FoundFiles) -> out.FileSearchResults:
    return out.FileSearchResults(
        search_id=search_id,
        query=files.query,
        cwd=files.cwd,
        results=tuple(out.FileMatch(one.path, one.score) for one in files.files),
        truncated=files.truncated,
    )


def page(read_id: str, lines: utilities.ReadLines) -> out.FileReadResult:
    return out.FileReadResult(read_id=read_id, **asdict(lines))


def told(report: utilities.Said) -> out.Message:
    """A report of a running utility as a message."""
    match report:
        case utilities.CommandStarted():
            return _command_started(report)
        case utilities.CommandOutput():
            return out.CommandOutput(
                command_id=report.command_id, stream=report.stream, content=report.text
            )
        case utilities.CommandResized():
            return out.CommandResized(**asdict(report))
        case utilities.CommandExited():
            return out.CommandExited(
                command_id=report.command_id,
                success=report.exit_code == 0,
                exit_code=report.exit_code,
                signal=report.signal,
                reason=report.reason or UNSET,
            )
        case utilities.WatchStarted():
            return _watch_started(report)
        case utilities.WatchChanged():
            return out.WatchEvent(
                watch_id=report.watch_id,
                change_type=report.change,
                path=report.path,
                relative_path=report.relative_path,
                timestamp=report.at_ms,
                is_directory=report.is_directory,
            )
        case utilities.WatchStopped():
            return out.WatchStopped(watch_id=report.watch_id, reason=report.reason or UNSET)


def _command_started(report: utilities.CommandStarted) -> out.CommandStarted:
    request = report.asked
    return out.CommandStarted(
        command_id=request.command_id,
        command=request.command,
        cwd=report.cwd,
        shell_mode="shell" if request.shell else "direct",
        terminal_mode="pipe" if request.size is None else "pty",
        pid=UNSET if report.pid is None else report.pid,
        columns=UNSET if request.size is None else request.size[0],
        rows=UNSET if request.size is None else request.size[1],
        owner_connection_id=report.owner,
    )


def _watch_started(report: utilities.WatchStarted) -> out.WatchStarted:
    request = report.asked
    return out.WatchStarted(
        watch_id=request.watch_id,
        root_dir=report.root,
        include_patterns=request.include or UNSET,
        exclude_patterns=request.exclude or UNSET,
        debounce_ms=request.debounce_ms,
        owner_connection_id=report.owner,
    )
