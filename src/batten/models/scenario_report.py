"""Judges a played scenario: its assertions, its outcome, and both as JSON and JUnit.

Reads the observation and files under one directory; runs nothing, writes nothing.
"""

import os
import re
import stat
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from batten.models.scenario import Assertion, AssertionKind, Outcome, Scenario, Severity
from batten.settings.regular import NotRegular, read_regular

RESULT_SCHEMA = "evalops.maestro.scripted-scenario-result.v1"
MAX_COMPARED_BYTES = 64 * 1024 * 1024

Status = Literal["pass", "fail", "warn"]


class ObservedCall(Struct, frozen=True):
    id: str
    tool: str


class Observation(Struct, frozen=True, kw_only=True):
    """The events of a played scenario."""

    calls: tuple[ObservedCall, ...] = ()
    audit_events: tuple[str, ...] = ()
    exit_codes: dict[str, int] = {}
    """Of commands, by the ids of their calls."""
    run_outcome: str = ""
    """How the last run ended, such as `completed`."""

    @property
    def outcome(self) -> Outcome:
        return "pass" if self.run_outcome == "completed" else "fail"


class _Wire(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of the result file."""


class Evidence(_Wire, frozen=True):
    kind: Literal["tool_call", "file", "audit_event", "run"]
    id: str
    source: Literal["scenario", "workspace", "audit"]
    label: str


class AssertionResult(_Wire, frozen=True, kw_only=True):
    id: str
    kind: AssertionKind
    status: Status
    severity: Severity
    message: str
    evidence: tuple[Evidence, ...]


class JudgedScenario(_Wire, frozen=True, kw_only=True):
    id: str
    description: str
    expected_outcome: Outcome
    observed_outcome: Outcome
    """`fail` if an assertion of severity `error` does not hold, or the run failed and no assertion
    is about its outcome.
    """


class PlayedRun(_Wire, frozen=True, kw_only=True):
    scenario_id: str
    replay: Literal[True] = True
    frames: int
    tool_calls: int
    audit_events: tuple[str, ...]


class Counts(_Wire, frozen=True, kw_only=True):
    assertions: int
    passed: int
    failed: int
    warnings: int


class ScenarioResult(_Wire, frozen=True, kw_only=True):
    schema_version: str = RESULT_SCHEMA
    scenario_schema_version: str
    scenario: JudgedScenario
    run: PlayedRun
    counts: Counts
    assertions: tuple[AssertionResult, ...]

    @property
    def exit_code(self) -> int:
        """1 if the observed outcome differs from the expected one."""
        return int(self.scenario.observed_outcome != self.scenario.expected_outcome)


class _Finding(Struct, frozen=True):
    holds: bool
    message: str
    evidence: tuple[Evidence, ...] = ()


def evaluate(
    scenario: Scenario,
    observed: Observation,
    root: str,
    *,
    aliases: Mapping[str, str] | None = None,
) -> ScenarioResult:
    """Judge an observation. Relative paths of assertions are under `root`.

    `aliases` maps other names of a tool to its own: a script may say `read` for `read_file`.
    Audit events are those observed and those declared in the scenario's metadata.
    """
    events = tuple(dict.fromkeys((*scenario.metadata.audit_events, *observed.audit_events)))
    results: list[AssertionResult] = []
    for assertion in scenario.assertions:
        match assertion.kind:
            case "tool_called" | "tool_not_called":
                finding = _judge_calls(assertion, observed.calls, aliases or {})
            case "file_exists" | "file_contents":
                finding = _judge_file(assertion, root)
            case "file_missing":
                finding = _judge_absence(assertion, root)
            case "exit_code":
                finding = _judge_exit(assertion, observed.exit_codes)
            case "outcome":
                finding = _judge_outcome(assertion, observed.run_outcome)
            case "audit_event_emitted":
                finding = _judge_events(assertion, events)
        results.append(_result(assertion, finding))
    counts = _count(results)
    is_judged = any(assertion.kind == "outcome" for assertion in scenario.assertions)
    failed = counts.failed > 0 or (observed.outcome == "fail" and not is_judged)
    return ScenarioResult(
        scenario_schema_version=scenario.schema_version,
        scenario=JudgedScenario(
            id=scenario.id,
            description=scenario.description,
            expected_outcome=scenario.expected_outcome,
            observed_outcome="fail" if failed else "pass",
        ),
        run=PlayedRun(
            scenario_id=scenario.id,
            frames=len(scenario.frames),
            tool_calls=len(observed.calls),
            audit_events=events,
        ),
        counts=counts,
        assertions=tuple(results),
    )


def to_json(result: ScenarioResult) -> bytes:
    """One line."""
    return msgspec.json.encode(result)


class Checked(Struct, frozen=True):
    """A scenario file that was read, or could not be."""

    path: str
    problem: str = ""


def to_junit(results: Iterable[ScenarioResult | Checked]) -> str:
    """A suite per scenario, a test case per assertion; a file that was only read is one case.

    One suite is the root, several are in `testsuites`.
    If every assertion holds but the outcome is unexpected, a case `expected-outcome` is added: a
    report without a failure must mean exit code 0.
    """
    suites = [_checked_suite(one) if isinstance(one, Checked) else _suite(one) for one in results]
    if len(suites) != 1:
        suites = ["<testsuites>", *suites, "</testsuites>"]
    return "\n".join(['<?xml version="1.0" encoding="UTF-8"?>', *suites, ""])


def _checked_suite(checked: Checked) -> str:
    name, failed = _attribute(checked.path), int(bool(checked.problem))
    failure = f'<error message="{_attribute(checked.problem)}"></error>' if failed else ""
    head = f'<testsuite name="{name}" tests="1" failures="0" errors="{failed}">'
    return f'{head}\n\t<testcase classname="{name}" name="valid">{failure}</testcase>\n</testsuite>'


def _suite(result: ScenarioResult) -> str:
    suite = _attribute(result.scenario.id)
    cases = [
        (assertion.id, _failure(assertion) if assertion.status == "fail" else "")
        for assertion in result.assertions
    ]
    failures = result.counts.failed
    if result.exit_code and not failures:
        failures = 1
        cases.append(("expected-outcome", _outcome_failure(result.scenario)))
    lines = [
        f'<testsuite name="{suite}" tests="{len(cases)}" failures="{failures}"'
        f' warnings="{result.counts.warnings}">',
    ]
    lines.extend(
        f'\t<testcase classname="{suite}" name="{_attribute(name)}">{failure}</testcase>'
        for name, failure in cases
    )
    return "\n".join([*lines, "</testsuite>"])


def _result(assertion: Assertion, finding: _Finding) -> AssertionResult:
    status: Status = "pass"
    if not finding.holds:
        status = "warn" if assertion.severity == "warning" else "fail"
    return AssertionResult(
        id=assertion.id,
        kind=assertion.kind,
        status=status,
        severity=assertion.severity,
        message=finding.message,
        evidence=finding.evidence,
    )


def _count(results: list[AssertionResult]) -> Counts:
    statuses = [result.status for result in results]
    return Counts(
        assertions=len(statuses),
        passed=statuses.count("pass"),
        failed=statuses.count("fail"),
        warnings=statuses.count("warn"),
    )


def _judge_calls(
    assertion: Assertion, calls: Iterable[ObservedCall], aliases: Mapping[str, str]
) -> _Finding:
    tool = assertion.tool and aliases.get(assertion.tool, assertion.tool)
    found = [
        call
        for call in calls
        if (not tool or aliases.get(call.tool, call.tool) == tool)
        and (not assertion.tool_call_id or call.id == assertion.tool_call_id)
    ]
    wanted = " ".join(filter(None, (assertion.tool, assertion.tool_call_id)))
    return _Finding(
        bool(found) == (assertion.kind == "tool_called"),
        f"{wanted} was {_times_called(len(found))}",
        tuple(Evidence("tool_call", call.id, "scenario", call.tool) for call in found),
    )


def _times_called(count: int) -> str:
    return {0: "not called", 1: "called once"}.get(count, f"called {count} times")


def _judge_file(assertion: Assertion, root: str) -> _Finding:
    name = assertion.path or ""
    path = os.path.join(root, name)
    try:
        evidence = (_file(name),)
        if assertion.kind == "file_exists" and stat.S_ISREG(os.stat(path).st_mode):
            return _Finding(True, f"{name} exists", evidence)
        content = read_regular(path, MAX_COMPARED_BYTES + 1)
        if len(content) > MAX_COMPARED_BYTES:
            return _Finding(False, f"{name} is larger than {MAX_COMPARED_BYTES} bytes", evidence)
    except (NotRegular, IsADirectoryError):
        return _Finding(False, f"{name} is not a regular file")
    except OSError as error:
        return _Finding(False, f"{name}: {error.strerror}")
    return _compare(assertion, content, evidence)


def _compare(assertion: Assertion, content: bytes, evidence: tuple[Evidence, ...]) -> _Finding:
    """Both `equals` and `contains` must hold."""
    if assertion.equals is not None and content != assertion.equals.encode():
        message = f"{assertion.path} does not have the expected content"
        return _Finding(False, message, evidence)
    if assertion.contains and assertion.contains.encode() not in content:
        return _Finding(False, f"{assertion.path} does not contain the expected text", evidence)
    return _Finding(True, f"{assertion.path} has the expected content", evidence)


def _judge_absence(assertion: Assertion, root: str) -> _Finding:
    name = assertion.path or ""
    if not os.path.lexists(os.path.join(root, name)):
        return _Finding(True, f"{name} does not exist")
    return _Finding(False, f"{name} exists", (_file(name),))


def _file(name: str) -> Evidence:
    return Evidence("file", name, "workspace", f"file:{name}")


def _judge_exit(assertion: Assertion, codes: Mapping[str, int]) -> _Finding:
    call = assertion.tool_call_id or ""
    if call not in codes:
        return _Finding(False, f"{call} is no command that exited")
    evidence = Evidence("tool_call", call, "scenario", f"exit:{codes[call]}")
    ending = f"{call} exited with status {codes[call]}"
    return _expected(codes[call], assertion.exit_code, ending, evidence)


def _judge_outcome(assertion: Assertion, outcome: str) -> _Finding:
    evidence = Evidence("run", outcome, "scenario", f"outcome:{outcome}")
    return _expected(outcome, assertion.outcome, f"the run ended in {outcome}", evidence)


def _expected(seen: object, wanted: object, message: str, evidence: Evidence) -> _Finding:
    if seen == wanted:
        return _Finding(True, message, (evidence,))
    return _Finding(False, f"{message}, not {wanted}", (evidence,))


def _judge_events(assertion: Assertion, events: tuple[str, ...]) -> _Finding:
    wanted = assertion.event_type or ""
    if wanted not in events:
        return _Finding(False, f"{wanted} was not emitted")
    evidence = Evidence("audit_event", wanted, "audit", f"audit_event:{wanted}")
    return _Finding(True, f"{wanted} was emitted", (evidence,))


def _failure(assertion: AssertionResult) -> str:
    detail = _escape(msgspec.json.encode(assertion.evidence).decode())
    return f'\n\t\t<failure message="{_attribute(assertion.message)}">{detail}</failure>\n\t'


def _outcome_failure(scenario: JudgedScenario) -> str:
    message = f"expected {scenario.expected_outcome}, observed {scenario.observed_outcome}"
    return f'\n\t\t<failure message="{message}"></failure>\n\t'


def _escape(text: str) -> str:
    """Text for XML 1.0; characters it cannot represent become U+FFFD."""
    text = re.sub("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text)
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace('"', "&quot;").replace("'", "&apos;").replace("\r", "&#13;")


def _attribute(text: str) -> str:
    """Like `_escape`; line breaks and tabs would otherwise be read as spaces."""
    return _escape(text).replace("\n", "&#10;").replace("\t", "&#9;")
