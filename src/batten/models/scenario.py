"""The scenario file: the scripted model's messages, and assertions about the run.

Reads, checks and writes files of schema `evalops.maestro.scripted-scenario.v1`. Unknown fields
are ignored, since later versions of the schema add some. Playing a scenario and judging its
assertions are left to others.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
from msgspec import Meta, Struct

from batten.contract.errors import CallerError, NotFound
from batten.contract.outcomes import ENDINGS
from batten.models.scenario_place import check_place
from batten.settings.regular import NotRegular, read_regular

SCENARIO_SCHEMA = "evalops.maestro.scripted-scenario.v1"
MAX_SCENARIO_BYTES = 64 * 1024 * 1024

_EXACT = 2**53 - 1  # the largest number every JSON reader holds exactly

Milliseconds = Annotated[int, Meta(ge=0, le=_EXACT)] | Annotated[float, Meta(ge=0, le=_EXACT)]
Outcome = Literal["pass", "fail"]
ExpectedResult = Literal["success", "error", "any"]
Severity = Literal["error", "warning"]
AssertionKind = Literal[
    "tool_called",
    "tool_not_called",
    "file_exists",
    "file_contents",
    "audit_event_emitted",
    "file_missing",
    "exit_code",
    "outcome",
]
"""The last three are our extensions."""


class _Wire(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of the file: camelCase names, defaults omitted."""


class _Statement(_Wire, frozen=True, kw_only=True, tag_field="kind"):
    pass


class SayText(_Statement, frozen=True, kw_only=True, tag="text"):
    text: str
    stream_ms: Milliseconds | None = None
    """Spread over the characters of the text; without it, a few words stream at a time."""


class Delay(_Statement, frozen=True, kw_only=True, tag="delay"):
    ms: Milliseconds


class SeenResult(_Wire, frozen=True, kw_only=True):
    """How a call ended when the scenario was recorded."""

    ending: str
    """`completed`, `failed`, `timed_out`, or `denied` if it was never allowed to begin."""
    exit_code: int | None = None
    output: str | None = None
    """The beginning of the text that the model received; for people, it is not compared."""


class CallTool(_Statement, frozen=True, kw_only=True, tag="tool_call"):
    tool: str
    input: Any = None
    """A value other than an object is played as no arguments."""
    id: str | None = None
    expected_result: ExpectedResult | None = None
    result: SeenResult | None = None
    """Our extension. `scenario run` denies a call that was denied when it was recorded."""

    def arguments(self) -> dict[str, Any]:
        value: object = self.input
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


class Fail(_Statement, frozen=True, kw_only=True, tag="error"):
    type: Literal["transient", "fatal"]
    message: str
    times: Annotated[int, Meta(ge=1)] | None = None
    """Our extension: how often an open model fails here before it continues; without it, always."""


class WaitForUser(_Statement, frozen=True, kw_only=True, tag="wait_for_user"):
    pass


class End(_Statement, frozen=True, kw_only=True, tag="end"):
    reason: Literal["complete", "aborted", "limit_exceeded"]


Statement = SayText | Delay | CallTool | Fail | WaitForUser | End


class Frame(_Wire, frozen=True, kw_only=True):
    """One assistant message."""

    index: int
    statements: tuple[Statement, ...]

    def played(self) -> Iterator[tuple[int, Statement]]:
        """The statements up to and including the first that ends the message, numbered."""
        for number, statement in enumerate(self.statements):
            yield number, statement
            if isinstance(statement, WaitForUser | End):
                return


class Metadata(_Wire, frozen=True, kw_only=True):
    recorded_from: str | None = None
    recorded_at: str
    model_original: str | None = None
    tools_expected: tuple[str, ...]
    audit_events: tuple[str, ...] = ()


class Assertion(_Wire, frozen=True, kw_only=True):
    id: str
    kind: AssertionKind
    severity: Severity = "error"
    tool: str | None = None
    tool_call_id: str | None = None
    path: str | None = None
    contains: str | None = None
    equals: str | None = None
    event_type: str | None = None
    exit_code: int | None = None
    """Our extension, of `exit_code`."""
    outcome: str | None = None
    """Our extension, of `outcome`: how the last run ended, such as `completed` or `max_turns`."""
    note: str | None = None


class Scenario(_Wire, frozen=True, kw_only=True):
    schema_version: str
    id: str
    description: str
    expected_outcome: Outcome = "pass"
    metadata: Metadata
    frames: tuple[Frame, ...]
    assertions: tuple[Assertion, ...] = ()
    prompts: tuple[str, ...] = ()
    """Our extension: what the user said, one run each; without it, the description is the prompt.
    """
    children: dict[str, str] = {}
    """Our extension: maps the prompt of a child run to the scenario it plays, beside this file."""


def call_id(scenario: Scenario, frame: int, number: int) -> str:
    """The id of the tool call at this place: its own, or one derived from the place."""
    statement = scenario.frames[frame].statements[number]
    if isinstance(statement, CallTool) and statement.id is not None:
        return statement.id
    return f"replay_{scenario.id}_{frame:03d}_{number:03d}"


