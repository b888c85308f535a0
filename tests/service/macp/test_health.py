"""Liveness and readiness: the shapes of the control plane and of the service in one answer."""

import asyncio
from pathlib import Path
from typing import Any

from batten.control.observer.hosted import HostedRuntime
from batten.serve.http.app import App
from batten.serve.http.metrics import Metrics
from batten.serve.http.plane_watch import BreakerState, PlaneWatch, RuntimeState
from batten.serve.http.server import ServeOptions, open_server
from batten.serve.http.system import System, with_system
from tests.serve.http.toy import Boxes, surfaces
from tests.serve.http.wire import Answer, clients
from tests.service.macp.plane import planes
from tests.service.serving import PATIENCE_S, Service


async def test_a_service_is_ready_once_the_runtime_beside_it_runs(tmp_path: Path) -> None:
    async with planes(tmp_path) as plane, asyncio.timeout(PATIENCE_S):
        while (answer := await plane.service.request("GET", "/readyz")).status != 200:
            waits_for = "the runtime beside this service does not run yet"
            assert answer.json["checks"]["runtime"] == waits_for
            assert answer.json["runtime"]["ok"] is False
        assert answer.json["checks"]["runtime"] == "ok"
        assert answer.json["runtime"]["detail"] == "beside this service"
        assert (await plane.get("/runtime/health"))["ok"] is True


async def test_a_runtime_beside_the_service_that_says_nothing_is_unwell() -> None:
    now = 0.0
    watch = PlaneWatch("rust")
    watch.hosted = HostedRuntime(clock=lambda: now)
    watch.hosted.heard(b"batten: listening on 127.0.0.1:1\n.")
    now = 3.0
    assert (await watch.runtime()).ok
    watch.hosted.heard(b".")
    now = 13.0
    told = await watch.runtime()
    assert (told.ok, told.detail) == (
        False,
        "the runtime beside this service hangs: it said nothing for 10 s",
    )
    watch.hosted.heard(b".")
    assert (await watch.runtime()).ok


async def test_d34_health_has_the_members_of_both_shapes(service: Service) -> None:
    health = (await service.request("GET", "/healthz")).json
    assert health["status"] == "ok"
    assert health["ok"] is True
    async with asyncio.timeout(PATIENCE_S):
        while (ready := await service.request("GET", "/readyz")).status != 200:
            assert ready.json["checks"]["workers"] != "ok"  # it starts
    assert ready.json == {
        "status": "ready",
        "ok": True,
        "checks": {
            "store": "ok",
            "workers": "ok",
            "database": "ok",
            "runtime": "ok",
            "streamConsumer": "ok",
            "circuitBreaker": "ok",
        },
        "database": "ok",
        "runtime": {"ok": True, "runtimeKind": "none", "detail": "this service has no runtime"},
        "streamConsumer": "ok",
        "circuitBreaker": "CLOSED",
    }


class Breaker:
    state: BreakerState = "CLOSED"
    successes = 0
    failures = 0


class Runtime:
    """A runtime elsewhere, as it is seen from here."""

    kind = "rust"

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.now = RuntimeState(ok=True, runtime_kind="rust", detail="connected to a:1")
        self.active = 2
        self.broken = 0
        self.asked = 0

    async def health(self) -> RuntimeState:
        self.asked += 1
        return self.now


async def test_d34_a_server_that_is_not_ready_says_so_with_503(tmp_path: Path) -> None:
    runtime = Runtime()
    watch = PlaneWatch("rust")
    watch.link = watch.consumer = runtime
    system = System(version="1", metrics=Metrics(), watch=watch)
    app = App(with_system(surfaces(Boxes()), system))
    async with (
        open_server(app, ServeOptions(home=str(tmp_path), port=0)) as server,
        clients() as opened,
    ):
        connection = await opened.connect_to(server.url)

        async def ask() -> Answer:
            return await connection.ask("GET", "/readyz")

        runtime.breaker.state = "HALF_OPEN"
        assert (await ask()).status == 200
        runtime.breaker.state = "OPEN"
        runtime.broken = 1
        runtime.now = RuntimeState(ok=False, runtime_kind="rust", detail="refused")
        async with asyncio.timeout(PATIENCE_S):
            # What the runtime said counts for a moment.
            while (answer := await ask()).json["runtime"]["ok"]:
                assert answer.status == 503
        assert runtime.asked <= 3
        told: dict[str, Any] = answer.json
        assert answer.status == 503
        assert told["status"] == "not_ready"
        assert told["ok"] is False
        assert told["checks"] == {
            "database": "ok",
            "runtime": "refused",
            "streamConsumer": "not connected: 1",
            "circuitBreaker": "OPEN",
        }
        assert told["runtime"] == {"ok": False, "runtimeKind": "rust", "detail": "refused"}
        assert (told["streamConsumer"], told["circuitBreaker"]) == ("unhealthy", "OPEN")
        # Hecate's clients find their error.
        assert told["error"]["type"] == "runtime_not_ready"
