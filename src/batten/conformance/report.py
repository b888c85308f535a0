"""The report of a suite: for people, as JSON, and as JUnit."""

import re
from typing import Literal

import msgspec
from msgspec import Struct

from batten.conformance.runner import Result

Word = Literal["pass", "FAIL", "warn", "skip"]
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Counts(Struct, frozen=True, kw_only=True):
    passed: int
    failed: int
    warnings: int
    skipped: int


class Report(Struct, frozen=True, kw_only=True):
    protocol: str
    command: tuple[str, ...]
    strict: bool
    """Whether a broken `should` is a failure."""
    results: tuple[Result, ...]
    seconds: float

    @property
    def counts(self) -> Counts:
        words = [word(result, self.strict) for result in self.results]
        return Counts(
            passed=words.count("pass"),
            failed=words.count("FAIL"),
            warnings=words.count("warn"),
            skipped=words.count("skip"),
        )


def word(result: Result, strict: bool) -> Word:
    if result.finding == "passed":
        return "pass"
    if result.finding == "skipped":
        return "skip"
    return "FAIL" if strict or result.level == "must" else "warn"


def lines(result: Result, strict: bool) -> list[str]:
    """One check; the reason of a failure follows on its own lines."""
    head = f"{word(result, strict)}  {result.id}"
    if result.finding == "skipped":
        head += f": {result.reason}"
    if result.finding != "failed":
        return [head]
    rows = [head, f"      {result.says} ({result.level}; {result.section})"]
    rows.append(f"      But: {result.reason}.")
    return [*rows, *(f"        {line}" for line in result.transcript)]


def summary(report: Report) -> str:
    counts = report.counts
    parts = [f"{counts.passed} passed", f"{counts.failed} failed"]
    if counts.warnings:
        parts.append(f"{counts.warnings} of what should be is not")
    if counts.skipped:
        parts.append(f"{counts.skipped} skipped")
    return f"{report.protocol}: {', '.join(parts)} in {report.seconds:.1f} s"


def to_json(report: Report) -> bytes:
    body = {**msgspec.structs.asdict(report), "counts": report.counts}
    return msgspec.json.format(msgspec.json.encode(body), indent=2)


def to_junit(report: Report) -> str:
    """One test case per check. A broken `should` is skipped, unless the run is strict: a report
    without a failure means exit code 0.
    """
    counts = report.counts
    total = f'tests="{len(report.results)}" failures="{counts.failed}" errors="0"'
    skipped = counts.skipped + counts.warnings
    suite = f"conformance.{report.protocol}"
    cases = [_case(result, word(result, report.strict)) for result in report.results]
    body = [
        '<?xml version="1.0" encoding="UTF-8"?>',
        f'<testsuite name="{_attribute(suite)}" {total} skipped="{skipped}"'
        f' time="{report.seconds:.3f}">',
        *cases,
        "</testsuite>",
        "",
    ]
    return "\n".join(body)


def _case(result: Result, verdict: Word) -> str:
    group, _, name = result.id.rpartition(".")
    head = f'<testcase classname="{_attribute(group)}" name="{_attribute(name)}"'
    head += f' time="{result.seconds:.3f}">'
    return f"  {head}{_outcome(result, verdict)}</testcase>"


def _outcome(result: Result, verdict: Word) -> str:
    if verdict == "pass":
        return ""
    if verdict == "skip":
        return f'<skipped message="{_attribute(result.reason)}"/>'
    message = f"{result.says} But: {result.reason}."
    if verdict == "warn":
        return f'<skipped message="{_attribute(f"should: {message}")}"/>'
    transcript = _text("\n".join(result.transcript))
    return f'<failure message="{_attribute(message)}">{transcript}</failure>'


def _text(text: str) -> str:
    text = _NOT_IN_XML.sub("\ufffd", text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _attribute(text: str) -> str:
    return _text(text).replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")
