"""Clients that start runs, follow them and answer their questions while the service is killed."""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tests.serve.http.wire import Answer, Clients, Connection, clients, request
from tests.service.serving import PATIENCE_S, Json, Service

TERMINAL = {"run.finished", "run.failed", "run.cancelled"}
_LOST = (OSError, EOFError, ValueError)
"""What a client meets when its server dies: also an answer that breaks off."""
_SOON_S = 0.02


class Seen:
    """One run as its client saw it."""

    def __init__(self, task_id: str, run_id: str) -> None:
        self.task_id = task_id
        self.run_id = run_id
        self.bodies: list[bytes] = []
        """Every event that arrived, over all connections."""
        self.answers: list[int] = []
        """The statuses of the answers to its questions."""

    @property
    def path(self) -> str:
        return f"/tasks/{self.task_id}/runs/{self.run_id}"


class Address(Protocol):
    """Where to connect to, now."""

    @property
    def url(self) -> str: ...


class Client:
    """Works through lost connections: it connects again, to wherever the service is now."""

    def __init__(self, service: Service, streams: Address | None = None) -> None:
        self._service = service
        self._streams: Address = streams or service
        self.lost = 0
        """Connections that broke off."""

    async def ask(self, method: str, path: str, body: Any = None) -> Answer:
        """An answer, whatever it takes; the request may have been carried out more than once."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    return await self._service.ask(method, path, body)
                except _LOST:
                    self.lost += 1
                    await asyncio.sleep(_SOON_S)

    async def start(self, model: str, prompt: str, **fields: Any) -> Seen:
        """A run of a new task. What was acknowledged is there, however often it has to ask."""
        asked = {
            "prompt": prompt,
            "workspace_mode": "in_place",
            "working_directory": str(self._service.stage.workspace),
            "requested_model": model,
            **fields,
        }
        created = await self.ask("POST", "/tasks", asked)
        assert created.status == 200, created.body
        task_id: str = created.json["data"]["id"]
        started = await self.ask("POST", f"/tasks/{task_id}/start", {})
        if started.status == 409:  # it was started, and the answer was lost
            runs = await self.ask("GET", f"/tasks/{task_id}/runs")
            return Seen(task_id, runs.json["data"][0]["id"])
        assert started.status == 200, started.body
        return Seen(task_id, started.json["data"]["id"])

    async def follow(self, seen: Seen) -> None:
        """Read the run's stream to its end, over as many connections as it takes."""
        while not _has_ended(seen):
            try:
                async with clients() as opened:
                    if await self._read(opened, seen):
                        return
            except _LOST:
                self.lost += 1
                await asyncio.sleep(_SOON_S)

    async def _read(self, opened: Clients, seen: Seen) -> bool:
        """Read one stream as far as it goes; whether the server says that there is no more."""
        connection = await opened.connect_to(self._streams.url)
        headers = {"Accept": "text/event-stream"}
        if seen.bodies:
            headers["Last-Event-ID"] = str(len(seen.bodies) - 1)
        await connection.send(request("GET", f"/hecate/v1{seen.path}/events", headers=headers))
        status, _ = await connection.head()
        if status == 204:
            return True
        assert status == 200, status
        async for number, body in frames(connection):
            assert number == len(seen.bodies), f"{number} follows {len(seen.bodies) - 1}"
            seen.bodies.append(body)
            if b'"type":"approval.requested"' in body:
                await self._answer(seen, msgspec.json.decode(body))
        return False

    async def _answer(self, seen: Seen, event: Json) -> None:
        path = f"/tasks/{seen.task_id}/approvals/{event['data']['approval_id']}/resolve"
        answer = await self.ask("POST", path, {"decision": "approve"})
        seen.answers.append(answer.status)


def _has_ended(seen: Seen) -> bool:
    return bool(seen.bodies) and msgspec.json.decode(seen.bodies[-1])["type"] in TERMINAL


async def frames(connection: Connection) -> AsyncGenerator[tuple[int, bytes], None]:
    """The events of a stream with their ids, until it ends; half of one is no event."""
    rest = b""
    while chunk := await connection.chunk():
        *whole, rest = (rest + chunk).split(b"\n\n")
        for frame in whole:
            parts = [line.partition(b": ") for line in frame.split(b"\n")]
            fields = {name: value for name, _, value in parts}
            assert b"event" not in fields, frame
            if b"data" in fields:
                yield int(fields[b"id"]), fields[b"data"]


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    return [pid, *(below for child in children_of(pid) for below in tree(child))]


def children_of(pid: int) -> list[int]:
    """Also those that another thread than the first has started."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found


def started_at(pid: int) -> str:
    """When a living process started; empty if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()


async def gone(pids: dict[int, str]) -> None:
    """Wait until none of these processes is left; `pids` says when each was started."""
    await asyncio.to_thread(_wait_until_gone, pids)


def _wait_until_gone(pids: dict[int, str]) -> None:
    patience = time.monotonic() + 10
    while left := [pid for pid, began in pids.items() if started_at(pid) == began != ""]:
        assert time.monotonic() < patience, left
        time.sleep(_SOON_S)


def workers_of(pid: int) -> list[int]:
    """The worker processes of a server. What they start looks like them at first."""
    return [child for child in children_of(pid) if _is_worker(child)]


def _is_worker(pid: int) -> bool:
    try:
        line = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"\0worker\0" in line and b"--for-callers" not in line
    except OSError:
        return False


def marked(marker: str) -> list[int]:
    """Living processes with this text in their command line, ours aside."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            try:
                line = Path("/proc", name, "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in line:
                found.append(int(name))
    return found
