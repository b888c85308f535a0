"""Verdicts on a played scenario: each kind of assertion, the outcome, JSON and JUnit."""

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.models.scenario import (
    SCENARIO_SCHEMA,
    Assertion,
    Frame,
    Metadata,
    Outcome,
    Scenario,
    load,
)
from batten.models.scenario_report import (
    MAX_COMPARED_BYTES,
    Checked,
    Observation,
    ObservedCall,
    ScenarioResult,
    evaluate,
    to_json,
    to_junit,
)

SCENARIOS = Path(__file__).parent / "scenarios"
ALIASES = {"read": "read_file", "Read": "read_file", "write": "write_file"}
WELL = Observation(run_outcome="completed")


def scenario(
    *assertions: Assertion,
    expected: Outcome = "pass",
    name: str = "s",
    events: tuple[str, ...] = (),
) -> Scenario:
    return Scenario(
        schema_version=SCENARIO_SCHEMA,
        id=name,
        description="what it shows",
        expected_outcome=expected,
        metadata=Metadata(recorded_at="", tools_expected=(), audit_events=events),
        frames=(Frame(index=0, statements=()),),
        assertions=assertions,
    )


def asserting(kind: Any, **fields: Any) -> Assertion:
    return Assertion(id="a", kind=kind, **fields)


def judge(
    assertion: Assertion, observed: Observation = WELL, root: Path = SCENARIOS
) -> tuple[str, str]:
    """The status and the message of one assertion."""
    result = evaluate(scenario(assertion), observed, str(root), aliases=ALIASES)
    return result.assertions[0].status, result.assertions[0].message


CALLS = Observation(
    calls=(ObservedCall("c1", "read_file"), ObservedCall("c2", "read_file")),
    run_outcome="completed",
)


@pytest.mark.parametrize(
    ("assertion", "verdict"),
    [
        (asserting("tool_called", tool="read_file"), ("pass", "read_file was called 2 times")),
        (asserting("tool_called", tool="Read"), ("pass", "Read was called 2 times")),
        (asserting("tool_called", tool_call_id="c2"), ("pass", "c2 was called once")),
        (
            asserting("tool_called", tool="read", tool_call_id="c1"),
            ("pass", "read c1 was called once"),
        ),
        (
            asserting("tool_called", tool="write", tool_call_id="c1"),
            ("fail", "write c1 was not called"),
        ),
        (asserting("tool_called", tool="bash"), ("fail", "bash was not called")),
        (asserting("tool_not_called", tool="bash"), ("pass", "bash was not called")),
        (asserting("tool_not_called", tool="read"), ("fail", "read was called 2 times")),
    ],
)
def test_calls_are_compared_by_tool_and_id_and_through_aliases(
    assertion: Assertion, verdict: tuple[str, str]
) -> None:
    assert judge(assertion, CALLS) == verdict


