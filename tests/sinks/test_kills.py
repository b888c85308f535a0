"""The process of sinks killed at random moments: every message once or more, in order per run."""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batten.contract import facts
from batten.contract.tracing import trace_of
from batten.journal.sqlite import SqliteJournal
from batten.sinks.store import SinkStore
from tests.agent.stage import Stage
from tests.journal.given import FINISHED, STARTED, new_run
from tests.sinks.http_receiver import Behaviour, HttpReceiver, Received, http_receiver
from tests.sinks.nats_server import NatsServer, nats_server
from tests.sinks.test_otel import spans_of

_PATIENCE_S = 240
_CALLS = 4


class Campaign:
    """A writer of runs, three receivers, and a killer."""

    def __init__(self, stage: Stage, receiver: HttpReceiver, server: NatsServer, seed: int) -> None:
        self._random = random.Random(seed)
        self._stage = stage
        self._receiver = receiver
        self._server = server
        self._done = asyncio.Event()
        self.runs: list[str] = []
        receiver.behave = self._behave

    def _behave(self, one: Received) -> Behaviour:
        """Most requests are taken; some are cut, refused or hang until the sender dies."""
        if self._done.is_set():
            return 200
        drawn = self._random.random()
        if drawn < 0.9:
            return 200
        failures: tuple[Behaviour, ...] = (500, "cut", 503, "hang")
        failure = self._random.choice(failures)
        # A collector's 500 is for good.
        return 503 if failure == 500 and one.path.startswith("/v1/") else failure

    async def write(self, journal: SqliteJournal) -> None:
        while not self._done.is_set():
            run = new_run()
            queued = facts.RunQueued("agent_loop", "m", "p", "/work", "in_place", None)
            lease, _ = await journal.create(run, [queued, STARTED])
            assert lease is not None
            self.runs.append(run.run_id)
            for number in range(_CALLS):
                call = f"call_{number}"
                happened = [
                    facts.AssistantToolCallProposed(1, call, "bash", {"command": "ls"}),
                    facts.ToolInvoked(call, "bash", "shell", 1),
                    facts.ToolCompleted(call, "bash", "shell", 1, output=""),
                ]
                await journal.append(run.run_id, happened, fence=lease.fence)
                await asyncio.sleep(self._random.random() * 0.02)
            await journal.append(run.run_id, [FINISHED], fence=lease.fence)

    async def kill(self, times: int) -> None:
        for number in range(times):
            async with self._sinks() as process:
                # Longer than a start now and then, so that something is told.
                await asyncio.sleep(0.4 + self._random.random() * 1.2)
                if number % 10 == 9:
                    await self._server.stop()
                    await asyncio.sleep(0.2)
                    await self._server.start()
                os.kill(process.pid, signal.SIGKILL)
                await process.wait()
        self._done.set()

    async def finish(self, journal: SqliteJournal) -> None:
        """Let one process tell the rest."""
        async with self._sinks() as process, asyncio.timeout(_PATIENCE_S):
            store = SinkStore.open(str(self._stage.home))
            try:
                end = await journal.position()
                while not _is_told(store, end):
                    assert process.returncode is None
                    await asyncio.sleep(0.1)
            finally:
                store.close()
            process.terminate()
            assert await process.wait() == 0

    @asynccontextmanager
    async def _sinks(self) -> AsyncGenerator[asyncio.subprocess.Process]:
        table = {
            "sinks": {
                "webhooks": {"all": {"url": self._receiver.url, "secret": "s"}},
                "otel": {"endpoint": self._receiver.url.removesuffix("/hook"), "metrics": False},
                "allow": ["127.0.0.0/8"],
            }
        }
        with open(self._stage.directory / "sinks.err", "ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "batten", "sinks", "run"),
                *("--settings", msgspec.json.encode(table).decode()),
                env={**self._stage.environ, "MAESTRO_EVENT_BUS_URL": self._server.url},
                stdin=asyncio.subprocess.DEVNULL,
                stderr=errors,
            )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def _is_told(store: SinkStore, end: int) -> bool:
    rows = store.sinks()
    return len(rows) == 3 and all(
        row.position >= end and not row.pending and not row.dead for row in rows
    )


def _first(told: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    """By run, each message where it came first."""
    found: dict[str, list[Any]] = {}
    for run_id, message in told:
        seen = found.setdefault(run_id, [])
        if message not in seen:
            seen.append(message)
    return found


async def campaign(tmp_path: Path, kills: int, seed: int) -> None:
    stage = Stage(tmp_path / "stage")
    journal = SqliteJournal.open(stage.home)
    store = SinkStore.open(str(stage.home))
    store.add("webhook:all", 0)
    store.add("event-bus", 0)
    store.add("otel", 0)
    store.close()
    async with http_receiver() as receiver, nats_server(tmp_path) as server:
        await server.add_stream()
        fight = Campaign(stage, receiver, server, seed)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fight.write(journal))
                group.create_task(fight.kill(kills))
            await fight.finish(journal)
        finally:
            journal.close()
        bodies = [msgspec.json.decode(one.body) for one in receiver.taken if one.path == "/hook"]
        hooked = _first([(body["journalId"], body["event"]) for body in bodies])
        assert hooked == {run: ["run.queued", "run.started", "run.completed"] for run in fight.runs}
        spans = _first([(one["traceId"], one["spanId"]) for one in spans_of(receiver.taken)])
        # Each call, and the run itself.
        assert {trace: len(ids) for trace, ids in spans.items()} == {
            trace_of(run): _CALLS + 1 for run in fight.runs
        }
        events = await server.events()
        bused = _first(
            [
                (
                    one["data"]["correlation"]["agent_run_id"],
                    (one["data"]["tool_call_id"], one["type"].rpartition(".")[2]),
                )
                for one in events
            ]
        )
        expected = [
            (f"call_{number}", kind)
            for number in range(_CALLS)
            for kind in ("attempted", "completed")
        ]
        assert bused == dict.fromkeys(fight.runs, expected)


async def test_no_message_is_lost_over_a_few_kills(tmp_path: Path) -> None:
    await campaign(tmp_path, kills=6, seed=7)


@pytest.mark.soak
async def test_no_message_is_lost_over_a_hundred_kills(tmp_path: Path) -> None:
    await campaign(tmp_path, kills=100, seed=13)
