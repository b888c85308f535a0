"""The `glob` and `grep` tools: find files by name and lines by pattern."""

import os
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from batten.contract.facts import ToolGlobCompleted, ToolGrepCompleted
from batten.contract.facts.tool import GrepMatch, ToolKind
from batten.models.contract import ToolSpec
from batten.redact.scan import MARK
from batten.redact.shapes import compiled
from batten.tools.contract import Effect, ToolContext, ToolOutput, object_schema
from batten.tools.paths import REPORTED_ERRORS, FileTool, failed
from batten.workspace import files, search
from batten.workspace.root import ResolvedPath, Root
from batten.workspace.search import Line, Matches, OutputMode

MAX_CONTEXT_LINES = 50

_FACT_BYTES = 64 * 1024
"""Bytes of results in a fact; the model receives all of them."""
_FACT_LINE_CHARS = 400

_KEY_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY"
_KEY_LINE = r"(?m:^[ \t]*[A-Za-z0-9+/]{17,100}={0,2}[ \t\r]*$)"

_MODES: dict[str, OutputMode] = {
    "content": "content",
    "files_with_matches": "files",
    "count": "count",
}

Item = TypeVar("Item")


class Glob(FileTool):
    kind: ToolKind = "glob"
    path_argument = "path"
    effect: Effect = "read"
    spec = ToolSpec(
        name="glob",
        description=(
            "List files whose path fits a pattern such as `**/*.py` or `src/*.{ts,tsx}`. "
            "Ignored files (.gitignore) are left out."
        ),
        parameters=object_schema(
            ["pattern"],
            pattern={"type": "string"},
            path={"type": "string", "description": "Where to look; the workspace."},
        ),
    )

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        pattern: str = arguments["pattern"]
        try:
            place = self._root.resolve(arguments.get("path", "."))
            found = await search.glob(place, pattern)
        except REPORTED_ERRORS as error:
            return failed(error)
        paths = [_below(place.shown, path) for path in found.paths]
        paths = [path for path in paths if context.may_read(path)]
        shown = _fitting(paths, len)
        context.record(
            ToolGlobCompleted(
                tool_call_id=context.call_id,
                tool_name=context.tool_name,
                pattern=pattern,
                matches=shown,
                match_count=len(paths),
                truncated=found.truncated or len(shown) < len(paths),
            )
        )
        if not paths:
            return ToolOutput(text="No files matched the pattern.")
        more = f"\n[more than {len(paths)} files; narrow the pattern]" if found.truncated else ""
        return ToolOutput(text="\n".join(paths) + more, summary=f"{len(paths)} files")


class Grep(FileTool):
    kind: ToolKind = "grep"
    path_argument = "path"
    effect: Effect = "read"
    spec = ToolSpec(
        name="grep",
        description=(
            "Search files for a regular expression (Rust syntax, as ripgrep has it). "
            "Ignored files (.gitignore) are left out."
        ),
        parameters=object_schema(
            ["pattern"],
            pattern={"type": "string"},
            path={"type": "string", "description": "A directory or file; the workspace."},
            glob={"type": "string", "description": "Only files such as `*.py`."},
            output_mode={"type": "string", "enum": list(_MODES)},
            ignore_case={"type": "boolean"},
            multiline={"type": "boolean", "description": "Let a match cross lines."},
            context={"type": "integer", "description": "Lines to show around a match."},
            limit={"type": "integer", "minimum": 1, "maximum": search.MAX_MATCHES},
        ),
    )

    async def run(self, arguments: dict[str, Any], context: ToolContext) -> ToolOutput:
        mode = _MODES[arguments.get("output_mode", "content")]
        try:
            place = self._root.resolve(arguments.get("path", "."))
            found = await search.grep(
                place,
                arguments["pattern"],
                glob=arguments.get("glob"),
                ignore_case=arguments.get("ignore_case", False),
                multiline=arguments.get("multiline", False),
                context=min(arguments.get("context", 0), MAX_CONTEXT_LINES),
                mode=mode,
                limit=arguments.get("limit", search.MAX_MATCHES),
                clean=context.redact,
            )
        except REPORTED_ERRORS as error:
            return failed(error)
        top = _searched(place)
        found = _without_keys(_without_hidden(found, top, context), top, self._root)
        context.record(_fact(found, top, arguments["pattern"], context))
        if not found.match_count:
            return ToolOutput(text="No matches found.")
        more = "\n[there are more matches; narrow the search]" if found.truncated else ""
        return ToolOutput(
            text=_report(found, top, mode) + more,
            summary=f"{found.match_count} matches in {len(found.counts)} files",
        )


