"""A real server in a home of its own, and clients of it."""

import asyncio
import os
import subprocess
import sys
from typing import Any

import msgspec

from batten.models.scenario import SCENARIO_SCHEMA

Row = dict[str, Any]

BATTEN = os.path.join(os.path.dirname(sys.executable), "batten")
FINISHED = b'"run.finished"'


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


def start(folder: str, *flags: str) -> tuple[subprocess.Popen[bytes], int]:
    """A server with a home of its own, and its port."""
    os.makedirs(folder, exist_ok=True)
    server = subprocess.Popen(
        [BATTEN, "serve", "--port", "0", "--auto-allow", "--bare", *flags],
        env=environment(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    assert server.stdout is not None
    line = server.stdout.readline().decode()
    return server, int(line.rsplit(":", 1)[1])


def environment(folder: str) -> dict[str, str]:
    """With a home in this folder."""
    home = os.path.join(folder, "home")
    own = {"BATTEN_HOME": home, "PYTHONDONTWRITEBYTECODE": "", "THROTTLE_LIMIT": "0"}
    return {**os.environ, **own}


def stop(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    server.wait(30)
    if server.stdout is not None:
        server.stdout.close()


def hosted_runner(folder: str, *flags: str) -> tuple[subprocess.Popen[bytes], int]:
    """A hosted runner that wants no key, and its port."""
    os.makedirs(folder, exist_ok=True)
    runner = subprocess.Popen(
        [BATTEN, "hosted-runner", "--listen", "127.0.0.1:0", "--bare", *flags],
        env={**environment(folder), "MAESTRO_WEB_REQUIRE_KEY": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=folder,
    )
    assert runner.stdout is not None
    return runner, int(runner.stdout.readline().decode().rpartition(":")[2])


def text() -> dict[str, Any]:
    return {"kind": "text", "text": "All done here."}


def call(command: str = "echo hello") -> dict[str, Any]:
    return {
        "kind": "tool_call",
        "id": "c1",
        "tool": "bash",
        "input": {"command": command},
        "expectedResult": "success",
    }


def scenario(folder: str, name: str, frames: list[list[dict[str, Any]]]) -> str:
    path = os.path.join(folder, f"{name}.json")
    scenario: dict[str, Any] = {
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


async def run(
    connection: Connection, workspace: str, model: str, last: bytes = FINISHED
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
    if last == FINISHED:
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


def rss_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096 / 2**20
