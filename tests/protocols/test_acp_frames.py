"""Updates of facts: each thing told once, in order, and as the official SDK reads it."""

from itertools import pairwise
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from acp import schema
from batten.contract import facts as f
from batten.contract.envelope import Envelope
from batten.contract.facts import Fact, Unknown
from batten.contract.facts.assistant import Usage
from batten.contract.facts.tool import GrepMatch, Todo
from batten.contract.notes import ThinkingPiece, ToolInputPiece
from batten.contract.outcomes import ENDINGS, Outcome, RunEnd
from batten.protocols.acp import updates as u
from batten.protocols.acp.content import Diff, Location, Shown, Terminal, TextBlock, shown
from batten.protocols.acp.frames import AcpFrames
from batten.protocols.acp.methods import StopReason
from batten.protocols.acp.stops import Stop, stop_of
from batten.protocols.acp.tool_frames import Patch
from tests.contract.journals import GOLDEN, envelopes

RUN = "run_01J0000000E008000000000000"
PATCHES = {
    "art_1": Patch("a.py", "old\n", "new\n"),
    "art_new": Patch("b.py", None, "all new\n"),
    "art_long": Patch("c.py", diff="--- a\n+++ b\n"),
}


class Run:
    """A run whose facts are told one by one."""

    def __init__(self, *, replays: bool = False) -> None:
        self.frames = AcpFrames("/w", PATCHES.get, replays=replays)
        self._sequence = 0
        self.now_ms = 0

    def feed(self, *facts: Fact) -> list[u.AnyUpdate]:
        return [update for fact in facts for update in self.frames.feed(self.envelope(fact))]

    def envelope(self, fact: Fact) -> Envelope:
        self._sequence += 1
        return Envelope(
            event_id="evt_01J0000000E008000000000000",
            run_id=RUN,
            sequence=self._sequence,
            occurred_at=f"2026-01-02T03:04:{self.now_ms // 1000:02}.{self.now_ms % 1000:03}Z",
            type=fact.type,
            data=fact,
        )


def turn(index: int = 1) -> f.TurnStarted:
    return f.TurnStarted(turn_index=index, model="m", provider="p", input_tokens_estimate=9)


def delta(text: str, block: int = 0, turn_index: int = 1) -> f.AssistantTextDelta:
    return f.AssistantTextDelta(turn_index=turn_index, block_index=block, delta=text)


def complete(text: str, block: int = 0, turn_index: int = 1) -> f.AssistantTextComplete:
    return f.AssistantTextComplete(turn_index=turn_index, block_index=block, text=text)


def proposed(tool: str = "bash", call_id: str = "c", **arguments: Any) -> Fact:
    return f.AssistantToolCallProposed(
        turn_index=1, tool_call_id=call_id, tool_name=tool, input=arguments
    )


def invoked(tool: str = "bash", kind: str = "shell", call_id: str = "c", **more: Any) -> Fact:
    return f.ToolInvoked(tool_call_id=call_id, tool_name=tool, kind=kind, turn_index=1, **more)


def completed(output: str = "done", **more: Any) -> f.ToolCompleted:
    return f.ToolCompleted(
        tool_call_id="c", tool_name="t", kind="custom", duration_ms=1, output=output, **more
    )


def said(text: str, place: str) -> u.AgentMessageChunk:
    return u.AgentMessageChunk(content=TextBlock(text=text), message_id=f"{RUN}.{place}")


def text_of(updates: list[u.AnyUpdate]) -> str:
    chunks = [one.content for one in updates if isinstance(one, u.AgentMessageChunk)]
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextBlock))


@pytest.mark.parametrize("replays", [False, True])
@pytest.mark.parametrize("name", GOLDEN)
def test_every_golden_journal_is_told_in_words_the_sdk_knows(name: str, replays: bool) -> None:
    frames = AcpFrames("/w", PATCHES.get, replays=replays)
    begun: set[str] = set()
    for envelope in envelopes(name):
        for update in frames.feed(envelope):
            line = msgspec.json.encode(u.SessionUpdate(session_id="s", update=update))
            read = schema.SessionNotification.model_validate_json(line)
            again = read.model_dump(mode="json", by_alias=True, exclude_unset=True)
            assert again == msgspec.json.decode(line)
            if isinstance(update, u.ToolCallStart):
                assert update.tool_call_id not in begun
                begun.add(update.tool_call_id)
            if isinstance(update, u.ToolCallProgress):
                assert update.tool_call_id in begun


