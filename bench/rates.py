"""Requests a second, from one client and from sixteen, beside bare routes of the same server.

A row and its floor are measured one after the other: the speed of a machine changes by the minute.
"""

import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec

from bench.serving import Connection, Row, hosted_runner, run, scenario, start, stop

Ask = Callable[[Connection], Awaitable[bytes]]

_CLIENTS = (16, 1)
_SECONDS = 1.5
_FLOOR_SECONDS = 0.3
_TURNS = 5
"""Of a row and its floor: others use the machine too."""
_STARTS = 300
"""Tasks to start in a turn; each can be started once."""


class Floors:
    """The bare routes, measured before each row."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._seen: dict[tuple[str, int], list[float]] = {}

    async def at(self, path: str, clients: int) -> float:
        def post(one: Connection) -> Awaitable[bytes]:
            return one.ask("POST", path, {"prompt": "go"})

        ask = post if path in ("/body", "/insert") else getting(path)
        found = await rate(self._port, ask, clients, _FLOOR_SECONDS)
        self._seen.setdefault((path, clients), []).append(found)
        return found

    def rows(self) -> Iterator[Row]:
        """The medians."""
        names = {
            "/": "bare route",
            "/body": "bare route that reads a body",
            "/insert": "and inserts it, one fsync",
        }
        for (path, clients), rates in self._seen.items():
            if path not in names:
                continue
            value = statistics.median(rates)
            found = {"what": _named(names[path], clients), "value": value, "unit": "/s"}
            if path != "/":
                found["ratio"] = value / statistics.median(self._seen["/", clients])
            yield found


def _named(what: str, clients: int) -> str:
    return f"{what}, {clients} client{'s' * (clients > 1)}"


@asynccontextmanager
async def floors(folder: str) -> AsyncGenerator[Floors]:
    """The bare routes on a server of their own."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.bare_http"),
        cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
        env={**os.environ, "BENCH_FOLDER": folder},
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        yield Floors(int(await server.stdout.readline()))
    finally:
        server.terminate()
        await server.wait()


async def reads(
    port: int, first: Connection, workspace: str, model: str, bare: Floors
) -> list[Row]:
    task_id, run_id = await run(first, workspace, model)
    paths = {
        "GET /healthz": "/healthz",
        "GET one run": f"/hecate/v1/tasks/{task_id}/runs/{run_id}",
        "GET one task": f"/hecate/v1/tasks/{task_id}",
        "list of 100 tasks": "/hecate/v1/tasks?limit=100",
        "list of a run's events": f"/hecate/v1/tasks/{task_id}/runs/{run_id}/events?limit=500",
    }
    return [
        await read(what, port, path, clients, bare)
        for what, path in paths.items()
        for clients in _CLIENTS
    ]


async def read(what: str, port: int, path: str, clients: int, bare: Floors) -> Row:
    """The rate of a reading request, beside bare routes: the smallest, and one of its size."""
    one = Connection(port)
    await one.open()
    size = len(await one.ask("GET", path))
    one.close()
    return await row(what, port, getting(path), clients, bare, like=f"/bytes/{size}")


def getting(path: str) -> Ask:
    """Asks for a path."""
    return lambda one: one.ask("GET", path)


async def writes(folder: str, workspace: str, bare: Floors) -> list[Row]:
    """Tasks created and started; no worker takes their runs, so that only requests are measured."""
    server, port = start(os.path.join(folder, "writes"), "--workers", "0")
    body = {
        "prompt": "go",
        "working_directory": workspace,
        "workspace_mode": "in_place",
        "requested_model": scenario(folder, "writes", []),
    }

    def create(one: Connection) -> Awaitable[bytes]:
        return one.ask("POST", "/hecate/v1/tasks", body)

    try:
        found = [
            await row("create a task", port, create, clients, bare, like="/insert")
            for clients in _CLIENTS
        ]
        for clients in _CLIENTS:
            starting = partial(_starts, port, create, clients)
            found.append(await _beside("start a task", starting, clients, bare, "/insert"))
        return found
    finally:
        stop(server)


async def _starts(port: int, create: Ask, clients: int) -> float:
    made = Connection(port)
    await made.open()
    tasks = [msgspec.json.decode(await create(made))["data"]["id"] for _ in range(_STARTS)]
    made.close()

    def begin(one: Connection) -> Awaitable[bytes]:
        return one.ask("POST", f"/hecate/v1/tasks/{tasks.pop()}/start")

    return await rate(port, begin, clients, _SECONDS, lambda: bool(tasks))


async def states(folder: str, workspace: str, bare: Floors) -> list[Row]:
    """The state of a hosted runner's session."""
    flags = ["--runner-session-id", "bench", "--workspace-root", workspace]
    flags += ["--model", scenario(folder, "state", [])]
    runner, port = hosted_runner(os.path.join(folder, "state"), *flags)
    try:
        first = Connection(port)
        await first.open()
        made = msgspec.json.decode(await first.ask("POST", "/api/headless/sessions", {}))
        path = f"/api/headless/sessions/{made['session_id']}/state"
        first.close()
        return [await read("state of a session", port, path, clients, bare) for clients in _CLIENTS]
    finally:
        stop(runner)


async def row(what: str, port: int, ask: Ask, clients: int, bare: Floors, *, like: str) -> Row:
    """The rate of a request, beside that of the smallest bare route and of one `like` it."""
    asking = partial(rate, port, ask, clients, _SECONDS / _TURNS)
    return await _beside(what, asking, clients, bare, like)


async def _beside(
    what: str, measure: Callable[[], Awaitable[float]], clients: int, bare: Floors, like: str
) -> Row:
    """What `measure` finds beside the bare routes; in turns, the median of each."""
    floors: list[float] = []
    alike: list[float] = []
    values: list[float] = []
    for _ in range(_TURNS):
        floors.append(await bare.at("/", clients))
        if like == "/insert":
            await bare.at("/body", clients)
        alike.append(await bare.at(like, clients))
        values.append(await measure())
    value = statistics.median(values)
    return {
        "what": _named(what, clients),
        "value": value,
        "unit": "/s",
        "ratio": value / statistics.median(floors),
        "to_like": value / statistics.median(alike),
    }


async def rate(
    port: int,
    ask: Ask,
    clients: int,
    seconds: float,
    goes_on: Callable[[], bool] = lambda: True,
) -> float:
    """Requests a second, each client one at a time on a kept connection."""
    connections = [Connection(port) for _ in range(clients)]
    for connection in connections:
        await connection.open()
    count, until = 0, time.perf_counter() + seconds

    async def repeat(connection: Connection) -> None:
        nonlocal count
        while time.perf_counter() < until and goes_on():
            await ask(connection)
            count += 1

    began = time.perf_counter()
    await asyncio.gather(*map(repeat, connections))
    taken_s = time.perf_counter() - began
    for connection in connections:
        connection.close()
    return count / taken_s
