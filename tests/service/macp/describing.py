"""Runs that are described to a control plane, and the initiators that open their sessions."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.coordination.published import sdk
from tests.service.macp.plane import COMMIT, Plane, as_, planes
from tests.service.serving import PATIENCE_S, Json

DECISION = "macp.mode.decision.v1"


def descriptor(*participants: str, **session: Any) -> Json:
    """A descriptor for the runtime of the home; `session` has further fields of that part."""
    return {
        "mode": "live",
        "runtime": {"kind": "embedded"},
        "session": {
            "modeName": DECISION,
            "modeVersion": "1.0.0",
            "configurationVersion": "config.default",
            "ttlMs": 60_000,
            "participants": [{"id": name} for name in participants or ("lead", "ann")],
            **session,
        },
    }


class DescribedPlane(Plane):
    async def create(self, body: Any = None, **headers: str) -> Json:
        answer = await self.service.request("POST", "/runs", body or descriptor(), headers or None)
        assert answer.status == 202, answer.body.decode()
        made: Json = answer.json
        return made

    async def told(self, method: str, path: str, body: Any = None) -> tuple[int, str, str]:
        """The status, code and message of an error."""
        answer = await self.service.request(method, path, body)
        return answer.status, answer.json["errorCode"], answer.json["message"]

    async def until(self, run_id: str, *statuses: str) -> Json:
        """The record once it has one of these statuses."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                record: Json = await self.get(f"/runs/{run_id}")
                if record["status"] in statuses:
                    return record
                await asyncio.sleep(0.02)

    async def types(self, run_id: str) -> list[str]:
        return [one["type"] for one in await self.get(f"/runs/{run_id}/events?limit=1000")]

    async def open(self, session_id: str, **more: Any) -> None:
        """Open a session, as its initiator `lead` does."""
        fields = {"intent": "decide", "participants": ["lead", "ann"], "ttl_ms": 60_000}
        known = {name: more.pop(name) for name in list(more) if name in ("policy_version",)}

        def start(client: Any) -> None:
            session = sdk.DecisionSession(client, session_id=session_id, **known)
            session.start(**{**fields, **more})

        await self.speak(start)

    async def decide(self, session_id: str) -> None:
        """Bring an open decision to its end."""

        def decide(client: Any) -> None:
            session = sdk.DecisionSession(client, session_id=session_id)
            session.propose("p1", "merge", rationale="tests pass")
            session.vote("p1", "APPROVE", **as_("ann"))
            session.commit(action="decision.selected", **COMMIT)

        await self.speak(decide)


@asynccontextmanager
async def described_planes(
    directory: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> AsyncGenerator[DescribedPlane]:
    unlimited = {"THROTTLE_LIMIT": "0", **(environ or {})}
    async with planes(directory, *flags, environ=unlimited) as plane:
        yield DescribedPlane(plane.service, plane.address)