def _without_hidden(found: Matches, top: str, context: ToolContext) -> Matches:
    """The matches without those in files that a rule keeps from being read."""
    hidden = {path for path in found.counts if not context.may_read(_below(top, path))}
    if not hidden:
        return found
    counts = {path: count for path, count in found.counts.items() if path not in hidden}
    return replace(
        found,
        lines=tuple(line for line in found.lines if line.path not in hidden),
        counts=counts,
        match_count=found.match_count - sum(found.counts[path] for path in hidden),
    )


def _without_keys(found: Matches, top: str, root: Root) -> Matches:
    """Redact the lines of private keys, which only their file identifies as such."""
    is_key: dict[str, bool] = {}
    lines: list[Line] = []
    for line in found.lines:
        if compiled(_KEY_LINE).search(line.text):
            if line.path not in is_key:
                is_key[line.path] = _has_key(root, _below(top, line.path))
            if is_key[line.path]:
                line = replace(line, text=compiled(_KEY_LINE).sub(MARK, line.text))
        lines.append(line)
    return replace(found, lines=tuple(lines)) if any(is_key.values()) else found


def _has_key(root: Root, path: str) -> bool:
    try:
        data = files.read(root.resolve(path), max_bytes=files.MAX_TEXT_BYTES).data
    except REPORTED_ERRORS:
        return False
    return compiled(_KEY_BEGIN).search(data.decode("utf-8", "replace")) is not None


def _searched(place: ResolvedPath) -> str:
    """The directory that result paths are relative to."""
    return place.shown if os.path.isdir(place.path) else place.shown.rpartition("/")[0] or "."


def _below(top: str, path: str) -> str:
    return path if top == "." else f"{top}/{path}"


def _fact(found: Matches, top: str, pattern: str, context: ToolContext) -> ToolGrepCompleted:
    matches = [
        GrepMatch(_below(top, line.path), line.line, line.text[:_FACT_LINE_CHARS])
        for line in found.lines
        if line.is_match
    ]
    shown = _fitting(matches, lambda match: len(match.path) + len(match.text))
    return ToolGrepCompleted(
        tool_call_id=context.call_id,
        tool_name=context.tool_name,
        pattern=pattern,
        files_searched=found.files_searched,
        matches=shown,
        match_count=found.match_count,
        truncated=found.truncated or len(shown) < len(matches),
    )


def _fitting(items: Iterable[Item], size: Callable[[Item], int]) -> list[Item]:
    """The first items, as many as fit into a fact."""
    room = _FACT_BYTES
    fitting: list[Item] = []
    for item in items:
        room -= size(item) + 32
        if room < 0:
            break
        fitting.append(item)
    return fitting


def _report(found: Matches, top: str, mode: OutputMode) -> str:
    match mode:
        case "files":
            return "\n".join(_below(top, path) for path in found.counts)
        case "count":
            return "\n".join(f"{_below(top, path)}:{n}" for path, n in found.counts.items())
        case "content":
            return "\n".join(_lines(found.lines, top))


def _lines(lines: tuple[Line, ...], top: str) -> Iterable[str]:
    """`file:line:text`, context lines with dashes, and `--` between separate groups."""
    with_context = any(not line.is_match for line in lines)
    before: Line | None = None
    for line in lines:
        follows = before is not None and (before.path, before.line + 1) == (line.path, line.line)
        if with_context and before is not None and not follows:
            yield "--"
        mark = ":" if line.is_match else "-"
        yield f"{_below(top, line.path)}{mark}{line.line}{mark}{line.text}"
        before = line
