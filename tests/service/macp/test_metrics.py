"""The Prometheus names of the control plane, in a running service and in its documentation."""

import re
from pathlib import Path

from tests.agent.stage import end, say
from tests.service.serving import Service

DOCS = Path(__file__).resolve().parents[3] / "docs" / "control-plane.md"
HISTOGRAMS = {
    "http_request_duration_seconds": "0.01 0.05 0.1 0.25 0.5 1.0 2.5 5.0 10.0",
    "macp_run_duration_seconds": "0.1 0.5 1.0 2.0 5.0 10.0 30.0 60.0 120.0 300.0 600.0",
}


async def shown(service: Service) -> list[str]:
    return (await service.request("GET", "/metrics")).body.decode().splitlines()


async def test_every_metric_of_the_control_plane_is_there_and_documented(service: Service) -> None:
    lines = await shown(service)
    typed = {line.split()[2]: line.split()[3] for line in lines if line.startswith("# TYPE ")}
    section = DOCS.read_text().partition("\n## Metrics\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)(?:\{([a-z_,]*)\})?` \| (\w+)", section, re.M)
    documented = {name: kind for name, _, kind in rows}
    named = {name: kind for name, kind in typed.items() if not name.startswith("batten_")}
    assert named == documented
    labels = {str(name): set(re.findall(r"\w+", given)) for name, given, _ in rows}
    for line in lines:
        if not line.startswith(("#", "batten_")):
            name = re.sub(r"_(bucket|sum|count)$", "", line.partition("{")[0].partition(" ")[0])
            name = name if name in typed else line.partition("{")[0].partition(" ")[0]
            told = set(re.findall(r'(\w+)="', line)) - {"le"}
            assert told == labels[name], line


async def test_a_run_and_requests_are_counted_under_their_names(service: Service) -> None:
    run = await service.started(service.stage.scenario([say("Hi."), end()], name="talk"))
    await run.ended()
    for number in range(3):
        path = f"/runs/01890000-0000-7000-8000-00000000000{number}"
        assert (await service.request("GET", path)).status == 404
    lines = await shown(service)
    for status in ("queued", "starting", "running", "completed"):
        assert f'run_state_transitions_total{{status="{status}"}} 1' in lines
    assert (
        'macp_run_duration_seconds_count{terminal_status="completed",mode_name="agent_loop"} 1'
        in lines
    )
    assert 'http_requests_total{method="GET",path="/runs/:id",status_code="404"} 3' in lines
    assert "circuit_breaker_state 0" in lines
    for name, bounds in HISTOGRAMS.items():
        found: list[str] = []
        for line in lines:
            if line.startswith(f"{name}_bucket"):
                found += re.findall(r'le="([0-9.]+)"', line)
        assert set(found) == set(bounds.split())
