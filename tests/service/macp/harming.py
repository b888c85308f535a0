"""A session of a runtime elsewhere, followed by a real server, while all of them are harmed."""

import asyncio
import fcntl
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from batten.contract.facts import TERMINAL
from batten.journal.sqlite import SqliteJournal
from batten.protocols.macp.ids import run_uuid
from tests.control.observer.cutting import Proxy, cutting
from tests.control.observer.elsewhere import (
    OBSERVER,
    TOKENS,
    Panel,
    describe,
    transcript,
)
from tests.coordination.published import sdk
from tests.serve.grpc.running import Server
from tests.service.serving import PATIENCE_S, Service, serving

_SETTINGS = {
    "THROTTLE_LIMIT": "0",
    "RUNTIME_ALLOW_INSECURE": "true",
    "RUNTIME_BEARER_TOKEN": OBSERVER,
    "STREAM_BACKOFF_BASE_MS": "50",
    "STREAM_BACKOFF_MAX_MS": "500",
    "RUNTIME_CIRCUIT_BREAKER_RESET_MS": "300",
    "RUNTIME_REQUEST_TIMEOUT_MS": "500",
    "SESSION_DISCOVERY_ENABLED": "false",
    "BATTEN_LEASE_S": "6",
}
HARMS = ("kill server", "kill runtime", "cut", "stop server", "stop runtime")


class Elsewhere:
    """The runtime, which can be killed and comes back at another address."""

    def __init__(self, home: Path, proxy: Proxy) -> None:
        self._home = home
        self._proxy = proxy
        self.server = self._start()

    def _start(self) -> Server:
        flags = ["--bind", "127.0.0.1:0", "--rate-limit", "0"]
        server = Server(self._home, flags, {"MACP_AUTH_TOKENS_JSON": TOKENS})
        self._proxy.target = server.address
        return server

    def restart(self) -> None:
        self.server.kill()
        if self.server.process.stdout is not None:
            self.server.process.stdout.close()
        self.server = self._start()

    def close(self) -> None:
        self.server.process.send_signal(signal.SIGCONT)
        self.server.stop()
        if self.server.process.stdout is not None:
            self.server.process.stdout.close()


class Talk(threading.Thread):
    """One session, proposal after proposal; what has no answer is sent again."""

    def __init__(self, runtime: Elsewhere, session_id: str) -> None:
        super().__init__(daemon=True)
        self._runtime = runtime
        self.session_id = session_id
        self.enough = threading.Event()
        self.sent = 0
        self._said = threading.Semaphore(0)
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            self._insist(lambda panel: panel.start(ttl_ms=3_600_000))
            while not self.enough.wait(0.01):
                self._insist(lambda panel: panel.propose(self.sent))
            self._insist(lambda panel: panel.commit())
        except BaseException as error:  # `hear` and `ended` tell of it
            self.failed = error

    def hear(self, count: int) -> None:
        """Wait for so many messages more."""
        for _ in range(count):
            assert self._said.acquire(timeout=PATIENCE_S), self.failed

    def _insist(self, say: Callable[[Panel], object]) -> None:
        """Say it until the runtime has answered, also that it had it before."""
        for _ in range(200):
            panel = Panel(self._runtime.server.address, self.session_id)
            try:
                say(panel)
            except sdk.MacpAckError as refused:
                if refused.failure.code not in ("INVALID_ENVELOPE", "SESSION_ALREADY_EXISTS"):
                    raise
            except sdk.MacpTransportError:
                self.enough.wait(0.05)
                continue
            finally:
                panel.close()
            self.sent += 1
            self._said.release()
            return
        raise AssertionError("the runtime does not come back")


class Campaign:
    def __init__(self, service: Service, runtime: Elsewhere, proxy: Proxy, seed: int) -> None:
        self.service = service
        self.runtime = runtime
        self.proxy = proxy
        self.random = random.Random(seed)
        self.harms: Counter[str] = Counter()

    async def followed(self) -> tuple[str, Talk]:
        """A run in the server's home, and the talk it is about."""
        session_id: str = sdk.new_session_id()
        journal = SqliteJournal.open(self.service.stage.home)
        try:
            run_id = await describe(journal, session_id)
        finally:
            journal.close()
        talk = Talk(self.runtime, session_id)
        talk.start()
        return run_id, talk

    async def harm(self, harm: str) -> None:
        self.harms[harm] += 1
        match harm:
            case "kill server":
                await self.service.kill()
                await self.service.start()
            case "kill runtime":
                await asyncio.to_thread(self.runtime.restart)
            case "cut":
                self.proxy.cut()
            case "stop server":
                await self._pause(self.service.pid)
            case _:
                await self._pause(self.runtime.server.process.pid)

    async def _pause(self, pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(self.random.uniform(0.05, 1.2))  # calls give up after 0.5
        os.kill(pid, signal.SIGCONT)

    def stop_between_writes(self, pid: int) -> None:
        """Stop a process that does not hold the store, which would stop all others too."""
        with open(self.service.stage.home / "journal.db.lock", "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.kill(pid, signal.SIGSTOP)
            # A thread of it that waits for the lock could still take it before it is stopped.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)

    async def ended(self, run_id: str, talk: Talk) -> list[dict[str, Any]]:
        """Let the talk end; the canonical events of its run, once that has ended too."""
        talk.enough.set()
        await asyncio.to_thread(talk.join, PATIENCE_S)
        assert talk.failed is None, talk.failed
        await self.until(run_id, TERMINAL)
        uuid = run_uuid(run_id)
        answer = await self.service.request("GET", f"/runs/{uuid}/events?limit=10000")
        events: list[dict[str, Any]] = answer.json
        return events

    async def until(self, run_id: str, types: frozenset[str], count: int = 1) -> None:
        """Until the run has so many facts of these types, whoever writes them."""
        journal = SqliteJournal.open(self.service.stage.home)
        try:
            async with asyncio.timeout(PATIENCE_S):
                async for page in journal.follow(run_id, types=types):
                    count -= len(page)
                    if count <= 0:
                        return
        finally:
            journal.close()

    async def check(self, run_id: str, talk: Talk) -> int:
        """Every message once, in the runtime's order, numbered without gaps."""
        events = await self.ended(run_id, talk)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert events[-1]["type"] == "run.completed"
        seen = [one["data"]["messageId"] for one in events if one["type"] == "message.received"]
        told = await asyncio.to_thread(transcript, self.runtime.server, talk.session_id, len(seen))
        assert seen == told
        assert events[-3]["type"] == "decision.finalized"
        counts = Counter(event["type"] for event in events)
        for once in ("run.created", "run.started", "session.bound", "run.completed"):
            assert counts[once] == 1
        return len(seen)


@asynccontextmanager
async def campaigning(directory: Path, seed: int, **environ: str) -> AsyncGenerator[Campaign]:
    async with cutting() as proxy:
        runtime = await asyncio.to_thread(Elsewhere, directory / "elsewhere", proxy)
        try:
            environ = {**_SETTINGS, "RUNTIME_ADDRESS": proxy.address, **environ}
            flags = ("--workers", "0", "--no-runtime")
            async with serving(directory / "here", *flags, environ=environ) as service:
                yield Campaign(service, runtime, proxy, seed)
        finally:
            await asyncio.to_thread(runtime.close)
