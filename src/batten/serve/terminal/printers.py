"""Turn lines into text: one row each for pipes, wrapped to the width for terminals.

Pieces of a line may hold text of a model or a tool: printers remove what a terminal would obey.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from batten.serve.terminal.ability import Color, columns, has_color, is_smart
from batten.serve.terminal.lines import Line, clean, coded
from batten.serve.terminal.measures import local_time

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
        from rich.text import Text

        width = self._width()
        text = Text.assemble(*((clean(text), style) for text, style in line.pieces))
        margin, time = 0, Text()
        if self._times and width >= _NARROW:
            margin = _TIME_COLUMNS
            time = Text(f"{local_time(line.at) if line.at else '':<{margin}}", "dim")
        room = width - margin - Text(line.prefix).cell_len
        if room < _NARROWEST:
            return self._coded(time.append(line.prefix, "dim").append_text(text))
        wrapped = list(text.wrap(self._console, room, overflow="fold")) or [Text()]
        if len(wrapped) > line.most_rows:
            wrapped = wrapped[: line.most_rows]
            wrapped[-1].truncate(room - 1)
            wrapped[-1].append("…", "dim")
        blank = " " * (width - room)
        rows = [time.append(line.prefix, "dim").append_text(wrapped[0])]
        rows += [Text(blank).append_text(row) for row in wrapped[1:]]
        return "".join(self._coded(row) for row in rows)

    def _coded(self, row: Any) -> str:
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
