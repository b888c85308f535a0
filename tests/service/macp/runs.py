"""Runs written straight into the journal of a service's home, as another process writes them."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from batten.contract import facts as f
from batten.contract.ids import new_run_id, to_uuid
from batten.journal.contract import NewRun
from batten.journal.sqlite import SqliteJournal
from tests.protocols.macp.making import DECISION, SESSION_ID, queued, snapshot, started
from tests.service.serving import Service

Json = dict[str, Any]


def descriptor(
    *,
    mode: str = "live",
    tags: Sequence[str] = (),
    environment: str = "",
    scenario: str = "",
    source: str = "",
) -> f.MacpRunDescribed:
    given = {"environment": environment, "scenarioRef": scenario, "sourceRef": source}
    return f.MacpRunDescribed(
        session_id=SESSION_ID,
        descriptor={
            "mode": mode,
            "runtime": {"kind": "rust"},
            "session": {
                "modeName": DECISION,
                "metadata": {name: value for name, value in given.items() if value},
            },
            "execution": {"tags": list(tags)},
        },
        normaliser=1,
    )


def session(described: f.MacpRunDescribed, *frames: f.Fact) -> list[f.Fact]:
    """A run that began, with these frames."""
    return [queued(), described, started(), snapshot(), *frames]


async def write_run(journal: SqliteJournal, facts: Sequence[f.Fact]) -> str:
    """Store a run; its id on this protocol."""
    run_id = new_run_id()
    new = NewRun(run_id=run_id, kind="coordination", worker_id="w-1")
    lease, _ = await journal.create(new, facts[:4])
    assert lease is not None
    for start in range(4, len(facts), 200):
        await journal.append(run_id, facts[start : start + 200], fence=lease.fence)
    return to_uuid(run_id)


async def write_runs(home: Path, *runs: Sequence[f.Fact]) -> list[str]:
    with closing(SqliteJournal.open(home)) as journal:
        return [await write_run(journal, facts) for facts in runs]


async def get(service: Service, path: str) -> Any:
    answer = await service.request("GET", path)
    assert answer.status == 200, answer.body
    return answer.json


async def refused(service: Service, path: str) -> tuple[int, str, str]:
    """Status, code and message of an error, which has all of the documented members."""
    answer = await service.request("GET", path)
    body = answer.json
    assert body["statusCode"] == answer.status
    return answer.status, body["errorCode"], body["message"]