def test_files_are_looked_at_under_the_root(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    file = tmp_path / "deep" / "a.txt"
    file.write_text("grüße\n")
    cases = [
        (asserting("file_exists", path="deep/a.txt"), "pass"),
        (asserting("file_exists", path=str(file)), "pass"),
        (asserting("file_exists", path="deep/b.txt"), "fail"),
        (asserting("file_exists", path="deep"), "fail"),
        (asserting("file_contents", path="deep/a.txt", contains="grüß"), "pass"),
        (asserting("file_contents", path="deep/a.txt", contains="gruss"), "fail"),
        (asserting("file_contents", path="deep/a.txt", equals="grüße\n"), "pass"),
        (asserting("file_contents", path="deep/a.txt", equals="grüße"), "fail"),
        (asserting("file_contents", path="deep/a.txt", equals="", contains="grüß"), "fail"),
        (asserting("file_contents", path="deep/b.txt", contains="x"), "fail"),
        (asserting("file_contents", path="deep/a.txt/c", contains="x"), "fail"),
    ]
    assert [judge(assertion, root=tmp_path)[0] for assertion, _ in cases] == [
        status for _, status in cases
    ]


def test_a_pipe_and_a_huge_file_fail_without_being_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(MAX_COMPARED_BYTES + 1)
    pipe = judge(asserting("file_contents", path="pipe", contains="x"), root=tmp_path)
    huge = judge(asserting("file_contents", path="huge", contains="x"), root=tmp_path)
    assert pipe == ("fail", "pipe is not a regular file")
    assert huge == ("fail", f"huge is larger than {MAX_COMPARED_BYTES} bytes")


def test_audit_events_are_those_declared_and_those_observed() -> None:
    asked = [asserting("audit_event_emitted", event_type=name) for name in ("a", "b", "c")]
    observed = Observation(audit_events=("b", "a"), run_outcome="completed")
    result = evaluate(scenario(*asked, events=("a",)), observed, ".")
    assert [item.status for item in result.assertions] == ["pass", "pass", "fail"]
    assert result.run.audit_events == ("a", "b")


BROKEN = asserting("tool_called", tool="never")
TOLERATED = asserting("tool_called", tool="never", severity="warning")


@pytest.mark.parametrize(
    ("assertions", "run", "expected", "observed", "exit_code"),
    [
        ((), "pass", "pass", "pass", 0),
        ((), "fail", "pass", "fail", 1),
        ((), "fail", "fail", "fail", 0),
        ((), "pass", "fail", "pass", 1),
        ((BROKEN,), "pass", "pass", "fail", 1),
        ((BROKEN,), "pass", "fail", "fail", 0),
        ((TOLERATED,), "pass", "pass", "pass", 0),
        ((TOLERATED,), "fail", "pass", "fail", 1),
    ],
)
def test_the_exit_code_says_whether_the_outcome_was_expected(
    assertions: tuple[Assertion, ...],
    run: Outcome,
    expected: Outcome,
    observed: Outcome,
    exit_code: int,
) -> None:
    result = evaluate(
        scenario(*assertions, expected=expected),
        Observation(run_outcome={"pass": "completed", "fail": "max_turns"}[run]),
        ".",
    )
    assert (result.scenario.observed_outcome, result.exit_code) == (observed, exit_code)


def played(root: Path) -> ScenarioResult:
    (root / "notes.txt").write_text("first\nsecond\nthird\n")
    observed = Observation(
        calls=(ObservedCall("call-read", "read_file"), ObservedCall("x", "bash")),
        run_outcome="completed",
    )
    script = load(str(SCENARIOS / "count-lines.json"))
    return evaluate(script, observed, str(root), aliases=ALIASES)


def test_the_json_result_is_whole(tmp_path: Path) -> None:
    value = json.loads(to_json(played(tmp_path)))
    first = value["assertions"][0]
    assert {name: item for name, item in value.items() if name != "assertions"} == {
        "schemaVersion": "evalops.maestro.scripted-scenario-result.v1",
        "scenarioSchemaVersion": SCENARIO_SCHEMA,
        "scenario": {
            "id": "count-lines",
            "description": "Looks at a file, counts its lines, and says so.",
            "expectedOutcome": "pass",
            "observedOutcome": "pass",
        },
        "run": {
            "scenarioId": "count-lines",
            "replay": True,
            "frames": 2,
            "toolCalls": 2,
            "auditEvents": ["scenario.ready"],
        },
        "counts": {"assertions": 6, "passed": 6, "failed": 0, "warnings": 0},
    }
    assert first == {
        "id": "reads",
        "kind": "tool_called",
        "status": "pass",
        "severity": "error",
        "message": "read was called once",
        "evidence": [
            {
                "kind": "tool_call",
                "id": "call-read",
                "source": "scenario",
                "label": "read_file",
            }
        ],
    }


def test_the_junit_report_is_the_golden_one(tmp_path: Path) -> None:
    golden = (SCENARIOS / "count-lines.junit.xml").read_text()
    assert to_junit([played(tmp_path)]) == golden


def test_failures_and_warnings_are_counted_and_only_failures_have_a_body() -> None:
    result = evaluate(scenario(BROKEN, TOLERATED), WELL, ".")
    assert to_junit([result]) == (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        '<testsuite name="s" tests="2" failures="1" warnings="1">\n'
        '\t<testcase classname="s" name="a">\n'
        '\t\t<failure message="never was not called">[]</failure>\n'
        "\t</testcase>\n"
        '\t<testcase classname="s" name="a"></testcase>\n'
        "</testsuite>\n"
    )


def test_an_unexpected_outcome_without_a_failed_assertion_is_a_case_of_its_own() -> None:
    suite = ElementTree.fromstring(to_junit([evaluate(scenario(expected="fail"), WELL, ".")]))
    assert suite.attrib == {"name": "s", "tests": "1", "failures": "1", "warnings": "0"}
    assert suite[0].attrib["name"] == "expected-outcome"
    assert suite[0][0].attrib == {"message": "expected fail, observed pass"}


XML_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


@given(XML_TEXT, XML_TEXT)
def test_the_junit_report_is_well_formed_whatever_the_names(name: str, tool: str) -> None:
    asked = Assertion(id=tool, kind="tool_not_called", tool=tool)
    observed = Observation(calls=(ObservedCall(name, tool),), run_outcome="completed")
    suite = ElementTree.fromstring(to_junit([evaluate(scenario(asked, name=name), observed, ".")]))
    shown = suite.attrib["name"]
    assert len(shown) == len(name)
    assert all(a == b or a == "\ufffd" for a, b in zip(shown, name, strict=True))
    assert suite[0][0].attrib["message"].endswith(" was called once")


@pytest.mark.parametrize(
    ("assertion", "holds", "message"),
    [
        ({"kind": "exit_code", "tool_call_id": "c1", "exit_code": 2}, True, "status 2"),
        ({"kind": "exit_code", "tool_call_id": "c1", "exit_code": 0}, False, "2, not 0"),
        ({"kind": "exit_code", "tool_call_id": "c2", "exit_code": 0}, False, "no command that"),
        ({"kind": "outcome", "outcome": "max_turns"}, True, "ended in max_turns"),
        ({"kind": "outcome", "outcome": "completed"}, False, "max_turns, not completed"),
        ({"kind": "file_missing", "path": "gone.txt"}, True, "does not exist"),
        ({"kind": "file_missing", "path": "here.txt"}, False, "here.txt exists"),
    ],
)
def test_exit_codes_outcomes_and_missing_files_are_judged(
    tmp_path: Path, assertion: dict[str, Any], holds: bool, message: str
) -> None:
    (tmp_path / "here.txt").touch()
    observed = Observation(exit_codes={"c1": 2}, run_outcome="max_turns")
    judged = Assertion(id="a", **assertion)
    result = evaluate(scenario(judged, expected="fail"), observed, str(tmp_path))
    assert (result.assertions[0].status == "pass") is holds
    assert message in result.assertions[0].message


def test_an_assertion_on_the_outcome_replaces_the_outcome_of_the_run() -> None:
    judged = Assertion(id="a", kind="outcome", outcome="max_turns")
    for outcome, code in (("max_turns", 0), ("budget", 1), ("completed", 1)):
        result = evaluate(scenario(judged), Observation(run_outcome=outcome), ".")
        assert result.exit_code == code


def test_several_scenarios_are_suites_of_one_report() -> None:
    results: list[ScenarioResult | Checked] = [evaluate(scenario(BROKEN), WELL, ".")]
    results += [Checked("b.json", "not <JSON>"), Checked("c")]
    suites = ElementTree.fromstring(to_junit(results))
    assert [suite.get("name") for suite in suites] == ["s", "b.json", "c"]
    assert [suite.get("errors") for suite in suites] == [None, "1", "0"]
    assert suites[1][0][0].attrib == {"message": "not <JSON>"}
