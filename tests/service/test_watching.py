"""What operators see: metrics with documented names, and a log whose lines name runs."""

import asyncio
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.stage import bash, end, say
from tests.serve.http.wire import Answer, clients
from tests.service.serving import PATIENCE_S, Run, Service

DOCS = Path(__file__).resolve().parents[2] / "docs"
SAMPLE = re.compile(r"([a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)")


async def shown(service: Service) -> Answer:
    async with clients() as opened:
        return await (await opened.connect_to(service.url)).ask("GET", "/metrics")


async def metrics(service: Service) -> dict[str, float]:
    """Samples by name and labels."""
    answer = await shown(service)
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found: dict[str, float] = {}
    for line in answer.body.decode().splitlines():
        if not line.startswith("#"):
            match = SAMPLE.fullmatch(line)
            assert match is not None, line
            found[match[1] + (f"{{{match[2]}}}" if match[2] else "")] = float(match[3])
    return found


async def parked(service: Service) -> Run:
    model = service.stage.scenario([bash("echo one")], [say("Done."), end()], name="parked")
    run = await service.started(model)
    await run.approval()
    return run


@pytest.mark.own_service
async def test_the_queue_and_the_runs_are_measured(service: Service) -> None:
    await parked(service)
    async with asyncio.timeout(PATIENCE_S):
        # The worker lets go of it a moment after its question is stored.
        while (found := await metrics(service))["batten_runs_parked"] == 0:
            pass
    assert found["batten_runs_parked"] == 1
    assert found['batten_runs{status="awaiting_approval"}'] == 1
    assert found["batten_runs_in_flight"] == found["batten_queue_depth"] == 0
    assert found["batten_queue_oldest_seconds"] == 0
    assert found["batten_workers"] == 1
    assert found["batten_worker_restarts_total"] == 0
    assert found["batten_journal_bytes"] > 0
    await service.stop()
    await service.start("--workers", "0")
    talk = service.stage.scenario([say("Hello."), end()], name="talk")
    run = await service.started(talk)
    found = await metrics(service)
    assert (found["batten_queue_depth"], found["batten_workers"]) == (1, 0)
    assert found["batten_events_total"] >= (await run.now())["last_sequence"] + 1


async def test_every_metric_is_documented_and_every_documented_one_is_there(
    service: Service,
) -> None:
    text = (DOCS / "operations.md").read_text() + (DOCS / "http.md").read_text()
    documented = set(re.findall(r"^\| `(batten_[a-z_]+)", text, re.MULTILINE))
    answer = await shown(service)
    named = set(re.findall(r"^# TYPE (batten_[a-z_]+) ", answer.body.decode(), re.MULTILINE))
    assert named == {one for one in documented if not one.startswith("batten_runner_")}


async def test_ids_of_clients_make_no_series(service: Service) -> None:
    async def ask(number: int) -> None:
        assert (await service.ask("GET", f"/tasks/task_{number}")).status == 404
        assert (await service.ask("GET", f"/none/{number}")).status == 404

    await ask(0)
    await metrics(service)  # counts itself
    before = set(await metrics(service))
    for number in range(1, 30):
        await ask(number)
    assert set(await metrics(service)) == before


@pytest.mark.own_service
async def test_the_log_is_json_and_names_requests_and_runs(service: Service) -> None:
    run = await parked(service)
    await service.post(f"{run.path}/cancel", {"reason": "enough"})
    await run.ended()
    assert await service.stop() == 0
    text = (service.stage.directory / "serve.err").read_text()
    lines: list[dict[str, Any]] = [msgspec.json.decode(line) for line in text.splitlines()]
    [request] = [line for line in lines if str(line.get("path", "")).endswith("/cancel")]
    assert (request["run_id"], request["status"], request["method"]) == (run.run_id, 200, "POST")
    assert request["request_id"].startswith("req_")
    [left] = [line for line in lines if line["message"] == "a run left its worker"]
    # The worker looks at the run once more when it has parked it; the cancel may have come.
    assert (left["run_id"], left["status"] in ("awaiting_approval", "cancelled")) == (
        run.run_id,
        True,
    )
