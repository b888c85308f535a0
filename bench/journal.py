"""The journal against bare loops on the same disk: append, read, follow, latency, recovery.

Functions return rows of plain values; the caller prints the table.
"""

import asyncio
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from itertools import pairwise
from typing import Any, cast

import apsw

from batten.contract.envelope import Envelope, decode_fact, encode, timestamp
from batten.contract.facts import AssistantTextDelta, Fact, RunQueued
from batten.contract.ids import Minter, new_run_id, new_task_id
from batten.journal.contract import NewRun
from batten.journal.sqlite import SqliteJournal
from batten.journal.workers import this_worker

Row = dict[str, Any]

BATCHES = (1, 8, 64, 100)
ROUNDS = 3
_DELTA = AssistantTextDelta(1, 0, "a word or two of text, as a model streams it; " * 4)
_QUEUED = RunQueued("agent_loop", None, None, "/work", "in_place", None)


def rows() -> list[Row]:
    """Everything this module measures, in under a minute."""
    return [
        *append_rows(),
        *read_rows(),
        *latency_rows(),
        *viewer_rows(),
        *recovery_rows(),
    ]


@contextmanager
def _home() -> Generator[str]:
    home = tempfile.mkdtemp(prefix="journal-", dir=os.environ.get("BATTEN_BENCH_DIR"))
    try:
        yield home
    finally:
        shutil.rmtree(home)


def append_rows(seconds: float = 0.5) -> list[Row]:
    """Events per second of one appender, against a loop that encodes, hashes and inserts."""
    found: list[Row] = []
    kinds = [(batch, True) for batch in BATCHES] + [(1, False), (8, False)]
    for batch, own_process in kinds:
        # Interleaved, the best of each: the speed of the machine changes from second to second.
        pairs = [
            (_append_bare(batch, seconds), _append(batch, seconds, own_process=own_process))
            for _ in range(ROUNDS)
        ]
        ratio = statistics.median(ours / bare for bare, ours in pairs)
        where = "" if own_process else ", in an embedder's process"
        found.append(
            {
                "measure": f"append, {batch} events each{where}",
                "unit": "events/s",
                "batten": max(ours for _, ours in pairs),
                "bare": max(bare for bare, _ in pairs),
                "ratio": ratio,
            }
        )
    return found


def _append(batch: int, seconds: float, *, own_process: bool) -> float:
    async def measured(home: str) -> float:
        journal = SqliteJournal.open(home, own_process=own_process)
        run_id, facts = new_run_id(), [_DELTA] * batch
        lease, _ = await journal.create(_new(run_id), [_QUEUED])
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            await journal.append(run_id, facts, fence=lease.fence)
            count += batch
        elapsed = time.perf_counter() - start
        journal.close()
        return count / elapsed

    with _home() as home:
        return asyncio.run(measured(home))


def _new(run_id: str) -> NewRun:
    return NewRun(run_id=run_id, kind="agent_loop", worker_id=this_worker(), task_id=new_task_id())


class _Bare:
    """The same bytes and the same table, without the rest of the journal."""

    def __init__(self, home: str) -> None:
        self.db = cast(Any, apsw.Connection(os.path.join(home, "bare.db")))
        self.db.pragma("journal_mode", "wal")
        self.db.pragma("synchronous", "full")
        self.db.pragma("wal_autocheckpoint", 500)
        self.db.execute(
            "CREATE TABLE events (position INTEGER PRIMARY KEY, run INTEGER, sequence INTEGER,"
            " type TEXT, body BLOB, chain BLOB)"
        )
        self.db.execute("CREATE UNIQUE INDEX place ON events (run, sequence)")
        self._minter = Minter()
        self._run_id, self._task_id = new_run_id(), new_task_id()
        self._head = sha256(self._run_id.encode()).digest()
        self._sequence = 0

    def append(self, facts: list[Fact]) -> None:
        rows: list[tuple[Any, ...]] = []
        at = timestamp()
        for fact in facts:
            body = encode(
                Envelope(
                    event_id="evt_" + self._minter.mint(),
                    run_id=self._run_id,
                    task_id=self._task_id,
                    sequence=self._sequence,
                    occurred_at=at,
                    type=fact.type,
                    data=fact,
                )
            )
            self._head = sha256(self._head + body).digest()
            rows.append((1, self._sequence, fact.type, body, self._head))
            self._sequence += 1
        self.db.execute("BEGIN IMMEDIATE")
        self.db.executemany(
            "INSERT INTO events (run, sequence, type, body, chain) VALUES (?, ?, ?, ?, ?)", rows
        )
        self.db.execute("COMMIT")


