"""`make bench`: prints tables and writes them to docs/performance.md.

    python -m bench [processes|journal|protocols|service|sinks|coordination|control-plane]…

Other parts of the page stay as they are.
"""

import os
import platform
import sys
import time
from collections.abc import Callable
from typing import Any

from bench import control_plane, coordination, fanout, headless, journal, service, sinks, whole

Row = dict[str, Any]

_PAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "docs")
_END = "<!-- end of measured -->"


def main() -> None:
    parts: dict[str, Callable[[], list[str]]] = {
        "processes": lambda: _processes(whole.rows()),
        "journal": lambda: _stores(journal.rows()),
        "protocols": lambda: protocol_table(headless.rows()),
        "service": lambda: service_table([*service.rows(), *fanout.rows()]),
        "sinks": lambda: sink_table(sinks.rows()),
        "coordination": lambda: coordination_table(coordination.rows()),
        "control-plane": lambda: service_table(control_plane.rows(), "control plane"),
    }
    wanted = sys.argv[1:] or list(parts)
    if unknown := [name for name in wanted if name not in parts]:
        raise SystemExit(f"{unknown[0]!r} is not one of {', '.join(parts)}")
    for name in wanted:
        if sys.stderr.isatty():
            print(f"{name}…", file=sys.stderr)
        table = "\n".join([_machine(), "", *parts[name]()])
        print(table, end="\n\n")
        _write(name, table)


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
    """Ratios to the fastest of `to`, for a run and for a turn."""
    if not to:
        return []
    return [
        f"{row[name] / min(other[name] for other in to):.2f}" for name in ("wall_s", "turn_wall_ms")
    ]


def _stores(rows: list[Row]) -> list[str]:
    lines = [
        "| journal | unit | Batten | bare | ratio | p50 | p99 |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        figures = [row.get(name) for name in ("batten", "bare", "ratio", "p50", "p99")]
        shown = ["" if figure is None else f"{figure:,.4g}" for figure in figures]
        lines.append(f"| {row['measure']} | {row['unit']} | {' | '.join(shown)} |")
    return lines


def protocol_table(rows: list[Row]) -> list[str]:
    """The two promises of each protocol, with their limits."""
    lines = [
        "| protocol | first answer | after | bare Python | ratio (at most 1.5) "
        "| deltas a minute (at least 100,000) |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = [
            row["protocol"],
            f"`{row['first']}`",
            f"{row['start_ms']:.0f} ms",
            f"{row['bare_ms']:.0f} ms",
            f"{row['start_ms'] / row['bare_ms']:.2f}",
            f"{row['deltas_per_minute']:,.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def service_table(rows: list[Row], name: str = "service") -> list[str]:
    """Every measure; a request with its ratios to a bare route and to one that is like it: with a
    durable insert, or an answer of the same size.
    """
    lines = [
        f"| {name} | measured | unit | to a bare route | to one like it |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        ratios = [f"{row[name]:.2f}" if name in row else "" for name in ("ratio", "to_like")]
        figures = [row["what"], f"{row['value']:,.4g}", row["unit"], *ratios]
        lines.append(f"| {' | '.join(figures)} |")
    return lines


def coordination_table(rows: list[Row]) -> list[str]:
    """Every measure; messages with their ratio to the echo before them."""
    return _compared("coordination", "to the echo", rows)


def _compared(title: str, to: str, rows: list[Row]) -> list[str]:
    lines = [f"| {title} | measured | unit | {to} |", "|---|---|---|---|"]
    for row in rows:
        ratio = f"{row['ratio']:.2f}" if "ratio" in row else ""
        lines.append(f"| {row['what']} | {row['value']:,.4g} | {row['unit']} | {ratio} |")
    return lines


def sink_table(rows: list[Row]) -> list[str]:
    """Every measure; appends with their ratio to those without sinks."""
    return _compared("sinks", "to no sinks", rows)


def _write(part: str, table: str) -> None:
    """Replace this part of the page."""
    begin = f"<!-- measured: {part} -->"
    path = os.path.join(_PAGE, "performance.md")
    with open(path, encoding="utf-8") as file:
        page = file.read()
    before, found, rest = page.partition(begin)
    if not found:
        raise SystemExit(f"{path} has no place for {part}: {begin}")
    _, _, after = rest.partition(_END)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"{before}{begin}\n\n{table}\n\n{_END}{after}")


if __name__ == "__main__":
    main()
