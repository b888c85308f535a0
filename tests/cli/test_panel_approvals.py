"""A permission rule names a panel, and a tool call waits for its commitment."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.agent.stage import Stage
from tests.control.coordination.panels import act, scripted
from tests.session.processes import BATTEN, environment, running, until

from .invoking import Json, Said, Shell

POLICY: Json = {
    "policy_id": "policy.review",
    "mode": "macp.mode.quorum.v1",
    "rules": {"threshold": {"type": "n_of_m", "value": 2}},
}
EDIT = act("edit_file", "any", file_path="greeting.txt", old_string="hallo", new_string="hello")
APPROVE = act("approve", reason="a typo is gone")
REJECT = act("reject", reason="leave it")
ASK: list[Any] = [{"pattern": "Edit", "panel": "review"}]


class Desk:
    """A workspace with one file, an agent that would edit it, and the panel of its settings."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        self.folder = shell.stage.directory
        self.file = shell.stage.workspace / "greeting.txt"
        self.file.write_text("hallo\n")
        self.model = scripted(self.folder, "writer", [EDIT])

    def settings(self, *votes: Json, ask: list[Any] = ASK, **panel: Any) -> Json:
        policy = self.folder / "policy.json"
        policy.write_bytes(msgspec.json.encode(POLICY))
        agents = {
            f"agent{number}": {"model": scripted(self.folder, f"agent{number}", [vote])}
            for number, vote in enumerate(votes)
        }
        held = {"policy": str(policy), "agents": agents, **panel}
        return {"permissions": {"ask": ask}, "panels": {"review": held}}

    def run(self, settings: Json, *flags: str) -> Said:
        path = self.folder / "settings.json"
        path.write_bytes(msgspec.json.encode(settings))
        return self.shell.print(self.model, "--settings", str(path), *flags, prompt="Fix it")

    def runs(self) -> list[Json]:
        return self.shell("runs", "--json").frames()

    def events(self, run_id: str) -> list[Json]:
        return self.shell("events", run_id).frames()

    def writer(self) -> list[Json]:
        """The events of the run that edits."""
        (run,) = [row for row in self.runs() if row["prompt"] == "Fix it"]
        return self.events(run["run_id"])

    def panel(self) -> list[Json]:
        (run,) = [row for row in self.runs() if row["kind"] == "coordination"]
        return self.events(run["run_id"])


@pytest.fixture
def desk(shell: Shell) -> Desk:
    return Desk(shell)


def only(events: list[Json], type_: str) -> Json:
    (found,) = [event for event in events if event["type"] == type_]
    return found


def test_an_edit_is_made_once_the_panel_has_committed_and_the_journal_tells_it(desk: Desk) -> None:
    said = desk.run(desk.settings(APPROVE, REJECT, APPROVE))
    assert said.code == 0, said.err
    assert desk.file.read_text() == "hello\n"
    writer, panel = desk.writer(), desk.panel()
    asked, resolved = only(writer, "approval.requested"), only(writer, "approval.resolved")
    assert asked["data"]["resolvers"] == ["panel:review"]
    assert resolved["data"]["by"] == "panel:review"
    assert "quorum.approved by batten: 2 of 3 approve, 2 are needed" in resolved["data"]["comment"]
    allowed = [event for event in writer if event["type"] == "policy.tool_decided"][-1]
    assert allowed["data"]["verdict"] == "allow"
    assert allowed["data"]["decided_by"] == "resolver:panel:review"
    assert resolved["sequence"] < only(writer, "tool.edit.applied")["sequence"]
    bound = only(panel, "macp.session_bound")["data"]
    assert bound["policy"]["policy_id"] == "policy.review"
    assert bound["session_id"] in resolved["data"]["comment"]
    said_types = [
        (event["data"]["sender"], event["data"]["message_type"])
        for event in panel
        if event["type"] == "macp.message_accepted"
    ]
    assert said_types == [
        ("batten", "SessionStart"),
        ("batten", "ApprovalRequest"),
        ("agent0", "Approve"),
        ("agent1", "Reject"),
        ("agent2", "Approve"),
        ("batten", "Commitment"),
    ]
    committed = [event for event in panel if event["type"] == "macp.message_accepted"][-1]
    assert asked["occurred_at"] <= committed["occurred_at"] <= resolved["occurred_at"]
    assert desk.shell("verify").code == 0


