"""The service: what runs over HTTP take, and what it costs to keep them."""

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time

from bench import rates
from bench.serving import (
    BATTEN,
    FINISHED,
    Connection,
    Row,
    call,
    environment,
    rss_mb,
    run,
    scenario,
    start,
    stop,
    text,
)

_RUNS = 40
_AT_ONCE = 8
_KEPT_RUNS = 100
_ASKED = b'"approval.requested"'


def rows() -> list[Row]:
    folder = tempfile.mkdtemp(prefix="bench-service-")
    try:
        return asyncio.run(_measure(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measure(folder: str) -> list[Row]:
    workspace = os.path.join(folder, "work")
    os.mkdir(workspace)
    one = scenario(folder, "one", [[text()]])
    tool = scenario(folder, "tool", [[call()], [text()]])
    began = time.monotonic()
    server, port = start(folder, "--ask", "Bash(: please*)")
    try:
        first = Connection(port)
        await first.open()
        await first.ask("GET", "/hecate/v1/tasks?limit=1")
        found: list[Row] = [
            {"what": "start to first answer", "value": time.monotonic() - began, "unit": "s"}
        ]
        await asyncio.sleep(1)  # the workers have loaded what they need
        found += _memory(server.pid)
        found += await _latencies(first, workspace, one, "one-turn run, POST to end")
        found += await _latencies(first, workspace, tool, "the same with a shell tool")
        found += _processes(folder, workspace, one)
        found += await _throughput(port, server.pid, workspace, one)
        async with rates.floors(folder) as bare:
            compared = await rates.reads(port, first, workspace, one, bare)
            first.close()  # idle for so long that the server has closed it
            await first.open()
            kept = await _kept(first, server.pid, workspace, folder)
            first.close()
            stop(server)
            compared += await rates.writes(folder, workspace, bare)
            compared += await rates.states(folder, workspace, bare)
        return [*found, *bare.rows(), *compared, *kept]
    finally:
        stop(server)


async def _latencies(connection: Connection, workspace: str, model: str, what: str) -> list[Row]:
    for _ in range(5):
        await run(connection, workspace, model)
    taken: list[float] = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        await run(connection, workspace, model)
        taken.append((time.perf_counter() - began) * 1000)
    return [
        {"what": f"{what}, p50", "value": statistics.median(taken), "unit": "ms"},
        {"what": f"{what}, p95", "value": sorted(taken)[int(0.95 * _RUNS)], "unit": "ms"},
    ]


def _processes(folder: str, workspace: str, model: str) -> list[Row]:
    """`batten -p` as a whole process: in a warm process of the service, and on its own."""
    name = "`batten -p`, one turn, whole process"
    warm, own = (
        _wall_ms(folder, workspace, model, environ) for environ in ({"BATTEN_SERVER": "local"}, {})
    )
    return [
        {"what": f"{name}, p50", "value": statistics.median(warm), "unit": "ms"},
        {"what": f"{name}, p95", "value": sorted(warm)[int(0.95 * _RUNS)], "unit": "ms"},
        {
            "what": f"{name}, without the service, p50",
            "value": statistics.median(own),
            "unit": "ms",
        },
    ]


def _wall_ms(folder: str, workspace: str, model: str, more: dict[str, str]) -> list[float]:
    environ = {**environment(folder), **more}
    command = [BATTEN, "-p", "go", "--model", model, "--auto-allow", "--bare"]
    if more:
        _await_socket(os.path.join(environ["BATTEN_HOME"], "print.sock"))
    taken: list[float] = []
    for _ in range(5 + _RUNS):
        began = time.perf_counter()
        ended = subprocess.run(
            command,
            env=environ,
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        taken.append((time.perf_counter() - began) * 1000)
        if ended.returncode or ended.stdout != b"All done here.\n":
            raise RuntimeError(ended.stderr.decode())
    return taken[5:]


def _await_socket(path: str) -> None:
    """Without it `batten -p` would run the prompt itself."""
    for _ in range(200):
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(path) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on {path}")


async def _throughput(port: int, pid: int, workspace: str, model: str) -> list[Row]:
    connections = [Connection(port) for _ in range(_AT_ONCE)]
    for connection in connections:
        await connection.open()

    async def many(connection: Connection) -> None:
        for _ in range(_RUNS):
            await run(connection, workspace, model)

    cpu, began = _cpu(pid), time.perf_counter()
    await asyncio.gather(*map(many, connections))
    seconds, runs = time.perf_counter() - began, _AT_ONCE * _RUNS
    for connection in connections:
        connection.close()
    return [
        {"what": f"one-turn runs, {_AT_ONCE} at once", "value": runs / seconds, "unit": "/s"},
        {"what": "CPU a run", "value": (_cpu(pid) - cpu) / runs * 1000, "unit": "ms"},
    ]


async def _kept(first: Connection, pid: int, workspace: str, folder: str) -> list[Row]:
    """What ended and parked runs cost the server and its workers."""
    ended = scenario(folder, "ended", [[text()]])
    asking = scenario(folder, "asking", [[call(": please")], [text()]])

    async def grown(model: str, last: bytes) -> float:
        before = sum(map(rss_mb, _tree(pid)))
        for _ in range(_KEPT_RUNS):
            await run(first, workspace, model, last)
        return (sum(map(rss_mb, _tree(pid))) - before) / _KEPT_RUNS * 1024

    for model, last in ((ended, FINISHED), (asking, _ASKED)):
        await run(first, workspace, model, last)
    return [
        {"what": "memory of an idle session", "value": await grown(ended, FINISHED), "unit": "KB"},
        {"what": "of a parked run", "value": await grown(asking, _ASKED), "unit": "KB"},
    ]


def _memory(pid: int) -> list[Row]:
    workers = _children(pid)
    return [
        {"what": "idle memory of the server", "value": rss_mb(pid), "unit": "MB"},
        {"what": "of a worker", "value": max(map(rss_mb, workers), default=0.0), "unit": "MB"},
    ]


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


def _tree(pid: int) -> list[int]:
    return [pid, *(below for child in _children(pid) for below in _tree(child))]


def _cpu(pid: int) -> float:
    """Seconds of CPU of a process and all below it that live."""
    ticks = 0
    for one in _tree(pid):
        with open(f"/proc/{one}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
