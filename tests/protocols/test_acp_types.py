"""Our types against the official ones: the same names, the same fields, the same words."""

from types import UnionType
from typing import Any, get_args

import msgspec
import pytest
from acp.meta import AGENT_METHODS, CLIENT_METHODS
from msgspec import Struct, structs
from pydantic import BaseModel

from acp import schema
from batten.protocols.acp import (
    PROTOCOL_VERSION,
    asking,
    content,
    eliciting,
    methods,
    options,
    updates,
)
from batten.protocols.acp.choices import InForce, change_of, options_of
from batten.protocols.acp.modes import mode_state
from tests.contract.journals import ROOT

SAME: dict[type[Struct], type[BaseModel]] = {
    content.TextBlock: schema.TextContentBlock,
    content.ImageBlock: schema.ImageContentBlock,
    content.AudioBlock: schema.AudioContentBlock,
    content.ResourceLink: schema.ResourceContentBlock,
    content.EmbeddedResource: schema.EmbeddedResourceContentBlock,
    content.Shown: schema.ContentToolCallContent,
    content.Diff: schema.FileEditToolCallContent,
    content.Terminal: schema.TerminalToolCallContent,
    content.Location: schema.ToolCallLocation,
    updates.UserMessageChunk: schema.UserMessageChunk,
    updates.AgentMessageChunk: schema.AgentMessageChunk,
    updates.AgentThoughtChunk: schema.AgentThoughtChunk,
    updates.ToolCallFields: schema.ToolCallUpdate,
    updates.ToolCallProgress: schema.ToolCallProgress,
    updates.Plan: schema.AgentPlanUpdate,
    updates.PlanEntry: schema.PlanEntry,
    updates.AvailableCommands: schema.AvailableCommandsUpdate,
    updates.AvailableCommand: schema.AvailableCommand,
    updates.CurrentMode: schema.CurrentModeUpdate,
    updates.ConfigOptions: schema.ConfigOptionUpdate,
    updates.UsageUpdate: schema.UsageUpdate,
    updates.Cost: schema.Cost,
    updates.SessionInfoUpdate: schema.SessionInfoUpdate,
    updates.SessionUpdate: schema.SessionNotification,
    asking.PermissionOption: schema.PermissionOption,
    asking.PermissionParams: schema.RequestPermissionRequest,
    asking.PermissionResult: schema.RequestPermissionResponse,
    asking.ReadFileParams: schema.ReadTextFileRequest,
    asking.ReadFileResult: schema.ReadTextFileResponse,
    asking.WriteFileParams: schema.WriteTextFileRequest,
    asking.NameAndValue: schema.EnvVariable,
    asking.CreateTerminalParams: schema.CreateTerminalRequest,
    asking.CreateTerminalResult: schema.CreateTerminalResponse,
    asking.TerminalParams: schema.TerminalOutputRequest,
    asking.ExitStatus: schema.WaitForTerminalExitResponse,
    asking.TerminalOutputResult: schema.TerminalOutputResponse,
    eliciting.FormParams: schema.CreateFormSessionElicitationRequest,
    eliciting.UrlParams: schema.CreateUrlSessionElicitationRequest,
    eliciting.ElicitResult: schema.AcceptElicitationResponse,
    options.Choice: schema.SessionConfigSelectOption,
    options.SelectOption: schema.SessionConfigOptionSelect,
    options.SetOptionParams: schema.SetSessionConfigOptionSelectRequest,
    options.SetOptionResult: schema.SetSessionConfigOptionResponse,
    methods.Implementation: schema.Implementation,
    methods.InitializeParams: schema.InitializeRequest,
    methods.AuthenticateParams: schema.AuthenticateRequest,
    methods.NewSessionParams: schema.NewSessionRequest,
    methods.LoadSessionParams: schema.LoadSessionRequest,
    methods.ResumeSessionParams: schema.ResumeSessionRequest,
    methods.ListSessionsParams: schema.ListSessionsRequest,
    methods.PromptParams: schema.PromptRequest,
    methods.SetModeParams: schema.SetSessionModeRequest,
    methods.CloseSessionParams: schema.CloseSessionRequest,
    methods.DeleteSessionParams: schema.DeleteSessionRequest,
    methods.CancelParams: schema.CancelNotification,
    methods.InitializeResult: schema.InitializeResponse,
    methods.AgentCapabilities: schema.AgentCapabilities,
    methods.PromptCapabilities: schema.PromptCapabilities,
    methods.McpCapabilities: schema.McpCapabilities,
    methods.AuthMethod: schema.AuthMethodAgent,
    methods.Mode: schema.SessionMode,
    methods.ModeState: schema.SessionModeState,
    methods.NewSessionResult: schema.NewSessionResponse,
    methods.OpenedSessionResult: schema.LoadSessionResponse,
    methods.SessionInfo: schema.SessionInfo,
    methods.ListSessionsResult: schema.ListSessionsResponse,
    methods.PromptResult: schema.PromptResponse,
}
ASKED = {value for name, value in vars(asking).items() if name.isupper()} | {eliciting.ELICIT}
each_type = pytest.mark.parametrize("ours", SAME, ids=lambda ours: ours.__name__)


def names(theirs: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in theirs.model_fields.items()}


def tag(ours: type[Struct]) -> set[str]:
    field = ours.__struct_config__.tag_field
    return set() if field is None else {field}


@each_type
def test_every_field_of_ours_is_one_of_theirs(ours: type[Struct]) -> None:
    assert {field.encode_name for field in structs.fields(ours)} <= names(SAME[ours])


