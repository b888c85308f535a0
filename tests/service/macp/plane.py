"""The control plane of a real `batten serve`, with the runtime beside it and the published SDK."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from batten.control.coordination.ids import journal_session
from batten.protocols.macp.ids import run_uuid
from tests.coordination.published import sdk
from tests.ports import free_port
from tests.serve.grpc.running import grpc
from tests.serve.http.wire import Answer
from tests.service.serving import PATIENCE_S, Service, serving
from tests.service.streaming import Frame, frames_at

COMMIT = {"authority_scope": "tests", "reason": "agreed"}
T = TypeVar("T")


def as_(name: str) -> dict[str, Any]:
    """In the name of another participant."""
    return {"sender": name, "auth": sdk.AuthConfig.for_dev_agent(name)}


class Plane:
    """Requests to the control plane, and sessions on its runtime."""

    def __init__(self, service: Service, address: str = "") -> None:
        self.service = service
        self.address = address

    async def get(self, path: str) -> Any:
        """The body of an answer that must succeed."""
        answer = await self.service.request("GET", path)
        assert answer.status == 200, answer.body.decode()
        return answer.json

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """The status and code of an error, whose body has the documented shape."""
        answer = await self.service.request(method, path, body)
        assert set(answer.json) >= {"statusCode", "errorCode", "message"}
        assert answer.json["statusCode"] == answer.status
        return answer.status, answer.json["errorCode"]

    async def post(self, path: str, body: Any = None) -> Any:
        answer = await self.posted(path, body)
        assert answer.status in (200, 201), answer.body.decode()
        return answer.json

    async def posted(self, path: str, body: Any = None) -> Answer:
        return await self.service.request("POST", path, {} if body is None else body)

    async def frames(self, path: str, **headers: str) -> list[Frame]:
        """All frames of a stream that ends, without heartbeats."""
        found = await frames_at(self.service, path, **headers)
        return [frame for frame in found if frame.event != "heartbeat"]

    async def speak(self, talk: Callable[[Any], T], name: str = "lead") -> T:
        """What `talk` returns, given a client of the runtime; it runs in a thread."""

        def run() -> T:
            with grpc.insecure_channel(self.address) as channel:
                grpc.channel_ready_future(channel).result(timeout=PATIENCE_S)
            client = sdk.MacpClient(
                target=self.address,
                allow_insecure=True,
                auth=sdk.AuthConfig.for_dev_agent(name),
                default_timeout=PATIENCE_S,
            )
            try:
                return talk(client)
            finally:
                client.close()

        return await asyncio.to_thread(run)

    async def run_of(self, session_id: str) -> str:
        """The path of the run of a session."""
        name = journal_session(session_id)
        rows = await self.get(f"/batten/v1/runs?session_id={name}")
        (run,) = rows["data"]
        return f"/runs/{run_uuid(run['run_id'])}"


def decided(client: Any, **start: Any) -> str:
    """A decision from start to commitment; its session."""
    session_id: str = opened(client, **start)
    finish(client, session_id)
    return session_id


def opened(client: Any, **start: Any) -> str:
    """A decision with a proposal, still open; its session."""
    session = sdk.DecisionSession(client)
    session.start(intent="decide", participants=["lead", "ann", "ben"], ttl_ms=60_000, **start)
    session.propose("p1", "merge", rationale="tests pass")
    session_id: str = session.session_id
    return session_id


def finish(client: Any, session_id: str) -> None:
    session = sdk.DecisionSession(client, session_id=session_id)
    session.vote("p1", "APPROVE", **as_("ann"))
    session.commit(action="decision.selected", **COMMIT)


@asynccontextmanager
async def planes(
    directory: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[Plane]:
    """A service with a runtime and no workers, unless flags say otherwise."""
    address = f"127.0.0.1:{free_port()}"
    more = ("--workers", "0", "--runtime-bind", address, *flags)
    async with serving(
        directory, *more, environ={"THROTTLE_LIMIT": "0", **(environ or {})}
    ) as service:
        yield Plane(service, address)
