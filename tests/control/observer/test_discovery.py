"""Sessions that agents open without telling the control plane get runs of their own."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from batten.contract import facts
from tests.control.observer.elsewhere import (
    PATIENCE_S,
    Observing,
    describe,
    elsewhere,
    in_thread,
    observing,
    panel,
)
from tests.coordination.published import sdk
from tests.serve.grpc.running import Server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with elsewhere(tmp_path / "elsewhere") as started:
        yield started


async def discovered(here: Observing, count: int = 1) -> list[str]:
    """The runs of this home, once there are so many."""
    async with asyncio.timeout(PATIENCE_S):
        async for _ in here.journal.follow_feed():
            rows = await here.journal.runs(kind="coordination")
            if len(rows) >= count:
                return [row.run_id for row in rows]
    raise AssertionError


async def test_a_session_nobody_described_is_observed_and_says_where_it_came_from(
    tmp_path: Path, server: Server
) -> None:
    async with observing(tmp_path, server.address, session_discovery_enabled=True) as here:
        with panel(server.address) as agents:
            await in_thread(agents.start)
            (run_id,) = await discovered(here)
            await in_thread(agents.commit_after, 1)
            assert (await here.ended(run_id)).status == "completed"
        assert len(await here.said(run_id)) == 3
        described = await here.one(run_id, facts.MacpRunDescribed)
        session = described.descriptor["session"]
        assert session["sessionId"] == agents.session_id
        assert session["participants"] == [{"id": "lead"}, {"id": "ann"}, {"id": "ben"}]
        assert session["metadata"]["source"] == "session-discovery"
        assert session["metadata"]["initiator"] == "lead"


async def test_a_session_with_a_base64url_id_is_discovered_too(
    tmp_path: Path, server: Server
) -> None:
    """The original made the session's id the run's, and lost its watch over such a one."""
    session_id = "A_session-id_that_is_no_UUID"
    async with observing(tmp_path, server.address, session_discovery_enabled=True) as here:
        with panel(server.address, session_id) as agents, panel(server.address) as others:
            await in_thread(agents.start)
            await in_thread(others.start)
            runs = await discovered(here, 2)
            await in_thread(agents.commit_after, 1)
            await in_thread(others.commit_after, 1)
            for run_id in runs:
                assert (await here.ended(run_id)).status == "completed"


async def test_a_described_session_is_not_discovered_again(tmp_path: Path, server: Server) -> None:
    async with observing(tmp_path, server.address, session_discovery_enabled=True) as here:
        with panel(server.address) as agents:
            run_id = await describe(here.journal, agents.session_id)
            await in_thread(agents.start)
            await in_thread(agents.commit_after, 1)
            await here.ended(run_id)
        assert await discovered(here) == [run_id]


async def test_open_sessions_from_before_are_discovered_and_ended_ones_are_not(
    tmp_path: Path, server: Server
) -> None:
    with panel(server.address) as over, panel(server.address) as agents:
        await in_thread(over.start)
        await in_thread(over.commit_after, 1)
        await in_thread(agents.start)
        async with observing(tmp_path, server.address, session_discovery_enabled=True) as here:
            (run_id,) = await discovered(here)
            await in_thread(agents.commit_after, 1)
            assert (await here.ended(run_id)).status == "completed"
            assert len(await here.said(run_id)) == 3
            assert await discovered(here) == [run_id]


async def test_without_discovery_there_is_no_run(tmp_path: Path, server: Server) -> None:
    async with observing(tmp_path, server.address) as here:
        with panel(server.address) as unknown:
            await in_thread(unknown.start)
            run_id = await describe(here.journal, sdk.new_session_id(), mode="nowhere")
            await here.ended(run_id)
        assert await discovered(here) == [run_id]
