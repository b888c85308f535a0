"""The bottom of a terminal: text that scrolls, and one status line below it.

The terminal is never put into a state that would have to be undone: no cursor is hidden, no mode
is set, and each write ends with default colours and, below a status line, at the start of that
line. So it is usable after every end of the process, `kill -9` included.
"""

from collections.abc import Callable

_ERASE_BELOW = "\r\x1b[J"


class Screen:
    """Writes whole frames: erase the status line, add text, draw the status line again."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        width: Callable[[], int],
        *,
        is_smart: bool,
        color: bool,
    ) -> None:
        """A terminal that is not `is_smart` gets the text alone."""
        self._write = write
        self._width = width
        self._is_smart = is_smart
        self._style, self._unstyle = ("\x1b[2m", "\x1b[0m") if color else ("", "")
        self.is_line_start = True
        self._drawn = 0
        """Columns of the status line on the screen."""
        self._status = ""

    def add(self, text: str) -> None:
        """Write text that stays."""
        if text:
            self.is_line_start = text.endswith("\n")
            self._frame(text)

    def set_status(self, text: str) -> None:
        """Draw the status line. It waits while the text above it is within a line."""
        if self._is_smart and text != self._status:
            self._status = text
            if self.is_line_start:
                self._frame("")

    def _frame(self, text: str) -> None:
        frame = f"{self._erased()}{text}"
        if self._status and self.is_line_start:
            from rich.cells import cell_len

            frame += f"{self._style}{self._status}{self._unstyle}\r"
            self._drawn = cell_len(self._status)
        self._write(frame.encode(errors="replace"))

    def _erased(self) -> str:
        """Remove the status line, also if a narrower window has folded it into several rows."""
        if not self._drawn:
            return ""
        rows = -(-self._drawn // max(1, self._width()))
        self._drawn = 0
        return f"\x1b[{rows - 1}A{_ERASE_BELOW}" if rows > 1 else _ERASE_BELOW
