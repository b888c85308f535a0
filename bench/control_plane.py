"""The control plane with many stored runs: its start, its memory, and requests a second.

The store is written by appending facts to a journal; the views are made by the service itself.
"""

import asyncio
import os
import shutil
import tempfile
import time
from base64 import b64encode
from collections.abc import Awaitable
from typing import Any
from uuid import uuid4

from batten.contract import facts as f
from batten.contract.envelope import timestamp
from batten.contract.ids import new_run_id, to_uuid
from batten.coordination.payloads import SIGNAL, write
from batten.journal.contract import NewRun
from batten.journal.sqlite import SqliteJournal
from bench import rates
from bench.serving import Connection, Row, environment, rss_mb, start, stop

_RUNS = 5_000
_LONG_FACTS = 50_000
"""Each is two events: the message, and its signal."""
_MODE = "macp.mode.decision.v1"
_AT_ONCE = 100
_CLIENTS = (16, 1)


def rows() -> list[Row]:
    folder = tempfile.mkdtemp(prefix="bench-plane-", dir=os.environ.get("BENCH_FOLDER"))
    try:
        return asyncio.run(_measure(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _measure(folder: str) -> list[Row]:
    short, long = await _fill(environment(folder)["BATTEN_HOME"])
    server, port = start(folder, "--workers", "0", "--no-runtime")
    try:
        first = await _first(port)
        began = time.monotonic()
        await first.ask("GET", "/runs")
        await first.ask("GET", f"/events?runId={long}")
        folded_s = time.monotonic() - began
        first.close()
        await _kept(port, long)
    finally:
        stop(server)
    found: list[Row] = [
        {"what": f"views of {_RUNS:,} runs made anew", "value": folded_s, "unit": "s"}
    ]
    began = time.monotonic()
    server, port = start(folder, "--workers", "0", "--no-runtime")
    try:
        first = await _first(port)
        found.append(
            {"what": "start to first answer", "value": time.monotonic() - began, "unit": "s"}
        )
        async with rates.floors(folder) as bare:
            found += [
                await rates.read(what, port, path, clients, bare)
                for what, path in _paths(short, long).items()
                for clients in _CLIENTS
            ]
            found += [
                await rates.row("POST /runs", port, _create, clients, bare, like="/insert")
                for clients in _CLIENTS
            ]
            found += bare.rows()
        found.append({"what": "memory of the server", "value": rss_mb(server.pid), "unit": "MB"})
        first.close()
        return found
    finally:
        stop(server)


def _paths(short: str, long: str) -> dict[str, str]:
    return {
        "GET run": f"/runs/{short}",
        "GET state": f"/runs/{short}/state",
        "GET state, 100,000 events": f"/runs/{long}/state",
        "GET list of 50": "/runs",
        "GET dashboard": "/dashboard/overview",
    }


def _create(one: Connection) -> Awaitable[bytes]:
    body = {
        "mode": "live",
        "runtime": {"kind": "embedded"},
        "session": {
            "sessionId": str(uuid4()),
            "modeName": _MODE,
            "modeVersion": "1.0.0",
            "configurationVersion": "c-1",
            "ttlMs": 60_000,
            "participants": [{"id": "lead"}, {"id": "ann"}],
        },
    }
    return one.ask("POST", "/runs", body)


async def _first(port: int) -> Connection:
    connection = Connection(port)
    await connection.open()
    await connection.ask("GET", "/healthz")
    return connection


async def _kept(port: int, run_id: str) -> None:
    """Wait until the service has stored what it folded."""
    connection = await _first(port)
    for _ in range(600):
        began = time.monotonic()
        await connection.ask("GET", f"/runs/{run_id}/state")
        if time.monotonic() - began < 0.02:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(2)
    connection.close()


async def _fill(home: str) -> tuple[str, str]:
    """Runs that ended, and one with many events; one of the former, and the latter."""
    journal = SqliteJournal.open(home)
    try:
        made: list[str] = []
        for begin in range(0, _RUNS, _AT_ONCE):
            numbers = range(begin, begin + _AT_ONCE)
            made += await asyncio.gather(*(_run(journal, number) for number in numbers))
        run_id, fence = await _begun(journal, _RUNS)
        for _ in range(0, _LONG_FACTS, 500):
            await journal.append(run_id, [_signal(n) for n in range(500)], fence=fence)
        return to_uuid(made[-1]), to_uuid(run_id)
    finally:
        journal.close()


async def _run(journal: SqliteJournal, number: int) -> str:
    run_id, fence = await _begun(journal, number)
    ending: f.Fact
    if number % 10:
        ending = f.RunFinished(final_status="completed", turns=0, cost_micros_usd=0, duration_ms=1)
    else:
        ending = f.RunFailed(code="timeout", message="expired", retriable=False, turns=0)
    await journal.append(run_id, [_signal(number), _signal(number), ending], fence=fence)
    return run_id


async def _begun(journal: SqliteJournal, number: int) -> tuple[str, int]:
    """A run whose session was seen, and its fence."""
    run_id, session_id = new_run_id(), str(uuid4())
    metadata = {"environment": "bench", "scenarioRef": f"scenario-{number % 20}"}
    descriptor: dict[str, Any] = {
        "mode": "live",
        "runtime": {"kind": "rust"},
        "session": {"sessionId": session_id, "modeName": _MODE, "metadata": metadata},
        "execution": {"tags": ["bench", f"t{number % 7}"]},
    }
    began: list[f.Fact] = [
        f.RunQueued(
            kind="coordination",
            model=None,
            provider=None,
            workspace_path="",
            workspace_mode="in_place",
            prior_run_id=None,
            executor_type="live",
        ),
        f.MacpRunDescribed(session_id=session_id, descriptor=descriptor, normaliser=1),
        f.RunStarted(worker_id="bench", lease_until=timestamp()),
        f.MacpFrameObserved(
            kind="session_snapshot",
            session_id=session_id,
            detail={
                "state": "SESSION_STATE_OPEN",
                "initiator": "lead",
                "participants": ["lead", "ann"],
                "modeName": _MODE,
                "policyVersion": "policy.default",
            },
        ),
    ]
    new = NewRun(run_id=run_id, kind="coordination", worker_id="bench")
    lease, _ = await journal.create(new, began)
    assert lease is not None
    return run_id, lease.fence


def _signal(number: int) -> f.Fact:
    body = write(SIGNAL, {"signal_type": "risk", "confidence": 0.5})
    return f.MacpFrameObserved(
        kind="envelope",
        session_id="",
        detail={},
        mode=_MODE,
        message_id=f"m-{number}",
        message_type="Signal",
        sender="ann",
        payload=b64encode(body).decode(),
    )
