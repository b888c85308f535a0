"""Runs of `batten serve` wait parked for a panel, which outlives the processes that hold it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from batten.contract.ids import to_uuid
from batten.journal.sqlite import SqliteJournal
from tests.agent.stage import bash, end, say
from tests.control.coordination.panels import act, scripted
from tests.service.crowd import workers_of
from tests.service.killing import Killer
from tests.service.serving import PATIENCE_S, Json, Run, Service, serving

THINKING_MS = 2000


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    """A service whose panel of three decides whether a file may be touched."""
    policy: Json = {"policy_id": "policy.three", "mode": "macp.mode.quorum.v1", "rules": {}}
    (tmp_path / "policy.json").write_bytes(msgspec.json.encode(policy))
    approve = act("approve", reason="harmless")
    thinking = {"kind": "delay", "ms": THINKING_MS}
    agents = {
        "ann": {"model": scripted(tmp_path, "ann", [approve])},
        "ben": {"model": scripted(tmp_path, "ben", [thinking, approve])},
        "cem": {"model": scripted(tmp_path, "cem", [approve])},
    }
    settings = {
        "permissions": {"ask": [{"pattern": "Bash(touch *)", "panel": "review"}]},
        "panels": {"review": {"policy": "policy.json", "agents": agents}},
    }
    (tmp_path / "settings.json").write_bytes(msgspec.json.encode(settings))
    async with serving(tmp_path, "--settings", str(tmp_path / "settings.json")) as running:
        yield running


async def asked(service: Service) -> tuple[Run, Json]:
    """A run that waits for the panel."""
    model = service.stage.scenario([bash("touch made", "c0")], [say("Done."), end()])
    run = await service.started(model)
    return run, await run.approval()


async def votes(service: Service, approval: Json, count: int) -> list[str]:
    """Who has voted, once so many have."""
    journal = SqliteJournal.open(str(service.stage.home), read_only=True)
    found: list[str] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            async for page in journal.follow_feed():
                session = await journal.session("chat_" + _ulid(approval))
                for stored in page:
                    if session is not None and stored.run_id == session.last_run_id:
                        data = msgspec.json.decode(stored.body)["data"]
                        if data.get("message_type") == "Approve":
                            found.append(data["sender"])
                if len(found) >= count:
                    break
    finally:
        journal.close()
    return found


def _ulid(approval: Json) -> str:
    return str(approval["id"]).partition("_")[2]


async def test_the_run_is_parked_and_its_approval_says_who_decided_and_why(
    service: Service,
) -> None:
    run, approval = await asked(service)
    waiting = await run.now()
    assert (await run.ended())["status"] == "completed"
    resolved = await run.until("approval.resolved")
    events = await run.events()
    assert waiting["status"] == "awaiting_approval"
    assert resolved["data"]["by"] == "panel:review"
    assert resolved["data"]["comment"] == (
        "quorum.approved by batten: 3 of 3 approve, 2 are needed"
        f" (session {to_uuid(approval['id'])})"
    )
    order = [event["type"] for event in events]
    place = order.index("approval.resolved")
    assert order[place : place + 3] == ["approval.resolved", "run.queued", "run.started"]


@pytest.mark.parametrize("victim", ["server", "worker"])
async def test_a_panel_outlives_the_kill_of_its_holder_and_votes_count(
    service: Service, victim: str
) -> None:
    run, approval = await asked(service)
    before = await votes(service, approval, 1)
    killer = Killer(service, seed=1)
    await killer.kill_one(0.1, server=1.0 if victim == "server" else 0.0)
    assert (await run.ended())["status"] == "completed"
    after = await votes(service, approval, 2)
    assert before == ["ann"]
    assert after[0] == "ann"
    assert sorted(set(after)) == sorted(after)
    assert (service.stage.workspace / "made").exists()
    assert killer.kills[victim] == 1


async def test_a_run_that_is_cancelled_takes_its_panel_along(service: Service) -> None:
    run, approval = await asked(service)
    await votes(service, approval, 1)
    await service.post(f"{run.path}/cancel")
    assert (await run.ended())["status"] == "cancelled"
    assert workers_of(service.pid)
    await _panel_ended(service, approval, "run.cancelled")


async def _panel_ended(service: Service, approval: Json, type_: str) -> None:
    journal = SqliteJournal.open(str(service.stage.home), read_only=True)
    try:
        session = await journal.session("chat_" + _ulid(approval))
        assert session is not None
        assert session.last_run_id is not None
        async with asyncio.timeout(PATIENCE_S):
            async for page in journal.follow(session.last_run_id):
                if any(stored.type == type_ for stored in page):
                    return
    finally:
        journal.close()
