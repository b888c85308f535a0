"""`batten scenario`: checked without being run, run for real, and judged."""

from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from tests.agent.stage import Stage, bash, fail, say

from .invoking import Shell

ASSERTIONS = [
    {"id": "ran", "kind": "tool_called", "tool": "shell_exec"},
    {"id": "made", "kind": "file_contents", "path": "made.txt", "equals": "hi\n"},
]


def path_of(stage: Stage, **more: Any) -> str:
    model = stage.scenario([bash("echo hi > made.txt")], [say("well")], **more)
    return model.removeprefix("scripted/")


def test_a_scenario_is_checked_without_being_run(shell: Shell) -> None:
    said = shell("scenario", "validate", path_of(shell.stage))
    assert said.code == 0
    assert said.out.decode().endswith("scenario: 2 frames, valid\n")
    assert shell.run_ids() == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"kind":"text"', '"kind":"song"'), 'unknown statement "song"'),
        (('"index":1', '"index":7'), "frames[1].index: 7 leaves a gap; use 1"),
        (("{", "{,"), "not JSON"),
    ],
)
def test_what_is_wrong_with_a_scenario_is_said_with_its_place(
    shell: Shell, change: tuple[str, str], words: str
) -> None:
    path = path_of(shell.stage)
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace(*change, 1))
    for action in ("validate", "run"):
        said = shell("scenario", action, path)
        assert (said.code, said.out) == (1, b"")
        assert words in said.err
        assert path in said.err


def test_a_scenario_is_run_with_real_tools_and_judged(shell: Shell) -> None:
    path = path_of(shell.stage, assertions=ASSERTIONS)
    where = ("--workspace", str(shell.stage.workspace))
    said = shell("scenario", "run", path, *where)
    assert said.code == 0
    assert (shell.stage.workspace / "made.txt").read_text() == "hi\n"
    lines = said.out.decode().splitlines()
    assert [line.split()[0] for line in lines] == ["pass", "pass", "scenario:"]
    (run,) = shell("runs", "--json").frames()
    assert run["outcome"] == "completed"


def test_the_judgement_is_there_for_programs(shell: Shell) -> None:
    path = path_of(shell.stage, assertions=ASSERTIONS)
    where = ("--workspace", str(shell.stage.workspace))
    judged = msgspec.json.decode(shell("scenario", "run", path, *where, "--json").out)
    assert judged["schemaVersion"] == "evalops.maestro.scripted-scenario-result.v1"
    assert judged["counts"] == {"assertions": 2, "passed": 2, "failed": 0, "warnings": 0}
    report = str(shell.stage.directory / "report.xml")
    assert shell("scenario", "run", path, *where, "--junit", report).code == 0
    suite = ElementTree.parse(report).getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "2", "0")


def test_a_scenario_that_does_not_hold_has_exit_code_1(shell: Shell) -> None:
    wrong = [{"id": "other", "kind": "file_exists", "path": "other.txt"}]
    path = path_of(shell.stage, assertions=wrong)
    said = shell("scenario", "run", path, "--workspace", str(shell.stage.workspace))
    assert said.code == 1
    assert said.out.decode().startswith("fail  other")
    where = ("--workspace", str(shell.stage.workspace))
    report = str(shell.stage.directory / "report.xml")
    assert shell("scenario", "run", path, *where, "--junit", report).code == 1
    assert ElementTree.parse(report).getroot().get("failures") == "1"


def test_a_scenario_may_be_expected_to_fail(shell: Shell) -> None:
    stage = shell.stage
    expected = stage.scenario([fail("fatal", "no")], expectedOutcome="fail")
    assert shell("scenario", "run", expected.removeprefix("scripted/")).code == 0
    unexpected = stage.scenario([fail("fatal", "no")])
    assert shell("scenario", "run", unexpected.removeprefix("scripted/")).code == 1


def test_several_scenarios_are_run_in_one_call(shell: Shell) -> None:
    stage, report = shell.stage, str(shell.stage.directory / "report.xml")
    good = path_of(stage, name="good", assertions=ASSERTIONS)
    wrong = [{"id": "other", "kind": "file_exists", "path": "other.txt"}]
    bad = path_of(stage, name="bad", assertions=wrong)
    broken = str(stage.directory / "broken.json")
    with open(broken, "w") as file:
        file.write("{,")
    said = shell("scenario", "run", bad, broken, good, "--json", "--junit", report)
    assert said.code == 1
    assert [frame["scenario"]["id"] for frame in said.frames()] == ["bad", "good"]
    assert "broken.json: not JSON" in said.err
    suites = ElementTree.parse(report).getroot()
    shown = [(suite.get("name"), suite.get("failures"), suite.get("errors")) for suite in suites]
    assert shown == [("bad", "1", None), (broken, "0", "1"), ("good", "0", None)]
    assert shell("scenario", "run", good, good).code == 0
    assert shell("scenario", "run", good, str(stage.directory / "no.json")).code == 66


def test_several_scenarios_are_checked_in_one_call_with_a_report(shell: Shell) -> None:
    stage, report = shell.stage, str(shell.stage.directory / "report.xml")
    paths = [path_of(stage, name="one"), path_of(stage, name="two")]
    said = shell("scenario", "validate", *paths, "--junit", report)
    assert (said.code, len(said.out.splitlines())) == (0, 2)
    assert [suite.get("name") for suite in ElementTree.parse(report).getroot()] == paths


def test_files_are_checked_for_programs_too(shell: Shell) -> None:
    good = path_of(shell.stage, name="good")
    missing = str(shell.stage.directory / "no.json")
    said = shell("scenario", "validate", good, missing, "--json")
    valid, broken = said.frames()
    assert (said.code, valid["valid"], valid["path"], valid["id"]) == (66, True, good, "good")
    assert (broken["valid"], broken["path"]) == (False, missing)
    assert broken["error"] in said.err


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(shell: Shell) -> None:
    path = path_of(shell.stage)
    said = shell("scenario", "run", path, "--junit", "/nowhere/report.xml")
    assert said.code == 64
    assert "/nowhere/report.xml cannot be written" in said.err
    assert not (shell.stage.directory / "made.txt").exists()