def _append_bare(batch: int, seconds: float) -> float:
    with _home() as home:
        bare = _Bare(home)
        facts: list[Fact] = [_DELTA] * batch
        count, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            bare.append(facts)
            count += batch
        elapsed = time.perf_counter() - start
        bare.db.close()
    return count / elapsed


def read_rows(events: int = 30_000) -> list[Row]:
    """Reading and following a stored run, against fetching the same rows bare."""

    async def measured(home: str) -> list[Row]:
        run_id = await _filled(home, events)
        journal = SqliteJournal.open(home, read_only=True)
        path = os.path.join(home, "journal.db")
        db = cast(Any, apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY))
        speeds: list[tuple[float, float, float]] = []
        for _ in range(2 * ROUNDS):
            marks = [time.perf_counter()]
            _select(db, events)
            marks.append(time.perf_counter())
            _read(journal, run_id, events)
            marks.append(time.perf_counter())
            await _follow(journal, run_id, events)
            marks.append(time.perf_counter())
            took = [later - earlier for earlier, later in pairwise(marks)]
            speeds.append((events / took[0], events / took[1], events / took[2]))
        bare, read, followed = (max(column) for column in zip(*speeds, strict=True))
        db.close()
        journal.close()
        return [
            _compared("read of a stored run", "events/s", read, bare),
            _compared("follow of a stored run", "events/s", followed, bare),
        ]

    with _home() as home:
        return asyncio.run(measured(home))


def _compared(measure: str, unit: str, ours: float, bare: float) -> Row:
    return {"measure": measure, "unit": unit, "batten": ours, "bare": bare, "ratio": ours / bare}


async def _filled(home: str, events: int) -> str:
    journal = SqliteJournal.open(home)
    run_id = new_run_id()
    lease, _ = await journal.create(_new(run_id), [_QUEUED])
    for start in range(1, events, 1000):
        await journal.append(run_id, [_DELTA] * min(1000, events - start), fence=lease.fence)
    journal.close()
    return run_id


def _select(db: Any, events: int) -> None:
    after, seen = -1, 0
    while page := db.execute(
        "SELECT position, sequence, type, body FROM events WHERE run = 1 AND sequence > ?"
        " ORDER BY sequence LIMIT 256",
        (after,),
    ).fetchall():
        after = page[-1][1]
        seen += len(page)
    assert seen == events


def _read(journal: SqliteJournal, run_id: str, events: int) -> None:
    after, seen = -1, 0
    while page := journal.read(run_id, after=after):
        after = page[-1].sequence
        seen += len(page)
    assert seen == events


async def _follow(journal: SqliteJournal, run_id: str, events: int) -> None:
    seen = 0
    async for page in journal.follow(run_id):
        seen += len(page)
        if seen >= events:
            return


def latency_rows(events: int = 300) -> list[Row]:
    """From the call of append to the follower's page, commit included."""
    with _home() as home:
        inside = asyncio.run(_latencies_inside(home, events))
    with _home() as home:
        run_id = new_run_id()
        writer = subprocess.Popen([sys.executable, "-c", _WRITER, home, run_id, str(events)])
        across = asyncio.run(_latencies_across(home, run_id, events))
        writer.wait()
    return [
        _latency("append to follower, same process", inside),
        _latency("append to follower, other process", across),
    ]


def _latency(measure: str, seconds: list[float]) -> Row:
    cuts = statistics.quantiles(seconds, n=100)
    return {"measure": measure, "unit": "ms", "p50": cuts[49] * 1e3, "p99": cuts[98] * 1e3}


async def _latencies_inside(home: str, events: int) -> list[float]:
    journal = SqliteJournal.open(home)
    run_id = new_run_id()
    lease, _ = await journal.create(_new(run_id), [_QUEUED])
    sent: dict[int, float] = {}
    waits: list[float] = []

    async def follow() -> None:
        async for page in journal.follow(run_id, after=0):
            now = time.perf_counter()
            waits.extend(now - sent[stored.sequence] for stored in page)
            if page[-1].sequence == events:
                return

    follower = asyncio.create_task(follow())
    for sequence in range(1, events + 1):
        await asyncio.sleep(0.002)
        sent[sequence] = time.perf_counter()
        await journal.append(run_id, [_DELTA], fence=lease.fence)
    await follower
    journal.close()
    return waits


def viewer_rows(seconds: float = 3.0) -> list[Row]:
    """Many viewers of one run that grows at a steady pace; none may miss an event."""
    found: list[Row] = []
    for viewers, pace in ((50, 2000), (1000, 1000)):
        with _home() as home:
            waits, grown_mb = asyncio.run(_viewed(home, viewers, pace, seconds))
        row = _latency(f"{pace:,} events/s to {viewers:,} viewers", waits)
        found.append({**row, "batten": grown_mb, "unit": "ms; MB grown"})
    return found


