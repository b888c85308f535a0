"""Maestro's messages both ways, and the classes of its errors."""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts.generate_maestro_page import with_tables

from batten.contract.errors import PeerError
from batten.protocols.maestro import PROTOCOL_VERSION, asking, faults, incoming, outgoing
from batten.protocols.maestro import vocabulary as words
from batten.protocols.maestro.incoming import ImageContent, TextContent
from batten.protocols.maestro.outgoing import encode
from tests.maestro.schemas import OUTGOING, PRESENT, PUBLISHED, checked

Json = dict[str, Any]
PAGE = Path(__file__).parents[2] / "docs" / "maestro.md"
NAMES = sorted({name for one in incoming.TYPES.values() for name in one.__struct_fields__})
plain_values = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
json_values = plain_values | st.lists(plain_values, max_size=2)


@pytest.mark.parametrize(
    ("text", "fatal", "kind"),
    [
        ("The run was Interrupted", False, "cancelled"),
        ("request aborted by rate limit", False, "cancelled"),
        ("Rate limit exceeded", False, "transient"),
        ("a temporary failure of the tool", False, "transient"),
        ("server overloaded", False, "transient"),
        ("permission denied", False, "tool"),
        ("Could not parse JSON", False, "protocol"),
        ("something else", False, "tool"),
        ("something else", True, "fatal"),
    ],
)
def test_an_error_is_classified_by_the_first_word_that_is_known(
    text: str, fatal: bool, kind: str
) -> None:
    assert faults.classify(text, fatal=fatal) == kind


def test_an_ending_is_classified_by_what_can_be_done_about_it() -> None:
    assert faults.class_of("cancelled", retriable=True) == "cancelled"
    assert faults.class_of("model_error", retriable=True) == "transient"
    assert faults.class_of("denied", retriable=False) == "tool"
    assert faults.class_of("budget", retriable=False) == "fatal"


def test_a_message_is_one_line_however_a_reader_splits_lines() -> None:
    said = "".join(map(chr, (*range(0x20), 0x7F, 0x85, 0x2028, 0x2029, 0xFEFF)))
    line = encode(outgoing.ResponseChunk(response_id="r", content=said, is_thinking=False))
    assert line.decode().splitlines(keepends=True) == [line.decode()]
    assert msgspec.json.decode(line)["content"] == said


def test_what_cannot_be_sent_is_replaced_by_an_error_that_says_so() -> None:
    long = outgoing.Status(message="x" * outgoing.LONGEST)
    for message in (outgoing.RawAgentEvent(event_type="x", event=object()), long):
        said = msgspec.json.decode(encode(message))
        assert said["message"].startswith("Failed to emit headless message: ")
        assert (said["type"], said["fatal"], said["error_type"]) == ("error", False, "protocol")
    assert len(encode(long)) < 500


@given(
    st.sampled_from([*incoming.TYPES, "sing"]),
    st.dictionaries(st.sampled_from(NAMES), json_values, max_size=6),
)
def test_any_object_is_a_message_or_a_typed_error(kind: str, fields: Json) -> None:
    problem = ""
    try:
        incoming.read({**fields, "type": kind})
    except PeerError as error:
        problem = str(error)
    assert problem.startswith("Failed to parse command: ") or not problem


def test_a_known_message_is_read_with_what_is_usual_and_unknown_fields_are_left_alone() -> None:
    started = incoming.read(
        {"type": "utility_command_start", "command_id": "a", "command": "x", "later": True}
    )
    assert started == incoming.CommandStart(command_id="a", command="x")
    answer = incoming.read(
        {
            "type": "server_request_response",
            "request_id": "r",
            "request_type": "client_tool",
            "content": [
                {"type": "text", "text": "t"},
                {"type": "image", "data": "AAE=", "mimeType": "image/png"},
            ],
        }
    )
    assert isinstance(answer, incoming.ServerRequestResponse)
    assert answer.content == (TextContent("t"), ImageContent(b"\0\1", "image/png"))
    said = asking.meaning(answer)
    assert (said.granted, said.text) == (True, "t\n[image:image/png]")


