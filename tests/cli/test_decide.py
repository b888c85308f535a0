"""`batten decide`: a panel from the command line, for people and for programs."""

import signal
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.control.coordination.panels import act, scripted
from tests.session.processes import BATTEN, environment

from .invoking import Shell

POLICY: dict[str, Any] = {
    "policy_id": "policy.two",
    "mode": "macp.mode.decision.v1",
    "schema_version": 1,
    "rules": {
        "voting": {"algorithm": "majority", "quorum": {"type": "count", "value": 2}},
        "commitment": {"require_vote_quorum": True},
    },
}
APPROVE = act("vote", vote="APPROVE", reason="good")
REJECT = act("vote", vote="REJECT", reason="bad")
PROPOSE = act("propose", option="SQLite")


def voting(folder: Path, *votes: dict[str, Any]) -> str:
    """The first agent proposes; each votes as given, in the second round."""
    agents: list[str] = []
    for number, vote in enumerate(votes):
        name = f"agent{number + 1}"
        first = [] if number else [PROPOSE]
        agents.append(f"{name}={scripted(folder, name, first, [vote])}")
    return ",".join(agents)


def written(folder: Path, name: str, value: object) -> str:
    path = folder / name
    path.write_bytes(msgspec.json.encode(value))
    return str(path)


def decided(shell: Shell, *votes: dict[str, Any], flags: tuple[str, ...] = ()) -> Any:
    folder = shell.stage.directory
    policy = written(folder, "policy.json", POLICY)
    agents = voting(folder, *votes)
    return shell("decide", "Which store?", "--agents", agents, "--policy", policy, *flags)


def test_people_see_who_said_what_and_how_it_ended(shell: Shell) -> None:
    said = decided(shell, APPROVE, APPROVE)
    text = said.out.decode()
    assert said.code == 0, said.err
    assert "> Which store?" in text
    assert "panel: agent1, agent2" in text
    assert "• agent1: Proposal SQLite" in text
    assert "• agent2: Vote APPROVE · good" in text
    assert "approved by batten: 2 approve and 0 reject p1: SQLite" in text
    assert said.err == ""


def test_a_declined_question_has_its_own_exit_code(shell: Shell) -> None:
    said = decided(shell, APPROVE, REJECT, REJECT)
    assert said.code == 3
    assert "declined by batten" in said.out.decode()


def test_without_the_votes_that_the_policy_wants_there_is_no_decision(shell: Shell) -> None:
    said = decided(shell, APPROVE)
    assert said.code == 4
    assert "quorum_not_met" in said.out.decode()
    assert "undecided: nobody could commit" in said.out.decode()


def test_programs_get_each_event_and_the_result_last(shell: Shell) -> None:
    said = decided(shell, APPROVE, APPROVE, flags=("--json",))
    frames = said.frames()
    types = [frame["type"] for frame in frames]
    assert types[-2:] == ["run.finished", "result"]
    assert types.count("macp.message_accepted") == 5
    assert said.result["outcome"] == "approved"
    assert said.result["action"] == "decision.selected"
    assert frames[0]["run_id"] == said.result["run_id"]


def test_the_session_is_a_run_that_is_shown_and_verified(shell: Shell) -> None:
    run_id = decided(shell, APPROVE, APPROVE, flags=("--json",)).result["run_id"]
    assert "agent2: Vote APPROVE" in shell("show", run_id).out.decode()
    assert shell("verify").code == 0


def test_agents_see_the_text_they_decide_about_and_their_role(shell: Shell) -> None:
    folder = shell.stage.directory
    roles = written(folder, "roles.json", {"agent1": "You care for safety."})
    (folder / "about.txt").write_text("the patch in question")
    flags = ("--about", str(folder / "about.txt"), "--roles", roles)
    assert decided(shell, APPROVE, APPROVE, flags=flags).code == 0
    runs = shell("runs", "--json", "--grep", "the patch in question").frames()
    assert len(runs) == 2


