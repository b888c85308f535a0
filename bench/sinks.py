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
from contextlib import contextmanager
from typing import Any

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
_ROUNDS = 9
_STARTS_S = 2.0
_OF_ANOTHER_MACHINE = 19
"""The niceness of receivers: what they use is not the sinks' doing."""


def rows() -> list[Row]:
    return [*latency_rows(), *export_rows()]


def latency_rows(events: int = 400) -> list[Row]:
    """Waiting for a commit, alternately without sinks, with good ones and with a hanging one.

    Each figure is the median of the rounds: what else the machine does comes and goes. The ratio
    is the median of those to the round without sinks just before.
    """
    kinds = ("no sinks", "webhook and traces", "receivers that hang")
    rounds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(_ROUNDS):
        for kind in kinds:
            with _home() as home:
                rounds[kind].append(_cuts(asyncio.run(_measured(home, kind, events))))
    made: list[Row] = []
    for kind, cuts in rounds.items():
        for index, name in enumerate(("p50", "p99")):
            value = statistics.median(cut[index] for cut in cuts)
            pairs = zip(cuts, rounds["no sinks"], strict=True)
            ratio = statistics.median(one[index] / bare[index] for one, bare in pairs)
            row = {"what": f"append, {kind}: {name}", "value": value * 1e3, "unit": "ms"}
            made.append(row if kind == "no sinks" else {**row, "ratio": ratio})
    return made


def _cuts(seconds: Sequence[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    cuts = statistics.quantiles(seconds, n=100)
    return cuts[49], cuts[98]


async def _measured(home: str, kind: str, events: int) -> list[float]:
    journal = SqliteJournal.open(home)
    with _Receiver(hangs="hang" in kind) as receiver:
        process = None if kind == "no sinks" else _sinks(home, receiver.url)
        try:
            await asyncio.sleep(_STARTS_S)
            waits: list[float] = []
            while len(waits) < events:
                await _append(journal, waits)
            return waits
        finally:
            if process is not None:
                process.kill()
                process.wait()
            journal.close()


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
    """All facts of many runs, told at once: how fast, and the memory of the process."""
    with _home() as home:
        return asyncio.run(_exported(home, runs))


async def _exported(home: str, runs: int) -> list[Row]:
    journal = SqliteJournal.open(home)
    for _ in range(0, runs, 50):
        await asyncio.gather(*(_whole(journal) for _ in range(50)))
    end = await journal.position()
    store = SinkStore.open(home)
    for name in ("otel", "webhook:bench"):
        store.add(name, 0)
    during: list[float] = []
    between: list[float] = []
    paused_s = 0.0
    with _Receiver() as receiver:
        began = time.perf_counter()
        process = _sinks(home, receiver.url)
        peak = 0.0
        try:
            # Other runs go on meanwhile; what they add is not waited for.
            while any(row.position < end for row in store.sinks()):
                peak = max(peak, _resident_mb(process.pid))
                await _append(journal, during)
                # For the same time the process is stopped: the same appends without the export.
                paused = time.perf_counter()
                process.send_signal(signal.SIGSTOP)
                await _append(journal, between)
                process.send_signal(signal.SIGCONT)
                paused_s += time.perf_counter() - paused
            took = time.perf_counter() - began - paused_s
            told = sum(row.delivered for row in store.sinks())
        finally:
            process.kill()
            process.wait()
            store.close()
            journal.close()
    without, with_it = _cuts(between)[1], _cuts(during)[1]
    what = f"export of {runs:,} runs"
    return [
        {"what": f"{what} ({end:,} events)", "value": took, "unit": "s"},
        {"what": f"{what}: requests", "value": told / took, "unit": "/s"},
        {"what": f"{what}: memory of the process", "value": peak, "unit": "MB"},
        {"what": f"{what}: append while it is stopped, p99", "value": without * 1e3, "unit": "ms"},
        {
            "what": f"{what}: append meanwhile, p99",
            "value": with_it * 1e3,
            "unit": "ms",
            "ratio": with_it / without,
        },
    ]


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
            [sys.executable, "-m", "bench.sinks", what], stdout=subprocess.PIPE
        )
        os.setpriority(os.PRIO_PROCESS, self._process.pid, _OF_ANOTHER_MACHINE)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"

    def __enter__(self) -> "_Receiver":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


async def _receive(hangs: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            if hangs:
                await reader.read()
                return
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


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


if __name__ == "__main__":
    asyncio.run(_receive(sys.argv[1] == "hang"))