@pytest.mark.parametrize("kind", incoming.TYPES)
def test_null_is_a_field_that_is_not_there(kind: str) -> None:
    struct = incoming.TYPES[kind]
    needed: Json = {"content": "x", "request_type": "approval"}
    if kind == "client_tool_result":
        needed["content"] = []
    fields: Json = dict.fromkeys(struct.__struct_fields__)
    for field in msgspec.structs.fields(struct):
        if field.required:
            usual = {"approved": True, "is_error": False, "columns": 1, "rows": 1}
            fields[field.name] = needed.get(field.name, usual.get(field.name, "a"))
    whole = {name: value for name, value in fields.items() if value is not None}
    assert incoming.read({"type": kind, **fields}) == incoming.read({"type": kind, **whole})
    if whole:
        with pytest.raises(PeerError, match="missing required field"):
            incoming.read({"type": kind, **dict.fromkeys(fields)})


def test_null_inside_of_what_a_client_says_of_itself_is_nothing_too() -> None:
    nothing: Json = {
        "client_info": {"name": "n", "version": None},
        "capabilities": {"server_requests": None, "utility_operations": ["file_read"]},
    }
    plain: Json = {
        "client_info": {"name": "n"},
        "capabilities": {"utility_operations": ["file_read"]},
    }
    assert incoming.read({"type": "hello", **nothing}) == incoming.read({"type": "hello", **plain})
    schema = {"enum": [None], "default": None}
    asked = incoming.read({"type": "prompt", "content": "x", "output_schema": schema})
    assert isinstance(asked, incoming.Prompt)
    assert asked.output_schema == schema


@pytest.mark.parametrize(
    ("fields", "granted", "text", "halt"),
    [
        ({"request_type": "approval"}, False, "Denied by user", False),
        ({"request_type": "approval", "approved": True, "reason": "no"}, True, "Approved", False),
        ({"request_type": "tool_retry"}, False, "", True),
        ({"request_type": "tool_retry", "decision_action": "skip"}, False, "", False),
        ({"request_type": "tool_retry", "decision_action": "retry"}, True, "", False),
        ({"request_type": "user_input"}, True, "", False),
        ({"request_type": "user_input", "is_error": True}, False, "", False),
    ],
)
def test_what_an_answer_leaves_out_has_a_meaning(
    fields: Json, granted: bool, text: str, halt: bool
) -> None:
    answer = incoming.read({"type": "server_request_response", "request_id": "r", **fields})
    assert isinstance(answer, incoming.ServerRequestResponse)
    said = asking.meaning(answer)
    assert (said.granted, said.text, said.halt) == (granted, text, halt)


@pytest.mark.skipif(not PRESENT, reason="the published fixtures are not here")
def test_our_closed_sets_are_the_published_ones() -> None:
    published: Json = msgspec.json.decode((PUBLISHED / "headless-protocol-enums.json").read_bytes())
    assert published.pop("protocolVersion") == PROTOCOL_VERSION
    ours: Json = {
        "toAgentMessageTypes": incoming.TYPES,
        "fromAgentMessageTypes": OUTGOING,
        "serverRequestTypes": get_args(words.RequestType),
        "serverRequestResolutions": get_args(words.Resolution),
        "serverRequestResolvedBy": get_args(words.ResolvedBy),
        "toolRetryDecisionActions": get_args(words.RetryAction),
        "connectionRoles": get_args(words.Role),
        "notificationTypes": get_args(words.Notification),
        "thinkingLevels": get_args(words.ThinkingLevel),
        "approvalModes": get_args(words.ApprovalMode),
        "executorTypes": get_args(words.ExecutorType),
        "errorTypes": get_args(words.ErrorType),
        "utilityOperations": get_args(words.Operation),
        "utilityCommandStreams": get_args(words.Stream),
        "utilityCommandShellModes": get_args(words.ShellMode),
        "utilityCommandTerminalModes": get_args(words.TerminalMode),
        "utilityFileWatchChangeTypes": get_args(words.ChangeType),
    }
    assert {name: set(values) for name, values in ours.items()} == {
        name: set(values) for name, values in published.items()
    }


def test_the_page_about_the_protocol_has_the_messages_as_they_are() -> None:
    page = PAGE.read_text()
    assert f"`{PROTOCOL_VERSION}`" in page
    assert with_tables(page) == page
    for kind in (*incoming.TYPES, *OUTGOING):
        assert f"| `{kind}` |" in page


def test_what_the_page_shows_is_what_is_read_and_sent() -> None:
    lines = PAGE.read_text().splitlines()
    said = [msgspec.json.decode(line[2:]) for line in lines if line.startswith("> {")]
    heard = [msgspec.json.decode(line[2:]) for line in lines if line.startswith("< {")]
    assert [incoming.read(one).__struct_config__.tag for one in said][:3] == [
        "hello",
        "init",
        "prompt",
    ]
    assert [checked(one).__struct_config__.tag for one in heard][-1] == "response_end"
