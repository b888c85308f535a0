"""The service: runs and reads over HTTP, beside a bare route on the same kind of server."""

import asyncio
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from batten.models.scenario import SCENARIO_SCHEMA

Row = dict[str, Any]

_BATTEN = os.path.join(os.path.dirname(sys.executable), "batten")
_RUNS = 40
_AT_ONCE = 8
_CONNECTIONS = 16
_SECONDS = 2.0
_KEPT_RUNS = 100
_FINISHED = b'"run.finished"'
_ASKED = b'"approval.requested"'


class Connection:
    """One kept connection, one request at a time."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)

    async def ask(self, method: str, path: str, body: Any = None) -> bytes:
        await self.send(method, path, body)
        return await self.answer()

    async def send(self, method: str, path: str, body: Any = None) -> None:
        assert self._writer is not None
        data = b"" if body is None else msgspec.json.encode(body)
        self._writer.write(
            b"%b %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%b" % (method.encode(), path.encode(), len(data), data)
        )

    async def answer(self) -> bytes:
        assert self._reader is not None
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if b"content-length:" in head.lower():
            length = int(head.lower().split(b"content-length:", 1)[1].split(b"\r\n", 1)[0])
            body = await self._reader.readexactly(length)
        else:
            body = await self._chunks()
        if status >= 300:
            raise RuntimeError(f"{status}: {body!r}")
        return body

    async def _chunks(self) -> bytes:
        assert self._reader is not None
        parts: list[bytes] = []
        while size := int(await self._reader.readuntil(b"\r\n"), 16):
            parts.append((await self._reader.readexactly(size + 2))[:-2])
        await self._reader.readuntil(b"\r\n")
        return b"".join(parts)

    def close(self) -> None:
        assert self._writer is not None
        self._writer.close()


def rows() -> list[Row]:
    folder = tempfile.mkdtemp(prefix="bench-service-")
    try:
        return asyncio.run(_measure(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measure(folder: str) -> list[Row]:
    workspace = os.path.join(folder, "work")
    os.mkdir(workspace)
    one = _scenario(folder, "one", [[_text()]])
    tool = _scenario(folder, "tool", [[_call()], [_text()]])
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
        found += await _throughput(port, server.pid, workspace, one)
        found += await _reads(port, first, workspace, one)
        found += await _kept(first, server.pid, workspace, folder)
        first.close()
        return found
    finally:
        stop(server)


def start(folder: str, *flags: str) -> tuple[subprocess.Popen[bytes], int]:
    """A server with a home of its own, and its port."""
    environ = {
        **os.environ,
        "BATTEN_HOME": os.path.join(folder, "home"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    server = subprocess.Popen(
        [_BATTEN, "serve", "--port", "0", "--auto-allow", "--bare", *flags],
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    assert server.stdout is not None
    line = server.stdout.readline().decode()
    return server, int(line.rsplit(":", 1)[1])


def stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    server.wait(30)
    if server.stdout is not None:
        server.stdout.close()


def _text() -> dict[str, Any]:
    return {"kind": "text", "text": "All done here."}


def _call(command: str = "echo hello") -> dict[str, Any]:
    return {
        "kind": "tool_call",
        "id": "c1",
        "tool": "bash",
        "input": {"command": command},
        "expectedResult": "success",
    }


def _scenario(folder: str, name: str, frames: list[list[dict[str, Any]]]) -> str:
    path = os.path.join(folder, f"{name}.json")
    scenario = {
        "schemaVersion": SCENARIO_SCHEMA,
        "id": name,
        "description": "for the bench",
        "metadata": {"recordedAt": "2026-11-15T00:00:00Z", "toolsExpected": []},
        "frames": [
            {"index": index, "statements": statements} for index, statements in enumerate(frames)
        ],
    }
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(scenario))
    return f"scripted/{path}"


async def _run(
    connection: Connection, workspace: str, model: str, last: bytes = _FINISHED
) -> tuple[str, str]:
    """Create a task, start it and read its events to the last one."""
    body = {
        "prompt": "go",
        "working_directory": workspace,
        "workspace_mode": "in_place",
        "requested_model": model,
    }
    task = msgspec.json.decode(await connection.ask("POST", "/hecate/v1/tasks", body))["data"]
    started = await connection.ask("POST", f"/hecate/v1/tasks/{task['id']}/start")
    run = msgspec.json.decode(started)["data"]
    path = f"/hecate/v1/tasks/{task['id']}/runs/{run['id']}/events"
    if last == _FINISHED:
        events = await connection.ask("GET", path)
    else:
        events = await _until(connection, path, last)
    if last not in events:
        raise RuntimeError(events[-500:].decode())
    return task["id"], run["id"]


async def _until(connection: Connection, path: str, last: bytes) -> bytes:
    """The events of a run that does not end, by long polls."""
    events = b""
    while last not in events:
        after = events.count(b'"sequence":') - 1
        events += await connection.ask("GET", f"{path}?limit=500&wait=10&after_sequence={after}")
    return events


async def _latencies(connection: Connection, workspace: str, model: str, what: str) -> list[Row]:
    for _ in range(5):
        await _run(connection, workspace, model)
    taken: list[float] = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        await _run(connection, workspace, model)
        taken.append((time.perf_counter() - began) * 1000)
    return [
        {"what": f"{what}, p50", "value": statistics.median(taken), "unit": "ms"},
        {"what": f"{what}, p95", "value": sorted(taken)[int(0.95 * _RUNS)], "unit": "ms"},
    ]


async def _throughput(port: int, pid: int, workspace: str, model: str) -> list[Row]:
    connections = [Connection(port) for _ in range(_AT_ONCE)]
    for connection in connections:
        await connection.open()

    async def many(connection: Connection) -> None:
        for _ in range(_RUNS):
            await _run(connection, workspace, model)

    cpu, began = _cpu(pid), time.perf_counter()
    await asyncio.gather(*map(many, connections))
    seconds, runs = time.perf_counter() - began, _AT_ONCE * _RUNS
    for connection in connections:
        connection.close()
    return [
        {"what": f"one-turn runs, {_AT_ONCE} at once", "value": runs / seconds, "unit": "/s"},
        {"what": "CPU a run", "value": (_cpu(pid) - cpu) / runs * 1000, "unit": "ms"},
    ]


async def _reads(port: int, first: Connection, workspace: str, model: str) -> list[Row]:
    task, run = await _run(first, workspace, model)
    bare = await _bare_rate()
    found: list[Row] = [{"what": "bare route", "value": bare, "unit": "/s"}]
    paths = {
        "GET one run": f"/hecate/v1/tasks/{task}/runs/{run}",
        "GET one task": f"/hecate/v1/tasks/{task}",
        "list of 100 tasks": "/hecate/v1/tasks?limit=100",
        "list of a run's events": f"/hecate/v1/tasks/{task}/runs/{run}/events?limit=500",
    }
    for what, path in paths.items():

        def ask(one: Connection, path: str = path) -> Awaitable[bytes]:
            return one.ask("GET", path)

        rate = await _rate(port, ask)
        found.append({"what": what, "value": rate, "unit": "/s", "ratio": rate / bare})
    body = {"prompt": "go", "working_directory": workspace, "workspace_mode": "in_place"}
    created = await _rate(port, lambda one: one.ask("POST", "/hecate/v1/tasks", body))
    found.append({"what": "create a task", "value": created, "unit": "/s", "ratio": created / bare})
    return found


async def _kept(first: Connection, pid: int, workspace: str, folder: str) -> list[Row]:
    """What ended and parked runs cost the server and its workers."""
    ended = _scenario(folder, "ended", [[_text()]])
    asking = _scenario(folder, "asking", [[_call(": please")], [_text()]])

    async def grown(model: str, last: bytes) -> float:
        before = sum(map(rss_mb, _tree(pid)))
        for _ in range(_KEPT_RUNS):
            await _run(first, workspace, model, last)
        return (sum(map(rss_mb, _tree(pid))) - before) / _KEPT_RUNS * 1024

    for model, last in ((ended, _FINISHED), (asking, _ASKED)):
        await _run(first, workspace, model, last)
    return [
        {"what": "memory of an idle session", "value": await grown(ended, _FINISHED), "unit": "KB"},
        {"what": "of a parked run", "value": await grown(asking, _ASKED), "unit": "KB"},
    ]


async def _bare_rate() -> float:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "granian", "--interface", "asgi", "--runtime-mode", "st"]
    command += ["--task-impl", "asyncio", "--log-level", "error", "--port", str(port)]
    server = await asyncio.create_subprocess_exec(
        *command, "bench.bare_http:app", cwd=os.path.dirname(os.path.dirname(__file__))
    )
    try:
        for _ in range(100):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                await asyncio.sleep(0.05)
        return await _rate(port, lambda one: one.ask("GET", "/"))
    finally:
        server.terminate()
        await server.wait()


async def _rate(port: int, ask: Callable[[Connection], Awaitable[bytes]]) -> float:
    connections = [Connection(port) for _ in range(_CONNECTIONS)]
    for connection in connections:
        await connection.open()
    count, until = 0, time.perf_counter() + _SECONDS

    async def repeat(connection: Connection) -> None:
        nonlocal count
        while time.perf_counter() < until:
            await ask(connection)
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*map(repeat, connections))
    seconds = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return count / seconds


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


def rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20


def _cpu(pid: int) -> float:
    """Seconds of CPU of a process and all below it that live."""
    ticks = 0
    for one in _tree(pid):
        with open(f"/proc/{one}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
