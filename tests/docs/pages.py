"""The pages of the documentation, and the pieces in them that a reader may run."""

import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHELLS = ("sh", "bash", "zsh", "fish")
RUNNABLE = (*SHELLS, "console", "python", "yaml")

_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FENCE = re.compile(r"(?P<indent> *)```(?P<kind>\S*)")
_STEP = re.compile(r"^( *)(?:- )?run: \|\n((?:\1 +.*\n|\n)+)", re.MULTILINE)
_INLINE = re.compile(r"`(batten\s[^`]*)`")


class Block(Struct, frozen=True):
    """A fenced block of a page."""

    page: Path
    line: int
    kind: str
    """What stands after the fence, such as `sh`; empty without."""
    text: str
    not_run: str
    """Why the page says that it is not run; empty if it is."""

    @property
    def place(self) -> str:
        return f"{name(self.page)}:{self.line}"

    def scripts(self) -> list[str]:
        """What to run: the block itself, or each `run` step of a workflow."""
        if self.kind != "yaml":
            return [self.text]
        return [re.sub(r"\$\{\{.*?\}\}", "", step) for _, step in _STEP.findall(self.text + "\n")]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, with the mark on the line before."""
    lines = page.read_text("utf-8").splitlines()
    at = 0
    while at < len(lines):
        opened = _FENCE.match(lines[at])
        at += 1
        if opened is None:
            continue
        first = at
        indent = len(opened["indent"])
        while lines[at].strip() != "```":
            at += 1
        text = "".join(f"{line[indent:]}\n" for line in lines[first:at])
        at += 1
        mark = _NOT_RUN.fullmatch(lines[first - 2].strip()) if first > 1 else None
        yield Block(page, first, opened["kind"], text, mark[1] if mark else "")


def transcript(text: str) -> list[tuple[str, list[str]]]:
    """Each command of a console block with the lines of output below it."""
    shown: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            shown.append((line[2:], []))
        else:
            shown[-1][1].append(line)
    return shown


def inline_commands(page: Path) -> list[str]:
    """The commands in the prose of a page, as written."""
    prose = re.sub(r"^ *```.*?^ *```$", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [" ".join(found.split()) for found in _INLINE.findall(prose)]