@given(st.lists(st.lists(st.text(min_size=1), max_size=4), min_size=1, max_size=4))
def test_text_is_told_exactly_once_live_and_from_the_past(blocks: list[list[str]]) -> None:
    whole = "".join(piece for block in blocks for piece in block)
    for replays in (False, True):
        told = Run(replays=replays)
        updates = told.feed(turn())
        for index, pieces in enumerate(blocks):
            updates += told.feed(*(delta(piece, index) for piece in pieces))
            updates += told.feed(complete("".join(pieces), index))
        updates += told.frames.leave_none_open()
        assert text_of(updates) == whole


def test_what_nobody_knows_is_passed_over() -> None:
    assert Run().feed(Unknown(type="run.sang", data={"text": "la"})) == []


def test_a_past_that_is_no_longer_kept_is_told_once_and_only_of_the_past() -> None:
    gap = f.GapEventsPruned(
        first_pruned_sequence=0,
        last_pruned_sequence=8,
        pruned_at="2026-01-02T03:04:05.000Z",
        reason="retention",
    )
    (told,) = Run(replays=True).feed(gap)
    assert told == said("What came before is no longer kept.", "gap")
    assert Run().feed(gap) == []


def test_a_block_of_which_pieces_are_missing_gets_the_rest() -> None:
    told = Run()
    updates = told.feed(turn(), delta("Hel"), complete("Hello"))
    assert updates == [said("Hel", "1.0"), said("lo", "1.0")]


def test_a_turn_that_is_tried_again_is_another_message() -> None:
    told = Run()
    failed = f.TurnFailed(turn_index=1, code="overloaded", message="later", will_retry=True)
    updates = told.feed(turn(), delta("Half"), failed, turn(), delta("Whole"), complete("Whole"))
    assert updates == [said("Half", "1.0"), said("Whole", "1.0.1")]


def test_an_answer_without_text_is_told_by_its_summary() -> None:
    told = Run()
    answer = f.AssistantFinalAnswer(turn_index=1, summary='{"a":1}')
    assert told.feed(turn(), answer) == [said('{"a":1}', "1.0")]


def test_a_long_text_of_the_past_comes_in_pieces_of_one_message() -> None:
    told = Run(replays=True)
    assert told.feed(complete("x" * 300_000)) == []
    updates = told.frames.leave_none_open()
    assert len(updates) == 3
    assert text_of(updates) == "x" * 300_000
    assert len({one.message_id for one in updates if isinstance(one, u.AgentMessageChunk)}) == 1


def test_what_the_user_said_is_told_only_of_the_past() -> None:
    message = f.UserMessage(turn_index=0, text="go")
    assert Run().feed(message) == []
    (update,) = Run(replays=True).feed(message)
    assert isinstance(update, u.UserMessageChunk)
    assert update.content == TextBlock(text="go")


def test_thinking_is_told_in_its_place_and_nothing_else_of_a_block_that_grows() -> None:
    told = Run()
    updates = told.feed(turn())
    piece = ThinkingPiece(turn_index=1, after=1, block_index=0, text="hm")
    assert told.frames.note(piece) == []
    updates += told.feed(delta("Hello", 1))
    growing = ToolInputPiece(
        turn_index=1, after=1, block_index=2, text="{", tool_call_id="c", tool_name="bash"
    )
    assert told.frames.note(growing) == []
    thought = u.AgentThoughtChunk(content=TextBlock(text="hm"), message_id=f"{RUN}.1.0")
    assert updates == [said("Hello", "1.1"), thought]


def test_a_command_is_told_from_proposal_to_exit() -> None:
    told = Run()
    exited = f.ToolShellExited(
        tool_call_id="c",
        exit_code=0,
        signal=None,
        stdout_bytes=3,
        stderr_bytes=0,
        truncated=False,
    )
    chunk = f.ToolShellOutputChunk(tool_call_id="c", stream="stdout", data="hi\n", byte_offset=0)
    updates = told.feed(proposed(command="echo  hi"), invoked(), chunk, exited, completed("hi"))
    call_id = f"{RUN}:c"
    assert updates == [
        u.ToolCallStart(
            tool_call_id=call_id,
            title="echo hi",
            kind="execute",
            status="pending",
            raw_input={"command": "echo  hi"},
        ),
        u.ToolCallProgress(tool_call_id=call_id, status="in_progress"),
        u.ToolCallProgress(tool_call_id=call_id, content=[shown("hi\n")]),
        u.ToolCallProgress(
            tool_call_id=call_id,
            status="completed",
            content=[shown("hi")],
            raw_output={"exitCode": 0, "signal": None, "truncated": False},
        ),
    ]


