"""A line for people as a value: styled pieces of text behind a prefix."""

from typing import Literal

from msgspec import Struct

from batten.contract.marks import prose_line

_CODES = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36",
}  # fmt: skip
_MOST_ROWS = 6
ALL_ROWS = 1_000_000


Kind = Literal["", "run", "prompt", "text", "call", "note", "end"]
"""What begins with a line; empty for a line that goes on with the one before."""


class Line(Struct, frozen=True):
    """One line: styled pieces behind a prefix that wrapped rows are indented by."""

    pieces: tuple[tuple[str, str], ...]
    """Text and style, where a style is words such as `bold red`."""
    prefix: str = ""
    at: str = ""
    """The instant of the fact that begins here, for printers that show times."""
    kind: Kind = ""
    most_rows: int = _MOST_ROWS
    """Rows on a terminal; the rest is cut off with a mark."""

    @property
    def prefix_style(self) -> str:
        """Marks are in the style of what they mark, lines that join are not."""
        joins = "│" in self.prefix or "└" in self.prefix
        return "dim" if joins or not self.pieces else self.pieces[0][1]


def line(text: str, style: str = "", *, prefix: str = "", at: str = "", kind: Kind = "") -> Line:
    return Line(((text, style),), prefix, at, kind)


class Spacing:
    """Blank rows between parts of different kinds, on terminals."""

    def __init__(self, *, is_terminal: bool) -> None:
        self._is_terminal = is_terminal
        self._last: Kind = ""

    def before(self, kind: Kind) -> str:
        """The line end that goes before a part of this kind, or nothing."""
        if not kind or not self._is_terminal:
            return ""
        last, self._last = self._last, kind
        return "\n" if last and last != kind else ""


def clean(text: str) -> str:
    """Prose on one line, with marks; tabs become blanks of a known width."""
    return prose_line(text.expandtabs(4))


def coded(text: str, style: str) -> str:
    """The text in a style, by escape sequences."""
    codes = ";".join(_CODES[word] for word in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
