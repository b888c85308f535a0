"""Unified diffs as lines in colour."""

from collections.abc import Iterable, Iterator
from typing import Literal

from batten.contract.marks import exact, plain
from batten.serve.terminal.excerpt import left_out_mark
from batten.serve.terminal.lines import Line, coded, line

MOST_LINES = 40
"""Lines of one file's diff below a call; `batten diff` shows all of it."""

Part = Literal["header", "place", "added", "removed", "context"]
STYLES: dict[Part, str] = {
    "header": "bold", "place": "cyan", "added": "green", "removed": "red", "context": "",
}  # fmt: skip


def parts(texts: Iterable[str]) -> Iterator[tuple[Part, str]]:
    """Each line of a diff with what it is. `--- x` within a hunk is a removed line."""
    in_header = True
    for text in texts:
        if text.startswith("diff "):
            in_header = True
        elif text.startswith("@@"):
            in_header = False
            yield "place", text
            continue
        if in_header:
            yield "header", text
        elif text.startswith("+"):
            yield "added", text
        elif text.startswith("-"):
            yield "removed", text
        else:
            yield "context", text


def diff_lines(diff: str, prefix: str, *, whole: bool) -> Iterator[Line]:
    """The changed places of one file; the call above names it."""
    shown: list[tuple[Part, str]] = [
        (part, text)
        for part, text in parts(diff.removesuffix("\n").split("\n"))
        if part != "header" or text.startswith("Binary ")
    ]
    most = len(shown) if whole or len(shown) <= MOST_LINES + 1 else MOST_LINES
    for part, text in shown[:most]:
        yield line(text, STYLES[part], prefix=prefix)
    if most < len(shown):
        yield line(left_out_mark(len(shown) - most), "dim", prefix=prefix)


def readable_diff(body: bytes, *, color: bool) -> bytes:
    """A diff for people: without what a terminal would obey, in colour if wanted."""
    texts = body.decode(errors="replace").removesuffix("\n").split("\n")
    rows: list[str] = []
    for part, text in parts(texts):
        shown = exact(text) if part == "header" else plain(text)  # a header names the file
        rows.append(coded(shown, STYLES[part] if color else "") + "\n")
    return "".join(rows).encode(errors="replace")


def path_in(diff: str) -> str:
    """The path that a diff of one file names."""
    names = [text for part, text in parts(diff.split("\n")[:6]) if part == "header"]
    for mark, side in (("+++ ", "b/"), ("--- ", "a/")):
        for text in names:
            if text.startswith(mark) and text != f"{mark}/dev/null":
                return text.removeprefix(mark).removeprefix(side).rstrip("\t")
    return names[0].rpartition(" b/")[2] if names else ""
