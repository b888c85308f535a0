"""Streams of the service: how soon and how evenly events reach readers, and what a reader costs.

The events are written by a process of their own, as a worker would; this one reads. Each event has
the time at which it was written.
"""

import asyncio
import gc
import os
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from bench.serving import rss_mb, start, stop

Row = dict[str, Any]

_TASK, _RUN = "task_01M7K0000000000000000BENCH", "run_01M7K0000000000000000BENCH"
_SECONDS = 4.0
_CROWD = 1000
_PADDING = "x" * 200
_MARK = b"written at "
_SAID = len(_MARK) + 20


async def write(home: str, rate: float, events: int) -> None:
    """Create the run once told to, and write events of it at this rate, each as it is due."""
    from batten.contract.facts import AssistantTextDelta, RunFinished, RunQueued
    from batten.journal.contract import NewRun
    from batten.journal.sqlite import SqliteJournal
    from batten.journal.workers import this_worker

    journal = SqliteJournal.open(home)
    new = NewRun(run_id=_RUN, kind="agent_loop", worker_id=this_worker(), task_id=_TASK)
    queued = RunQueued("agent_loop", "m", "p", "/work", "in_place", None)
    lease, _ = await journal.create(new, [queued])
    assert lease is not None
    print("ready", flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    for number in range(events):
        wait_s = began + number / rate - time.monotonic()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        said = f"{_MARK.decode()}{time.monotonic_ns():020d}{_PADDING}"
        await journal.append(_RUN, [AssistantTextDelta(1, 0, said)], fence=lease.fence)
    await journal.append(_RUN, [RunFinished("completed", 1, 0, 5)], fence=lease.fence)
    journal.close()


class _Readers:
    """Connections to one stream."""

    def __init__(self, port: int, count: int) -> None:
        self._poll = select.epoll()
        self._open: dict[int, socket.socket] = {}
        self.late_ms: list[float] = []
        self._first: dict[int, int] = {}
        self._last: dict[int, int] = {}
        self.deliveries = 0
        path = f"/hecate/v1/tasks/{_TASK}/runs/{_RUN}/events"
        ask = f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n"
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", port))
            one.sendall(ask.encode())
            one.setblocking(False)
            self._open[one.fileno()] = one
            self._poll.register(one.fileno(), select.EPOLLIN)

    def read(self, until: float | None = None) -> None:
        """Read until all streams end, or until a time."""
        while self._open and (until is None or time.monotonic() < until):
            for descriptor, _ in self._poll.poll(0.1):
                data = self._open[descriptor].recv(1 << 16)
                now = time.monotonic_ns()
                self._take(data, now)
                if not data or data.endswith(b"0\r\n\r\n"):
                    self._poll.unregister(descriptor)
                    self._open.pop(descriptor).close()

    def _take(self, data: bytes, now: int) -> None:
        place = data.find(_MARK)
        while place >= 0 and len(data) >= place + _SAID:
            said = int(data[place + len(_MARK) : place + _SAID])
            self.deliveries += 1
            self.late_ms.append((now - said) / 1e6)
            self._first.setdefault(said, now)
            self._last[said] = now
            place = data.find(_MARK, place + _SAID)

    def spreads_ms(self) -> list[float]:
        """From the first reader to the last, for each event."""
        return [(last - self._first[said]) / 1e6 for said, last in self._last.items()]

    @property
    def seconds(self) -> float:
        return (max(self._last.values()) - min(self._first.values())) / 1e9


def rows() -> list[Row]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    gc.disable()  # a collection here would count as a delay of the server
    try:
        found = [_latency(readers) for readers in (1, 50)]
        return [*found, *_crowd()]
    finally:
        gc.enable()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _latency(readers: int) -> Row:
    crowd, _ = _play(readers, rate=2000)
    what = f"append to reader, 2,000 events/s, {readers} reader{'s' * (readers > 1)}, p99"
    return {"what": what, "value": _at(crowd.late_ms, 0.99), "unit": "ms"}


def _crowd() -> list[Row]:
    crowd, grown_mb = _play(_CROWD, rate=130)
    spreads = crowd.spreads_ms()
    return [
        {"what": "1,000 readers", "value": crowd.deliveries / crowd.seconds, "unit": "/s"},
        {"what": "first to last reader, p50", "value": _at(spreads, 0.5), "unit": "ms"},
        {"what": "first to last reader, p99", "value": _at(spreads, 0.99), "unit": "ms"},
        {"what": "append to reader there, p99", "value": _at(crowd.late_ms, 0.99), "unit": "ms"},
        {"what": "memory of a reader", "value": grown_mb * 1024 / _CROWD, "unit": "KB"},
    ]


def _play(readers: int, rate: float) -> tuple[_Readers, float]:
    """Readers of one run, and by how much they made the server grow."""
    folder = tempfile.mkdtemp(prefix="bench-fanout-")
    server, port = start(folder, "--workers", "0")
    home = os.path.join(folder, "home")
    writer = subprocess.Popen(
        [sys.executable, "-m", "bench.fanout", home, str(rate), str(int(rate * _SECONDS))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    )
    try:
        assert writer.stdin is not None
        assert writer.stdout is not None
        writer.stdout.readline()
        before = rss_mb(server.pid)
        crowd = _Readers(port, readers)
        crowd.read(until=time.monotonic() + 1.5)  # all are connected
        grown = rss_mb(server.pid) - before
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        crowd.read()
        return crowd, grown
    finally:
        writer.kill()
        writer.communicate()
        stop(server)
        shutil.rmtree(folder, ignore_errors=True)


def _at(values: list[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