def test_a_panel_of_the_quorum_mode_is_asked(shell: Shell) -> None:
    folder = shell.stage.directory
    agents = ",".join(
        f"{name}={scripted(folder, name, [act('approve', reason='yes')])}" for name in ("a", "b")
    )
    said = shell("decide", "Ship it?", "--agents", agents, "--mode", "quorum")
    assert said.code == 0
    assert "approved by batten: 2 of 2 approve, 2 are needed" in said.out.decode()


def test_an_agent_that_falls_silent_is_named(shell: Shell) -> None:
    failing = {"kind": "error", "type": "fatal", "message": "no such model"}
    said = decided(shell, APPROVE, failing)
    assert said.code == 4
    assert "agent2 fell silent" in said.err
    assert "no such model" in said.err


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--agents", ""), 64, "'' is no NAME or NAME=MODEL"),
        (("--agents", "a,a"), 64, "a is named twice"),
        (("--agents", "a,batten"), 64, "batten is the chair"),
        (("--agents", "a b"), 64, "'a b' is no NAME"),
        (("--agents", "a", "--timeout", "0"), 64, "--timeout"),
        (("--agents", "a", "--rounds", "0"), 64, "--rounds takes 1 or more"),
        (("--agents", "a", "--policy", "missing.json"), 78, "missing.json"),
        (("--agents", "a", "--roles", "missing.json"), 78, "missing.json"),
        (("--agents", "a", "--about", "missing.txt"), 78, "missing.txt"),
        (("--agents", "a", "--mode", "song"), 64, "song"),
        (("--agents", "a", "--connected", "b,a"), 64, "'a' is empty, named twice, or the chair"),
        (("--agents", "a", "--connected", "batten"), 64, "'batten' is empty"),
        (("--agents", "a", "--tokens", "t.json"), 64, "that --connected names"),
        (("--agents", "a", "--connected", "b", "--bind", "127.0.0.1:0"), 78, "give --tokens"),
        (("--agents", "a", "--connected", "b", "--tokens", "missing.json"), 78, "missing.json"),
        (("--agents", "a"), 1, "no model"),
    ],
)
def test_bad_input_is_refused_with_what_is_wrong(
    shell: Shell, flags: tuple[str, ...], code: int, words: str
) -> None:
    said = shell("decide", "Which store?", *flags)
    assert (said.code, words in said.err) == (code, True), said.err


def test_a_bad_policy_is_refused_before_anything_starts(shell: Shell) -> None:
    folder = shell.stage.directory
    changes: list[tuple[dict[str, Any], str]] = [
        ({"rules": {"voting": {"algorithm": "dice"}}}, "dice"),
        ({"policy_id": "policy.default"}, "policy.default"),
        ({"mode": "macp.mode.task.v1", "rules": {}}, "no question is decided"),
    ]
    for change, words in changes:
        policy = written(folder, "bad.json", {**POLICY, **change})
        said = shell("decide", "Which?", "--agents", "a", "--policy", policy)
        assert said.code in (64, 78)
        assert words in said.err
    assert shell.run_ids() == []


def test_a_role_for_nobody_is_refused(shell: Shell) -> None:
    roles = written(shell.stage.directory, "roles.json", {"zoe": "x"})
    said = shell("decide", "Which?", "--agents", "a", "--roles", roles)
    assert (said.code, "names zoe" in said.err) == (64, True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 124), (signal.SIGINT, 130)])
def test_a_signal_ends_the_panel_and_its_session(
    shell: Shell, number: signal.Signals, code: int
) -> None:
    folder = shell.stage.directory
    slow = scripted(folder, "slow", [PROPOSE, {"kind": "delay", "ms": 60_000}])
    with subprocess.Popen(
        [BATTEN, "decide", "Which?", "--agents", f"slow={slow}"],
        env=environment(shell.stage),
        cwd=shell.stage.workspace,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if b"Proposal" in line:
                break
        process.send_signal(number)
        assert process.wait(30) == code
    ended = shell("runs", "--json").frames()
    assert {row["status"] for row in ended} == {"cancelled"}
