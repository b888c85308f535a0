"""The scenario file: what is read, what is refused, and in which words."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batten.contract.errors import CallerError, NotFound
from batten.models.registry import split_name
from batten.models.scenario import (
    MAX_SCENARIO_BYTES,
    SCENARIO_SCHEMA,
    CallTool,
    SayText,
    WaitForUser,
    call_id,
    decode,
    encode,
    load,
)

SCENARIOS = Path(__file__).parent / "scenarios"


def scenario_json(*statements: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A scenario of one frame, with fields added or replaced."""
    tools: list[str] = []
    value: dict[str, Any] = {
        "schemaVersion": SCENARIO_SCHEMA,
        "id": "one",
        "description": "",
        "metadata": {"recordedAt": "2026-01-01T00:00:00.000Z", "toolsExpected": tools},
        "frames": [{"index": 0, "statements": list(statements)}],
    }
    return value | fields


def refusal(value: object) -> str:
    with pytest.raises(CallerError) as caught:
        decode(json.dumps(value).encode())
    return caught.value.message


def test_a_file_is_read_with_its_defaults_and_without_fields_of_later_versions() -> None:
    scenario = load(str(SCENARIOS / "count-lines.json"))
    assert scenario.id == "count-lines"
    assert scenario.expected_outcome == "pass"
    assert scenario.frames[0].statements[0] == SayText(
        text="I will read the notes and count their lines, one by one."
    )
    assert scenario.frames[0].statements[2] == CallTool(
        tool="bash", input={"command": "wc -l notes.txt"}
    )
    assert [assertion.severity for assertion in scenario.assertions] == ["error"] * 6


def test_the_scenario_of_the_demo_is_valid() -> None:
    demo = Path(__file__).parents[2] / "demo" / "scenario.json"
    assert load(str(demo)).id == "fix-the-clock"


def test_a_call_without_an_id_is_named_after_its_place() -> None:
    scenario = load(str(SCENARIOS / "count-lines.json"))
    assert call_id(scenario, 0, 1) == "call-read"
    assert call_id(scenario, 0, 2) == "replay_count-lines_000_002"


def test_what_is_written_reads_back_the_same() -> None:
    scenario = load(str(SCENARIOS / "count-lines.json"))
    written = encode(scenario)
    assert decode(written) == scenario
    assert encode(decode(written)) == written
    assert b"workspaceManifestPath" not in written
    assert b"null" not in written


