"""Messages a second through the coordination runtime, beside a bare gRPC echo with an fsync each.

A row and its floor are measured one after the other, from a client process of its own.

    python -m bench.coordination ADDRESS SENDERS SECONDS   (the client)
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from batten.coordination.modes.decision import Decision
from batten.coordination.payloads import SESSION_START, write

Row = dict[str, Any]
Send = Callable[..., Any]

_SENDERS = (1, 64)
_SECONDS = 3.0
_ROUNDS = 3
_SESSIONS = 1000
_PARTICIPANTS = 10
_MODE = "macp.mode.decision.v1"


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        echo = [sys.executable, "-m", "bench.bare_grpc", os.path.join(folder, "echo")]
        runtime = [sys.executable, "-m", "batten", "runtime", "--bind", "127.0.0.1:0"]
        runtime += ["--rate-limit", "0"]
        with _serving(echo, folder) as (bare, _), _serving(runtime, folder) as (ours, pid):
            found = [row for senders in _SENDERS for row in _compared(bare, ours, senders)]
            crowd = _client(ours, "crowd", 0)
            return [*found, *_crowd_rows(crowd, pid)]


def _compared(bare: str, ours: str, senders: int) -> list[Row]:
    pairs = [
        (_client(bare, senders, _SECONDS), _client(ours, senders, _SECONDS)) for _ in range(_ROUNDS)
    ]
    floor = statistics.median(one["rate"] for one, _ in pairs)
    rate = statistics.median(one["rate"] for _, one in pairs)
    best = min((one for _, one in pairs), key=lambda one: abs(one["rate"] - rate))
    name = f"{senders} sender{'s' * (senders > 1)}"
    return [
        {"what": f"bare gRPC echo with an fsync, {name}", "value": floor, "unit": "messages/s"},
        {
            "what": f"messages acknowledged, {name}",
            "value": rate,
            "unit": "messages/s",
            "ratio": rate / floor,
        },
        {"what": f"acknowledged after, {name}, p50", "value": best["p50"], "unit": "ms"},
        {"what": f"acknowledged after, {name}, p99", "value": best["p99"], "unit": "ms"},
    ]


def _crowd_rows(crowd: Row, pid: int) -> list[Row]:
    name = f"{_SESSIONS:,} sessions of {_PARTICIPANTS}"
    return [
        {"what": f"{name}: messages acknowledged", "value": crowd["rate"], "unit": "messages/s"},
        {"what": f"{name}: acknowledged after, p50", "value": crowd["p50"], "unit": "ms"},
        {"what": f"{name}: acknowledged after, p99", "value": crowd["p99"], "unit": "ms"},
        {"what": f"{name}: memory of the runtime", "value": _memory_mb(pid), "unit": "MB"},
    ]


def _memory_mb(pid: int) -> float:
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


@contextmanager
def _serving(command: list[str], folder: str) -> Generator[tuple[str, int]]:
    """A server's address and process."""
    home = os.path.join(folder, "home")
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "BATTEN_HOME": home},
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1], process.pid
    finally:
        process.terminate()
        process.wait(30)


def _client(address: str, senders: object, seconds: float) -> Row:
    command = [sys.executable, "-m", "bench.coordination", address, str(senders), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found: Row = json.loads(done.stdout)
    return found


class _Session:
    """A session of a load, and its envelopes."""

    def __init__(self, send: Send, participants: list[str]) -> None:
        self._send = send
        self._core: Any = import_module("macp.v1.core_pb2")
        self._envelopes: Any = import_module("macp.v1.envelope_pb2")
        self.participants = participants
        self.session_id = str(uuid.uuid4())

    async def start(self) -> None:
        fields = {
            "intent": "load",
            "participants": self.participants,
            "mode_version": "1.0.0",
            "configuration_version": "c",
            "ttl_ms": 600_000,
        }
        await self.say(self.participants[0], "SessionStart", write(SESSION_START, fields))

    async def propose(self, sender: str, number: int) -> None:
        fields = {"proposal_id": f"p{number}", "option": "merge", "rationale": "the tests pass"}
        await self.say(sender, "Proposal", write(Decision.payloads["Proposal"], fields))

    async def vote(self, sender: str) -> None:
        fields = {"proposal_id": "p0", "vote": "APPROVE", "reason": "fine"}
        await self.say(sender, "Vote", write(Decision.payloads["Vote"], fields))

    async def say(self, sender: str, type_: str, payload: bytes) -> None:
        envelope = self._envelopes.Envelope(
            macp_version="1.0",
            mode=_MODE,
            message_type=type_,
            message_id=str(uuid.uuid4()),
            session_id=self.session_id,
            sender=sender,
            payload=payload,
        )
        request = self._core.SendRequest(envelope=envelope)
        answer = await self._send(request, metadata=(("authorization", f"Bearer {sender}"),))
        assert answer.ack.ok, answer.ack


async def _load(address: str, senders: str, seconds: float) -> Row:
    aio: Any = import_module("grpc.aio")
    stubs: Any = import_module("macp.v1.core_pb2_grpc")
    async with aio.insecure_channel(address) as channel:
        send = stubs.MACPRuntimeServiceStub(channel).Send
        if senders == "crowd":
            return await _crowd(send)
        sessions = [_Session(send, [f"agent-{number}"]) for number in range(int(senders))]
        for session in sessions:
            await session.start()
        times: list[float] = []
        until = time.perf_counter() + seconds

        async def work(session: _Session) -> None:
            number = 0
            while (began := time.perf_counter()) < until:
                await session.propose(session.participants[0], number)
                times.append(time.perf_counter() - began)
                number += 1

        began = time.perf_counter()
        await asyncio.gather(*(work(session) for session in sessions))
        return _figures(times, time.perf_counter() - began)


async def _crowd(send: Send) -> Row:
    """Every session is open at the same time; all its participants vote."""
    people = [f"agent-{number}" for number in range(_PARTICIPANTS)]
    sessions = [_Session(send, people) for _ in range(_SESSIONS)]
    gate = asyncio.Semaphore(64)
    times: list[float] = []

    async def timed(work: Any) -> None:
        async with gate:
            began = time.perf_counter()
            await work
            times.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(timed(session.start()) for session in sessions))
    await asyncio.gather(*(timed(session.propose(people[0], 0)) for session in sessions))
    votes = [session.vote(who) for who in people for session in sessions]
    await asyncio.gather(*(timed(vote) for vote in votes))
    return _figures(times, time.perf_counter() - began)


def _figures(times: list[float], lasted_s: float) -> Row:
    times.sort()
    return {
        "rate": len(times) / lasted_s,
        "p50": times[len(times) // 2] * 1000,
        "p99": times[int(len(times) * 0.99)] * 1000,
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_load(sys.argv[1], sys.argv[2], float(sys.argv[3])))))
