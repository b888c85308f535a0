"""Turn lines into text: one row each for pipes, wrapped to the width for terminals.

Pieces of a line may hold text of a model or a tool: printers remove what a terminal would obey.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from batten.serve.terminal.ability import Color, columns, has_color, is_smart
from batten.serve.terminal.lines import Line, clean, coded
from batten.serve.terminal.measures import local_time

if TYPE_CHECKING:
    from rich.text import Text

_TIME_COLUMNS = 10
_NARROW = 60
"""Terminals with fewer columns show no times."""
_NARROWEST = 16
"""Below this the terminal wraps by itself."""


class Printer(Protocol):
    """Turns lines into text for one reader."""

    def rows(self, line: Line) -> str:
        """The line with its line end; several rows if it has to be wrapped."""
        ...


class PlainPrinter:
    """One row a line, for pipes, files and terminals that can do nothing else."""

    def __init__(self, *, color: bool, times: bool) -> None:
        self._color = color
        self._times = times

    def rows(self, line: Line) -> str:
        text = "".join(
            coded(clean(text), style) if self._color else clean(text) for text, style in line.pieces
        )
        return f"{self._time(line)}{line.prefix}{text}\n"

    def _time(self, line: Line) -> str:
        if not self._times:
            return ""
        return f"{local_time(line.at):<{_TIME_COLUMNS}}" if line.at else " " * _TIME_COLUMNS


class TerminalPrinter:
    """Wraps lines to the terminal's width, which is asked for each line: it may change."""

    def __init__(self, width: Callable[[], int], *, color: bool, times: bool) -> None:
        # Loaded here, since only a terminal needs it.
        from rich.console import Console

        self._width = width
        self._times = times
        self._console = Console(
            color_system="standard" if color else None,
            force_terminal=True,
            no_color=not color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            _environ={},
        )

    def rows(self, line: Line) -> str:
        from rich.cells import cell_len
        from rich.text import Text

        width = self._width()
        time = ""
        if self._times and width >= _NARROW:
            time = f"{local_time(line.at) if line.at else '':<{_TIME_COLUMNS}}"
        text = Text.assemble(*((clean(text), style) for text, style in line.pieces))
        room = width - len(time) - cell_len(line.prefix)
        if room < _NARROWEST:
            return self._coded((time, "dim"), (line.prefix, line.prefix_style), text)
        goes_on = "│" in line.prefix
        indent = f"{line.prefix}  " if goes_on else " " * cell_len(line.prefix)
        first, *rest = self._wrapped(text, room, room - 2 * goes_on, line.most_rows)
        rows = [self._coded((time, "dim"), (line.prefix, line.prefix_style), first)]
        margin = (f"{'':{len(time)}}{indent}", "dim")
        rows += [self._coded(margin, row) for row in rest]
        return "".join(rows)

    def _wrapped(self, text: "Text", room: int, narrower: int, most: int) -> "list[Text]":
        """Rows of a text: one if it fits, else rows of the narrower width."""
        if text.cell_len <= room:
            return [text]
        rows = list(text.wrap(self._console, narrower, overflow="fold"))
        if len(rows) > most:
            rows = rows[:most]
            rows[-1].truncate(narrower - 1)
            rows[-1].append("…", "dim")
        return rows

    def _coded(self, *parts: "tuple[str, str] | Text") -> str:
        from rich.text import Text

        row = Text.assemble(*parts)
        row.rstrip()
        with self._console.capture() as captured:
            self._console.print(row, soft_wrap=True)
        return captured.get()


def printer_for(
    descriptor: int, environ: Mapping[str, str], color: Color, *, times: bool
) -> Printer:
    """The printer for what is written to a descriptor."""
    colored = has_color(color, descriptor, environ)
    if is_smart(descriptor, environ):
        return TerminalPrinter(lambda: columns(descriptor), color=colored, times=times)
    return PlainPrinter(color=colored, times=times)