def load(path: str) -> Scenario:
    """Read and check a scenario file; `CallerError` names the file, the place and the remedy."""
    check_place(path)
    try:
        body = read_regular(path, MAX_SCENARIO_BYTES + 1)
    except (NotRegular, IsADirectoryError) as error:
        raise CallerError(f"{path}: not a regular file; a scenario is a JSON file") from error
    except FileNotFoundError as error:
        raise NotFound(f"{path}: no such scenario file") from error
    except (OSError, ValueError) as error:
        raise CallerError(f"{path}: cannot read the scenario: {error}") from error
    try:
        return decode(body)
    except CallerError as error:
        raise CallerError(f"{path}: {error.message}") from error


def decode(body: bytes) -> Scenario:
    """Read and check a scenario; `CallerError` names the place and the remedy."""
    if len(body) > MAX_SCENARIO_BYTES:
        raise CallerError(f"larger than {MAX_SCENARIO_BYTES} bytes; split the scenario")
    try:
        scenario = msgspec.json.decode(body, type=Scenario)
    except msgspec.ValidationError as error:
        raise CallerError(_explain(str(error))) from error
    except UnicodeDecodeError as error:
        raise CallerError(f"not UTF-8: {error.reason}; save the file as UTF-8") from error
    except msgspec.DecodeError as error:
        raise CallerError(f"not JSON: {error}") from error
    except RecursionError as error:
        raise CallerError("nested too deeply to be read") from error
    for problem in _problems(scenario):
        raise CallerError(problem)
    return scenario


def encode(scenario: Scenario) -> bytes:
    """The file's bytes, indented for people."""
    return msgspec.json.format(msgspec.json.encode(scenario), indent=2) + b"\n"


_CHOICES: dict[str, tuple[str, str]] = {
    "statements.kind": (
        "statement",
        "text, delay, tool_call, error, wait_for_user, end",
    ),
    "assertions.kind": (
        "assertion",
        ", ".join(get_args(AssertionKind)),
    ),
    "assertions.severity": ("severity", "error, warning"),
    "statements.expectedResult": ("result", "success, error, any"),
    "statements.type": ("kind of error", "transient, fatal"),
    "statements.reason": ("reason", "complete, aborted, limit_exceeded"),
    "expectedOutcome": ("outcome", "pass, fail"),
}


def _explain(problem: str) -> str:
    """The decoder's error as `place: problem; remedy`."""
    what, _, where = problem.partition(" - at `")
    where = where.rstrip("`").removeprefix("$").removeprefix(".")
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"{where}.{missing[1]}: missing".removeprefix(".")
    if unknown := re.fullmatch(r"Invalid (?:enum )?value '(.*)'", what, re.DOTALL):
        field = ".".join(re.sub(r"\[\d+\]", "", where).split(".")[-2:])
        if field in _CHOICES:
            noun, choices = _CHOICES[field]
            return f'{where}: unknown {noun} "{unknown[1]}"; use one of {choices}'
    what = what[:1].lower() + what[1:].replace("`", "")
    return f"{where}: {what}" if where else what


def _problems(scenario: Scenario) -> Iterator[str]:
    """Violations that the types cannot express."""
    if scenario.schema_version != SCENARIO_SCHEMA:
        yield f'schemaVersion: unknown version "{scenario.schema_version}"; use "{SCENARIO_SCHEMA}"'
    if not scenario.id.strip():
        yield "id: blank; name the scenario"
    for number, tool in enumerate(scenario.metadata.tools_expected):
        if not tool.strip():
            yield f"metadata.toolsExpected[{number}]: blank; name a tool"
    for number, frame in enumerate(scenario.frames):
        if frame.index != number:
            yield f"frames[{number}].index: {frame.index} leaves a gap; use {number}"
        yield from _frame_problems(scenario, number)
    for number, assertion in enumerate(scenario.assertions):
        if problem := _assertion_problem(assertion):
            yield f"assertions[{number}].{problem}"


def _frame_problems(scenario: Scenario, index: int) -> Iterator[str]:
    seen: set[str] = set()
    for number, statement in enumerate(scenario.frames[index].statements):
        if not isinstance(statement, CallTool):
            continue
        place = f"frames[{index}].statements[{number}]"
        if not statement.tool.strip():
            yield f"{place}.tool: blank; name a tool"
        identifier = call_id(scenario, index, number)
        if not identifier.strip():
            yield f"{place}.id: blank; leave it out or name the call"
        if identifier in seen:
            yield f'{place}.id: "{identifier}" is used twice in this frame; give each call its own'
        seen.add(identifier)


def _assertion_problem(assertion: Assertion) -> str | None:
    kind = assertion.kind
    if not assertion.id.strip():
        return "id: blank; name the assertion"
    if kind in ("tool_called", "tool_not_called"):
        if not (assertion.tool or assertion.tool_call_id):
            return f"tool: {kind} needs `tool` or `toolCallId`"
    elif kind == "audit_event_emitted":
        if not assertion.event_type:
            return f"eventType: {kind} needs `eventType`"
    elif kind == "exit_code":
        if assertion.exit_code is None or not assertion.tool_call_id:
            return f"exitCode: {kind} needs `exitCode` and `toolCallId`"
    elif kind == "outcome":
        if assertion.outcome not in ENDINGS:
            return f"outcome: {kind} needs `outcome`, one of {', '.join(ENDINGS)}"
    elif not assertion.path or "\0" in assertion.path:
        return f"path: {kind} needs `path`"
    elif kind == "file_contents" and not assertion.contains and assertion.equals is None:
        return f"contains: {kind} needs `contains` or `equals`"
    return None
