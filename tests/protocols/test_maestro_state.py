"""The state of a Maestro conversation is a fold of its messages, the same at both ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from batten.protocols.maestro import incoming as said
from batten.protocols.maestro import outgoing as heard
from batten.protocols.maestro.outgoing import ClientCapabilities, ClientInfo
from batten.protocols.maestro.snapshot import PendingTool
from batten.protocols.maestro.state import LONGEST_TAIL, Conversation
from batten.protocols.maestro.vocabulary import INTERACTIVE, REQUEST_TYPES, RequestType

QUEUES = {
    "approval": "pending_approvals",
    "client_tool": "pending_client_tools",
    "mcp_elicitation": "pending_mcp_elicitations",
    "user_input": "pending_user_inputs",
    "tool_retry": "pending_tool_retries",
}


def request(kind: RequestType, name: str = "r1", call: str = "c1") -> heard.ServerRequest:
    return heard.ServerRequest(
        request_id=name, request_type=kind, call_id=call, tool="bash", args={"a": 1}, reason="why"
    )


def resolution(kind: RequestType, how: Any, name: str = "r1") -> heard.ServerRequestResolved:
    return heard.ServerRequestResolved(
        request_id=name, request_type=kind, call_id="c1", resolution=how, resolved_by="user"
    )


def after(*messages: heard.Message | said.Incoming) -> Conversation:
    conversation = Conversation()
    for message in messages:
        if isinstance(message, heard.Message):
            conversation.hear(message)
        else:
            conversation.say(message)
    return conversation


def queue(conversation: Conversation, kind: RequestType) -> list[PendingTool]:
    return list(getattr(conversation.state, QUEUES[kind]))


def test_a_tool_takes_its_name_from_its_call_and_is_unknown_without_one() -> None:
    called = heard.ToolCalled(call_id="c1", tool="read", args={}, requires_approval=False)
    starts = (heard.ToolStart(call_id="c1"), heard.ToolStart(call_id="c2"))
    state = after(called, *starts, heard.ToolOutput(call_id="c1", content="x")).state
    assert [(one.tool, one.output) for one in state.active_tools] == [
        ("read", "x"),
        ("unknown", ""),
    ]
    ended = after(called, starts[0], heard.ToolEnd(call_id="c1", success=True)).state
    assert (ended.active_tools, ended.tracked_tools) == ((), ())


@pytest.mark.parametrize("kind", REQUEST_TYPES)
def test_a_request_waits_in_the_queue_of_its_class_until_it_is_resolved(kind: RequestType) -> None:
    conversation = after(request(kind))
    (waiting,) = queue(conversation, kind)
    assert (waiting.call_id, waiting.request_id, waiting.args) == ("c1", "r1", {"a": 1})
    (unified,) = conversation.state.pending_requests
    assert (unified.id, unified.kind, unified.tool_call_id) == ("r1", kind, "c1")
    conversation.hear(resolution(kind, "cancelled"))
    assert queue(conversation, kind) == []
    assert conversation.state.pending_requests == ()


@given(st.lists(st.tuples(st.sampled_from(REQUEST_TYPES), st.integers(0, 3), st.booleans())))
def test_the_requests_are_the_queues_in_the_order_of_the_classes(
    steps: list[tuple[RequestType, int, bool]],
) -> None:
    conversation = Conversation()
    for kind, number, is_resolved in steps:
        name = f"r{number}"
        if is_resolved:
            conversation.hear(resolution(kind, "cancelled", name))
        else:
            conversation.hear(request(kind, name, f"c{number}"))
        state = conversation.state
        queued = [
            (one.key, one.call_id) for kind in REQUEST_TYPES for one in queue(conversation, kind)
        ]
        assert [(one.id, one.call_id) for one in state.pending_requests] == queued


def test_a_greeting_sets_what_is_known_of_the_client() -> None:
    info = ClientInfo("cp", "1")
    state = after(said.Hello(protocol_version="v", client_info=info, role="viewer")).state
    assert (state.client_protocol_version, state.client_info) == ("v", info)
    assert (state.connection_role, state.connection_count) == ("viewer", 1)
    assert state.controller_connection_id is None
    assert after(heard.HelloOk(protocol_version="v9")).state.protocol_version == "v9"


@pytest.mark.parametrize("kind", INTERACTIVE)
def test_a_greeting_that_is_refused_changes_nothing(kind: RequestType) -> None:
    offers = ClientCapabilities(server_requests=(kind,))
    first = Conversation()
    first.say(said.Hello(role="viewer", capabilities=offers))
    assert first.state == Conversation().state
    viewer = after(said.Hello(role="viewer"))
    before = viewer.state
    viewer.say(said.Hello(capabilities=offers))
    viewer.say(said.Hello(role="controller"))
    assert viewer.state == before


def test_what_a_viewer_may_not_say_changes_nothing() -> None:
    viewer = after(
        said.Hello(role="viewer"), heard.ResponseStart(response_id="r"), request("approval")
    )
    before = viewer.state
    for message in (
        *(said.Interrupt(), said.Cancel(), said.ShutDown(), said.Prompt(content="x")),
        said.ToolResponse(call_id="c1", approved=False),
        said.ServerRequestResponse(request_id="r1", request_type="approval"),
    ):
        viewer.say(message)
    assert viewer.state == before


def test_an_answer_clears_what_it_answers_at_once_and_its_resolution_changes_no_more() -> None:
    for kind in REQUEST_TYPES:
        conversation = after(request(kind))
        conversation.say(
            said.ServerRequestResponse(request_id="r1", request_type=kind, approved=True)
        )
        assert queue(conversation, kind) == []
        before = conversation.state
        conversation.hear(resolution(kind, "approved" if kind == "approval" else "answered"))
        assert conversation.state.pending_requests == before.pending_requests == ()


def test_a_denied_approval_is_not_on_its_way_any_more_and_an_approved_one_is() -> None:
    denied = after(request("approval"), resolution("approval", "denied")).state
    assert denied.tracked_tools == ()
    approved = after(request("approval"), resolution("approval", "approved")).state
    assert [one.call_id for one in approved.tracked_tools] == ["c1"]
    legacy = after(request("approval"), said.ToolResponse(call_id="c1", approved=False)).state
    assert (legacy.tracked_tools, legacy.pending_approvals) == ((), ())


@pytest.mark.parametrize(
    ("kind", "how", "kept"),
    [
        ("client_tool", "cancelled", False),
        ("client_tool", "failed", True),
        ("user_input", "answered", True),
        ("user_input", "failed", False),
        ("user_input", "skipped", False),
        ("approval", "approved", True),
        ("approval", "denied", False),
        ("approval", "aborted", False),
        ("mcp_elicitation", "failed", True),
        ("tool_retry", "retried", True),
        ("tool_retry", "aborted", False),
        ("tool_retry", "skipped", False),
        ("tool_retry", "cancelled", False),
    ],
)
def test_what_becomes_of_a_call_depends_on_its_class(
    kind: RequestType, how: str, kept: bool
) -> None:
    assert bool(after(request(kind), resolution(kind, how)).state.tracked_tools) is kept


def test_client_tools_and_questions_are_told_in_the_older_way_too() -> None:
    tool = heard.ClientToolRequest(call_id="c1", tool="lookup", args={})
    question = heard.ClientToolRequest(call_id="c2", tool="ask_user", args={})
    conversation = after(tool, question)
    assert [one.call_id for one in conversation.state.pending_client_tools] == ["c1"]
    assert [one.call_id for one in conversation.state.pending_user_inputs] == ["c2"]
    for call in ("c1", "c2"):
        conversation.say(said.ClientToolResult(call_id=call, content=(), is_error=False))
    assert conversation.state.pending_requests == ()
    assert len(conversation.state.tracked_tools) == 2


def test_a_retry_does_not_change_what_is_known_of_its_call() -> None:
    called = heard.ToolCalled(call_id="c1", tool="bash", args={"first": 1}, requires_approval=False)
    state = after(called, request("tool_retry", "r9")).state
    assert state.tracked_tools[0].args == {"first": 1}
    assert state.pending_tool_retries[0].request_id == "r9"
    # Its own end is still to come, whatever is decided.
    skipped = after(
        called, request("tool_retry", "r9"), resolution("tool_retry", "skipped", "r9")
    ).state
    assert [one.args for one in skipped.tracked_tools] == [{"first": 1}]


def test_a_response_grows_by_its_own_chunks_and_an_error_does_not_end_it() -> None:
    def chunk(text: str, *, thinking: bool = False, of: str = "r") -> heard.ResponseChunk:
        return heard.ResponseChunk(response_id=of, content=text, is_thinking=thinking)

    conversation = after(
        said.Prompt(content="go"),
        heard.ResponseStart(response_id="r"),
        *(chunk("a"), chunk("hm", thinking=True), chunk("b"), chunk("x", of="other")),
        heard.Error(message="oh", fatal=False, error_type="tool"),
    )
    state = conversation.state
    assert state.current_response is not UNSET
    assert (state.current_response.text, state.current_response.thinking) == ("ab", "hm")
    assert (state.is_responding, state.last_error) == (True, "oh")
    conversation.say(said.Prompt(content="again"))
    assert conversation.state.last_error is UNSET


def test_an_interrupt_clears_everything_that_was_going_on() -> None:
    going_on = (
        heard.Ready(protocol_version="v", model="m", provider="p", session_id=None),
        heard.ResponseStart(response_id="r"),
        *(request(kind, f"r-{kind}", f"c-{kind}") for kind in REQUEST_TYPES),
        heard.CommandStarted(command_id="u", command="x", shell_mode="shell", terminal_mode="pipe"),
        heard.WatchStarted(watch_id="w", root_dir="/", debounce_ms=1),
    )
    interrupted = after(*going_on, said.Interrupt()).state
    assert (interrupted.pending_requests, interrupted.tracked_tools) == ((), ())
    assert interrupted.active_utility_commands == ()
    assert interrupted.active_file_watches == ()
    assert interrupted.current_response is UNSET
    assert (interrupted.is_responding, interrupted.is_ready) == (False, True)
    assert after(*going_on, said.ShutDown()).state.is_ready is False


def test_a_command_keeps_the_end_of_its_output_and_its_newest_size() -> None:
    started = heard.CommandStarted(
        command_id="u", command="x", shell_mode="shell", terminal_mode="pty", columns=80, rows=24
    )
    conversation = after(started, heard.CommandResized(command_id="u", columns=9, rows=8))
    for number in range(9):
        text = str(number) * 10_000
        conversation.hear(heard.CommandOutput(command_id="u", stream="stdout", content=text))
    (command,) = conversation.state.active_utility_commands
    assert (command.columns, command.rows) == (9, 8)
    assert len(command.output) == LONGEST_TAIL
    assert command.output.endswith("8" * 10_000)
    conversation.hear(heard.CommandExited(command_id="u", success=True))
    assert conversation.state.active_utility_commands == ()


def test_watches_come_and_go_and_other_messages_change_nothing() -> None:
    watch = heard.WatchStarted(watch_id="w", root_dir="/", debounce_ms=1)
    conversation = after(watch)
    before = conversation.state
    assert [one.watch_id for one in before.active_file_watches] == ["w"]
    for message in (
        heard.RawAgentEvent(event_type="x", event={}),
        heard.Compaction(
            summary="s", first_kept_entry_index=1, tokens_before=2, auto=True, timestamp="t"
        ),
        heard.FileSearchResults(search_id="s", query="", cwd="/", results=(), truncated=False),
    ):
        conversation.hear(message)
    assert conversation.state == before
    conversation.hear(heard.WatchStopped(watch_id="w"))
    assert conversation.state.active_file_watches == ()


MESSAGES: list[heard.Message | said.Incoming] = [
    heard.Ready(
        protocol_version="2026-04-02", model="m", provider="p", executor_type="live", session_id="s"
    ),
    heard.SessionInfo(session_id="s", cwd="/w", git_branch=None),
    heard.ResponseStart(response_id="r"),
    heard.ResponseChunk(response_id="r", content="text", is_thinking=False),
    heard.ResponseChunk(response_id="r", content="thought", is_thinking=True),
    heard.ToolCalled(call_id="c1", tool="read", args={}, requires_approval=True),
    heard.ToolStart(call_id="c1"),
    heard.ToolOutput(call_id="c1", content="x"),
    heard.ToolEnd(call_id="c1", success=True),
    *(request(kind, f"r_{kind}", f"c_{kind}") for kind in REQUEST_TYPES),
    resolution("client_tool", "cancelled", "r_client_tool"),
    heard.CommandStarted(command_id="u", command="cat", shell_mode="shell", terminal_mode="pty"),
    heard.CommandOutput(command_id="u", stream="stdout", content="y" * (LONGEST_TAIL // 2 + 1)),
    heard.CommandResized(command_id="u", columns=80, rows=24),
    heard.WatchStarted(watch_id="w", root_dir="/w", debounce_ms=0, owner_connection_id="me"),
    heard.WatchStopped(watch_id="w"),
    heard.Error(message="no", fatal=False, error_type="tool"),
    heard.Status(message="yes"),
    said.Prompt(content="go"),
    said.Interrupt(),
]


@given(st.lists(st.sampled_from(MESSAGES)), st.lists(st.sampled_from(MESSAGES)))
def test_a_conversation_goes_on_from_its_state(
    first: list[heard.Message | said.Incoming], then: list[heard.Message | said.Incoming]
) -> None:
    going_on = Conversation.of(after(*first).state)
    assert going_on.state == after(*first).state
    for message in then:
        version, before = going_on.version, going_on.state
        if isinstance(message, heard.Message):
            going_on.hear(message)
        else:
            going_on.say(message)
        assert going_on.state == before or going_on.version > version
    assert going_on.state == after(*first, *then).state