def test_a_flood_of_output_is_told_in_few_updates_and_a_trickle_in_all() -> None:
    told = Run()
    told.feed(proposed(command="yes"), invoked())
    flood = f.ToolShellOutputChunk(
        tool_call_id="c", stream="stdout", data="y\n" * 50, byte_offset=0
    )
    updates = [told.feed(flood) for _ in range(2000)]
    assert 150 < sum(map(len, updates)) < 400
    for _ in range(5):
        told.now_ms += 250
        (update,) = told.feed(flood)
        assert isinstance(update, u.ToolCallProgress)
        assert update.content is not None
        assert isinstance(update.content[0], Shown)
        assert len(msgspec.json.encode(update)) < 20_000


def test_a_command_in_the_client_s_terminal_is_shown_there_and_of_the_past_as_text() -> None:
    command = f.ToolShellCommand(
        tool_call_id="c",
        argv=["bash"],
        cwd="/w",
        env_keys=[],
        sandbox_layer="none",
        terminal_id="t1",
    )
    chunk = f.ToolShellOutputChunk(tool_call_id="c", stream="stdout", data="hi", byte_offset=0)
    live = Run().feed(proposed(command="x"), invoked(), command, chunk, completed("hi"))
    contents = [one.content for one in live if isinstance(one, u.ToolCallProgress) and one.content]
    assert contents == [[Terminal(terminal_id="t1")]]
    past = Run(replays=True).feed(proposed(command="x"), invoked(), command, chunk, completed("hi"))
    last = past[-1]
    assert isinstance(last, u.ToolCallProgress)
    assert last.content == [shown("hi")]
    assert not any("terminal" in str(one) for one in past)


def test_an_edit_is_told_as_the_file_before_and_after() -> None:
    told = Run()
    told.feed(proposed("edit_file", file_path="a.py"), invoked("edit_file", "edit"))
    edit = f.ToolEditProposed(
        tool_call_id="c", path="a.py", patch_artifact_id="art_1", summary="", auto_apply=True
    )
    updates = told.feed(edit, completed("Applied edit to a.py"))
    assert updates == [
        u.ToolCallProgress(
            tool_call_id=f"{RUN}:c",
            kind="edit",
            content=[Diff(path="/w/a.py", old_text="old\n", new_text="new\n")],
            locations=[Location(path="/w/a.py")],
        ),
        u.ToolCallProgress(tool_call_id=f"{RUN}:c", status="completed"),
    ]


def test_several_files_and_those_too_long_to_show_are_told_each_in_its_way() -> None:
    told = Run()
    told.feed(proposed("multi_edit"), invoked("multi_edit", "multi_edit"))
    edits = f.ToolMultiEditProposed(
        tool_call_id="c",
        patch_artifact_ids=["art_new", "art_long", "art_gone"],
        summary="",
        auto_apply=True,
    )
    (update,) = told.feed(edits)
    assert isinstance(update, u.ToolCallProgress)
    assert update.content == [
        Diff(path="/w/b.py", old_text=None, new_text="all new\n"),
        shown("--- a\n+++ b\n"),
    ]


def test_what_was_found_is_told_as_places() -> None:
    told = Run()
    told.feed(proposed("grep", pattern="x"), invoked("grep", "grep"))
    matches = [GrepMatch("a.py", 3, "x"), GrepMatch("/other/b.py", 9, "x")]
    found = f.ToolGrepCompleted(
        tool_call_id="c",
        pattern="x",
        files_searched=2,
        matches=matches,
        match_count=2,
        truncated=False,
    )
    (update,) = told.feed(found)
    assert isinstance(update, u.ToolCallProgress)
    assert update.locations == [
        Location(path="/w/a.py", line=3),
        Location(path="/other/b.py", line=9),
    ]


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        *(("bash", "execute"), ("read_file", "read"), ("glob", "search"), ("grep", "search")),
        *(("edit_file", "edit"), ("multi_edit", "edit"), ("write_file", "edit")),
        *(("web_fetch", "fetch"), ("http_request", "fetch"), ("web_search", "search")),
        *(("todo_write", "think"), ("mcp__notes__add", "other"), ("nobody_s", "other")),
    ],
)
def test_each_tool_is_of_its_kind(tool: str, kind: str) -> None:
    (told,) = Run().feed(proposed(tool))
    assert isinstance(told, u.ToolCallStart)
    assert told.kind == kind


