"""Protocols on standard input and output: time to the greeting, and streaming rate."""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

import msgspec

from batten.models.scenario import SCENARIO_SCHEMA

Row = dict[str, Any]

_BATTEN = os.path.join(os.path.dirname(sys.executable), "batten")
_BARE = """
import asyncio, os, msgspec

async def main():
    line = await asyncio.to_thread(os.read, 0, 65536)
    os.write(1, msgspec.json.encode({"answers": msgspec.json.decode(line)}) + b"\\n")

asyncio.run(main())
"""
"""The floor for any such program: two modules it cannot do without, one line in, one out."""


class Spoken(NamedTuple):
    """One protocol: how a client greets it, and what starts and ends a stream of deltas."""

    first: str
    """The type of the first answer."""
    greeting: bytes
    greeted: bytes
    """A part of the line that ends the greeting."""
    prompt: bytes
    """`SESSION` in it is the session's id."""
    delta: bytes
    ended: bytes
    opening: bytes = b""
    """Opens a session in `WORKSPACE`, if the greeting does not."""
    opened: bytes = b""


PROTOCOLS = {
    "heddle": Spoken(
        first="init_ok",
        greeting=b'{"type":"init","id":"1","protocol_version":"0.2.0","config":'
        b'{"model":"bench/none","system_prompt":"","tools":[]}}\n',
        greeted=b'"type":"init_ok"',
        prompt=b'{"type":"send","id":"2","message":"go"}\n',
        delta=b'"event":"content_delta"',
        ended=b'"type":"result"',
    ),
    "maestro": Spoken(
        first="ready",
        greeting=b'{"type":"hello"}\n',
        greeted=b'"type":"ready"',
        prompt=b'{"type":"prompt","content":"go"}\n',
        delta=b'"type":"response_chunk"',
        ended=b'"type":"response_end"',
    ),
    "acp": Spoken(
        first="initialize",
        greeting=b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n',
        greeted=b'"protocolVersion":1',
        opening=b'{"jsonrpc":"2.0","id":2,"method":"session/new","params":'
        b'{"cwd":"WORKSPACE","mcpServers":[]}}\n',
        opened=b'"sessionId"',
        prompt=b'{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":'
        b'{"sessionId":"SESSION","prompt":[{"type":"text","text":"go"}]}}\n',
        delta=b'"agent_message_chunk"',
        ended=b'"stopReason"',
    ),
}


def rows(rounds: int = 15, deltas: int = 50_000) -> list[Row]:
    """A row for each protocol; greeting and streaming are measured in separate processes."""
    scratch = tempfile.mkdtemp(prefix="batten-bench-")
    try:
        short, model = _scenario(scratch, 1), _scenario(scratch, deltas)
        measured: list[Row] = []
        for name, spoken in PROTOCOLS.items():
            ours = [_BATTEN, "headless", "--protocol", name, "--model"]
            # A scenario is read before the first answer.
            start, bare = _start(spoken, [*ours, short], scratch, rounds)
            measured.append(
                {
                    "protocol": name,
                    "first": spoken.first,
                    "start_ms": start,
                    "bare_ms": bare,
                    "deltas_per_minute": _stream(name, spoken, [*ours, model], scratch, deltas),
                }
            )
        return measured
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _scenario(scratch: str, deltas: int) -> str:
    statements = [{"kind": "text", "text": f"word {number} "} for number in range(deltas)]
    frames = [{"index": 0, "statements": [*statements, {"kind": "end", "reason": "complete"}]}]
    metadata: Row = {"recordedAt": "2026-01-02T03:04:05.000Z", "toolsExpected": []}
    whole: Row = {
        "schemaVersion": SCENARIO_SCHEMA,
        "id": "deltas",
        "description": "go",
        "metadata": metadata,
        "frames": frames,
        "children": {},
    }
    path = os.path.join(scratch, f"{deltas}-deltas.json")
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(whole))
    return f"scripted/{path}"


def _start(spoken: Spoken, ours: list[str], scratch: str, rounds: int) -> tuple[float, float]:
    """Milliseconds to the first answer, ours and the floor's.

    Medians, taken in turns: the speed of the machine changes from minute to minute.
    """
    bare = [sys.executable, "-c", _BARE]
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(rounds + 1):
        for which, argv in (("bare", bare), ("ours", ours)):
            holds = spoken.greeted if which == "ours" else b"answers"
            times[which].append(_greet(argv, spoken.greeting, holds, scratch))
    return statistics.median(times["ours"][1:]), statistics.median(times["bare"][1:])


def _greet(argv: list[str], greeting: bytes, holds: bytes, scratch: str) -> float:
    started = time.perf_counter()
    with _process(argv, scratch) as process:
        _ask(process, greeting, holds)
        taken = time.perf_counter() - started
        process.kill()
    return taken * 1000


def _ask(process: "subprocess.Popen[bytes]", request: bytes, holds: bytes) -> bytes:
    """Send a request, and wait for the line that holds its answer."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request)
    process.stdin.flush()
    line = process.stdout.readline()
    while line and holds not in line:
        line = process.stdout.readline()
    if holds not in line:
        process.kill()
        raise RuntimeError(f"nothing with {holds.decode()} came")
    return line


def _stream(name: str, spoken: Spoken, ours: list[str], scratch: str, deltas: int) -> float:
    """Deltas a minute, from the prompt to the end of its answer, with the journal on and synced."""
    with _process(ours, scratch) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        _ask(process, spoken.greeting, spoken.greeted)
        prompt = spoken.prompt
        if spoken.opening:
            opening = spoken.opening.replace(b"WORKSPACE", scratch.encode())
            answer = msgspec.json.decode(_ask(process, opening, spoken.opened))
            prompt = prompt.replace(b"SESSION", answer["result"]["sessionId"].encode())
        started = time.perf_counter()
        process.stdin.write(prompt)
        process.stdin.flush()
        seen = 0
        for line in process.stdout:
            seen += spoken.delta in line
            if spoken.ended in line:
                break
        taken = time.perf_counter() - started
        if seen != deltas:
            raise RuntimeError(f"{name} showed {seen} of {deltas} deltas")
        process.kill()
    return deltas / taken * 60


def _process(argv: list[str], scratch: str) -> "subprocess.Popen[bytes]":
    slow = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    environment = {name: value for name, value in os.environ.items() if name not in slow}
    environment |= {"BATTEN_HOME": os.path.join(scratch, "home"), "HOME": scratch}
    return subprocess.Popen(
        argv,
        env=environment,
        cwd=scratch,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
