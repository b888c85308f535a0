"""What an observer does while its runtime cannot be reached, and after."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from batten.contract import facts
from tests.control.observer.cutting import Proxy, cutting
from tests.control.observer.elsewhere import (
    FRAME,
    Observing,
    describe,
    elsewhere,
    in_thread,
    observing,
    panel,
    transcript,
)
from tests.control.observer.test_discovery import discovered
from tests.serve.grpc.running import Server


@asynccontextmanager
async def behind_proxy(
    tmp_path: Path, **changed: Any
) -> AsyncGenerator[tuple[Observing, Server, Proxy]]:
    with elsewhere(tmp_path / "elsewhere") as server:
        async with cutting() as proxy, observing(tmp_path, proxy.address, **changed) as here:
            proxy.target = server.address
            yield here, server, proxy


async def test_a_cut_connection_is_told_once_and_loses_nothing(tmp_path: Path) -> None:
    async with behind_proxy(tmp_path) as (here, server, proxy):
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            proxy.target = ""
            proxy.cut()
            await here.until(run_id, FRAME, 3)
            assert here.observer.broken == 1
            await in_thread(agents.propose, 1)
            await in_thread(agents.propose, 2)
            proxy.target = server.address
            await here.until(run_id, FRAME, 6)
            assert here.observer.broken == 0
            await in_thread(agents.commit)
            assert (await here.ended(run_id)).status == "completed"
        ids = [one.message_id for one in await here.said(run_id)]
        assert ids == transcript(server, agents.session_id, 4)
        statuses = [
            one.data["status"]
            for one in await here.events(run_id)
            if one.type == "session.stream.opened"
        ]
        assert statuses == ["opened", "reconnecting", "recovered"]


async def test_a_session_that_ends_while_nobody_can_see_it_is_seen_whole(tmp_path: Path) -> None:
    async with behind_proxy(tmp_path) as (here, server, proxy):
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            proxy.target = ""
            proxy.cut()
            await here.until(run_id, FRAME, 3)
            await in_thread(agents.commit_after, 1)
            proxy.target = server.address
            assert (await here.ended(run_id)).status == "completed"
        assert len(await here.said(run_id)) == 3


async def test_a_runtime_that_comes_up_later_is_waited_for(tmp_path: Path) -> None:
    async with behind_proxy(tmp_path) as (here, server, proxy):
        proxy.target = ""
        with panel(server.address) as agents:
            run_id = await describe(here.journal, agents.session_id)
            await here.until(run_id, facts.RunStarted.TYPE)
            await in_thread(agents.start)
            await in_thread(agents.commit_after, 1)
            proxy.target = server.address
            assert (await here.ended(run_id)).status == "completed"


async def test_a_session_that_the_runtime_forgot_fails_its_run(tmp_path: Path) -> None:
    async with behind_proxy(tmp_path, stream_max_retries=2) as (here, server, proxy):
        with panel(server.address) as agents:
            run_id = await here.followed(agents)
            with elsewhere(tmp_path / "other") as other:
                proxy.target = other.address
                proxy.cut()
                assert (await here.ended(run_id)).status == "failed"
        failed = await here.one(run_id, facts.RunFailed)
        assert failed.code == "STREAM_EXHAUSTED"
        assert agents.session_id in failed.message


async def test_a_runtime_that_stays_away_fails_the_run_when_its_session_is_long_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batten.control.observer.observed._PATIENCE_S", 0.0)
    async with behind_proxy(tmp_path, stream_max_retries=2) as (here, server, proxy):
        with panel(server.address) as agents:
            run_id = await describe(here.journal, agents.session_id)
            await in_thread(agents.start, 1500)
            await here.until(run_id, FRAME, 2)
            proxy.target = ""
            proxy.cut()
            assert (await here.ended(run_id)).status == "failed"
        failed = await here.one(run_id, facts.RunFailed)
        assert failed.code == "STREAM_EXHAUSTED"
        assert "time has passed" in failed.message


async def test_sessions_that_opened_and_ended_while_the_watch_was_lost_are_discovered(
    tmp_path: Path,
) -> None:
    async with behind_proxy(tmp_path, session_discovery_enabled=True) as (here, server, proxy):
        with panel(server.address) as first, panel(server.address) as missed:
            await in_thread(first.start)
            (run_id,) = await discovered(here)
            await here.until(run_id, FRAME, 2)
            proxy.target = ""
            proxy.cut()
            await here.until(run_id, FRAME, 3)
            await in_thread(missed.start)
            await in_thread(missed.commit_after, 1)
            proxy.target = server.address
            runs = await discovered(here, 2)
            (other,) = [one for one in runs if one != run_id]
            assert (await here.ended(other)).status == "completed"
            assert len(await here.said(other)) == 3
