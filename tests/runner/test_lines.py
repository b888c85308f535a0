"""Rows of the reference's tables (sections 4 and 5) that no other test shows, and that all have
one; `tables.py` says which.
"""

import asyncio
import importlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from batten.runner.config import resolve
from batten.serve.http.published import published_runner
from tests.agent.stage import Stage
from tests.maestro.schemas import PUBLISHED, Json
from tests.runner.remote import PATIENCE_S, WELL_KNOWN, NotStarted, RunnerProcess
from tests.runner.tables import TABLES, WITHOUT
from tests.runner.test_http import CONNECTIONS, HERE, NAMED, SESSIONS, connected, start

REFERENCE = PUBLISHED.parents[1] / "reference" / "maestro.md"
SECTIONS = sorted(TABLES)


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


@pytest.fixture
def runner(stage: Stage) -> Iterator[RunnerProcess]:
    running = start(stage)
    try:
        yield running
    finally:
        running.end()


@pytest.mark.parametrize("section", SECTIONS)
def test_every_row_is_shown_by_tests_that_are_there(section: str) -> None:
    for row, tests in TABLES[section].items():
        assert tests, row
        for name in tests:
            module, _, test = name.partition(":")
            found = getattr(importlib.import_module(f"tests.{module}"), test, None)
            assert callable(found), f"{row}: {name}"


@pytest.mark.skipif(not REFERENCE.is_file(), reason="the reference is not here")
@pytest.mark.parametrize("section", SECTIONS)
def test_the_rows_are_those_of_the_reference(section: str) -> None:
    text = REFERENCE.read_text().partition(f"\n## {section} ")[2].partition("\n## ")[0]
    _, *rows = re.findall(r"^\| (.+?) \|", text, flags=re.MULTILINE)
    known = [*TABLES[section], *WITHOUT.get(section, {})]
    for row in rows:
        assert sum(row.startswith(beginning) for beginning in known) == 1, row
    assert len(rows) == len(known)


def test_every_route_of_the_reference_is_a_row() -> None:
    ours = {
        f"{route.method} {route.path}" for surface in published_runner() for route in surface.routes
    }
    session = f"{SESSIONS}/{{session_id}}"
    assert ours >= {
        f"POST {CONNECTIONS}",
        f"POST {SESSIONS}",
        f"GET {session}",
        f"GET {session}/state",
        f"GET {session}/events",
        *(f"POST {session}/{name}" for name in ("subscribe", "unsubscribe", "messages", "message")),
        *(f"POST {session}/{name}" for name in ("heartbeat", "disconnect")),
        *("GET /healthz", "GET /readyz"),
        *(f"GET {WELL_KNOWN}/identity", f"POST {WELL_KNOWN}/drain"),
    }


def test_a_session_in_a_path_is_decoded(runner: RunnerProcess) -> None:
    connected(runner)
    encoded = "".join(f"%{byte:02X}" for byte in NAMED.encode())
    assert runner.ask("GET", f"{SESSIONS}/{encoded}/state").json["session_id"] == NAMED


def test_the_role_in_a_body_wins(runner: RunnerProcess) -> None:
    header = {"x-maestro-headless-role": "viewer"}
    told = runner.ask("POST", CONNECTIONS, {"role": "controller"}, header).json
    assert (told["role"], told["controller_lease_granted"]) == ("controller", True)
    told = runner.ask("POST", CONNECTIONS, {"sessionId": NAMED}, header).json
    assert (told["role"], told["controller_lease_granted"]) == ("viewer", False)


def test_a_lease_lasts_three_heartbeats(runner: RunnerProcess) -> None:
    before = datetime.now(UTC)
    told = connected(runner, role="controller")
    assert told["heartbeat_interval_ms"] == 15_000
    lasts = datetime.fromisoformat(told["lease_expires_at"]) - before
    assert timedelta(seconds=44.9) <= lasts <= timedelta(seconds=45 + PATIENCE_S)


@pytest.mark.soak
def test_a_silent_stream_has_heartbeats(runner: RunnerProcess) -> None:
    connected(runner)
    cursor = runner.ask("GET", HERE).json["cursor"]

    async def read() -> Json:
        frames = runner.stream(f"{HERE}/events?cursor={cursor}")
        assert frames.headers["connection"] == "keep-alive"
        async with asyncio.timeout(PATIENCE_S):
            data = await frames.next()
        frames.close()
        found: Json = msgspec.json.decode(data or b"{}")
        return found

    beat = asyncio.run(read())
    assert (beat["type"], set(beat)) == ("heartbeat", {"type", "cursor"})
    assert beat["cursor"] >= cursor


def test_the_audience_is_passed_on(tmp_path: Path) -> None:
    flags = {"runner_session_id": "m", "workspace_root": str(tmp_path), "attach_audience": "a"}
    config = resolve(flags, {"MAESTRO_WEB_API_KEY": "k"})
    assert config.exported["MAESTRO_ATTACH_AUDIENCE"] == "a"


def test_flags_have_two_spellings_and_the_last_one_counts(stage: Stage) -> None:
    runner = start(stage, "--owner-instance-id=pod_2", "--owner-instance-id=pod_3")
    try:
        told = runner.ask("GET", f"{WELL_KNOWN}/identity").json
        assert told["owner_instance_id"] == "pod_3"
    finally:
        runner.end()
    with pytest.raises(NotStarted) as helped:
        start(stage, "--help")
    assert helped.value.code == 0