def test_the_agents_see_the_patch_before_it_is_made(desk: Desk) -> None:
    desk.run(desk.settings(APPROVE, APPROVE))
    shown = [row for row in desk.runs() if "May edit_file run?" in (row["prompt"] or "")]
    prompts = [only(desk.events(row["run_id"]), "user.message")["data"]["text"] for row in shown]
    seen = [text for text in prompts if '"new_string": "hello"' in text]
    assert len(seen) == 2


def test_an_edit_that_the_panel_declines_is_not_made(desk: Desk) -> None:
    desk.run(desk.settings(APPROVE, REJECT, REJECT))
    assert desk.file.read_text() == "hallo\n"
    resolved = only(desk.writer(), "approval.resolved")["data"]
    assert (resolved["decision"], resolved["by"]) == ("rejected", "panel:review")
    assert "quorum.rejected" in resolved["comment"]


def test_a_panel_without_a_decision_denies(desk: Desk) -> None:
    desk.run(desk.settings(APPROVE, {"kind": "text", "text": "hm"}))
    assert desk.file.read_text() == "hallo\n"
    assert "undecided" in only(desk.writer(), "approval.resolved")["data"]["comment"]


def test_what_the_panel_does_not_decide_in_time_is_denied(desk: Desk) -> None:
    slow = {"kind": "delay", "ms": 60_000}
    said = desk.run(desk.settings(APPROVE, slow, timeout_s=1))
    assert said.code == 0
    assert desk.file.read_text() == "hallo\n"
    only(desk.writer(), "approval.timed_out")
    assert desk.panel()[-1]["type"] in ("run.cancelled", "run.failed")


def test_a_panel_whose_agents_cannot_be_opened_denies_and_says_why(desk: Desk) -> None:
    settings = desk.settings(APPROVE)
    settings["panels"]["review"]["agents"] = {"zoe": {"model": "nobody/knows"}}
    desk.run(settings)
    assert desk.file.read_text() == "hallo\n"
    assert "nobody" in only(desk.writer(), "approval.resolved")["data"]["comment"]


def test_a_rule_without_a_panel_that_asks_too_is_for_people(desk: Desk) -> None:
    desk.run(desk.settings(APPROVE, APPROVE, ask=[*ASK, "Edit(greeting.txt)"]))
    assert desk.file.read_text() == "hallo\n"
    assert [row["kind"] for row in desk.runs()] == ["agent_loop"]


def test_a_panel_does_not_overrule_a_rule_that_denies(desk: Desk) -> None:
    settings = desk.settings(APPROVE, APPROVE)
    settings["permissions"]["deny"] = ["Edit(greeting.txt)"]
    desk.run(settings)
    assert desk.file.read_text() == "hallo\n"
    assert [row["kind"] for row in desk.runs()] == ["agent_loop"]


def test_without_trust_a_workspace_cannot_put_a_panel_in_a_persons_place(
    desk: Desk, stage: Stage
) -> None:
    place = stage.workspace / ".batten"
    place.mkdir()
    settings = desk.settings(APPROVE, APPROVE)
    (place / "settings.json").write_bytes(msgspec.json.encode(settings))
    desk.shell.print(desk.model, prompt="Fix it")
    assert desk.file.read_text() == "hallo\n"
    desk.shell.print(desk.model, "--trust-workspace", prompt="Fix it again")
    assert desk.file.read_text() == "hello\n"


