"""Protocols on standard input and output: from start to the greeting, and how fast they stream."""

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
"""What any such program costs: the two modules it cannot do without, one line in, one out."""


class Spoken(NamedTuple):
    """One protocol: how a client greets it, and what starts and ends a stream of deltas."""

    greeting: bytes
    greeted: bytes
    """What the line that ends the greeting holds."""
    prompt: bytes
    delta: bytes
    ended: bytes


PROTOCOLS = {
    "heddle": Spoken(
        greeting=b'{"type":"init","id":"1","protocol_version":"0.2.0","config":'
        b'{"model":"bench/none","system_prompt":"","tools":[]}}\n',
        greeted=b'"type":"init_ok"',
        prompt=b'{"type":"send","id":"2","message":"go"}\n',
        delta=b'"event":"content_delta"',
        ended=b'"type":"result"',
    ),
    "maestro": Spoken(
        greeting=b'{"type":"hello"}\n',
        greeted=b'"type":"ready"',
        prompt=b'{"type":"prompt","content":"go"}\n',
        delta=b'"type":"response_chunk"',
        ended=b'"type":"response_end"',
    ),
}


def rows(rounds: int = 15, deltas: int = 50_000) -> list[Row]:
    scratch = tempfile.mkdtemp(prefix="batten-bench-")
    try:
        model = _scenario(scratch, deltas)
        measured: list[Row] = []
        for name, spoken in PROTOCOLS.items():
            ours = [_BATTEN, "headless", "--protocol", name, "--model", model]
            measured.append(_start(name, spoken, ours, scratch, rounds))
            measured.append(_stream(name, spoken, ours, scratch, deltas))
        return measured
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _scenario(scratch: str, deltas: int) -> str:
    said = [{"kind": "text", "text": f"word {number} "} for number in range(deltas)]
    frames = [{"index": 0, "statements": [*said, {"kind": "end", "reason": "complete"}]}]
    metadata: Row = {"recordedAt": "2026-01-02T03:04:05.000Z", "toolsExpected": []}
    whole: Row = {
        "schemaVersion": SCENARIO_SCHEMA,
        "id": "deltas",
        "description": "go",
        "metadata": metadata,
        "frames": frames,
        "children": {},
    }
    path = os.path.join(scratch, "deltas.json")
    with open(path, "wb") as file:
        file.write(msgspec.json.encode(whole))
    return f"scripted/{path}"


def _start(name: str, spoken: Spoken, ours: list[str], scratch: str, rounds: int) -> Row:
    """Medians, taken in turns: the machine is not equally fast every minute."""
    bare = [sys.executable, "-c", _BARE]
    times: dict[str, list[float]] = {"ours": [], "bare": []}
    for _ in range(rounds + 1):
        for which, argv in (("bare", bare), ("ours", ours)):
            holds = spoken.greeted if which == "ours" else b"answers"
            times[which].append(_greet(argv, spoken.greeting, holds, scratch))
    batten, floor = (statistics.median(times[which][1:]) for which in ("ours", "bare"))
    return {
        "measure": f"{name}: start to greeting",
        "unit": "ms",
        "batten": batten,
        "bare": floor,
        "ratio": batten / floor,
    }


def _greet(argv: list[str], greeting: bytes, holds: bytes, scratch: str) -> float:
    started = time.perf_counter()
    with _process(argv, scratch) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(greeting)
        process.stdin.flush()
        line = process.stdout.readline()
        while line and holds not in line:
            line = process.stdout.readline()
        taken = time.perf_counter() - started
        if holds not in line:
            raise RuntimeError(f"{argv[0]} answered {line!r}")
        process.kill()
    return taken * 1000


def _stream(name: str, spoken: Spoken, ours: list[str], scratch: str, deltas: int) -> Row:
    """From the prompt to the end of its answer, the journal on and synced."""
    with _process(ours, scratch) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(spoken.greeting)
        process.stdin.flush()
        process.stdout.readline()
        started = time.perf_counter()
        process.stdin.write(spoken.prompt)
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
    return {"measure": f"{name}: deltas", "unit": "1/min", "batten": deltas / taken * 60}


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
