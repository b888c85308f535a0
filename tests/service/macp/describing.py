"""A control plane and a runtime on one home, and runs described to them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.coordination.published import sdk
from tests.serve.grpc.running import Server, running
from tests.serve.http.wire import Answer
from tests.service.serving import PATIENCE_S, Json, Service, serving

DECISION = "macp.mode.decision.v1"
COMMIT = {"authority_scope": "tests", "reason": "agreed"}


def descriptor(*participants: str, **session: Any) -> Json:
    """A descriptor for the runtime of the home; `session` has further fields of that part."""
    named = participants or ("lead", "ann")
    return {
        "mode": "live",
        "runtime": {"kind": "embedded"},
        "session": {
            "modeName": DECISION,
            "modeVersion": "1.0.0",
            "configurationVersion": "config.default",
            "ttlMs": 60_000,
            "participants": [{"id": name} for name in named],
            **session,
        },
    }


class Plane:
    """A real server, and a real runtime beside it."""

    def __init__(self, service: Service, runtime: Server) -> None:
        self.service = service
        self.runtime = runtime

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        return await self.service.request(method, path, body, headers or None)

    async def get(self, path: str) -> Any:
        answer = await self.ask("GET", path)
        assert answer.status == 200, answer.body
        return answer.json

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        answer = await self.ask("POST", path, {} if body is None else body)
        assert answer.status == status, answer.body
        return answer.json

    async def create(self, body: Any = None, **headers: str) -> Json:
        answer = await self.ask("POST", "/runs", body or descriptor(), **headers)
        assert answer.status == 202, answer.body
        made: Json = answer.json
        return made

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str, str]:
        answer = await self.ask(method, path, body)
        told: Json = answer.json
        assert told["statusCode"] == answer.status
        return answer.status, told["errorCode"], told["message"]

    async def until(self, run_id: str, *statuses: str) -> Json:
        """The record once it has one of these statuses."""
        return await self.record(run_id, lambda record: record["status"] in statuses)

    async def record(self, run_id: str, fits: Callable[[Json], bool]) -> Json:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                record: Json = await self.get(f"/runs/{run_id}")
                if fits(record):
                    return record
                await asyncio.sleep(0.02)

    async def types(self, run_id: str) -> list[str]:
        return [one["type"] for one in await self.get(f"/runs/{run_id}/events?limit=1000")]

    def session(self, session_id: str, *, client: Any = None) -> Any:
        """A decision of that id, of the initiator `lead`."""
        return sdk.DecisionSession(client or self.runtime.client("lead"), session_id=session_id)

    async def start(self, session_id: str, **more: Any) -> Any:
        """Open a session, as its initiator does."""
        fields = {"intent": "decide", "participants": ["lead", "ann"], "ttl_ms": 60_000, **more}
        session = self.session(session_id)
        await asyncio.to_thread(session.start, **fields)
        return session


def decide(session: Any) -> None:
    """Bring an open decision to its end."""
    session.propose("p1", "merge", rationale="tests pass")
    auth = sdk.AuthConfig.for_dev_agent("ann")
    session.vote("p1", "APPROVE", sender="ann", auth=auth)
    session.commit(action="decision.selected", **COMMIT)


@asynccontextmanager
async def planes(
    directory: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[Plane]:
    given = {"THROTTLE_LIMIT": "0", **(environ or {})}
    async with serving(directory, "--no-runtime", *flags, environ=given) as service:
        with running(service.stage.home) as runtime:
            yield Plane(service, runtime)
