"""`make bench`: one table, printed and written to docs/performance.md."""

import os
import platform
import sys
import time
from typing import Any

from bench import headless, journal, whole

Row = dict[str, Any]

_PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")
_BEGIN = "<!-- measured: written by `make bench` -->"
_END = "<!-- end of measured -->"


def main() -> None:
    progress = sys.stderr.isatty()
    if progress:
        print("whole processes…", file=sys.stderr)
    processes = whole.rows()
    if progress:
        print("the journal…", file=sys.stderr)
    stores = journal.rows()
    if progress:
        print("the protocols…", file=sys.stderr)
    protocols = headless.rows()
    table = "\n".join(
        [
            _machine(),
            "",
            *_processes(processes),
            "",
            *_stores("journal", stores),
            "",
            *_stores("headless", protocols),
        ]
    )
    print(table)
    _write(table)


def _machine() -> str:
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return f"Measured on {day}: {os.cpu_count()} cores, Python {platform.python_version()}, Linux."


def _processes(rows: list[Row]) -> list[str]:
    """Every agent, and its ratio to the bare loop and to the fastest other agent measured."""
    others = [row for row in rows[1:] if not row["agent"].startswith("batten")]
    head = ["whole process", "wall", "CPU", "RSS", "further turn: wall", "CPU"]
    head += ["wall to bare", "turn to bare"]
    if others:
        head += ["wall to fastest other", "turn to fastest other"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for row in rows:
        cells = [
            row["agent"],
            f"{row['wall_s']:.3f} s",
            f"{row['cpu_s']:.3f} s",
            f"{row['rss_mb']:.0f} MB",
            f"{row['turn_wall_ms']:.1f} ms",
            f"{row['turn_cpu_ms']:.1f} ms",
            *_ratios(row, rows[:1]),
            *_ratios(row, others),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _ratios(row: Row, to: list[Row]) -> list[str]:
    """How long a row takes compared with the fastest of some, for a run and for a turn."""
    if not to:
        return []
    return [
        f"{row[name] / min(other[name] for other in to):.2f}" for name in ("wall_s", "turn_wall_ms")
    ]


def _stores(what: str, rows: list[Row]) -> list[str]:
    lines = [
        f"| {what} | unit | Batten | bare | ratio | p50 | p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = [row.get(name) for name in ("batten", "bare", "ratio", "p50", "p99")]
        shown = ["" if figure is None else f"{figure:,.4g}" for figure in figures]
        lines.append(f"| {row['measure']} | {row['unit']} | {' | '.join(shown)} |")
    return lines


def _write(table: str) -> None:
    path = os.path.join(_PAGE, "performance.md")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{_BEGIN}\n\n{table}\n\n{_END}{after}")


if __name__ == "__main__":
    main()