async def _viewed(home: str, viewers: int, pace: int, seconds: float) -> tuple[list[float], float]:
    """How long each page took to reach each viewer, and by how much memory grew."""
    journal = SqliteJournal.open(home)
    run_id, events = new_run_id(), round(pace * seconds)
    lease, _ = await journal.create(_new(run_id), [_QUEUED])
    sent: dict[int, float] = {}
    waits: list[float] = []

    async def view() -> int:
        seen = 0
        async for page in journal.follow(run_id, after=0):
            waits.append(time.perf_counter() - sent[page[0].sequence])
            seen += len(page)
            if page[-1].sequence == events:
                return seen
        return seen

    viewing = [asyncio.create_task(view()) for _ in range(viewers)]
    await asyncio.sleep(0.1)
    before, start = _resident_mb(), time.perf_counter()
    for sequence in range(1, events + 1):
        ahead = start + sequence / pace - time.perf_counter()
        if ahead > 0:
            await asyncio.sleep(ahead)
        sent[sequence] = time.perf_counter()
        journal.append(run_id, [_DELTA], fence=lease.fence)
    async with asyncio.timeout(60):
        seen = await asyncio.gather(*viewing)
    assert seen == [events] * viewers, "a viewer missed events"
    grown = _resident_mb() - before
    journal.close()
    return waits, grown


def _resident_mb() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


_WRITER = """
import asyncio, sys, time
from bench.journal import write_stamped
asyncio.run(write_stamped(sys.argv[1], sys.argv[2], int(sys.argv[3])))
"""


async def write_stamped(home: str, run_id: str, events: int) -> None:
    """The other process of the latency measurement: facts that hold the moment they were sent."""
    journal = SqliteJournal.open(home)
    lease, _ = await journal.create(_new(run_id), [_QUEUED])
    for _ in range(events):
        await asyncio.sleep(0.002)
        stamp = AssistantTextDelta(1, 0, repr(time.clock_gettime(time.CLOCK_MONOTONIC)))
        await journal.append(run_id, [stamp], fence=lease.fence)
    journal.close()


async def _latencies_across(home: str, run_id: str, events: int) -> list[float]:
    journal = SqliteJournal.open(home)
    while journal.run(run_id) is None:  # noqa: ASYNC110  # no run, no followers
        await asyncio.sleep(0.001)
    waits: list[float] = []
    async for page in journal.follow(run_id, after=0):
        now = time.clock_gettime(time.CLOCK_MONOTONIC)
        for stored in page:
            fact = decode_fact(stored.body)
            assert isinstance(fact, AssistantTextDelta)
            waits.append(now - float(fact.delta))
        if page[-1].sequence == events:
            break
    journal.close()
    return waits[1:]


_KILLED = """
import asyncio, sys
from bench.journal import fill_and_hang
asyncio.run(fill_and_hang(sys.argv[1], int(sys.argv[2])))
"""


async def fill_and_hang(home: str, events: int) -> None:
    """A process that wrote much, leaves its WAL unmerged, and waits to be killed."""
    journal = SqliteJournal.open(home)
    run_id = new_run_id()
    lease, _ = await journal.create(_new(run_id), [_QUEUED])
    for start in range(1, events, 1000):
        await journal.append(run_id, [_DELTA] * min(1000, events - start), fence=lease.fence)
    print(run_id, flush=True)
    await asyncio.sleep(600)


def recovery_rows(events: int = 100_000) -> list[Row]:
    """Opening after `kill -9`: until a run can be read and claimed, and a full check."""
    with _home() as home:
        process = subprocess.Popen(
            [sys.executable, "-c", _KILLED, home, str(events)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        run_id = process.stdout.readline().strip()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        start = time.perf_counter()
        journal = SqliteJournal.open(home)
        run = journal.run(run_id)
        assert run is not None
        assert run.next_sequence == events
        assert journal.is_abandoned(run)
        opened = time.perf_counter() - start
        assert journal.verify(run_id) == []
        verified = time.perf_counter() - start - opened
        journal.close()
    return [
        {"measure": f"recovery of {events} events", "unit": "ms", "batten": opened * 1e3},
        {"measure": f"verify of {events} events", "unit": "ms", "batten": verified * 1e3},
    ]


if __name__ == "__main__":
    for row in rows():
        print("  ".join(f"{k}={v:.3g}" if isinstance(v, float) else f"{v}" for k, v in row.items()))
