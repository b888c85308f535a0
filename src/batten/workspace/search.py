"""Finds files by name and lines by pattern with `rg`, which skips ignored files.

Results are sorted by path and capped; `truncated` reports that there were more.
"""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

from batten.contract.errors import CallerError
from batten.workspace import files, ripgrep
from batten.workspace.globs import file_glob
from batten.workspace.root import ResolvedPath

OutputMode = Literal["content", "files", "count"]

MAX_FILES = 1000
MAX_LISTED = 200_000
MAX_MATCHES = 1000
MAX_LINE_CHARS = 2000
TIMEOUT_S = 30.0
MAX_PATTERN_CHARS = 30_000
"""The kernel passes a program 128 KiB in one argument."""


class Files(Struct, frozen=True):
    """Paths relative to the searched directory."""

    paths: tuple[str, ...]
    truncated: bool


class Line(Struct, frozen=True):
    path: str
    line: int
    text: str
    is_match: bool = True
    """False for a context line."""


class Matches(Struct, frozen=True, kw_only=True):
    lines: tuple[Line, ...]
    counts: dict[str, int]
    """Matching lines per file, in order."""
    match_count: int
    files_searched: int
    """Number of files searched; if the search was cut short, only those with a match."""
    truncated: bool


async def listing(
    place: ResolvedPath, *, limit: int = MAX_LISTED, timeout_s: float = TIMEOUT_S
) -> AsyncGenerator[str, None]:
    """Every file below `place` that is not ignored, sorted, up to `limit`."""
    arguments = ("--files", "--null", "--sort=path")
    stream = ripgrep.records(arguments, directory=place, separator=b"\0", timeout_s=timeout_s)
    listed = 0
    try:
        async with aclosing(stream) as paths:
            async for path in paths:
                if path is None:
                    continue
                if listed == limit:
                    return
                listed += 1
                yield path.decode("utf-8", "replace")
    except CallerError:
        # One unreadable directory must not hide the others.
        if not listed:
            raise


async def glob(
    place: ResolvedPath,
    pattern: str,
    *,
    limit: int = MAX_FILES,
) -> Files:
    """Files below `place` whose path matches `pattern`."""
    # An absolute pattern inside `place` is made relative.
    matcher = file_glob(pattern.removeprefix(place.path.rstrip("/") + "/"))
    found: list[str] = []
    listed = 0
    async with aclosing(listing(place)) as paths:
        async for path in paths:
            listed += 1
            if matcher.fullmatch(path):
                found.append(path)
                if len(found) > limit:
                    break
    return Files(tuple(found[:limit]), len(found) > limit or listed >= MAX_LISTED)


class _Text(Struct):
    """`rg` reports text if it is UTF-8, else the bytes in base64."""

    text: str | None = None
    raw: bytes | None = field(default=None, name="bytes")

    def shown(self) -> str:
        if self.text is not None:
            return self.text
        return (self.raw or b"").decode("utf-8", "replace")


class _Data(Struct):
    path: _Text | None = None
    lines: _Text | None = None
    line_number: int | None = None
    stats: dict[str, Any] | None = None


class _Record(Struct):
    type: str
    data: _Data


async def grep(
    place: ResolvedPath,
    pattern: str,
    *,
    glob: str | None = None,
    ignore_case: bool = False,
    multiline: bool = False,
    context: int = 0,
    mode: OutputMode = "content",
    limit: int = MAX_MATCHES,
    timeout_s: float = TIMEOUT_S,
    clean: Callable[[str], str] = str,
) -> Matches:
    """Lines below `place` (or in it, if it is a file) that match the regular expression.

    `limit` counts matching lines, or files unless `mode` is content. A `glob` can also select
    ignored files, though not those in ignored directories. Lines pass through `clean` before they
    are truncated.
    """
    for name, text in (("Pattern", pattern), ("Glob", glob or "")):
        if "\0" in text:
            raise CallerError(f"{name} holds a NUL byte: {text[:100]!r}", code="search_failed")
        if len(text) > MAX_PATTERN_CHARS:
            message = f"{name} has {len(text)} characters; at most {MAX_PATTERN_CHARS} are allowed"
            raise CallerError(message, code="search_failed")
    arguments = ["--json", "--sort=path", f"--regexp={pattern}", f"--context={max(0, context)}"]
    arguments += [f"--glob={glob}"] if glob else []
    arguments += ["--ignore-case"] if ignore_case else []
    arguments += ["--multiline"] if multiline else []
    arguments += ["--max-count=1"] if mode == "files" else []
    gathering = _Gathering(limit, mode, place.name, clean)
    try:
        if os.path.isdir(place.path):
            stream = ripgrep.records(
                arguments, directory=place, separator=b"\n", timeout_s=timeout_s
            )
            await gathering.take_all(stream)
        else:
            with files.open_file(place) as (file, _):
                await gathering.take_all(
                    ripgrep.records(
                        [*arguments, "-"],
                        directory=ResolvedPath(place.base, (), "."),
                        separator=b"\n",
                        timeout_s=timeout_s,
                        stdin=file.fileno(),
                    )
                )
    except CallerError:
        # `rg` also fails for single unreadable files; the matches it found still count.
        if not gathering.matched:
            raise
    return gathering.result()


class _Gathering:
    """Collects the records of one search. `name` replaces `<stdin>` as the path."""

    def __init__(
        self, limit: int, mode: OutputMode, name: str, clean: Callable[[str], str]
    ) -> None:
        self._clean = clean
        self._limit = limit
        self._mode = mode
        self._name = name
        self.lines: list[Line] = []
        self.counts: dict[str, int] = {}
        self.matched = 0
        self.searched: int | None = None
        self.truncated = False

    async def take_all(self, stream: AsyncGenerator[bytes | None, None]) -> None:
        decoder = msgspec.json.Decoder(_Record)
        async with aclosing(stream) as records:
            async for record in records:
                if record is None:
                    self.truncated = True
                elif not self._take(decoder.decode(record)):
                    break

    def _take(self, record: _Record) -> bool:
        """Keep a record's line; False once the limit is reached."""
        data = record.data
        if record.type == "summary":
            self.searched = int((data.stats or {}).get("searches", 0))
        if record.type not in ("match", "context") or data.path is None or data.lines is None:
            return True
        path = data.path.shown()
        path = self._name if path == "<stdin>" else path
        is_match = record.type == "match"
        if is_match and self._full(path):
            self.truncated = True
            return False
        if is_match:
            self.matched += 1
            self.counts[path] = self.counts.get(path, 0) + 1
        if self._mode == "content":
            text = self._clean(data.lines.shown().rstrip("\r\n"))[:MAX_LINE_CHARS]
            self.lines.append(Line(path, data.line_number or 0, text, is_match))
        return True

    def _full(self, path: str) -> bool:
        if self._mode == "content":
            return self.matched >= self._limit
        return len(self.counts) >= self._limit and path not in self.counts

    def result(self) -> Matches:
        return Matches(
            lines=tuple(self.lines),
            counts=self.counts,
            match_count=self.matched,
            files_searched=len(self.counts) if self.searched is None else self.searched,
            truncated=self.truncated,
        )
