"""`batten decide`: scripted agents decide on a patch, and it is applied only if they select it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCHEMA = "evalops.maestro.scripted-scenario.v1"
MAJORITY = {
    "policy_id": "policy.review",
    "mode": "macp.mode.decision.v1",
    "schema_version": 3,
    "rules": {
        "voting": {"algorithm": "majority", "threshold": 0.6},
        "objection_handling": {"critical_severity_vetoes": True},
    },
}


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"kind": "tool_call", "id": f"c-{tool}", "tool": tool, "input": arguments}


class Desk:
    """A home, a workspace with one file, and scripted agents."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.workspace = folder / "work"
        self.workspace.mkdir()
        self.file = self.workspace / "greeting.txt"
        self.file.write_text("hallo\n")

    def script(self, name: str, *turns: list[dict[str, Any]]) -> str:
        """A scenario: each turn calls tools, then says that it is done."""
        frames: list[dict[str, Any]] = []
        for statements in turns:
            if statements:
                frames.append({"index": len(frames), "statements": statements})
            done = [{"kind": "text", "text": "Done."}, {"kind": "end", "reason": "complete"}]
            frames.append({"index": len(frames), "statements": done})
        path = self.folder / f"{name}.json"
        written: dict[str, Any] = {
            "schemaVersion": SCHEMA,
            "id": name,
            "description": name,
            "frames": frames,
        }
        written["metadata"] = {"recordedAt": "2026-11-15T00:00:00Z", "toolsExpected": []}
        path.write_text(json.dumps(written))
        return f"scripted/{path}"

    def agent(self, name: str, vote: str, *said: dict[str, Any]) -> str:
        votes = [call("vote", proposal_id="p1", vote=vote, reason=f"says {name}")]
        return f"{name}={self.script(name, list(said), votes)}"

    def batten(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "batten", *arguments],
            env={**os.environ, "BATTEN_HOME": str(self.home), "NO_COLOR": "1"},
            cwd=self.workspace,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def proposed_patch(self) -> str:
        """A run whose change of the file waits for a review."""
        change = call("edit", path="greeting.txt", old_string="hallo", new_string="hello")
        model = self.script("writer", [call("read", path="greeting.txt"), change])
        done = self.batten("-p", "Fix it", "--model", model, "--review", "--auto-allow")
        assert done.returncode == 0, done.stderr
        assert self.file.read_text() == "hallo\n"
        run_id: str = json.loads(self.batten("runs", "--json", "--limit", "1").stdout)["run_id"]
        return run_id

    def decide(self, *flags: str) -> "subprocess.CompletedProcess[str]":
        policy = self.folder / "policy.json"
        policy.write_text(json.dumps(MAJORITY))
        return self.batten("decide", "Apply the patch?", "--policy", str(policy), *flags)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


PROPOSE = call("propose", proposal_id="p1", option="apply it", rationale="it fixes a typo")
APPROVE = call("evaluate", proposal_id="p1", recommendation="APPROVE", confidence=0.9)


def test_patch_is_applied_after_the_panel_has_selected_it(desk: Desk) -> None:
    run_id = desk.proposed_patch()
    agents = [
        desk.agent("ann", "APPROVE", PROPOSE),
        desk.agent("ben", "APPROVE", APPROVE),
        desk.agent("cem", "REJECT"),
    ]
    done = desk.decide("--agents", ",".join(agents), "--apply", run_id)
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "• ann: Proposal apply it · it fixes a typo",
        "• ben: Evaluation APPROVE · 0.9",
        "• cem: Vote REJECT · says cem",
        "approved by batten: 2 approve and 1 reject p1: apply it",
        "applied greeting.txt",
    ):
        assert line in done.stdout
    assert desk.file.read_text() == "hello\n"
    told = desk.batten("events", run_id).stdout
    assert '"by":"panel:' in told
    assert "decision.selected by batten: 2 approve and 1 reject" in told
    assert desk.batten("verify").returncode == 0
    runs = [json.loads(line) for line in desk.batten("runs", "--json").stdout.splitlines()]
    assert sorted(run["kind"] for run in runs).count("agent_loop") == 7
    (panel,) = [run for run in runs if run["kind"] == "coordination"]
    assert "policy.review allows commitment" in desk.batten("show", panel["run_id"]).stdout


@pytest.mark.parametrize(
    ("agents", "outcome"),
    [
        (
            [("ann", "APPROVE", (PROPOSE,)), ("ben", "REJECT", ()), ("cem", "REJECT", ())],
            "declined",
        ),
        (
            [
                ("ann", "APPROVE", (PROPOSE,)),
                (
                    "ben",
                    "APPROVE",
                    (call("object", proposal_id="p1", reason="unsafe", severity="critical"),),
                ),
            ],
            "undecided",
        ),
        ([("ann", "APPROVE", ())], "undecided"),
    ],
)
def test_patch_stays_proposed_unless_it_was_selected(
    desk: Desk, agents: list[tuple[str, str, tuple[dict[str, Any], ...]]], outcome: str
) -> None:
    run_id = desk.proposed_patch()
    members = ",".join(desk.agent(name, vote, *said) for name, vote, said in agents)
    done = desk.decide("--agents", members, "--apply", run_id)
    assert done.returncode == {"declined": 3, "undecided": 4}[outcome]
    assert f"\n{outcome}" in done.stdout
    assert desk.file.read_text() == "hallo\n"


@pytest.mark.parametrize("agents", ["", "ann,ann", "batten", "ann,"])
def test_panel_of_bad_names_is_a_usage_error(desk: Desk, agents: str) -> None:
    assert desk.decide("--agents", agents).returncode == 64
