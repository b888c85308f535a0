"""What sinks cost a run: appends with and without them, and the export of many runs at once."""

import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import msgspec

from batten.contract import facts
from batten.contract.facts.assistant import Usage
from batten.contract.ids import new_run_id, new_task_id
from batten.journal.contract import NewRun
from batten.journal.sqlite import SqliteJournal
from batten.journal.workers import this_worker
from batten.sinks.store import SinkStore

Row = dict[str, Any]

_DELTA = facts.AssistantTextDelta(1, 0, "a word or two of text, as a model streams it; " * 4)
_QUEUED = facts.RunQueued("agent_loop", "m", "p", "/work", "in_place", None)
_STARTED = facts.RunStarted("w", "2026-01-01T00:00:00.000Z")
_FINISHED = facts.RunFinished("completed", 1, 0, 5)
_RUNS = 10_000
_PARTS = 9
_TURNS = 20
_RUNS_OF_A_TURN = 20
_RUNS_OF_A_PHASE = 12
"""Runs beside an export before it is stopped for as many: its rests are shorter than that."""
_MOST_BESIDE = 9_000
"""Appends beside an export that are measured; it may take much longer."""
_STARTS_S = 2.0
_SETTLES_S = 0.2
_NONE, _AGAIN, _ALL, _HANG, _CONTROL = KINDS = (
    "no sinks",
    "no sinks, once more",
    "webhook and traces",
    "receivers that hang",
    "an unrelated program that uses as much CPU",
)


def rows() -> list[Row]:
    return [*latency_rows(), *export_rows()]


def latency_rows(turns: int = _TURNS) -> list[Row]:
    """Waiting for a commit without sinks, with good ones, with hanging ones, and beside a program
    that only uses as much CPU as sinks do.

    Each has a home of its own, all are measured in one run in short turns, and a process whose turn
    it is not is stopped: whatever else the machine does affects all of them. What is measured twice
    without sinks shows how far apart equal things are.
    """
    return asyncio.run(_latencies(turns))


async def _latencies(turns: int) -> list[Row]:
    with ExitStack() as stack:
        places = {kind: stack.enter_context(_Place(kind)) for kind in KINDS if kind != _CONTROL}
        await asyncio.sleep(_STARTS_S)
        first = places[_ALL]
        for _ in range(3):
            await first.turn()
        places[_CONTROL] = stack.enter_context(_Place(_CONTROL, first.share()))
        await asyncio.sleep(_STARTS_S)
        for place in places.values():
            place.forget()
        for _ in range(turns):
            for place in places.values():
                await place.turn()
        made: list[Row] = []
        bare = _typical(places[_NONE].waits)
        for kind in KINDS:
            cuts = _typical(places[kind].waits)
            for value, other, name in zip(cuts, bare, ("p50", "p99"), strict=True):
                row = {"what": f"append, {kind}: {name}", "value": value * 1e3, "unit": "ms"}
                made.append(row if kind == _NONE else {**row, "ratio": value / other})
        share = {"value": first.share() * 100, "unit": "% of a core"}
        return [*made, {"what": "CPU of the process of sinks", **share}]