def test_statements_after_an_ending_are_not_played() -> None:
    body = json.dumps(
        scenario_json({"kind": "wait_for_user"}, {"kind": "text", "text": "unheard"})
    ).encode()
    assert list(decode(body).frames[0].played()) == [(0, WaitForUser())]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            scenario_json({"kind": "text", "text": ""}, {"kind": "foo"}),
            'frames[0].statements[1].kind: unknown statement "foo"; use one of '
            "text, delay, tool_call, error, wait_for_user, end",
        ),
        (scenario_json({"text": "x"}), "frames[0].statements[0].kind: missing"),
        (scenario_json({"kind": "text"}), "frames[0].statements[0].text: missing"),
        (scenario_json({"kind": 3}), "frames[0].statements[0].kind: expected str"),
        (
            scenario_json({"kind": "delay", "ms": -1}),
            "frames[0].statements[0].ms: expected int >= 0",
        ),
        (
            scenario_json({"kind": "end", "reason": "bored"}),
            'frames[0].statements[0].reason: unknown reason "bored"; use one of '
            "complete, aborted, limit_exceeded",
        ),
        (
            scenario_json({"kind": "error", "type": "mild", "message": ""}),
            'frames[0].statements[0].type: unknown kind of error "mild"; '
            "use one of transient, fatal",
        ),
        (
            scenario_json({"kind": "tool_call", "tool": "x", "expectedResult": "ok"}),
            'frames[0].statements[0].expectedResult: unknown result "ok"; '
            "use one of success, error, any",
        ),
        (
            scenario_json({"kind": "tool_call", "tool": " "}),
            "frames[0].statements[0].tool: blank; name a tool",
        ),
        (
            scenario_json({"kind": "tool_call", "tool": "x", "id": ""}),
            "frames[0].statements[0].id: blank; leave it out or name the call",
        ),
        (
            scenario_json(*[{"kind": "tool_call", "tool": "x", "id": "same"}] * 2),
            'frames[0].statements[1].id: "same" is used twice in this frame; '
            "give each call its own",
        ),
        (
            scenario_json(frames=[{"index": 1, "statements": []}]),
            "frames[0].index: 1 leaves a gap; use 0",
        ),
        (
            scenario_json(frames=[{"index": 0, "statements": []}, {"index": 2, "statements": []}]),
            "frames[1].index: 2 leaves a gap; use 1",
        ),
        (scenario_json(frames={}), "frames: expected array, got object"),
        (scenario_json(id=" \t"), "id: blank; name the scenario"),
        (scenario_json(id=None), "id: expected str, got null"),
        (
            scenario_json(schemaVersion="v9"),
            f'schemaVersion: unknown version "v9"; use "{SCENARIO_SCHEMA}"',
        ),
        (
            scenario_json(expectedOutcome="maybe"),
            'expectedOutcome: unknown outcome "maybe"; use one of pass, fail',
        ),
        (
            scenario_json(metadata={"recordedAt": "", "toolsExpected": ["read", ""]}),
            "metadata.toolsExpected[1]: blank; name a tool",
        ),
        (scenario_json(metadata={"toolsExpected": []}), "metadata.recordedAt: missing"),
        (
            {name: value for name, value in scenario_json().items() if name != "metadata"},
            "metadata: missing",
        ),
        ([], "expected object, got array"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place_and_the_remedy(value: object, message: str) -> None:
    assert refusal(value) == message


@pytest.mark.parametrize(
    ("assertion", "message"),
    [
        ({"id": "", "kind": "file_exists"}, "id: blank; name the assertion"),
        ({"kind": "tool_called"}, "tool: tool_called needs `tool` or `toolCallId`"),
        ({"kind": "tool_not_called"}, "tool: tool_not_called needs `tool` or `toolCallId`"),
        ({"kind": "file_exists"}, "path: file_exists needs `path`"),
        ({"kind": "file_exists", "path": "a\0b"}, "path: file_exists needs `path`"),
        (
            {"kind": "file_contents", "path": "a", "contains": ""},
            "contains: file_contents needs `contains` or `equals`",
        ),
        (
            {"kind": "exit_code", "exitCode": 1},
            "exitCode: exit_code needs `exitCode` and `toolCallId`",
        ),
        ({"kind": "file_missing"}, "path: file_missing needs `path`"),
        ({"kind": "audit_event_emitted"}, "eventType: audit_event_emitted needs `eventType`"),
        (
            {"kind": "file_gone"},
            'kind: unknown assertion "file_gone"; use one of tool_called, tool_not_called, '
            "file_exists, file_contents, audit_event_emitted, file_missing, exit_code, outcome",
        ),
        (
            {"kind": "file_exists", "path": "a", "severity": "low"},
            'severity: unknown severity "low"; use one of error, warning',
        ),
    ],
)
def test_an_assertion_that_asks_nothing_is_refused(assertion: dict[str, str], message: str) -> None:
    value = scenario_json(assertions=[{"id": "a"} | assertion])
    assert refusal(value) == f"assertions[0].{message}"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"schemaVersion": "\xff"}', "not UTF-8"),
        (b'{"extra": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_bytes_that_are_no_json_are_a_callers_error(body: bytes, message: str) -> None:
    with pytest.raises(CallerError, match=message):
        decode(body)


def test_an_error_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "wrong.json"
    path.write_bytes(b"[]")
    with pytest.raises(CallerError) as caught:
        load(str(path))
    assert caught.value.message == f"{path}: expected object, got array"


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load(str(tmp_path / "none.json"))


def named(place: str) -> object:
    return split_name(f"scripted/{place}")


@pytest.mark.parametrize("read", [load, named])
def test_a_scenario_elsewhere_is_refused_without_the_secrets_of_its_address(
    read: Callable[[str], object],
) -> None:
    for address, shown in (
        ("https://me:pw@host/a/b.json?sig=secret#x", "https://host/a/b.json"),
        ("gs://bucket/b.json", "gs://bucket/b.json"),
    ):
        with pytest.raises(CallerError) as caught:
            read(address)
        assert (caught.value.code, caught.value.message) == (
            "config",
            f"the scenario {shown} is not a file of this machine; download it, and name the file",
        )


def test_a_path_with_a_null_byte_is_a_callers_error() -> None:
    with pytest.raises(CallerError):
        load("a\0b")


def test_a_huge_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(MAX_SCENARIO_BYTES + 1)
    with pytest.raises(CallerError, match="larger than"):
        load(str(path))


def test_a_pipe_and_a_directory_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(CallerError, match="not a regular file"):
            load(str(path))


@given(st.data())
def test_a_damaged_file_is_a_scenario_or_a_callers_error_but_never_a_crash(
    data: st.DataObject,
) -> None:
    body = bytearray((SCENARIOS / "count-lines.json").read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        scenario = decode(bytes(body))
    except CallerError:
        return
    assert decode(encode(scenario)) == scenario