def _policy(folder: Path, **change: Any) -> str:
    path = folder / "other.json"
    path.write_bytes(msgspec.json.encode({**POLICY, **change}))
    return str(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"panels": {}}, "names the panel 'review'; the settings have none"),
        ({"panels": {"review": {"policy": "x.json"}}}, "must have a policy (a file), and either"),
        (
            {"panels": {"review": {"policy": "x", "agents": {"a": "b"}, "connected": ["c"]}}},
            "must have a policy (a file), and either",
        ),
        (
            {"panels": {"review": {"policy": "x.json", "connected": ["a", "batten"]}}},
            "connected must be different names",
        ),
        ({"panels": {"a b": {}}}, "must be a name"),
        (
            {"panels": {"review": {"policy": "x.json", "agents": {"a": "b"}, "timeout_s": 0}}},
            "timeout_s must be a number from 1",
        ),
        ({"panels": {"review": {"policy": "gone.json", "agents": {"a": "b"}}}}, "gone.json"),
        (
            {"permissions": {"allow": [{"pattern": "Edit", "panel": "review"}]}},
            "the action is allow",
        ),
    ],
)
def test_settings_that_cannot_hold_a_panel_are_refused(
    desk: Desk, change: Json, words: str
) -> None:
    said = desk.run({**desk.settings(APPROVE), **change})
    assert said.code == 78
    assert words in said.err


def test_a_policy_for_tasks_approves_nothing(desk: Desk) -> None:
    settings = desk.settings(APPROVE)
    other = _policy(desk.folder, mode="macp.mode.task.v1", rules={})
    settings["panels"]["review"]["policy"] = other
    said = desk.run(settings)
    assert (said.code, "nothing is approved" in said.err) == (78, True), said.err


def test_a_run_that_goes_on_after_a_kill_finds_its_panel_with_the_votes_cast(
    desk: Desk, stage: Stage
) -> None:
    slow = {"kind": "delay", "ms": 60_000}
    path = desk.folder / "settings.json"
    path.write_bytes(msgspec.json.encode(desk.settings({**APPROVE, "expectedResult": "any"}, slow)))
    with running(stage, "--model", desk.model, "--settings", str(path)) as process:
        run_id = until(process, "approval.requested")
        waiting = [BATTEN, "events", _panel_of(desk), "--follow"]
        with subprocess.Popen(waiting, env=environment(stage), stdout=subprocess.PIPE) as follower:
            assert follower.stdout is not None
            next(line for line in follower.stdout if b'"message_type":"Approve"' in line)
            follower.kill()
        process.kill()
        process.wait(30)
    scripted(desk.folder, "agent1", [APPROVE])
    desk.shell("-p", "--resume", run_id, "--sandbox", "none", "--settings", str(path))
    assert desk.file.read_text() == "hello\n"
    senders = [
        event["data"]["sender"]
        for event in desk.panel()
        if event["type"] == "macp.message_accepted"
    ]
    assert senders == ["batten", "batten", "agent0", "agent1", "batten"]
    resolved = only(desk.events(run_id), "approval.resolved")
    assert resolved["data"]["by"] == "panel:review"


def _panel_of(desk: Desk) -> str:
    """The panel's run, once there is one."""
    while not (found := [row for row in desk.runs() if row["kind"] == "coordination"]):
        pass
    return str(found[0]["run_id"])


def test_the_agents_of_a_panel_change_nothing_themselves(desk: Desk) -> None:
    settings = desk.settings(REJECT)
    own = [{**EDIT, "expectedResult": "error"}, act("bash", "error", command="touch made"), REJECT]
    scripted(desk.folder, "agent0", own)
    desk.run(settings, "--allow", "bash")
    assert desk.file.read_text() == "hallo\n"
    assert not (desk.shell.stage.workspace / "made").exists()
    assert "fell silent" not in only(desk.writer(), "approval.resolved")["data"]["comment"]
