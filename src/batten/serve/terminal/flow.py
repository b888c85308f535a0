"""Prose that streams in pieces, broken between words at the terminal's width.

Code blocks, tables and indented lines stay as they are: the terminal folds them, and they can be
copied.
"""

import re
from collections.abc import Callable

from batten.contract.marks import plain

_PIECES = re.compile(r"\n|[^\S\n]+|\S+")
_VERBATIM = ("```", "~~~", "    ", "\t", "|")
_FENCES = ("```", "~~~")


class TextFlow:
    """Takes the text of one block and returns what to write; an unfinished word is held back."""

    def __init__(self, width: Callable[[], int] | None) -> None:
        """Without a `width`, the text passes unbroken."""
        self._width = width
        self._held = ""
        self._line = ""
        """The line of the text so far, without breaks of ours."""
        self._blanks = ""
        self._column = 0
        self._in_fence = False

    def feed(self, delta: str) -> str:
        if self._width is None:
            return plain(delta)
        text = self._held + delta
        cut = len(text)
        while cut > 0 and not text[cut - 1].isspace() and len(text) - cut < self._width():
            cut -= 1
        self._held = text[cut:]
        return "".join(map(self._place, _PIECES.findall(plain(text[:cut]))))

    def begin_row(self) -> None:
        """Something else was written: the text goes on at the start of a row."""
        self._column = 0

    def finish(self) -> str:
        """The rest. The next block begins on a line of its own."""
        rest, self._held = self._held, ""
        shown = "".join(map(self._place, _PIECES.findall(plain(rest))))
        self._line, self._blanks, self._column, self._in_fence = "", "", 0, False
        return shown

    def _place(self, piece: str) -> str:
        """What to write for a word, or for blanks, which wait for the word after them."""
        from rich.cells import cell_len

        assert self._width is not None
        if piece == "\n":
            if self._line.lstrip().startswith(_FENCES):
                self._in_fence = not self._in_fence
            self._line, self._blanks, self._column = "", "", 0
            return piece
        self._line += piece
        if self._in_fence or self._line.startswith(_VERBATIM):
            blanks, self._blanks = self._blanks, ""
            return f"{blanks}{piece}"
        if piece.isspace():
            self._blanks += piece
            return ""
        blanks, self._blanks = self._blanks, ""
        size = cell_len(blanks + piece)
        if self._column and self._column + size > self._width():
            self._column = cell_len(piece)
            return f"\n{piece}"
        self._column += size
        return f"{blanks}{piece}"