@each_type
def test_what_they_require_we_require_too(ours: type[Struct]) -> None:
    theirs = SAME[ours].model_fields
    required = {field.alias or name for name, field in theirs.items() if field.is_required()}
    said = {field.encode_name for field in structs.fields(ours) if field.required} | tag(ours)
    assert required <= said


@each_type
def test_a_kind_is_named_as_they_name_it(ours: type[Struct]) -> None:
    config = ours.__struct_config__
    if config.tag_field is None:
        return
    theirs: Any = {
        field.alias or name: field.annotation for name, field in SAME[ours].model_fields.items()
    }
    assert get_args(theirs[config.tag_field]) == (config.tag,)


def words(annotation: Any) -> set[Any]:
    """The strings of a literal, wherever it stands in an optional."""
    found: set[Any] = set()
    for part in get_args(annotation):
        found |= {part} if isinstance(part, str) else words(part)
    return found


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (content.ToolKind, schema.ToolCallUpdate.model_fields["kind"]),
        (content.ToolStatus, schema.ToolCallUpdate.model_fields["status"]),
        (methods.StopReason, schema.PromptResponse.model_fields["stop_reason"]),
        (asking.OptionKind, schema.PermissionOption.model_fields["kind"]),
    ],
)
def test_closed_sets_hold_the_same_words(ours: Any, theirs: Any) -> None:
    literal = theirs.annotation
    assert set(get_args(ours)) == words(literal)


def test_every_method_is_one_of_the_protocol() -> None:
    theirs = {*AGENT_METHODS.values(), "$/cancel_request"}
    assert set(methods.METHODS) <= theirs
    assert (
        set(CLIENT_METHODS.values())
        - {
            *(name for name in CLIENT_METHODS.values() if name.startswith("mcp/")),
            "elicitation/complete",
            "session/update",
        }
        == ASKED
    )


def test_the_version_is_the_one_the_sdk_speaks() -> None:
    from acp import PROTOCOL_VERSION as THEIRS

    assert PROTOCOL_VERSION == THEIRS


def test_every_update_we_know_is_read_by_the_sdk_as_its_own() -> None:
    kinds = get_args(updates.AnyUpdate)
    assert isinstance(updates.AnyUpdate, UnionType)
    assert {kind for kind in kinds if kind not in SAME} == {updates.ToolCallStart}
    told = updates.SessionUpdate(
        session_id="s", update=updates.ToolCallStart(tool_call_id="c", title="t", status="pending")
    )
    read = schema.SessionNotification.model_validate_json(msgspec.json.encode(told))
    assert isinstance(read.update, schema.ToolCallStart)


def test_modes_are_read_by_the_sdk_and_one_of_them_holds() -> None:
    for current in ("default", "plan", "bypassPermissions", "disabled"):
        state = mode_state(current)
        read = schema.SessionModeState.model_validate_json(msgspec.json.encode(state))
        assert read.current_mode_id in {mode.id for mode in read.available_modes}


def test_capabilities_are_read_as_the_sdk_writes_them() -> None:
    nothing = methods.ClientCapabilities()
    assert methods.capabilities_of(said(schema.ClientCapabilities())) == nothing
    everything = schema.ClientCapabilities(
        fs=schema.FileSystemCapabilities(read_text_file=True, write_text_file=True),
        terminal=True,
        elicitation=schema.ElicitationCapabilities(
            form=schema.ElicitationFormCapabilities(), url=schema.ElicitationUrlCapabilities()
        ),
    )
    assert methods.capabilities_of(said(everything)) == methods.ClientCapabilities(
        reads=True, writes=True, terminal=True, forms=True, urls=True
    )


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        7,
        "all",
        [],
        {"fs": True, "terminal": {}, "elicitation": []},
        {"fs": {"readTextFile": "yes", "writeTextFile": 1}, "terminal": "true"},
        {"elicitation": {"form": None, "url": False}},
    ],
)
def test_a_capability_that_is_not_said_as_it_should_be_is_none(wrong: object) -> None:
    assert methods.capabilities_of(wrong) == methods.ClientCapabilities()


def said(model: BaseModel) -> Any:
    return model.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("thinking_tokens", [0, 2048, 5000])
def test_options_are_read_by_the_sdk_and_one_value_of_each_holds(thinking_tokens: int) -> None:
    held = InForce(mode_state("plan"), "a/other", ["a/first", "a/second"], thinking_tokens)
    offered = options_of(held)
    update = updates.ConfigOptions(config_options=offered)
    read = schema.ConfigOptionUpdate.model_validate_json(msgspec.json.encode(update))
    assert [one.id for one in read.config_options] == ["mode", "model", "thinking"]
    for one in offered:
        values = [choice.value for choice in one.options]
        assert one.current_value in values
        changes = [change_of(offered, one.id, value) for value in values]
        assert len({str(change) for change in changes}) == len(values)
    assert change_of(offered, "thinking", offered[2].current_value) == {
        "thinking_tokens": thinking_tokens
    }


def test_the_page_names_every_method_update_mode_and_reason() -> None:
    page = (ROOT / "docs" / "acp.md").read_text("utf-8")
    shown = {kind.__struct_config__.tag for kind in get_args(updates.AnyUpdate)}
    offered = {mode.id for mode in mode_state("default").available_modes}
    kinds = {*get_args(asking.OptionKind), *get_args(methods.StopReason)}
    named = {*methods.METHODS, *ASKED, *shown, *offered, *kinds}
    assert {name for name in named if f"`{name}`" not in page} == set()