def _typical(waits: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile, each the median over parts of the time: one stall of the
    disk does not decide it.
    """
    size = len(waits) // _PARTS
    parts = [waits[start : start + size] for start in range(0, size * _PARTS, size)]
    cuts = [statistics.quantiles(part, n=100) for part in parts]
    return statistics.median(one[49] for one in cuts), statistics.median(one[98] for one in cuts)


class _Place:
    """A journal, and a process beside it that works only in its turns."""

    def __init__(self, kind: str, share: float = 0.0) -> None:
        self._kind = kind
        self._share = share
        self._stack = ExitStack()
        self.waits: list[float] = []
        self._used_s = self._took_s = 0.0

    def __enter__(self) -> "_Place":
        stack, kind = self._stack, self._kind
        home = stack.enter_context(_home())
        self._journal = SqliteJournal.open(home)
        stack.callback(self._journal.close)
        self._process: subprocess.Popen[bytes] | None = None
        if kind in (_ALL, _HANG):
            receiver = stack.enter_context(_Receiver(hangs=kind == _HANG))
            self._process = _sinks(home, receiver.url)
        elif kind == _CONTROL:
            command = [sys.executable, "-m", "bench.sink_control", str(self._share)]
            self._process = subprocess.Popen(command)
        if self._process is not None:
            stack.callback(self._process.wait)
            stack.callback(self._process.kill)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def forget(self) -> None:
        """Begin to count."""
        self.waits.clear()
        self._used_s = self._took_s = 0.0
        self._signal(signal.SIGSTOP)

    def share(self) -> float:
        """What the process used of a core in its turns."""
        return self._used_s / self._took_s

    async def turn(self) -> None:
        """Append some runs beside the process."""
        self._signal(signal.SIGCONT)
        await asyncio.sleep(_SETTLES_S)
        began, before = time.perf_counter(), self._cpu_s()
        for _ in range(_RUNS_OF_A_TURN):
            await _append(self._journal, self.waits)
        self._took_s += time.perf_counter() - began
        self._used_s += self._cpu_s() - before
        self._signal(signal.SIGSTOP)

    def _cpu_s(self) -> float:
        return 0.0 if self._process is None else _cpu_s(self._process.pid)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)


async def _append_phase(journal: SqliteJournal, waits: list[float]) -> None:
    for _ in range(_RUNS_OF_A_PHASE):
        await _append(journal, waits)


async def _append(journal: SqliteJournal, waits: list[float]) -> None:
    """One run; the waits for its commits are added to those before."""
    run_id, fence = await _begin(journal)
    for _ in range(20):
        await asyncio.sleep(0.002)
        began = time.perf_counter()
        await journal.append(run_id, [_DELTA], fence=fence)
        waits.append(time.perf_counter() - began)
    await journal.append(run_id, _turn(), fence=fence)


def export_rows(runs: int = _RUNS) -> list[Row]:
    """All facts of many runs, told at once: how fast, the memory of the process, and the appends of
    other runs meanwhile.
    """
    with _home() as home, _home() as elsewhere:
        return asyncio.run(_exported(home, elsewhere, runs))


async def _exported(home: str, elsewhere: str, runs: int) -> list[Row]:
    journal = SqliteJournal.open(home)
    other = SqliteJournal.open(elsewhere)
    store = SinkStore.open(home)
    try:
        for _ in range(0, runs, 50):
            for one in (journal, other):  # of one size: a commit to a larger file takes longer
                await asyncio.gather(*(_whole(one) for _ in range(50)))
        end = await journal.position()
        alone = await _export(home, journal, store, end, None)
        beside = await _export(home, journal, store, end, other)
    finally:
        store.close()
        other.close()
        journal.close()
    without, again, with_it = (
        _typical(waits)[1] for waits in (beside.between, beside.again, beside.during)
    )
    what = f"export of {runs:,} runs"
    rates = {"alone": alone, "beside a run": beside}
    return [
        {"what": f"{what} ({end:,} events)", "value": alone.took_s, "unit": "s"},
        *(
            {"what": f"{what}: messages, {where}", "value": one.told / one.took_s, "unit": "/s"}
            for where, one in rates.items()
        ),
        {
            "what": f"{what}: memory of the process",
            "value": max(alone.peak_mb, beside.peak_mb),
            "unit": "MB",
        },
        {"what": f"{what}: append while it is stopped, p99", "value": without * 1e3, "unit": "ms"},
        {
            "what": f"{what}: append while it is stopped, once more, p99",
            "value": again * 1e3,
            "unit": "ms",
            "ratio": again / without,
        },
        {
            "what": f"{what}: append meanwhile, p99",
            "value": with_it * 1e3,
            "unit": "ms",
            "ratio": with_it / without,
        },
    ]


class _Export(NamedTuple):
    took_s: float
    told: int
    peak_mb: float
    during: list[float]
    """Waits for commits of another run beside the process."""
    between: list[float]
    """The same while the process is stopped."""
    again: list[float]
    """And once more, to show how far apart equal things are."""


async def _export(
    home: str, journal: SqliteJournal, store: SinkStore, end: int, other: SqliteJournal | None
) -> _Export:
    """With another journal, runs append meanwhile: to this one, and to the other one while the
    process is stopped, so that it does not fall behind for being stopped. Then it ends with the
    last append that is measured, or with the export.
    """
    for name in ("otel", "webhook:bench"):
        store.remove(name)
        store.add(name, 0)
    during: list[float] = []
    between: list[float] = []
    again: list[float] = []
    peak = paused_s = 0.0
    with _Receiver() as receiver:
        began = time.perf_counter()
        process = _sinks(home, receiver.url)
        try:
            # What the run beside it adds is not waited for.
            while any(row.position < end for row in store.sinks()) and len(during) < _MOST_BESIDE:
                peak = max(peak, _resident_mb(process.pid))
                if other is None:
                    await asyncio.sleep(0.1)
                    continue
                await _append_phase(journal, during)
                paused = time.perf_counter()
                process.send_signal(signal.SIGSTOP)
                await _append_phase(other, between)
                await _append_phase(other, again)
                process.send_signal(signal.SIGCONT)
                paused_s += time.perf_counter() - paused
            took_s = time.perf_counter() - began - paused_s
            told = sum(row.delivered for row in store.sinks())
        finally:
            process.kill()
            process.wait()
    return _Export(took_s, told, peak, during, between, again)


async def _begin(journal: SqliteJournal) -> tuple[str, int]:
    run = NewRun(
        run_id=new_run_id(), kind="agent_loop", worker_id=this_worker(), task_id=new_task_id()
    )
    lease, _ = await journal.create(run, [_QUEUED, _STARTED])
    assert lease is not None
    return run.run_id, lease.fence


def _turn() -> Sequence[facts.Fact]:
    called = facts.AssistantMessageComplete(
        1, "m", "p", [], Usage(10, 5), "end_turn", 100, "2026-01-01", 7, None
    )
    return (
        facts.TurnStarted(1, "m", "p", 10),
        called,
        facts.TurnCompleted(1, 10, 5, 0, 100, 9, 0, "end_turn"),
        _FINISHED,
    )


async def _whole(journal: SqliteJournal) -> None:
    run_id, fence = await _begin(journal)
    await journal.append(run_id, [*[_DELTA] * 4, *_turn()], fence=fence)


def _sinks(home: str, url: str) -> "subprocess.Popen[bytes]":
    table = {
        "sinks": {
            "webhooks": {
                "bench": {"url": f"{url}/hook", "secret": "s", "events": ["run.completed"]}
            },
            "otel": {"endpoint": url},
            "allow": ["127.0.0.0/8"],
        }
    }
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "batten", "sinks", "run"),
            *("--settings", msgspec.json.encode(table).decode()),
        ],
        env={**os.environ, "BATTEN_HOME": home},
        stderr=subprocess.DEVNULL,
    )


class _Receiver:
    """An HTTP server in a process of its own: takes everything, or answers nothing."""

    def __init__(self, *, hangs: bool = False) -> None:
        what = "hang" if hangs else "take"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.sink_receiver", what], stdout=subprocess.PIPE
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def __enter__(self) -> "_Receiver":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def _cpu_s(pid: int) -> float:
    """What all threads of a process have used."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat", encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def _resident_mb(pid: int) -> float:
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    except OSError:
        return 0.0


@contextmanager
def _home() -> Generator[str]:
    home = tempfile.mkdtemp(prefix="sinks-", dir=os.environ.get("BATTEN_BENCH_DIR"))
    try:
        yield home
    finally:
        shutil.rmtree(home)