def test_a_to_do_list_is_a_plan() -> None:
    todos = [Todo("read", "completed"), Todo("write", "in_progress")]
    (update,) = Run().feed(f.ToolTodoWriteUpdated(tool_call_id="c", todos=todos))
    assert update == u.Plan(
        entries=[
            u.PlanEntry(content="read", priority="medium", status="completed"),
            u.PlanEntry(content="write", priority="medium", status="in_progress"),
        ]
    )


def test_an_id_that_is_used_again_is_another_call() -> None:
    told = Run()
    updates = told.feed(
        proposed(command="a"), invoked(), completed(), proposed(command="b"), invoked(), completed()
    )
    ids = [one.tool_call_id for one in updates if isinstance(one, u.ToolCallStart)]
    assert ids == [f"{RUN}:c", f"{RUN}:c:2"]


def test_a_call_that_is_open_when_its_run_ends_has_failed() -> None:
    told = Run()
    told.feed(proposed(command="a"), invoked())
    (update,) = told.feed(f.RunCancelled(by="client", reason="enough"))
    assert update == u.ToolCallProgress(tool_call_id=f"{RUN}:c", status="failed")


def test_a_blocked_call_failed_with_its_reason() -> None:
    told = Run()
    blocked = f.PolicyToolBlocked(
        tool_call_id="c", tool_name="bash", reason="no", output="Error: Permission denied — no"
    )
    updates = told.feed(proposed(command="a"), blocked)
    assert updates[-1] == u.ToolCallProgress(
        tool_call_id=f"{RUN}:c", status="failed", content=[shown("Error: Permission denied — no")]
    )


def test_a_server_s_own_error_is_a_failed_call() -> None:
    told = Run()
    told.feed(proposed("mcp__a__b"), invoked("mcp__a__b", "mcp"))
    (update,) = told.feed(completed("bad", result="tool_error"))
    assert isinstance(update, u.ToolCallProgress)
    assert update.status == "failed"


@pytest.mark.parametrize("outcome", ENDINGS)
def test_every_outcome_answers_its_prompt(outcome: Outcome) -> None:
    stop = stop_of(RunEnd(outcome, "why", by="client"), asked=False)
    assert (stop.reason is None) == (stop.error is not None)
    assert stop.reason is None or stop.reason in get_args(StopReason)
    if stop.error is not None:
        assert stop.error.number == -32603
        assert stop.error.data["code"]
    assert stop_of(RunEnd(outcome, "why"), asked=True).reason == "cancelled"


@pytest.mark.parametrize(
    ("end", "reason", "words"),
    [
        (RunEnd("completed"), "end_turn", ""),
        (RunEnd("max_turns", "the limit of 3"), "max_turn_requests", "Stopped: the limit of 3"),
        (RunEnd("model_error", "cut", "model_cut_off"), "max_tokens", "Stopped: cut"),
        (RunEnd("refused", "no"), "refusal", ""),
        (RunEnd("budget", "spent"), "end_turn", "Stopped: spent"),
        (RunEnd("cancelled", "by client", by="client"), "cancelled", ""),
        (RunEnd("cancelled", "SIGTERM", by="operator"), "end_turn", "Stopped: SIGTERM"),
    ],
)
def test_an_ending_is_told_as_the_protocol_means_it(
    end: RunEnd, reason: StopReason, words: str
) -> None:
    stop = stop_of(end, asked=False)
    assert (stop.reason, stop.said) == (reason, words)


def test_the_last_answer_that_was_cut_short_is_known_at_the_end() -> None:
    told = Run()
    message = f.AssistantMessageComplete(
        turn_index=1,
        model="m",
        provider="p",
        blocks=[],
        usage=Usage(),
        stop_reason="max_tokens",
        cost_micros_usd=None,
        price_as_of=None,
        duration_ms=1,
        time_to_first_token_ms=None,
    )
    told.feed(message)
    told.feed(f.RunFinished(final_status="completed", turns=1, cost_micros_usd=0, duration_ms=1))
    end = RunEnd("completed")
    assert told.frames.ending == end
    assert stop_of(end, asked=False, cut_short=told.frames.cut_short) == Stop("max_tokens")
    failed = f.RunFailed(code="store_full", message="m", retriable=False, turns=1, outcome=UNSET)
    told.feed(failed)
    assert told.frames.ending == RunEnd("internal", "m", "store_full")


@pytest.mark.parametrize("name", GOLDEN)
def test_no_update_follows_the_end_of_a_golden_run(name: str) -> None:
    frames = AcpFrames("/w", PATCHES.get)
    told = [(one.type, frames.feed(one)) for one in envelopes(name)]
    for (type_, _), (_, after) in pairwise(told):
        if type_ in ("run.finished", "run.failed", "run.cancelled"):
            assert after == []
