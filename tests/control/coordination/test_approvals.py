"""A panel answers for the runs of a service, too."""

from pathlib import Path
from typing import Any

import msgspec

from batten.contract.facts import ApprovalResolved, PolicyToolDecided
from batten.control.coordination.approvals import panels_of
from tests.control.coordination.panels import act, scripted
from tests.control.given import Place


def place(folder: Path, *votes: dict[str, Any]) -> Place:
    policy: dict[str, Any] = {"policy_id": "policy.two", "mode": "macp.mode.quorum.v1", "rules": {}}
    (folder / "policy.json").write_bytes(msgspec.json.encode(policy))
    agents = {
        f"agent{number}": {"model": scripted(folder, f"agent{number}", [vote])}
        for number, vote in enumerate(votes)
    }
    settings = {
        "permissions": {"ask": [{"pattern": "Bash(touch *)", "panel": "review"}]},
        "panels": {"review": {"policy": "policy.json", "agents": agents}},
    }
    (folder / "settings.json").write_bytes(msgspec.json.encode(settings))
    return Place(
        folder,
        auto_allow=False,
        bare=False,
        setting_sources=(),
        settings=str(folder / "settings.json"),
        convene=panels_of,
    )


async def test_a_worker_holds_the_panel_of_its_run(tmp_path: Path) -> None:
    approve = act("approve", reason="harmless")
    at = place(tmp_path, approve, approve)
    model = scripted(tmp_path, "worker", [act("bash", command="touch made")])
    async with at.working():
        row = await at.ended(await at.started(model))
    resolved = [fact for fact in await at.facts(row) if isinstance(fact, ApprovalResolved)]
    decided = [fact for fact in await at.facts(row) if isinstance(fact, PolicyToolDecided)]
    at.opener.close()
    assert (at.workspace / "made").exists()
    assert [(one.decision, one.by) for one in resolved] == [("approved", "panel:review")]
    assert [one.verdict for one in decided] == ["ask", "allow"]


async def test_what_it_declines_is_told_to_the_model_and_the_run_goes_on(tmp_path: Path) -> None:
    reject = act("reject", reason="why?")
    at = place(tmp_path, reject, reject)
    model = scripted(tmp_path, "worker", [act("bash", "error", command="touch made")])
    async with at.working():
        row = await at.ended(await at.started(model))
    at.opener.close()
    assert not (at.workspace / "made").exists()
    assert row.status == "completed"
